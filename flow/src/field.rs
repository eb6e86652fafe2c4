//! The field table: every match field, once.
//!
//! A row gives a field its name, its place in the [`Key`](crate::Key), its width and its text form. Parser, printer,
//! mask semantics, backend translation ([`consume`](crate::consume)) and refusal text all read this table, so a field
//! that is added here and not handled by a backend is refused by that backend.
//!
//! The attributes are those of OVS, and besides them some that the kernel's flower matches though OVS has no word for them:
//! `num_of_vlans()`, `pppoe()`, `cfm()`, `l2tpv3()` and `ipsec()`. They are written as OVS writes its own, and only where a flow
//! matches them, so that the text of a flow without them is OVS's.

/// What must hold exactly in a match before an attribute may be used, as the OVS datapath demands it
/// (`match_validate` in `net/openvswitch/flow_netlink.c`), and flower of what OVS does not have (`fl_set_key` in
/// `net/sched/cls_flower.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// No other field is needed.
    Nothing,
    /// The innermost Ethernet type is one of these.
    EthType(&'static [u16]),
    /// The Ethernet type is IPv4 or IPv6 and the IP protocol is one of these.
    IpProto(&'static [u8]),
    /// The Ethernet type is this and the IP protocol is this.
    EthTypeAndProto(u16, u8),
}

/// How the value of a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Decimal number, mask in hexadecimal after a slash.
    Decimal,
    /// Hexadecimal number as by C's `%#x`, mask the same.
    Hex,
    /// Decimal number; with a mask, both in hexadecimal of two digits (`format_uint8_masked` in `lib/odp-util.c`).
    Byte,
    /// Hexadecimal number as by C's `0x%x`, mask in so many digits at least (`format_be32_masked` and `format_be64` in
    /// `lib/odp-util.c`).
    PrefixedHex(usize),
    /// Ethernet address, mask as an address.
    Mac,
    /// IPv4 address in dotted form, mask as an address.
    Ipv4,
    /// IPv6 address, mask as an address.
    Ipv6,
    /// `no`, `first` or `later`.
    Fragment,
    /// Named bits: `a|b` when exact, `+a-b` when masked.
    Flags(&'static [(&'static str, u32)]),
    /// A port number or a port name.
    Port,
    /// Not written by itself: tells whether a header is there at all, so that "no VLAN" differs from "VLAN 0".
    Presence,
    /// Not written by itself: a part of the options of a tunnel header, which are written together.
    Options,
}

/// One row of the field table.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec {
    /// The field that the row is about.
    pub field: Field,
    /// The attribute in whose parentheses the field is written.
    pub attribute: Attribute,
    /// The name in the parentheses; empty where the attribute is a single value. A dot or a number in brackets says that
    /// the field is written within something else: tunnel options, or an entry of a label stack.
    pub name: &'static str,
    /// The word of the key that holds the field (and the next one, for a field of 128 bits, high half first).
    pub word: usize,
    /// The lowest bit of the field in that word.
    pub shift: u32,
    /// The width in bits.
    pub width: u32,
    /// The text form.
    pub form: Form,
}

impl FieldSpec {
    /// Whether the field is written within something else than the parentheses of its attribute.
    pub fn is_nested(&self) -> bool {
        self.name.contains(['.', '['])
    }
}

/// One row of the attribute table.
#[derive(Clone, Copy, Debug)]
pub struct AttributeSpec {
    /// The attribute that the row is about.
    pub attribute: Attribute,
    /// The name before the parentheses.
    pub name: &'static str,
    /// What the rest of the match must say before this attribute may be used.
    pub requires: Requirement,
    /// Whether some OVS datapath, the kernel's or that of user space, rewrites fields of the attribute.
    pub is_settable: bool,
}

/// Flag names of the TCP header, as `packet_tcp_flag_to_string` of OVS spells them.
pub const TCP_FLAGS: &[(&str, u32)] = &[
    ("fin", 0x001),
    ("syn", 0x002),
    ("rst", 0x004),
    ("psh", 0x008),
    ("ack", 0x010),
    ("urg", 0x020),
    ("ece", 0x040),
    ("cwr", 0x080),
    ("ns", 0x100),
    ("[200]", 0x200),
    ("[400]", 0x400),
    ("[800]", 0x800),
];

