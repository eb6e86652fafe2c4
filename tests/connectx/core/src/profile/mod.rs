//! Which device it is: identity, ports and capabilities, as tables.

pub(crate) mod caps;
mod devices;

use std::time::Duration;

use crate::hca::general::Type;
use crate::hca::hairpin;
use crate::layout::Field;
use crate::steering::Format;
use crate::steering::address::{Side, Terminal};
use crate::steering::arguments;
use crate::steering::icm::{self, Kind};
use crate::steering::meter::{self, aso};
use crate::steering::sampler;
use crate::steering::ste::Sample;
use crate::steering::tracking;
pub use crate::steering::{VPORT_ECPF, VPORT_UPLINK};
use caps::{device_memory, esw, esw_flow_table, ethernet, general, general_2, nic_flow_table, qos, roce, table};
pub use devices::*;

/// A device that can be shown to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// As on the command line.
    pub name: &'static str,
    /// PCI device id; the vendor is Mellanox.
    pub device_id: u16,
    /// The function is that of the DPU's own processor, which manages the switch; the host's functions are vports only.
    pub embedded_cpu: bool,
    /// The function manages the switch.
    pub eswitch_manager: bool,
    /// Virtual functions of the host that exist at first, on an embedded CPU; a driver learns of them by
    /// `QUERY_ESW_FUNCTIONS`. [`crate::pci::Ports::set_host_vfs`] changes them.
    pub host_vfs: u16,
    /// Most that there can be.
    pub host_total_vfs: u16,
    /// How entries in steering memory are written.
    pub steering_format: Format,
    /// Whether software writes rewrites as patterns with arguments, which libmlx5 does if it can; else as lists. It is a matter of the
    /// firmware's version, on generations from ConnectX-6 Dx on.
    pub rewrites_by_pattern: bool,
    /// Formats of match definers, by bit, which software that owns tables makes use of.
    pub match_definers: u64,
    /// Whether it also finds all four words of a tunnel header, whether there is the option of Geneve that is looked for, and by
    /// definers which headers and checksums are right: in tables that software owns.
    pub finds_more: bool,
    /// Whether software may own tables at all.
    pub has_software_steering: bool,
    /// Whether tables that software owns are offered. The kernel would use them, too, if it saw them, in memory that the PCI front
    /// end does not have; so the uverbs front end alone shows them: [`Profile::with_software_steering`].
    pub software_steering: bool,
    /// How long a driver shall wait for a command.
    pub command_timeout: Duration,
    /// How often a driver shall look whether the device is well.
    pub health_poll: Duration,
    /// How much room there is for rules.
    pub room: Room,
    /// Firmware version: major, minor, subminor.
    pub firmware: (u16, u16, u16),
    /// Board, as `devlink dev info` and `ethtool -i` show it; 16 bytes at most.
    pub psid: &'static str,
}

/// Room of the device, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Entries of the switch's flow tables.
    pub entries: usize,
    /// Flow counters, of which the identifiers have 24 bits.
    pub counters: usize,
}

/// A capability page (the `op_mod` of `QUERY_HCA_CAP`, without its lowest bit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// 0
    General,
    /// 1
    Ethernet,
    /// 3
    Atomic,
    /// 4
    Roce,
    /// 7
    NicFlowTable,
    /// 8
    EswFlowTable,
    /// 9
    Esw,
    /// 12
    Qos,
    /// 15
    DeviceMemory,
    /// 32
    General2,
}

impl Page {
    /// By its number in the command, if it is modelled.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::General,
            1 => Self::Ethernet,
            3 => Self::Atomic,
            4 => Self::Roce,
            7 => Self::NicFlowTable,
            8 => Self::EswFlowTable,
            9 => Self::Esw,
            12 => Self::Qos,
            15 => Self::DeviceMemory,
            32 => Self::General2,
            _ => return None,
        })
    }
}

