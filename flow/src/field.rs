//! The field table: every match field, once.
//!
//! A row gives a field its name, its place in the [`Key`](crate::Key), its width and its text form. Parser, printer,
//! mask semantics, backend translation ([`consume`](crate::consume)) and refusal text all read this table, so a field
//! that is added here and not handled by a backend is refused by that backend.

/// What must hold exactly in a match before an attribute may be used, as the OVS datapath demands it
/// (`match_validate` in `net/openvswitch/flow_netlink.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// No other field is needed.
    Nothing,
    /// The innermost Ethernet type is one of these.
    EthType(&'static [u16]),
    /// The Ethernet type is IPv4 or IPv6 and the IP protocol is this.
    IpProto(u8),
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
    /// Not written: tells whether a header is there at all, so that "no VLAN" differs from "VLAN 0".
    Presence,
}

/// One row of the field table.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec {
    /// The field that the row is about.
    pub field: Field,
    /// The attribute in whose parentheses the field is written.
    pub attribute: Attribute,
    /// The name in the parentheses; empty where the attribute is a single value.
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

/// One row of the attribute table.
#[derive(Clone, Copy, Debug)]
pub struct AttributeSpec {
    /// The attribute that the row is about.
    pub attribute: Attribute,
    /// The name before the parentheses.
    pub name: &'static str,
    /// What the rest of the match must say before this attribute may be used.
    pub requires: Requirement,
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

/// Words in a full [`Key`](crate::Key).
pub const KEY_WORDS: usize = 28;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_ARP: u16 = 0x0806;
const ETH_P_RARP: u16 = 0x8035;
const ETH_P_IPV6: u16 = 0x86dd;
const ETH_P_MPLS_UC: u16 = 0x8847;
const ETH_P_MPLS_MC: u16 = 0x8848;

macro_rules! attributes {
    ($($attribute:ident $name:literal $requires:expr;)*) => {
        /// A key attribute: what stands before a pair of parentheses in a flow's text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Attribute {
            $(#[doc = concat!("`", $name, "(…)`")] $attribute,)*
        }

        /// All attributes in the order in which OVS prints them.
        pub const ATTRIBUTES: &[AttributeSpec] = &[
            $(AttributeSpec { attribute: Attribute::$attribute, name: $name, requires: $requires },)*
        ];
    };
}

attributes! {
    RecircId    "recirc_id"     Requirement::Nothing;
    DpHash      "dp_hash"       Requirement::Nothing;
    SkbPriority "skb_priority"  Requirement::Nothing;
    Tunnel      "tunnel"        Requirement::Nothing;
    InPort      "in_port"       Requirement::Nothing;
    SkbMark     "skb_mark"      Requirement::Nothing;
    CtState     "ct_state"      Requirement::Nothing;
    CtZone      "ct_zone"       Requirement::Nothing;
    CtMark      "ct_mark"       Requirement::Nothing;
    CtLabel     "ct_label"      Requirement::Nothing;
    PacketType  "packet_type"   Requirement::Nothing;
    Ethernet    "eth"           Requirement::Nothing;
    Vlan        "vlan"          Requirement::Nothing;
    Cvlan       "cvlan"         Requirement::Nothing;
    EthType     "eth_type"      Requirement::Nothing;
    Mpls        "mpls"          Requirement::EthType(&[ETH_P_MPLS_UC, ETH_P_MPLS_MC]);
    Ipv4        "ipv4"          Requirement::EthType(&[ETH_P_IP]);
    Ipv6        "ipv6"          Requirement::EthType(&[ETH_P_IPV6]);
    Arp         "arp"           Requirement::EthType(&[ETH_P_ARP, ETH_P_RARP]);
    Tcp         "tcp"           Requirement::IpProto(6);
    TcpFlags    "tcp_flags"     Requirement::IpProto(6);
    Udp         "udp"           Requirement::IpProto(17);
    Sctp        "sctp"          Requirement::IpProto(132);
    Icmp        "icmp"          Requirement::EthTypeAndProto(ETH_P_IP, 1);
    Icmpv6      "icmpv6"        Requirement::EthTypeAndProto(ETH_P_IPV6, 58);
    Nd          "nd"            Requirement::EthTypeAndProto(ETH_P_IPV6, 58);
}

macro_rules! fields {
    ($($field:ident $attribute:ident $name:literal $word:literal $shift:literal $width:literal $form:expr;)*) => {
        /// A match field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $name, "` of `", stringify!($attribute), "`")] $field,)*
        }

        /// All fields; those of one attribute stand in the order in which OVS prints them.
        pub const FIELDS: &[FieldSpec] = &[
            $(FieldSpec {
                field: Field::$field, attribute: Attribute::$attribute, name: $name,
                word: $word, shift: $shift, width: $width, form: $form,
            },)*
        ];
    };
}

// Headers that exclude each other (IPv4 and ARP addresses, TCP and UDP ports, ...) share a place, and what common
// megaflows match lies close together: a 5-tuple with both MACs is five words.
fields! {
    // field          attribute   name       word shift width form
    RecircId          RecircId    ""         0    32    32    Form::Hex;
    DpHash            DpHash      ""         22   32    32    Form::Hex;
    SkbPriority       SkbPriority ""         22   0     32    Form::Hex;
    TunnelPresent     Tunnel      ""         1    0     1     Form::Presence;
    TunnelId          Tunnel      "tun_id"   15   0     64    Form::Hex;
    TunnelIpv4Src     Tunnel      "src"      16   32    32    Form::Ipv4;
    TunnelIpv4Dst     Tunnel      "dst"      16   0     32    Form::Ipv4;
    TunnelIpv6Src     Tunnel      "ipv6_src" 17   0     128   Form::Ipv6;
    TunnelIpv6Dst     Tunnel      "ipv6_dst" 19   0     128   Form::Ipv6;
    TunnelTos         Tunnel      "tos"      21   0     8     Form::Hex;
    TunnelTtl         Tunnel      "ttl"      21   8     8     Form::Decimal;
    TunnelTpSrc       Tunnel      "tp_src"   21   16    16    Form::Decimal;
    TunnelTpDst       Tunnel      "tp_dst"   21   32    16    Form::Decimal;
    TunnelFlags       Tunnel      "flags"    21   48    4     Form::Flags(TUNNEL_FLAGS);
    InPort            InPort      ""         0    0     32    Form::Port;
    SkbMark           SkbMark     ""         23   32    32    Form::Hex;
    CtState           CtState     ""         24   0     8     Form::Flags(CT_STATES);
    CtZone            CtZone      ""         24   32    16    Form::Hex;
    CtMark            CtMark      ""         23   0     32    Form::Hex;
    CtLabel           CtLabel     ""         25   0     128   Form::Hex;
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
    MplsLabel         Mpls        "label"    27   44    20    Form::Decimal;
    MplsTc            Mpls        "tc"       27   41    3     Form::Decimal;
    MplsTtl           Mpls        "ttl"      27   32    8     Form::Decimal;
    MplsBos           Mpls        "bos"      27   40    1     Form::Decimal;
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
}

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
        FIELDS.iter().filter(move |spec| spec.attribute == self)
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

// The tables are indexed by discriminant, and no field may straddle a word: a wrong row does not compile.
const _: () = {
    assert!(KEY_WORDS <= 64);
    let mut row = 0;
    while row < FIELDS.len() {
        let spec = &FIELDS[row];
        assert!(spec.field as usize == row);
        assert!(spec.width == 128 && spec.shift == 0 || spec.shift + spec.width <= 64);
        assert!(spec.word + (spec.width as usize).div_ceil(64) <= KEY_WORDS);
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
