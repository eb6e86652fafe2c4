//! What the capability pages say, as tables.

use super::caps::{device_memory, esw, esw_flow_table, ethernet, general, general_2, nic_flow_table, qos, roce, table};
use crate::layout::Field;
use crate::steering::address::{Side, Terminal};
use crate::steering::icm::{self, Kind};
use crate::steering::meter::{self, aso};
use crate::steering::ste::Sample;
use crate::steering::{VPORT_UPLINK, arguments, tracking};

pub(super) fn fill(bytes: &mut [u8], base: usize, table: &[(Field, u64)]) {
    for (field, value) in table {
        field.at(base).write(bytes, *value);
    }
}

pub(super) const ETHERNET_PORT: u64 = 1;
/// Counters come singly, or 128 at a time for every unit of this mask.
pub(super) const BULKS_OF_COUNTERS: u64 = 0xff;

// What the parser knows besides the fields of the tables' own capabilities.
pub(super) const GENEVE: u64 = 1 << 3;
pub(super) const ICMP: u64 = 1 << 8;
pub(super) const ICMPV6: u64 = 1 << 9;
pub(super) const MPLS_OVER_GRE: u64 = 1 << 4;
pub(super) const MPLS_OVER_UDP: u64 = 1 << 5;
pub(super) const VXLAN_GPE: u64 = 1 << 7;
pub(super) const GENEVE_OPTION: u64 = 1 << 10;
/// GTP-U at all, and four words of it as samples.
pub(super) const GTPU: u64 = 1 << 11 | 0xf << 16;

pub(super) const GENERAL: &[(Field, u64)] = &[
    (general::LOG_MAX_SRQ_SZ, 15),
    (general::LOG_MAX_QP_SZ, 15),
    (general::LOG_MAX_QP, 18),
    (general::LOG_MAX_SRQ, 18),
    (general::LOG_MAX_CQ_SZ, 22),
    (general::LOG_MAX_CQ, 20),
    (general::LOG_MAX_EQ_SZ, 16),
    (general::LOG_MAX_MKEY, 20),
    (general::LOG_MAX_EQ, 6),
    (general::MAX_NUM_EQS, 64),
    (general::MAX_INDIRECTION, 4),
    (general::FIXED_BUFFER_SIZE, 1),
    (general::LOG_MAX_MRW_SZ, 64),
    (general::LOG_MAX_KLM_LIST_SIZE, 16),
    (general::RELEASE_ALL_PAGES, 1),
    (general::LOG_MAX_MSG, 30),
    (general::VHCA_GROUP_MANAGER, 1),
    (general::ETH_VIRT, 1),
    (general::NIC_FLOW_TABLE, 1),
    (general::PORT_TYPE, ETHERNET_PORT),
    (general::NUM_PORTS, 1),
    (general::MAX_TC, 1),
    (general::CQE_VERSION, 1),
    (general::ETH_NET_OFFLOADS, 1),
    (general::CQ_OI, 1),
    (general::CQ_MODERATION, 1),
    (general::CD, 1),
    (general::UAR_4K, 1),
    (general::UAR_SZ, 5),
    (general::LOG_PG_SZ, 12),
    (general::BF, 1),
    (general::LOG_BF_REG_SIZE, 9),
    (general::MAX_WQE_SZ_SQ, 1024),
    (general::MAX_WQE_SZ_RQ, 512),
    (general::FLOW_COUNTER_BULK_ALLOC, BULKS_OF_COUNTERS),
    (general::LOG_MAX_FLOW_COUNTER_BULK, 15),
    (general::FLOW_COUNTERS_DUMP, 1),
    (general::LOG_MAX_TRANSPORT_DOMAIN, 12),
    (general::LOG_MAX_PD, 20),
    (general::LOG_MAX_RQ, 18),
    (general::LOG_MAX_SQ, 18),
    (general::LOG_MAX_TIR, 18),
    (general::LOG_MAX_TIS, 18),
    (general::BASIC_CYCLIC_RCV_WQE, 1),
    (general::LOG_MAX_RQT, 10),
    (general::LOG_MAX_RQT_SIZE, 11),
    (general::LOG_MAX_TIS_PER_SQ, 2),
    (general::LOG_MAX_STRIDE_SZ_RQ, 13),
    (general::LOG_MIN_STRIDE_SZ_RQ, 6),
    (general::LOG_MAX_STRIDE_SZ_SQ, 10),
    (general::LOG_MIN_STRIDE_SZ_SQ, 6),
    (general::LOG_MAX_WQ_SZ, 14),
    (general::VPORT_COUNTERS, 1),
    (general::NIC_VPORT_CHANGE_EVENT, 1),
    (general::DISABLE_LOCAL_LB_UC, 1),
    (general::DISABLE_LOCAL_LB_MC, 1),
    (general::LOG_MAX_VLAN_LIST, 12),
    (general::LOG_MAX_CURRENT_MC_LIST, 11),
    (general::LOG_MAX_CURRENT_UC_LIST, 7),
    (general::LOG_MAX_L2_TABLE, 7),
    (general::DEVICE_FREQUENCY_KHZ, 156_250),
    (general::NUM_OF_UARS_PER_PAGE, 1),
    (general::FLEX_PARSER_PROTOCOLS, GENEVE | ICMP | ICMPV6),
    (general::MAX_GENEVE_TLV_OPTIONS, 1),
    (general::MAX_GENEVE_TLV_OPTION_DATA_LEN, MAX_OPTION_DATA),
    // What mlx5_ib makes when it probes, and programs for which it lets commands through. It lists the pages of a key itself then.
    (general::XRC, 1),
    (general::LOG_MAX_XRCD, 10),
    (general::LOG_MAX_RMP, 10),
    (general::LOG_MAX_UCTX, 10),
    (general::UMR_MODIFY_ENTITY_SIZE_DISABLED, 1),
];

