//! The keys of flower that are a number with a mask: one table for writing, reading and translation.
//!
//! Source: `TCA_FLOWER_*` in `include/uapi/linux/pkt_cls.h` up to Linux 6.11, and for byte order `fl_set_key` in
//! `net/sched/cls_flower.c`.

use sluice_netdev::netlink::attribute::{Attribute, Malformed, Writer};

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Network byte order.
    Network,
    /// The machine's byte order.
    Native,
}

/// One row of the key table.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The key of the row.
    pub key: Key,
    /// The name, as close to tc's as possible.
    pub name: &'static str,
    /// The attribute of the value.
    pub value: u16,
    /// The attribute of the mask; `None` if the match is always exact.
    pub mask: Option<u16>,
    /// The length of value and mask in bytes.
    pub bytes: usize,
    /// Their byte order.
    pub order: Order,
    /// The bits that the kernel knows: all, or those of a field that is narrower than its bytes.
    pub bits: u32,
}

macro_rules! keys {
    ($($key:ident $name:literal $value:literal $mask:expr, $bytes:literal $order:ident $bits:literal;)*) => {
        /// A key of flower that is a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Key {
            $(#[doc = concat!("`", $name, "`")] $key,)*
        }

        /// All keys, in the order in which they are written.
        pub const KEYS: &[KeySpec] = &[
            $(KeySpec {
                key: Key::$key, name: $name, value: $value, mask: $mask, bytes: $bytes, order: Order::$order,
                bits: $bits,
            },)*
        ];
    };
}

keys! {
    // key        name             value mask       bytes order bits
    EthDst        "dst_mac"        4   Some(5),    6 Network 48;
    EthSrc        "src_mac"        6   Some(7),    6 Network 48;
    NumOfVlans    "num_of_vlans"   102 None,       1 Native 8;
    EthType       "eth_type"       8   None,       2 Network 16;
    VlanId        "vlan_id"        23  None,       2 Native 12;
    VlanPrio      "vlan_prio"      24  None,       1 Native 3;
    VlanEthType   "vlan_ethtype"   25  None,       2 Network 16;
    CvlanId       "cvlan_id"       77  None,       2 Native 12;
    CvlanPrio     "cvlan_prio"     78  None,       1 Native 3;
    CvlanEthType  "cvlan_ethtype"  79  None,       2 Network 16;
    PppoeSession  "pppoe_sid"      103 None,       2 Network 16;
    PppProtocol   "ppp_proto"      104 None,       2 Network 16;
    IpProto       "ip_proto"       9   None,       1 Native 8;
    IpTos         "ip_tos"         73  Some(74),   1 Native 8;
    IpTtl         "ip_ttl"         75  Some(76),   1 Native 8;
    Ipv4Src       "ipv4_src"       10  Some(11),   4 Network 32;
    Ipv4Dst       "ipv4_dst"       12  Some(13),   4 Network 32;
    Ipv6Src       "ipv6_src"       14  Some(15),   16 Network 128;
    Ipv6Dst       "ipv6_dst"       16  Some(17),   16 Network 128;
    Flags         "ip_flags"       47  Some(48),   4 Network 32;
    TcpSrc        "tcp_src"        18  Some(35),   2 Network 16;
    TcpDst        "tcp_dst"        19  Some(36),   2 Network 16;
    TcpFlags      "tcp_flags"      71  Some(72),   2 Network 12;
    UdpSrc        "udp_src"        20  Some(37),   2 Network 16;
    UdpDst        "udp_dst"        21  Some(38),   2 Network 16;
    SctpSrc       "sctp_src"       41  Some(39),   2 Network 16;
    SctpDst       "sctp_dst"       42  Some(40),   2 Network 16;
    IcmpType      "icmp_type"      51  Some(52),   1 Native 8;
    IcmpCode      "icmp_code"      49  Some(50),   1 Native 8;
    Icmpv6Type    "icmpv6_type"    55  Some(56),   1 Native 8;
    Icmpv6Code    "icmpv6_code"    53  Some(54),   1 Native 8;
    ArpSip        "arp_sip"        57  Some(58),   4 Network 32;
    ArpTip        "arp_tip"        59  Some(60),   4 Network 32;
    ArpOp         "arp_op"         61  Some(62),   1 Native 8;
    ArpSha        "arp_sha"        63  Some(64),   6 Network 48;
    ArpTha        "arp_tha"        65  Some(66),   6 Network 48;
    MplsTtl       "mpls_ttl"       67  None,       1 Native 8;
    MplsBos       "mpls_bos"       68  None,       1 Native 1;
    MplsTc        "mpls_tc"        69  None,       1 Native 3;
    MplsLabel     "mpls_label"     70  None,       4 Native 20;
    PortSrcMin    "src_port_min"   87  None,       2 Network 16;
    PortSrcMax    "src_port_max"   88  None,       2 Network 16;
    PortDstMin    "dst_port_min"   89  None,       2 Network 16;
    PortDstMax    "dst_port_max"   90  None,       2 Network 16;
    L2tpv3Session "l2tpv3_sid"     105 None,       4 Network 32;
    Spi           "spi"            108 Some(109),  4 Network 32;
    L2Miss        "l2_miss"        106 None,       1 Native 1;
    Hash          "hash"           100 Some(101),  4 Native 32;
    CtState       "ct_state"       91  Some(92),   2 Native 16;
    CtZone        "ct_zone"        93  Some(94),   2 Native 16;
    CtMark        "ct_mark"        95  Some(96),   4 Native 32;
    CtLabel       "ct_label"       97  Some(98),   16 Native 128;
    EncIpv4Src    "enc_ipv4_src"   27  Some(28),   4 Network 32;
    EncIpv4Dst    "enc_ipv4_dst"   29  Some(30),   4 Network 32;
    EncIpv6Src    "enc_ipv6_src"   31  Some(32),   16 Network 128;
    EncIpv6Dst    "enc_ipv6_dst"   33  Some(34),   16 Network 128;
    EncKeyId      "enc_key_id"     26  None,       4 Network 32;
    EncUdpSrc     "enc_src_port"   43  Some(44),   2 Network 16;
    EncUdpDst     "enc_dst_port"   45  Some(46),   2 Network 16;
    EncTos        "enc_tos"        80  Some(81),   1 Native 8;
    EncTtl        "enc_ttl"        82  Some(83),   1 Native 8;
    EncFlags      "enc_flags"      110 Some(111),  4 Network 32;
}

