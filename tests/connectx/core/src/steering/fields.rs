//! What a flow group can match on: PRM `fte_match_param`, 512 bytes in seven blocks, as a table of names and places.
//!
//! A field that the PRM has and this table has not (RoCE, MACsec, programmable samples) is refused in a
//! mask, since the walk could not tell.

use super::bits::Bits;

/// Bytes in a match parameter.
pub(super) const MATCH_BYTES: usize = 512;

/// Bytes in each block. The last one of eight is reserved.
const BLOCK_BYTES: usize = 64;

/// Where the inner headers' block begins; its fields are those of the outer headers.
pub(super) const INNER: usize = 2 * BLOCK_BYTES;

/// Names of the blocks, in the order of the bits of `match_criteria_enable`.
pub(super) const BLOCKS: [&str; 7] = ["outer", "misc", "inner", "misc2", "misc3", "misc4", "misc5"];

macro_rules! fields {
    ($table:ident { $($name:ident $at:literal $width:literal,)* }) => {
        $(pub(super) const $name: Bits = Bits::new($at, $width);)*
        const $table: &[(&str, Bits)] = &[$((stringify!($name), $name)),*];
    };
}

// Ethernet to transport: the block of the outer headers, and with another beginning that of the inner ones.
fields!(LAYER {
    SMAC_47_16 0x000 32,
    SMAC_15_0 0x020 16,
    ETHERTYPE 0x030 16,
    DMAC_47_16 0x040 32,
    DMAC_15_0 0x060 16,
    FIRST_PRIO 0x070 3,
    FIRST_CFI 0x073 1,
    FIRST_VID 0x074 12,
    IP_PROTOCOL 0x080 8,
    IP_DSCP 0x088 6,
    IP_ECN 0x08e 2,
    CVLAN_TAG 0x090 1,
    SVLAN_TAG 0x091 1,
    FRAG 0x092 1,
    IP_VERSION 0x093 4,
    TCP_FLAGS 0x097 9,
    TCP_SPORT 0x0a0 16,
    TCP_DPORT 0x0b0 16,
    IPV4_IHL 0x0d0 4,
    L3_OK 0x0d4 1,
    L4_OK 0x0d5 1,
    IPV4_CHECKSUM_OK 0x0d6 1,
    L4_CHECKSUM_OK 0x0d7 1,
    TTL_HOPLIMIT 0x0d8 8,
    UDP_SPORT 0x0e0 16,
    UDP_DPORT 0x0f0 16,
    SRC_IP 0x100 128,
    DST_IP 0x180 128,
});

fields!(MISC {
    GRE_C_PRESENT 0x200 1,
    GRE_K_PRESENT 0x202 1,
    GRE_S_PRESENT 0x203 1,
    SOURCE_SQN 0x208 24,
    SOURCE_ESWITCH_OWNER_VHCA_ID 0x220 16,
    SOURCE_PORT 0x230 16,
    OUTER_SECOND_PRIO 0x240 3,
    OUTER_SECOND_CFI 0x243 1,
    OUTER_SECOND_VID 0x244 12,
    INNER_SECOND_PRIO 0x250 3,
    INNER_SECOND_CFI 0x253 1,
    INNER_SECOND_VID 0x254 12,
    OUTER_SECOND_CVLAN_TAG 0x260 1,
    INNER_SECOND_CVLAN_TAG 0x261 1,
    OUTER_SECOND_SVLAN_TAG 0x262 1,
    INNER_SECOND_SVLAN_TAG 0x263 1,
    GRE_PROTOCOL 0x270 16,
    GRE_KEY 0x280 32,
    VXLAN_VNI 0x2a0 24,
    GENEVE_VNI 0x2c0 24,
    GENEVE_TLV_OPTION_0_EXIST 0x2de 1,
    GENEVE_OAM 0x2df 1,
    OUTER_IPV6_FLOW_LABEL 0x2ec 20,
    INNER_IPV6_FLOW_LABEL 0x30c 20,
    GENEVE_OPT_LEN 0x32a 6,
    GENEVE_PROTOCOL_TYPE 0x330 16,
    OUTER_ESP_SPI 0x380 32,
});

// An MPLS entry is label (20 bits), EXP (3), bottom of stack (1), TTL (8).
fields!(MISC2 {
    OUTER_FIRST_MPLS 0x600 32,
    INNER_FIRST_MPLS 0x620 32,
    OUTER_FIRST_MPLS_OVER_GRE 0x640 32,
    OUTER_FIRST_MPLS_OVER_UDP 0x660 32,
    METADATA_REG_C_7 0x680 32,
    METADATA_REG_C_6 0x6a0 32,
    METADATA_REG_C_5 0x6c0 32,
    METADATA_REG_C_4 0x6e0 32,
    METADATA_REG_C_3 0x700 32,
    METADATA_REG_C_2 0x720 32,
    METADATA_REG_C_1 0x740 32,
    METADATA_REG_C_0 0x760 32,
    METADATA_REG_A 0x780 32,
});