/// Words of data of an option of Geneve.
pub(crate) const MAX_OPTION_DATA: u64 = 1;

/// What software steering needs besides tables of its own: queue pairs that lead back to the device, and its memory.
/// And hairpin queues, and what the flexible parser finds, in which of its samples.
pub(super) const SOFTWARE_STEERING: &[(Field, u64)] = &[
    (general::HAIRPIN, 1),
    (general::LOG_MAX_HAIRPIN_QUEUES, LOG_HAIRPIN_QUEUES),
    (general::LOG_MAX_HAIRPIN_WQ_DATA_SZ, LOG_HAIRPIN_DATA),
    (general::LOG_MAX_HAIRPIN_NUM_PACKETS, LOG_HAIRPIN_FRAMES),
    (general::ROCE, 1),
    (general::RC, 1),
    (general::DEVICE_MEMORY, 1),
    (
        general::FLEX_PARSER_PROTOCOLS,
        GENEVE | ICMP | ICMPV6 | MPLS_OVER_GRE | MPLS_OVER_UDP | VXLAN_GPE | GENEVE_OPTION | GTPU,
    ),
    (general::FLEX_PARSER_ID_ICMP_DW0, Sample::Icmp.number()),
    (general::FLEX_PARSER_ID_ICMP_DW1, Sample::IcmpData.number()),
    (general::FLEX_PARSER_ID_ICMPV6_DW0, Sample::Icmp.number()),
    (general::FLEX_PARSER_ID_ICMPV6_DW1, Sample::IcmpData.number()),
    (general::FLEX_PARSER_ID_MPLS_OVER_GRE, Sample::MplsOverGre.number()),
    (general::FLEX_PARSER_ID_MPLS_OVER_UDP, Sample::MplsOverUdp.number()),
    (general::FLEX_PARSER_ID_GENEVE_OPTION, Sample::GeneveOption.number()),
    (general::FLEX_PARSER_ID_GTPU_DW0, Sample::GtpuFirst.number()),
    (general::FLEX_PARSER_ID_GTPU_TEID, Sample::GtpuEndpoint.number()),
    (general::FLEX_PARSER_ID_GTPU_DW2, Sample::GtpuThird.number()),
    (general::FLEX_PARSER_ID_GTPU_FIRST_EXTENSION, Sample::GtpuFirstExtension.number()),
];

/// Of values for patterns of rewrites.
pub(super) const ARGUMENTS: &[(Field, u64)] = &[
    (general::LOG_MAX_NUM_HEADER_MODIFY_ARGUMENT, arguments::LOG_ALL),
    (general::LOG_HEADER_MODIFY_ARGUMENT_GRANULARITY, arguments::LOG_GRANULARITY),
    (general::LOG_HEADER_MODIFY_ARGUMENT_MAX_ALLOC, arguments::LOG_MAX_ALLOCATION),
];

/// Of meters that entries lead to.
pub(super) const METERS: &[(Field, u64)] = &[
    (qos::FLOW_METER_OLD, 1),
    (qos::LOG_MAX_FLOW_METER, meter::LOG_ALL),
    (qos::FLOW_METER_REG_ID, meter::REGISTERS as u64),
    (qos::FLOW_METER, 1),
];