/// Flag names of a tunnel header, as `flow_tun_flag_to_string` of OVS spells them.
pub const TUNNEL_FLAGS: &[(&str, u32)] = &[("oam", 8), ("df", 1), ("csum", 2), ("key", 4)];

/// Connection states (`OVS_CS_F_*` in `include/uapi/linux/openvswitch.h`).
pub const CT_STATES: &[(&str, u32)] = &[
    ("new", 0x01),
    ("est", 0x02),
    ("rel", 0x04),
    ("rpl", 0x08),
    ("inv", 0x10),
    ("trk", 0x20),
    ("snat", 0x40),
    ("dnat", 0x80),
];

/// `frag=no`: the packet is not a fragment.
pub const FRAGMENT_NO: u8 = 0;
/// `frag=first`: the fragment that carries the transport header.
pub const FRAGMENT_FIRST: u8 = 1;
/// `frag=later`: any other fragment.
pub const FRAGMENT_LATER: u8 = 2;

/// Words in a full [`Key`](crate::Key): as many as the rows of [`FIELDS`] need.
pub const KEY_WORDS: usize = {
    let (mut words, mut row) = (0, 0);
    while row < FIELDS.len() {
        let end = FIELDS[row].word + (FIELDS[row].width as usize).div_ceil(64);
        words = if end > words { end } else { words };
        row += 1;
    }
    words
};
/// Label stack entries of MPLS that a key has room for, as in OVS (`FLOW_MAX_MPLS_LABELS`, `MPLS_LABEL_DEPTH`).
pub const MPLS_DEPTH: usize = 3;
/// Bytes of Geneve options that a key has room for: more than the 252 that a header can have.
pub const GENEVE_OPTIONS: usize = 256;

/// The Ethernet type of IPv4 (`include/uapi/linux/if_ether.h`).
pub const ETH_P_IP: u16 = 0x0800;
const ETH_P_ARP: u16 = 0x0806;
const ETH_P_RARP: u16 = 0x8035;
/// The Ethernet type of IPv6.
pub const ETH_P_IPV6: u16 = 0x86dd;
const ETH_P_MPLS_UC: u16 = 0x8847;
const ETH_P_MPLS_MC: u16 = 0x8848;
const ETH_P_PPP_SES: u16 = 0x8864;
const ETH_P_CFM: u16 = 0x8902;
const ETH_P_NSH: u16 = 0x894f;
const IPPROTO_ESP: u8 = 50;
const IPPROTO_AH: u8 = 51;
const IPPROTO_L2TP: u8 = 115;

macro_rules! attributes {
    ($($attribute:ident $name:literal $is_settable:literal $requires:expr;)*) => {
        /// A key attribute: what stands before a pair of parentheses in a flow's text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Attribute {
            $(#[doc = concat!("`", $name, "(…)`")] $attribute,)*
        }

        /// All attributes in the order in which they are written, which for those of OVS is OVS's.
        pub const ATTRIBUTES: &[AttributeSpec] = &[
            $(AttributeSpec {
                attribute: Attribute::$attribute, name: $name, requires: $requires, is_settable: $is_settable,
            },)*
        ];
    };
}