impl Profile {
    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.iter().find(|profile| profile.name == name).copied()
    }

    /// The same device with all that it has for tables that software owns, if it has any.
    #[must_use]
    pub fn with_software_steering(self) -> Self {
        Self { software_steering: self.has_software_steering, ..self }
    }

    /// Whether it has meters in ASO objects, which came with ConnectX-6 Dx.
    pub(crate) fn has_meter_objects(&self) -> bool {
        self.steering_format != Format::Zero
    }

    /// Whether it tracks connections in ASO objects, which came with ConnectX-6 Dx. Entries in steering memory alone have packets
    /// looked at.
    #[must_use]
    pub(crate) fn tracks_connections(&self) -> bool {
        self.steering_format != Format::Zero && self.software_steering
    }

    /// Whether samplers are offered. A ConnectX-5 has them for programs alone.
    #[must_use]
    pub(crate) fn has_samplers(&self) -> bool {
        self.steering_format != Format::Zero || self.software_steering
    }

    /// The vport that is the driver's own.
    #[must_use]
    pub fn own_vport(&self) -> u16 {
        if self.embedded_cpu { VPORT_ECPF } else { 0 }
    }

    /// All vports: of the host (physical function first), of the embedded CPU, of the wire. Those of virtual functions are there
    /// even while the functions are not.
    #[must_use]
    pub fn vports(&self) -> Vec<u16> {
        let own = self.embedded_cpu.then_some(VPORT_ECPF);
        (0..=self.host_total_vfs).chain(own).chain([VPORT_UPLINK]).collect()
    }

    /// The most that a page can say: 4 KiB.
    #[must_use]
    pub fn page(&self, page: Page) -> Vec<u8> {
        let mut bytes = vec![0; general::LAYOUT.length];
        match page {
            Page::General => {
                fill(&mut bytes, 0, GENERAL);
                let manager = u64::from(self.eswitch_manager);
                let counters = self.room.counters as u64;
                fill(
                    &mut bytes,
                    0,
                    &[
                        (general::ESWITCH_MANAGER, manager),
                        (general::VPORT_GROUP_MANAGER, manager),
                        (general::MAX_FLOW_COUNTER_31_16, counters >> 16),
                        (general::MAX_FLOW_COUNTER_15_0, counters),
                    ],
                );
                general::GENERAL_OBJ_TYPES.write(&mut bytes, Type::of(self));
                general::QOS.write(&mut bytes, (self.has_meter_objects() || self.software_steering).into());
                general::HCA_CAP_2.write(&mut bytes, self.tracks_connections().into());
                if self.software_steering {
                    fill(&mut bytes, 0, SOFTWARE_STEERING);
                    general::STEERING_FORMAT_VERSION.write(&mut bytes, self.steering_format.version());
                    let rewrites_samples = self.steering_format != Format::Zero;
                    general::FLEX_PARSER_HEADER_MODIFY.write(&mut bytes, rewrites_samples.into());
                    general::MATCH_DEFINER_FORMATS.write(&mut bytes, self.match_definers);
                    if self.rewrites_by_pattern {
                        fill(&mut bytes, 0, ARGUMENTS);
                    }
                }
            }
            Page::General2 if self.tracks_connections() => fill(&mut bytes, 0, CONNECTION_TRACKING),
            Page::Ethernet => fill(&mut bytes, 0, ETHERNET),
            Page::NicFlowTable => {
                fill(&mut bytes, caps::NIC_RECEIVE, TABLE);
                fill(&mut bytes, caps::NIC_TRANSMIT, TABLE);
                if self.has_samplers() {
                    table::LOG_MAX_FT_SAMPLER_NUM.at(caps::NIC_RECEIVE).write(&mut bytes, sampler::LOG_ALL);
                }
                if self.software_steering {
                    fill(&mut bytes, caps::NIC_RECEIVE, SOFTWARE_OWNER);
                    fill(&mut bytes, caps::NIC_TRANSMIT, SOFTWARE_OWNER);
                    fill(&mut bytes, 0, &nic_addresses());
                    if self.finds_more {
                        fill(&mut bytes, 0, MORE_FIELDS);
                        table::FIELDS_MISC.at(caps::NIC_RECEIVE).write(&mut bytes, HAS_GENEVE_OPTION);
                    }
                }
            }
            Page::EswFlowTable => {
                fill(&mut bytes, 0, ESW_FLOW_TABLE);
                fill(&mut bytes, caps::FDB, TABLE);
                fill(&mut bytes, caps::FDB, FDB);
                fill(&mut bytes, caps::INGRESS_ACL, TABLE);
                fill(&mut bytes, caps::EGRESS_ACL, TABLE);
                if self.has_samplers() {
                    table::LOG_MAX_FT_SAMPLER_NUM.at(caps::FDB).write(&mut bytes, sampler::LOG_ALL);
                }
                table::EXECUTE_ASO.at(caps::FDB).write(&mut bytes, self.has_meter_objects().into());
                if self.software_steering {
                    fill(&mut bytes, caps::FDB, SOFTWARE_OWNER);
                    fill(&mut bytes, 0, &esw_addresses());
                }
            }
            Page::Qos => {
                if self.has_meter_objects() {
                    fill(&mut bytes, 0, METER_OBJECTS);
                }
                if self.software_steering {
                    fill(&mut bytes, 0, METERS);
                }
            }
            Page::Roce if self.software_steering => fill(&mut bytes, 0, ROCE),
            Page::DeviceMemory if self.software_steering => fill(&mut bytes, 0, &device_memory_sizes()),
            // A device that has none of it says so.
            Page::Atomic | Page::Roce | Page::DeviceMemory | Page::General2 => {}
            Page::Esw => {
                fill(&mut bytes, 0, ESW);
                let embedded = u64::from(self.embedded_cpu);
                fill(&mut bytes, 0, &[(esw::ECPF_VPORT_EXISTS, embedded), (esw::ESW_FUNCTIONS_CHANGED, embedded)]);
            }
        }
        bytes
    }
}