impl Key {
    /// The row of the table.
    pub const fn spec(self) -> &'static KeySpec {
        &KEYS[self as usize]
    }

    /// All bits of the key.
    pub const fn full_mask(self) -> u128 {
        match self.spec().bits {
            128 => u128::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// The key of an attribute, and whether the attribute is its mask.
    pub fn of_attribute(kind: u16) -> Option<(Self, bool)> {
        ATTRIBUTES.get(usize::from(kind)).copied().flatten()
    }

    /// Reads a number of this key.
    pub fn read(self, attribute: &Attribute<'_>) -> Result<u128, Malformed> {
        let spec = self.spec();
        if attribute.payload.len() != spec.bytes {
            return Err(attribute.length());
        }
        let mut bytes = [0; 16];
        Ok(match spec.order {
            Order::Network => {
                bytes[16 - spec.bytes..].copy_from_slice(attribute.payload);
                u128::from_be_bytes(bytes)
            }
            // Shorter numbers are moved to the low bytes.
            Order::Native if cfg!(target_endian = "big") => {
                bytes[16 - spec.bytes..].copy_from_slice(attribute.payload);
                u128::from_be_bytes(bytes)
            }
            Order::Native => {
                bytes[..spec.bytes].copy_from_slice(attribute.payload);
                u128::from_le_bytes(bytes)
            }
        })
    }

    fn put(self, writer: &mut Writer<'_>, kind: u16, number: u128) {
        let spec = self.spec();
        if spec.order == Order::Network || cfg!(target_endian = "big") {
            writer.put(kind, &number.to_be_bytes()[16 - spec.bytes..]);
        } else {
            writer.put(kind, &number.to_le_bytes()[..spec.bytes]);
        }
    }
}

/// A match on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMatch {
    /// The key.
    pub key: Key,
    /// The value, right-aligned, without bits outside of the mask.
    pub value: u128,
    /// The bits that are compared: all if the key has no mask.
    pub mask: u128,
}

impl KeyMatch {
    /// An exact match.
    pub const fn exact(key: Key, value: u128) -> Self {
        Self { key, value, mask: key.full_mask() }
    }

    /// Writes value and mask. The kernel takes a missing mask for an exact match, except for [`Key::Flags`] and
    /// [`Key::EncFlags`].
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        let spec = self.key.spec();
        self.key.put(writer, spec.value, self.value);
        if let Some(kind) = spec.mask
            && (self.mask != self.key.full_mask() || !spec.bits.is_multiple_of(8))
        {
            self.key.put(writer, kind, self.mask);
        }
    }
}

/// The number of attributes that are looked up: one more than the highest.
const LIMIT: usize = 112;

const ATTRIBUTES: [Option<(Key, bool)>; LIMIT] = {
    let mut found = [None; LIMIT];
    let mut row = 0;
    while row < KEYS.len() {
        let spec = &KEYS[row];
        // The table is indexed by discriminant, and each attribute has one key: a wrong row does not compile.
        assert!(spec.key as usize == row);
        assert!(found[spec.value as usize].is_none());
        assert!(spec.bits as usize <= spec.bytes * 8);
        found[spec.value as usize] = Some((spec.key, false));
        if let Some(mask) = spec.mask {
            assert!(found[mask as usize].is_none());
            found[mask as usize] = Some((spec.key, true));
        }
        row += 1;
    }
    found
};