attributes! {
    // attribute  name          settable requires
    RecircId    "recirc_id"     false Requirement::Nothing;
    DpHash      "dp_hash"       false Requirement::Nothing;
    SkbPriority "skb_priority"  true  Requirement::Nothing;
    Tunnel      "tunnel"        true  Requirement::Nothing;
    InPort      "in_port"       false Requirement::Nothing;
    SkbMark     "skb_mark"      true  Requirement::Nothing;
    CtState     "ct_state"      false Requirement::Nothing;
    CtZone      "ct_zone"       false Requirement::Nothing;
    CtMark      "ct_mark"       false Requirement::Nothing;
    CtLabel     "ct_label"      false Requirement::Nothing;
    CtTuple4    "ct_tuple4"     false Requirement::Nothing;
    CtTuple6    "ct_tuple6"     false Requirement::Nothing;
    PacketType  "packet_type"   false Requirement::Nothing;
    Ethernet    "eth"           true  Requirement::Nothing;
    NumOfVlans  "num_of_vlans"  false Requirement::Nothing;
    Vlan        "vlan"          false Requirement::Nothing;
    Cvlan       "cvlan"         false Requirement::Nothing;
    EthType     "eth_type"      false Requirement::Nothing;
    Mpls        "mpls"          true  Requirement::EthType(&[ETH_P_MPLS_UC, ETH_P_MPLS_MC]);
    Nsh         "nsh"           true  Requirement::EthType(&[ETH_P_NSH]);
    Pppoe       "pppoe"         false Requirement::EthType(&[ETH_P_PPP_SES]);
    Cfm         "cfm"           false Requirement::EthType(&[ETH_P_CFM]);
    Ipv4        "ipv4"          true  Requirement::EthType(&[ETH_P_IP]);
    Ipv6        "ipv6"          true  Requirement::EthType(&[ETH_P_IPV6]);
    Arp         "arp"           true  Requirement::EthType(&[ETH_P_ARP, ETH_P_RARP]);
    Tcp         "tcp"           true  Requirement::IpProto(&[6]);
    TcpFlags    "tcp_flags"     false Requirement::IpProto(&[6]);
    Udp         "udp"           true  Requirement::IpProto(&[17]);
    Sctp        "sctp"          true  Requirement::IpProto(&[132]);
    Icmp        "icmp"          true  Requirement::EthTypeAndProto(ETH_P_IP, 1);
    Icmpv6      "icmpv6"        true  Requirement::EthTypeAndProto(ETH_P_IPV6, 58);
    Nd          "nd"            true  Requirement::EthTypeAndProto(ETH_P_IPV6, 58);
    NdExt       "nd_ext"        true  Requirement::EthTypeAndProto(ETH_P_IPV6, 58);
    L2tpv3      "l2tpv3"        false Requirement::IpProto(&[IPPROTO_L2TP]);
    Ipsec       "ipsec"         false Requirement::IpProto(&[IPPROTO_ESP, IPPROTO_AH]);
}

macro_rules! fields {
    ($($field:ident $attribute:ident $name:literal $word:literal $shift:literal $width:literal $form:expr;)*) => {
        /// A match field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "` of `", stringify!($attribute), "`")] $field,)*
        }

        /// All fields; those of one attribute stand in the order in which they are written.
        pub const FIELDS: &[FieldSpec] = &[
            $(FieldSpec {
                field: Field::$field, attribute: Attribute::$attribute, name: $name,
                word: $word, shift: $shift, width: $width, form: $form,
            },)*
        ];
    };
}