fn fill(bytes: &mut [u8], base: usize, table: &[(Field, u64)]) {
    for (field, value) in table {
        field.at(base).write(bytes, *value);
    }
}

const ETHERNET_PORT: u64 = 1;
/// Counters come singly, or 128 at a time for every unit of this mask.
const BULKS_OF_COUNTERS: u64 = 0xff;

// What the parser knows besides the fields of the tables' own capabilities.
const GENEVE: u64 = 1 << 3;
const ICMP: u64 = 1 << 8;
const ICMPV6: u64 = 1 << 9;
const MPLS_OVER_GRE: u64 = 1 << 4;
const MPLS_OVER_UDP: u64 = 1 << 5;
const VXLAN_GPE: u64 = 1 << 7;
const GENEVE_OPTION: u64 = 1 << 10;
/// GTP-U at all, and four words of it as samples.
const GTPU: u64 = 1 << 11 | 0xf << 16;

const GENERAL: &[(Field, u64)] = &[
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
];

/// Words of data of an option of Geneve.
pub(crate) const MAX_OPTION_DATA: u64 = 1;

/// What software steering needs besides tables of its own: queue pairs that lead back to the device, and its memory.
/// And hairpin queues, and what the flexible parser finds, in which of its samples.
const SOFTWARE_STEERING: &[(Field, u64)] = &[
    (general::HAIRPIN, 1),
    (general::LOG_MAX_HAIRPIN_QUEUES, hairpin::LOG_QUEUES),
    (general::LOG_MAX_HAIRPIN_WQ_DATA_SZ, hairpin::LOG_DATA),
    (general::LOG_MAX_HAIRPIN_NUM_PACKETS, hairpin::LOG_FRAMES),
    (general::ROCE, 1),
    (general::RC, 1),
    (
        general::FLEX_PARSER_PROTOCOLS,
        GENEVE | ICMP | ICMPV6 | MPLS_OVER_GRE | MPLS_OVER_UDP | VXLAN_GPE | GENEVE_OPTION | GTPU,
    ),
    (general::MAX_GENEVE_TLV_OPTIONS, 1),
    (general::MAX_GENEVE_TLV_OPTION_DATA_LEN, MAX_OPTION_DATA),
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
const ARGUMENTS: &[(Field, u64)] = &[
    (general::LOG_MAX_NUM_HEADER_MODIFY_ARGUMENT, arguments::LOG_ALL),
    (general::LOG_HEADER_MODIFY_ARGUMENT_GRANULARITY, arguments::LOG_GRANULARITY),
    (general::LOG_HEADER_MODIFY_ARGUMENT_MAX_ALLOC, arguments::LOG_MAX_ALLOCATION),
];

/// Of meters that entries lead to.
const METERS: &[(Field, u64)] = &[
    (qos::FLOW_METER_OLD, 1),
    (qos::LOG_MAX_FLOW_METER, meter::LOG_ALL),
    (qos::FLOW_METER_REG_ID, meter::REGISTERS as u64),
    (qos::FLOW_METER, 1),
];

/// Of meters in ASO objects.
const METER_OBJECTS: &[(Field, u64)] = &[
    (qos::FLOW_METER, 1),
    (qos::FLOW_METER_REG_ID, meter::REGISTERS as u64),
    (qos::LOG_METER_ASO_GRANULARITY, aso::LOG_BLOCK),
    (qos::LOG_METER_ASO_MAX_ALLOC, aso::LOG_BLOCK),
    (qos::LOG_MAX_NUM_METER_ASO, aso::LOG_ALL),
];

/// Of connections in ASO objects.
const CONNECTION_TRACKING: &[(Field, u64)] = &[
    (general_2::LOG_CONN_TRACK_GRANULARITY, tracking::LOG_GRANULARITY),
    (general_2::LOG_CONN_TRACK_MAX_ALLOC, tracking::LOG_MAX_ALLOCATION),
    (general_2::LOG_MAX_CONN_TRACK_OFFLOAD, tracking::LOG_ALL),
];

const ROCE: &[(Field, u64)] = &[(roce::FL_RC_QP_WHEN_ROCE_DISABLED, 1), (roce::FL_RC_QP_WHEN_ROCE_ENABLED, 1)];

const SOFTWARE_OWNER: &[(Field, u64)] = &[(table::SW_OWNER, 1), (table::SW_OWNER_V2, 1)];

fn nic_addresses() -> [(Field, u64); 3] {
    [
        (nic_flow_table::RX_DROP_ADDRESS, Terminal::Drop.address(Side::Receive)),
        (nic_flow_table::TX_DROP_ADDRESS, Terminal::Drop.address(Side::Transmit)),
        (nic_flow_table::TX_ALLOW_ADDRESS, Terminal::Allow.address(Side::Transmit)),
    ]
}

fn esw_addresses() -> [(Field, u64); 4] {
    let wire = Terminal::Vport(VPORT_UPLINK);
    [
        (esw_flow_table::RX_DROP_ADDRESS, Terminal::Drop.address(Side::Receive)),
        (esw_flow_table::TX_DROP_ADDRESS, Terminal::Drop.address(Side::Transmit)),
        (esw_flow_table::UPLINK_RX_ADDRESS, wire.address(Side::Receive)),
        (esw_flow_table::UPLINK_TX_ADDRESS, wire.address(Side::Transmit)),
    ]
}

fn device_memory_sizes() -> [(Field, u64); 7] {
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

const ETHERNET: &[(Field, u64)] = &[
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
const OUTER: u64 = 0xffef_fffc;
/// Inner fields: Ethernet, both VLAN tags, IP, TCP, UDP.
const INNER: u64 = 0xfeef_fe00;
/// Registers C 0 to 7.
const REGISTERS: u64 = 0xff;

/// Whether there is the option of Geneve that is looked for.
const HAS_GENEVE_OPTION: u64 = 1 << 30;

/// Words 0 to 3 of a tunnel header, which inner and outer headers are right, and which checksums.
const TUNNEL_HEADERS_AND_CHECKS: u64 = 0x1_81ef;

/// That it finds them is said of what functions receive, for all tables.
const MORE_FIELDS: &[(Field, u64)] = &[
    (nic_flow_table::MORE_FIELDS_RECEIVE, TUNNEL_HEADERS_AND_CHECKS),
    (nic_flow_table::MORE_BITMASKS_RECEIVE, TUNNEL_HEADERS_AND_CHECKS),
];

/// Of every kind of flow table.
const TABLE: &[(Field, u64)] = &[
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
const FDB: &[(Field, u64)] = &[
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
const REGISTERS_TO_VPORT: u64 = 0x3;

const ESW_FLOW_TABLE: &[(Field, u64)] = &[
    (esw_flow_table::FDB_TO_VPORT_REG_C_ID, REGISTERS_TO_VPORT),
    (esw_flow_table::FDB_MODIFY_HEADER_FWD_TO_TABLE, 1),
    (esw_flow_table::FLOW_SOURCE, 1),
    (esw_flow_table::MULTI_FDB_ENCAP, 1),
    (esw_flow_table::FDB_MULTI_PATH_TO_TABLE, 1),
];

const ESW: &[(Field, u64)] = &[
    (esw::ESW_UPLINK_INGRESS_ACL, 1),
    (esw::VXLAN_ENCAP_DECAP, 1),
    (esw::NVGRE_ENCAP_DECAP, 1),
    (esw::LOG_MAX_PACKET_REFORMAT_CONTEXT, 18),
    (esw::MAX_ENCAP_HEADER_SIZE, 256),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_fits_its_field() {
        let tables = [
            GENERAL,
            ETHERNET,
            TABLE,
            FDB,
            ESW_FLOW_TABLE,
            ESW,
            SOFTWARE_STEERING,
            ARGUMENTS,
            METERS,
            METER_OBJECTS,
            MORE_FIELDS,
            CONNECTION_TRACKING,
            ROCE,
            SOFTWARE_OWNER,
        ];
        for (field, value) in tables.into_iter().flatten() {
            assert!(*value <= field.max(), "{} = {value:#x}", field.name());
        }
    }

    #[test]
    fn profiles_are_found_by_their_names() {
        for profile in PROFILES {
            assert_eq!(Profile::named(profile.name), Some(*profile));
            assert!(profile.psid.len() <= 16);
        }
        assert_eq!(Profile::named("connectx-9"), None);
    }

    #[test]
    fn an_embedded_processor_sees_the_host_as_vports() {
        assert_eq!(BLUEFIELD_2.vports(), [0, 1, 2, 3, 4, 5, 6, 7, 8, VPORT_ECPF, VPORT_UPLINK]);
        assert_eq!(CONNECTX_6_DX.vports(), [0, VPORT_UPLINK]);
    }
}
