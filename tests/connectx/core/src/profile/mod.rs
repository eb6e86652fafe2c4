//! Which device it is: identity, ports and capabilities, as tables.

pub(crate) mod caps;
mod devices;
mod objects;
mod tables;

use std::time::Duration;

use crate::steering::{Format, sampler};
pub use crate::steering::{VPORT_ECPF, VPORT_UPLINK};
use caps::{esw, general, table};
pub use devices::*;
pub(crate) use objects::Type;
pub use tables::LOG_LARGEST_SEGMENT;
use tables::*;
pub(crate) use tables::{LOG_HAIRPIN_DATA, LOG_HAIRPIN_FRAMES, LOG_HAIRPIN_QUEUES, MAX_LEVELS, MAX_OPTION_DATA};

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
    /// Virtual functions of the host that exist at first. The driver of an embedded CPU learns of them by `QUERY_ESW_FUNCTIONS`, and
    /// [`crate::hca::Hca::set_host_vfs`] changes them; the host's own driver enables them (`ENABLE_HCA`).
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
    /// Whether tables that software owns are offered, as [`Profile::with_software_steering`] has it. The kernel would write its own in the
    /// same way, by a service that is not modelled, unless `flow_steering_mode` keeps it from that: so they are shown only to who asks.
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

    /// Whether it has general objects of a type.
    pub(crate) fn has(&self, kind: Type) -> bool {
        match kind {
            Type::MeterObjects => self.has_meter_objects(),
            Type::Sampler => self.has_samplers(),
            Type::GeneveOption => true,
            _ if !self.software_steering => false,
            Type::SteeringMemory | Type::Meter => true,
            Type::MatchDefiner => self.match_definers != 0,
            Type::Argument => self.rewrites_by_pattern,
            Type::FirstHits => self.steering_format != Format::Zero,
            Type::ConnectionTracking => self.tracks_connections(),
        }
    }

    /// The types of general objects that it has, a bit each.
    pub(crate) fn general_objects(&self) -> u64 {
        Type::ALL.into_iter().filter(|kind| self.has(*kind)).fold(0, |types, kind| types | 1 << kind as u32)
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
                general::GENERAL_OBJ_TYPES.write(&mut bytes, self.general_objects());
                general::QOS.write(&mut bytes, (self.has_meter_objects() || self.software_steering).into());
                general::HCA_CAP_2.write(&mut bytes, self.tracks_connections().into());
                if self.software_steering {
                    fill(&mut bytes, 0, SOFTWARE_STEERING);
                    general::STEERING_FORMAT_VERSION.write(&mut bytes, self.steering_format.version());
                    let keeps_registers = self.steering_format != Format::Zero;
                    general::REG_C_PRESERVE.write(&mut bytes, keeps_registers.into());
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
                    // In switchdev mode the kernel wants a table for remote memory accesses, if the device has those at all.
                    fill(&mut bytes, caps::RDMA_RECEIVE, TABLE);
                    table::TABLE_MISS_ACTION_DOMAIN.at(caps::RDMA_RECEIVE).write(&mut bytes, 1);
                    fill(&mut bytes, caps::NIC_RECEIVE, SOFTWARE_OWNER);
                    fill(&mut bytes, caps::NIC_TRANSMIT, SOFTWARE_OWNER);
                    fill(&mut bytes, 0, &nic_addresses());
                    if self.finds_more {
                        fill(&mut bytes, 0, MORE_FIELDS);
                        table::FIELDS_MISC.at(caps::NIC_RECEIVE).write(&mut bytes, GENEVE_OPTION_FIELDS);
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
        assert_eq!(CONNECTX_6_DX_VFS.vports(), [0, 1, 2, 3, 4, 5, 6, 7, 8, VPORT_UPLINK]);
        assert_eq!(CONNECTX_6_DX_VFS.own_vport(), 0);
    }
}