// Headers that exclude each other (IPv4 and ARP addresses, TCP and UDP ports, ...) share a place, and what common
// megaflows match lies close together: a 5-tuple with both MACs is five words. What OVS does not have comes last.
fields! {
    // field          attribute   name       word shift width form
    RecircId          RecircId    ""         0    32    32    Form::Hex;
    DpHash            DpHash      ""         22   32    32    Form::Hex;
    SkbPriority       SkbPriority ""         22   0     32    Form::Hex;
    TunnelPresent     Tunnel      ""         1    0     1     Form::Presence;
    TunnelId          Tunnel      "tun_id"   15   0     64    Form::PrefixedHex(1);
    TunnelIpv4Src     Tunnel      "src"      16   32    32    Form::Ipv4;
    TunnelIpv4Dst     Tunnel      "dst"      16   0     32    Form::Ipv4;
    TunnelIpv6Src     Tunnel      "ipv6_src" 17   0     128   Form::Ipv6;
    TunnelIpv6Dst     Tunnel      "ipv6_dst" 19   0     128   Form::Ipv6;
    TunnelTos         Tunnel      "tos"      21   0     8     Form::Hex;
    TunnelTtl         Tunnel      "ttl"      21   8     8     Form::Decimal;
    TunnelTpSrc       Tunnel      "tp_src"   21   16    16    Form::Decimal;
    TunnelTpDst       Tunnel      "tp_dst"   21   32    16    Form::Decimal;
    VxlanGbpPresent   Tunnel      "vxlan"    41   32    1     Form::Presence;
    VxlanGbpId        Tunnel      "vxlan.gbp.id" 40   0     16    Form::Decimal;
    VxlanGbpFlags     Tunnel      "vxlan.gbp.flags" 40   16    8     Form::Hex;
    ErspanPresent     Tunnel      "erspan"   41   33    1     Form::Presence;
    ErspanVersion     Tunnel      "erspan.ver" 40   24    8     Form::Decimal;
    ErspanIndex       Tunnel      "erspan.idx" 41   0     32    Form::Hex;
    ErspanDirection   Tunnel      "erspan.dir" 40   32    8     Form::Decimal;
    ErspanHardwareId  Tunnel      "erspan.hwid" 40   40    8     Form::Hex;
    GtpuPresent       Tunnel      "gtpu"     41   34    1     Form::Presence;
    GtpuFlags         Tunnel      "gtpu.flags" 40   48    8     Form::Hex;
    GtpuMessageType   Tunnel      "gtpu.msgtype" 40   56    8     Form::Decimal;
    GenevePresent     Tunnel      "geneve"   41   35    1     Form::Presence;
    GeneveLength      Tunnel      "geneve.length" 41   40    8     Form::Options;
    GeneveOptions0    Tunnel      "geneve[0]" 42   0     128   Form::Options;
    GeneveOptions1    Tunnel      "geneve[16]" 44   0     128   Form::Options;
    GeneveOptions2    Tunnel      "geneve[32]" 46   0     128   Form::Options;
    GeneveOptions3    Tunnel      "geneve[48]" 48   0     128   Form::Options;
    GeneveOptions4    Tunnel      "geneve[64]" 50   0     128   Form::Options;
    GeneveOptions5    Tunnel      "geneve[80]" 52   0     128   Form::Options;
    GeneveOptions6    Tunnel      "geneve[96]" 54   0     128   Form::Options;
    GeneveOptions7    Tunnel      "geneve[112]" 56   0     128   Form::Options;
    GeneveOptions8    Tunnel      "geneve[128]" 58   0     128   Form::Options;
    GeneveOptions9    Tunnel      "geneve[144]" 60   0     128   Form::Options;
    GeneveOptions10   Tunnel      "geneve[160]" 62   0     128   Form::Options;
    GeneveOptions11   Tunnel      "geneve[176]" 64   0     128   Form::Options;
    GeneveOptions12   Tunnel      "geneve[192]" 66   0     128   Form::Options;
    GeneveOptions13   Tunnel      "geneve[208]" 68   0     128   Form::Options;
    GeneveOptions14   Tunnel      "geneve[224]" 70   0     128   Form::Options;
    GeneveOptions15   Tunnel      "geneve[240]" 72   0     128   Form::Options;
    TunnelFlags       Tunnel      "flags"    21   48    4     Form::Flags(TUNNEL_FLAGS);
    InPort            InPort      ""         0    0     32    Form::Port;
    SkbMark           SkbMark     ""         23   32    32    Form::Hex;
    CtState           CtState     ""         24   0     8     Form::Flags(CT_STATES);
    CtZone            CtZone      ""         24   32    16    Form::Hex;
    CtMark            CtMark      ""         23   0     32    Form::Hex;
    CtLabel           CtLabel     ""         25   0     128   Form::Hex;
    CtTuple4Src       CtTuple4    "src"      29   32    32    Form::Ipv4;
    CtTuple4Dst       CtTuple4    "dst"      29   0     32    Form::Ipv4;
    CtTuple4Proto     CtTuple4    "proto"    30   32    8     Form::Decimal;
    CtTuple4TpSrc     CtTuple4    "tp_src"   30   0     16    Form::Decimal;
    CtTuple4TpDst     CtTuple4    "tp_dst"   30   16    16    Form::Decimal;
    CtTuple6Src       CtTuple6    "src"      31   0     128   Form::Ipv6;
    CtTuple6Dst       CtTuple6    "dst"      33   0     128   Form::Ipv6;
    CtTuple6Proto     CtTuple6    "proto"    35   32    8     Form::Decimal;
    CtTuple6TpSrc     CtTuple6    "tp_src"   35   0     16    Form::Decimal;
    CtTuple6TpDst     CtTuple6    "tp_dst"   35   16    16    Form::Decimal;
    PacketTypeNs      PacketType  "ns"       27   0     16    Form::Decimal;
    PacketTypeId      PacketType  "id"       27   16    16    Form::Hex;
    EthSrc            Ethernet    "src"      2    16    48    Form::Mac;
    EthDst            Ethernet    "dst"      3    16    48    Form::Mac;
    VlanPresent       Vlan        ""         1    1     1     Form::Presence;
    VlanTpid          Vlan        "tpid"     10   0     16    Form::Hex;
    VlanVid           Vlan        "vid"      10   16    12    Form::Decimal;
    VlanPcp           Vlan        "pcp"      10   29    3     Form::Decimal;
    VlanCfi           Vlan        "cfi"      10   28    1     Form::Decimal;
    CvlanPresent      Cvlan       ""         1    2     1     Form::Presence;
    CvlanTpid         Cvlan       "tpid"     10   32    16    Form::Hex;
    CvlanVid          Cvlan       "vid"      10   48    12    Form::Decimal;
    CvlanPcp          Cvlan       "pcp"      10   61    3     Form::Decimal;
    CvlanCfi          Cvlan       "cfi"      10   60    1     Form::Decimal;
    EthType           EthType     ""         1    32    16    Form::Hex;
    MplsPresent       Mpls        ""         1    5     1     Form::Presence;
    MplsLabel         Mpls        "label"    27   44    20    Form::Decimal;
    MplsTc            Mpls        "tc"       27   41    3     Form::Decimal;
    MplsTtl           Mpls        "ttl"      27   32    8     Form::Decimal;
    MplsBos           Mpls        "bos"      27   40    1     Form::Decimal;
    Mpls2Present      Mpls        "present[2]" 1    3     1     Form::Presence;
    Mpls2Label        Mpls        "label[2]" 28   44    20    Form::Decimal;
    Mpls2Tc           Mpls        "tc[2]"    28   41    3     Form::Decimal;
    Mpls2Ttl          Mpls        "ttl[2]"   28   32    8     Form::Decimal;
    Mpls2Bos          Mpls        "bos[2]"   28   40    1     Form::Decimal;
    Mpls3Present      Mpls        "present[3]" 1    4     1     Form::Presence;
    Mpls3Label        Mpls        "label[3]" 28   12    20    Form::Decimal;
    Mpls3Tc           Mpls        "tc[3]"    28   9     3     Form::Decimal;
    Mpls3Ttl          Mpls        "ttl[3]"   28   0     8     Form::Decimal;
    Mpls3Bos          Mpls        "bos[3]"   28   8     1     Form::Decimal;
    NshFlags          Nsh         "flags"    37   0     8     Form::Byte;
    NshTtl            Nsh         "ttl"      37   8     8     Form::Byte;
    NshMdType         Nsh         "mdtype"   37   16    8     Form::Byte;
    NshNextProto      Nsh         "np"       37   24    8     Form::Byte;
    NshPathId         Nsh         "spi"      37   32    24    Form::PrefixedHex(8);
    NshServiceIndex   Nsh         "si"       37   56    8     Form::Byte;
    NshContext1       Nsh         "c1"       38   32    32    Form::PrefixedHex(8);
    NshContext2       Nsh         "c2"       38   0     32    Form::PrefixedHex(8);
    NshContext3       Nsh         "c3"       39   32    32    Form::PrefixedHex(8);
    NshContext4       Nsh         "c4"       39   0     32    Form::PrefixedHex(8);
    Ipv4Src           Ipv4        "src"      4    32    32    Form::Ipv4;
    Ipv4Dst           Ipv4        "dst"      4    0     32    Form::Ipv4;
    Ipv4Proto         Ipv4        "proto"    1    16    8     Form::Decimal;
    Ipv4Tos           Ipv4        "tos"      1    24    8     Form::Hex;
    Ipv4Ttl           Ipv4        "ttl"      1    48    8     Form::Decimal;
    Ipv4Frag          Ipv4        "frag"     1    8     8     Form::Fragment;
    Ipv6Src           Ipv6        "src"      5    0     128   Form::Ipv6;
    Ipv6Dst           Ipv6        "dst"      7    0     128   Form::Ipv6;
    Ipv6Label         Ipv6        "label"    9    0     20    Form::Hex;
    Ipv6Proto         Ipv6        "proto"    1    16    8     Form::Decimal;
    Ipv6Tclass        Ipv6        "tclass"   1    24    8     Form::Hex;
    Ipv6Hlimit        Ipv6        "hlimit"   1    48    8     Form::Decimal;
    Ipv6Frag          Ipv6        "frag"     1    8     8     Form::Fragment;
    ArpSip            Arp         "sip"      4    32    32    Form::Ipv4;
    ArpTip            Arp         "tip"      4    0     32    Form::Ipv4;
    ArpOp             Arp         "op"       9    48    16    Form::Decimal;
    ArpSha            Arp         "sha"      11   0     48    Form::Mac;
    ArpTha            Arp         "tha"      12   0     48    Form::Mac;
    TcpSrc            Tcp         "src"      2    0     16    Form::Decimal;
    TcpDst            Tcp         "dst"      3    0     16    Form::Decimal;
    TcpFlags          TcpFlags    ""         9    32    12    Form::Flags(TCP_FLAGS);
    UdpSrc            Udp         "src"      2    0     16    Form::Decimal;
    UdpDst            Udp         "dst"      3    0     16    Form::Decimal;
    SctpSrc           Sctp        "src"      2    0     16    Form::Decimal;
    SctpDst           Sctp        "dst"      3    0     16    Form::Decimal;
    IcmpType          Icmp        "type"     2    0     8     Form::Decimal;
    IcmpCode          Icmp        "code"     3    0     8     Form::Decimal;
    Icmpv6Type        Icmpv6      "type"     2    0     8     Form::Decimal;
    Icmpv6Code        Icmpv6      "code"     3    0     8     Form::Decimal;
    NdTarget          Nd          "target"   13   0     128   Form::Ipv6;
    NdSll             Nd          "sll"      11   0     48    Form::Mac;
    NdTll             Nd          "tll"      12   0     48    Form::Mac;
    NdReserved        NdExt       "nd_reserved" 36   0     32    Form::PrefixedHex(8);
    NdOptionsType     NdExt       "nd_options_type" 36   32    8     Form::Decimal;
    NumOfVlans        NumOfVlans  ""         1    56    8     Form::Decimal;
    PppoePresent      Pppoe       ""         1    6     1     Form::Presence;
    PppoeSession      Pppoe       "sid"      74   0     16    Form::Decimal;
    PppProtocol       Pppoe       "proto"    74   16    16    Form::Hex;
    CfmLevel          Cfm         "level"    74   0     3     Form::Decimal;
    CfmOpcode         Cfm         "opcode"   74   8     8     Form::Decimal;
    L2tpv3Session     L2tpv3      "sid"      74   0     32    Form::Decimal;
    IpsecSpi          Ipsec       "spi"      74   0     32    Form::Hex;
}