/// Of meters in ASO objects.
pub(super) const METER_OBJECTS: &[(Field, u64)] = &[
    (qos::FLOW_METER, 1),
    (qos::FLOW_METER_REG_ID, meter::REGISTERS as u64),
    (qos::LOG_METER_ASO_GRANULARITY, aso::LOG_BLOCK),
    (qos::LOG_METER_ASO_MAX_ALLOC, aso::LOG_BLOCK),
    (qos::LOG_MAX_NUM_METER_ASO, aso::LOG_ALL),
];

/// Of connections in ASO objects.
pub(super) const CONNECTION_TRACKING: &[(Field, u64)] = &[
    (general_2::LOG_CONN_TRACK_GRANULARITY, tracking::LOG_GRANULARITY),
    (general_2::LOG_CONN_TRACK_MAX_ALLOC, tracking::LOG_MAX_ALLOCATION),
    (general_2::LOG_MAX_CONN_TRACK_OFFLOAD, tracking::LOG_ALL),
];

pub(super) const ROCE: &[(Field, u64)] =
    &[(roce::FL_RC_QP_WHEN_ROCE_DISABLED, 1), (roce::FL_RC_QP_WHEN_ROCE_ENABLED, 1)];

pub(super) const SOFTWARE_OWNER: &[(Field, u64)] = &[(table::SW_OWNER, 1), (table::SW_OWNER_V2, 1)];

pub(super) fn nic_addresses() -> [(Field, u64); 3] {
    [
        (nic_flow_table::RX_DROP_ADDRESS, Terminal::Drop.address(Side::Receive)),
        (nic_flow_table::TX_DROP_ADDRESS, Terminal::Drop.address(Side::Transmit)),
        (nic_flow_table::TX_ALLOW_ADDRESS, Terminal::Allow.address(Side::Transmit)),
    ]
}

pub(super) fn esw_addresses() -> [(Field, u64); 4] {
    let wire = Terminal::Vport(VPORT_UPLINK);
    [
        (esw_flow_table::RX_DROP_ADDRESS, Terminal::Drop.address(Side::Receive)),
        (esw_flow_table::TX_DROP_ADDRESS, Terminal::Drop.address(Side::Transmit)),
        (esw_flow_table::UPLINK_RX_ADDRESS, wire.address(Side::Receive)),
        (esw_flow_table::UPLINK_TX_ADDRESS, wire.address(Side::Transmit)),
    ]
}

pub(super) fn device_memory_sizes() -> [(Field, u64); 7] {
    use device_memory as f;
    [
        (f::STEERING_START, Kind::Steering.start()),
        (f::LOG_STEERING_SIZE, icm::LOG_STEERING_SIZE),
        (f::HEADER_MODIFY_START, Kind::Rewrites.start()),
        (f::LOG_HEADER_MODIFY_SIZE, icm::LOG_REWRITES_SIZE),
        (f::PATTERN_START, Kind::Patterns.start()),
        (f::LOG_PATTERN_SIZE, icm::LOG_REWRITES_SIZE),
        (f::LOG_GRANULARITY, icm::LOG_GRANULARITY),
    ]
}

pub(super) const ETHERNET: &[(Field, u64)] = &[
    (ethernet::CSUM_CAP, 1),
    (ethernet::VLAN_CAP, 1),
    (ethernet::WQE_VLAN_INSERT, 1),
    (ethernet::SELF_LB_EN_MODIFIABLE, 1),
    (ethernet::MAX_LSO_CAP, LOG_LARGEST_SEGMENT),
    (ethernet::MULTI_PKT_SEND_WQE, 1),
    (ethernet::ENHANCED_MULTI_PKT_SEND_WQE, 1),
    (ethernet::WQE_INLINE_MODE, 2),
    (ethernet::RSS_IND_TBL_CAP, 11),
    (ethernet::TUNNEL_STATELESS_VXLAN, 1),
];

/// Outer fields: Ethernet, both VLAN tags, IP, TCP, UDP, GRE, VXLAN's identifier, all of Geneve but its options.
pub(super) const OUTER: u64 = 0xffef_fffc;
/// Inner fields: Ethernet, both VLAN tags, IP, TCP, UDP.
pub(super) const INNER: u64 = 0xfeef_fe00;
/// Registers C 0 to 7.
pub(super) const REGISTERS: u64 = 0xff;

/// The data of the option of Geneve that is looked for.
const GENEVE_OPTION_DATA: u64 = 1 << 31;
/// That, and whether there is the option.
pub(super) const GENEVE_OPTION_FIELDS: u64 = GENEVE_OPTION_DATA | 1 << 30;