fields!(MISC3 {
    INNER_TCP_SEQ_NUM 0x800 32,
    OUTER_TCP_SEQ_NUM 0x820 32,
    INNER_TCP_ACK_NUM 0x840 32,
    OUTER_TCP_ACK_NUM 0x860 32,
    OUTER_VXLAN_GPE_VNI 0x888 24,
    OUTER_VXLAN_GPE_NEXT_PROTOCOL 0x8a0 8,
    OUTER_VXLAN_GPE_FLAGS 0x8a8 8,
    ICMP_HEADER_DATA 0x8c0 32,
    ICMPV6_HEADER_DATA 0x8e0 32,
    ICMP_TYPE 0x900 8,
    ICMP_CODE 0x908 8,
    ICMPV6_TYPE 0x910 8,
    ICMPV6_CODE 0x918 8,
    GENEVE_TLV_OPTION_0_DATA 0x920 32,
    GTPU_TEID 0x940 32,
    GTPU_MSG_TYPE 0x960 8,
    GTPU_MSG_FLAGS 0x968 8,
    GTPU_DW_2 0x980 32,
    GTPU_FIRST_EXT_DW_0 0x9a0 32,
    GTPU_DW_0 0x9c0 32,
});

fields!(MISC5 {
    TUNNEL_HEADER_0 0xc80 32,
    TUNNEL_HEADER_1 0xca0 32,
    TUNNEL_HEADER_2 0xcc0 32,
    TUNNEL_HEADER_3 0xce0 32,
});

/// Words of a tunnel header by number.
pub(super) const TUNNEL_HEADER: [Bits; 4] = [TUNNEL_HEADER_0, TUNNEL_HEADER_1, TUNNEL_HEADER_2, TUNNEL_HEADER_3];

/// Which headers and checksums are right, of outer and inner ones.
pub(super) const CHECKS: [Bits; 8] = [
    L3_OK,
    L4_OK,
    IPV4_CHECKSUM_OK,
    L4_CHECKSUM_OK,
    L3_OK.after(INNER),
    L4_OK.after(INNER),
    IPV4_CHECKSUM_OK.after(INNER),
    L4_CHECKSUM_OK.after(INNER),
];

/// Registers C by number.
pub(super) const REGISTERS_C: [Bits; 8] = [
    METADATA_REG_C_0,
    METADATA_REG_C_1,
    METADATA_REG_C_2,
    METADATA_REG_C_3,
    METADATA_REG_C_4,
    METADATA_REG_C_5,
    METADATA_REG_C_6,
    METADATA_REG_C_7,
];

/// Every field with its block's name.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str, Bits)> {
    let named = |block: &'static str, table: &'static [(&'static str, Bits)], after: usize| {
        table.iter().map(move |(name, bits)| (block, *name, bits.after(after)))
    };
    named("outer", LAYER, 0)
        .chain(named("misc", MISC, 0))
        .chain(named("inner", LAYER, INNER))
        .chain(named("misc2", MISC2, 0))
        .chain(named("misc3", MISC3, 0))
        .chain(named("misc5", MISC5, 0))
}

/// A mask with only those blocks that `enable` names; bits of others are not used, says the PRM.
pub(super) fn enabled(mask: &[u8], enable: u8) -> [u8; MATCH_BYTES] {
    let mut kept = [0; MATCH_BYTES];
    for (block, kept) in kept.chunks_mut(BLOCK_BYTES).enumerate().take(BLOCKS.len()) {
        if enable >> block & 1 == 1
            && let Some(given) = mask.get(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES)
        {
            kept.copy_from_slice(given);
        }
    }
    kept
}

/// The first bit of a mask that belongs to no field of the table. Some fields only such devices have as find more than others.
pub(super) fn unknown_bit(mask: &[u8; MATCH_BYTES], finds_more: bool) -> Option<usize> {
    let more =
        |bits: &Bits| CHECKS.contains(bits) || TUNNEL_HEADER.contains(bits) || *bits == GENEVE_TLV_OPTION_0_EXIST;
    let mut left = *mask;
    for (_, _, bits) in all().filter(|(_, _, bits)| finds_more || !more(bits)) {
        bits.put(&mut left, 0);
    }
    (0..MATCH_BYTES * 8).find(|&bit| Bits::new(bit, 1).is_set(&left))
}

/// The fields of a mask, to put values of it in words.
#[derive(Debug)]
pub(super) struct Description(Vec<(String, Bits, Option<String>)>);

impl Description {
    pub(super) fn of(mask: &[u8]) -> Self {
        let fields = all().filter(|(_, _, bits)| bits.is_set(mask)).map(|(block, name, bits)| {
            let partial = (!bits.is_full(mask)).then(|| hex(bits, mask));
            (format!("{block}.{}", name.to_lowercase()), bits, partial)
        });
        Self(fields.collect())
    }

    /// A value in words: `outer.ip_protocol=0x6 outer.dst_ip=0xa000002/0xffffff`, with the mask where it is not the whole field.
    pub(super) fn value(&self, value: &[u8]) -> String {
        if self.0.is_empty() {
            return "anything".to_owned();
        }
        let words = self.0.iter().map(|(name, bits, partial)| match partial {
            None => format!("{name}={}", hex(*bits, value)),
            Some(mask) => format!("{name}={}/{mask}", hex(*bits, value)),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn hex(bits: Bits, bytes: &[u8]) -> String {
    let digits: String = bits.words().map(|word| format!("{:08x}", word.u32(bytes))).collect();
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}