/// The entries of a label stack, outermost first: label, traffic class, time to live, bottom of stack.
pub const MPLS_ENTRIES: [[Field; 4]; MPLS_DEPTH] = [
    [Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos],
    [Field::Mpls2Label, Field::Mpls2Tc, Field::Mpls2Ttl, Field::Mpls2Bos],
    [Field::Mpls3Label, Field::Mpls3Tc, Field::Mpls3Ttl, Field::Mpls3Bos],
];

/// The fields that say that there is a first entry, a second and a third. A match on any bit of an entry is one on its
/// presence, too, as in the kernel (`num_labels_mask`).
pub const MPLS_PRESENT: [Field; MPLS_DEPTH] = [Field::MplsPresent, Field::Mpls2Present, Field::Mpls3Present];

/// The fields that hold the options of a Geneve header, 16 bytes each, as they stand on the wire: the first byte is
/// the highest.
pub const GENEVE_CHUNKS: [Field; GENEVE_OPTIONS / 16] = [
    Field::GeneveOptions0,
    Field::GeneveOptions1,
    Field::GeneveOptions2,
    Field::GeneveOptions3,
    Field::GeneveOptions4,
    Field::GeneveOptions5,
    Field::GeneveOptions6,
    Field::GeneveOptions7,
    Field::GeneveOptions8,
    Field::GeneveOptions9,
    Field::GeneveOptions10,
    Field::GeneveOptions11,
    Field::GeneveOptions12,
    Field::GeneveOptions13,
    Field::GeneveOptions14,
    Field::GeneveOptions15,
];