/// Words 0 to 3 of a tunnel header, which inner and outer headers are right, and which checksums.
pub(super) const TUNNEL_HEADERS_AND_CHECKS: u64 = 0x1_81ef;

/// That it finds them is said of what functions receive, for all tables.
pub(super) const MORE_FIELDS: &[(Field, u64)] = &[
    (nic_flow_table::MORE_FIELDS_RECEIVE, TUNNEL_HEADERS_AND_CHECKS),
    (nic_flow_table::MORE_BITMASKS_RECEIVE, TUNNEL_HEADERS_AND_CHECKS),
];

/// Of every kind of flow table.
pub(super) const TABLE: &[(Field, u64)] = &[
    (table::FT_SUPPORT, 1),
    (table::FLOW_COUNTER, 1),
    (table::FLOW_MODIFY_EN, 1),
    (table::MODIFY_ROOT, 1),
    (table::IDENTIFIED_MISS_TABLE_MODE, 1),
    (table::FLOW_TABLE_MODIFY, 1),
    (table::LOG_MAX_FT_SIZE, 24),
    (table::LOG_MAX_MODIFY_HEADER_CONTEXT, 20),
    (table::MAX_MODIFY_HEADER_ACTIONS, 16),
    (table::MAX_FT_LEVEL, 64),
    (table::LOG_MAX_FT_NUM, 20),
    (table::LOG_MAX_FLOW_COUNTER, 24),
    (table::LOG_MAX_DESTINATION, 5),
    (table::LOG_MAX_FLOW, 24),
    (table::FIELDS_OUTER, OUTER),
    (table::FIELDS_INNER, INNER),
    (table::FIELDS_MISC, GENEVE_OPTION_DATA),
    (table::FIELDS_REGISTERS, REGISTERS),
    (table::BITMASKS_OUTER, OUTER),
    (table::BITMASKS_INNER, INNER),
    (table::BITMASKS_REGISTERS, REGISTERS),
];

/// Levels of tables in the switch; of them the kernel uses some 200.
pub(crate) const MAX_LEVELS: u64 = 255;

/// Of a segment that the device cuts into frames (LSO), as a power of two.
pub const LOG_LARGEST_SEGMENT: u64 = 18;

/// Of the switch's own tables, besides [`TABLE`].
pub(super) const FDB: &[(Field, u64)] = &[
    (table::MAX_FT_LEVEL, MAX_LEVELS),
    (table::REFORMAT, 1),
    (table::DECAP, 1),
    (table::POP_VLAN, 1),
    (table::PUSH_VLAN, 1),
    (table::POP_VLAN_2, 1),
    (table::PUSH_VLAN_2, 1),
    (table::REFORMAT_AND_VLAN_ACTION, 1),
    (table::REFORMAT_AND_MODIFY_ACTION, 1),
    (table::IGNORE_FLOW_LEVEL, 1),
    (table::TERMINATION_TABLE, 1),
    (table::REFORMAT_AND_FWD_TO_TABLE, 1),
];

/// Registers C that survive the way from the switch to a vport: 0 and 1.
pub(super) const REGISTERS_TO_VPORT: u64 = 0x3;

pub(super) const ESW_FLOW_TABLE: &[(Field, u64)] = &[
    (esw_flow_table::FDB_TO_VPORT_REG_C_ID, REGISTERS_TO_VPORT),
    (esw_flow_table::FDB_MODIFY_HEADER_FWD_TO_TABLE, 1),
    (esw_flow_table::FLOW_SOURCE, 1),
    (esw_flow_table::MULTI_FDB_ENCAP, 1),
    (esw_flow_table::FDB_MULTI_PATH_TO_TABLE, 1),
];

pub(super) const ESW: &[(Field, u64)] = &[
    (esw::ESW_UPLINK_INGRESS_ACL, 1),
    (esw::VXLAN_ENCAP_DECAP, 1),
    (esw::NVGRE_ENCAP_DECAP, 1),
    (esw::LOG_MAX_PACKET_REFORMAT_CONTEXT, 18),
    (esw::MAX_ENCAP_HEADER_SIZE, 256),
];

/// Most that hairpin queues have: bytes of frames, and frames, as powers of two.
pub(crate) const LOG_HAIRPIN_DATA: u64 = 16;

/// See [`LOG_HAIRPIN_DATA`].
pub(crate) const LOG_HAIRPIN_FRAMES: u64 = 10;

/// Hairpin queues each way, as a power of two.
pub(crate) const LOG_HAIRPIN_QUEUES: u64 = 5;