impl Field {
    /// The row of the field table.
    pub const fn spec(self) -> &'static FieldSpec {
        &FIELDS[self as usize]
    }

    /// All bits of the field, right-aligned.
    pub const fn full_mask(self) -> u128 {
        let width = self.spec().width;
        if width == 128 { u128::MAX } else { (1 << width) - 1 }
    }
}

impl Attribute {
    /// The row of the attribute table.
    pub const fn spec(self) -> &'static AttributeSpec {
        &ATTRIBUTES[self as usize]
    }

    /// The name before the parentheses.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The fields written in this attribute's parentheses, in print order.
    pub fn fields(self) -> impl Iterator<Item = &'static FieldSpec> {
        let (start, end) = ROWS[self as usize];
        FIELDS[start..end].iter()
    }
}

/// The name with its attribute, as in `ipv4.src`; the attribute's alone where it is a single value.
impl std::fmt::Display for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spec = self.spec();
        out.write_str(spec.attribute.name())?;
        if spec.name.is_empty() { Ok(()) } else { write!(out, ".{}", spec.name) }
    }
}

/// Where the rows of each attribute begin and end in the field table.
const ROWS: [(usize, usize); ATTRIBUTES.len()] = {
    let mut rows = [(0, 0); ATTRIBUTES.len()];
    let mut row = 0;
    while row < FIELDS.len() {
        let attribute = FIELDS[row].attribute as usize;
        if rows[attribute].1 == 0 {
            rows[attribute].0 = row;
        } else {
            assert!(rows[attribute].1 == row);
        }
        rows[attribute].1 = row + 1;
        row += 1;
    }
    rows
};

// The tables are indexed by discriminant, and no field may straddle a word: a wrong row does not compile.
const _: () = {
    assert!(KEY_WORDS <= 128);
    let mut row = 0;
    while row < FIELDS.len() {
        let spec = &FIELDS[row];
        assert!(spec.field as usize == row);
        assert!(spec.width == 128 && spec.shift == 0 || spec.shift + spec.width <= 64);
        row += 1;
    }
    let mut row = 0;
    while row < ATTRIBUTES.len() {
        assert!(ATTRIBUTES[row].attribute as usize == row);
        row += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_packet_do_not_share_bits() {
        // Attributes that can be in one match together must not overlap; those that share a place exclude each other.
        let exclusive = |a: Attribute, b: Attribute| {
            let rank = |attribute| match attribute {
                Attribute::Ipv4 | Attribute::Ipv6 | Attribute::Arp => Some(1),
                Attribute::Tcp | Attribute::Udp | Attribute::Sctp | Attribute::Icmp | Attribute::Icmpv6 => Some(2),
                Attribute::Pppoe | Attribute::Cfm | Attribute::L2tpv3 | Attribute::Ipsec => Some(3),
                _ => None,
            };
            a != b && (rank(a).is_some() && rank(a) == rank(b)) || matches!((a, b), (Attribute::Arp, Attribute::Nd))
        };
        let bits = |spec: &FieldSpec| {
            let mut words = [0u64; KEY_WORDS];
            let mask = spec.field.full_mask();
            if spec.width == 128 {
                words[spec.word] = u64::MAX;
                words[spec.word + 1] = u64::MAX;
            } else {
                words[spec.word] = u64::try_from(mask).unwrap() << spec.shift;
            }
            words
        };
        for (index, a) in FIELDS.iter().enumerate() {
            for b in &FIELDS[index + 1..] {
                let overlap = bits(a).iter().zip(bits(b)).any(|(x, y)| x & y != 0);
                assert!(!overlap || exclusive(a.attribute, b.attribute), "{} overlaps {}", a.field, b.field);
            }
        }
    }

    #[test]
    fn names_are_unique_within_an_attribute() {
        for attribute in ATTRIBUTES {
            let mut names: Vec<_> = attribute.attribute.fields().map(|f| (f.name, f.form)).collect();
            let before = names.len();
            names.sort_by_key(|(name, form)| (*name, *form == Form::Presence));
            names.dedup();
            assert_eq!(names.len(), before, "{}", attribute.name);
        }
    }
}
