//! All steering objects of one device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::arguments::Arguments;
use super::counters::{Count, Counters, Telling};
use super::definers::Definers;
use super::domain::{Domain, TableKind, Target};
use super::failure::{Failure, Refusal};
use super::format::{ENTRY, Format, SteeringMemory};
use super::hits::Hits;
use super::icm::Icm;
use super::meter::Meter;
use super::meter::aso::MeterObjects;
use super::objects::Objects;
use super::port::Port;
use super::reformat::Reformat;
use super::rewrite::Rewrite;
use super::sampler::Sampler;
use super::table::Table;
use super::tracking::Connections;
use super::{icm, meter, sampler, step};
use crate::packet::TunnelPorts;

/// What a device has and how much of it. Capabilities say the same to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The vport of the function that owns the switch: 0 for a PF, 0xfffe for an embedded CPU's.
    pub manager: u16,
    /// That function's vhca_id.
    pub vhca_id: u16,
    /// Highest level of a table: one less than max_ft_level.
    pub max_level: u8,
    /// log_max_ft_size.
    pub log_max_table_size: u8,
    /// Tables at a time.
    pub tables: usize,
    /// Entries of the switch's tables at a time.
    pub entries: usize,
    /// Flow counters at a time.
    pub counters: usize,
    /// Modify-header contexts at a time.
    pub modify_headers: usize,
    /// max_modify_header_actions.
    pub max_modify_header_actions: usize,
    /// Packet reformat contexts at a time.
    pub packet_reformats: usize,
    /// max_encap_header_size in bytes.
    pub max_encap_header_size: usize,
    /// steering_format_version.
    pub steering_format: Format,
    /// sw_owner: whether software may own tables, in steering memory.
    pub software_owner: bool,
    /// Whether tables find whole tunnel headers, options of Geneve, and which headers are right.
    pub finds_more: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            manager: 0,
            vhca_id: 0,
            max_level: 254,
            log_max_table_size: 24,
            tables: 1 << 20,
            entries: 1 << 24,
            counters: 1 << 23,
            modify_headers: 1 << 20,
            max_modify_header_actions: 16,
            packet_reformats: 1 << 18,
            max_encap_header_size: 256,
            steering_format: Format::One,
            software_owner: false,
            finds_more: false,
        }
    }
}

/// The id of the only option of Geneve.
const GENEVE_OPTION: u32 = 1;

/// All steering objects of one device.
#[derive(Debug)]
pub struct Steering {
    pub(super) profile: Profile,
    pub(super) vports: BTreeSet<u16>,
    pub(super) tables: Objects<Table>,
    pub(super) next_group: u32,
    /// Entries of the switch's tables.
    pub(super) entries: usize,
    /// Roots that were set, or disconnected.
    pub(super) roots: BTreeMap<Domain, Option<u32>>,
    pub(super) counters: Counters,
    pub(super) rewrites: Objects<Rewrite>,
    pub(super) reformats: Objects<Reformat>,
    /// TIRs that exist, and how often entries lead to them.
    pub(super) tirs: BTreeMap<u32, u32>,
    pub(super) tunnels: TunnelPorts,
    /// Registers C, by bit, that the switch hands to the receiving function.
    pub(super) fdb_to_vport_registers: u8,
    /// What software writes the tables into that it owns.
    pub(crate) icm: Icm,
    /// Values for patterns of rewrites.
    pub(crate) arguments: Arguments,
    /// ASO objects of first hits.
    pub(crate) hits: Hits,
    /// Match definers.
    pub(crate) definers: Definers,
    /// ASO objects of connection tracking.
    pub(crate) connections: Connections,
    pub(super) samplers: Objects<Sampler>,
    pub(super) meters: Objects<Meter>,
    /// ASO objects of meters.
    pub(super) meter_objects: MeterObjects,
    /// How much time has gone by since the device was made.
    pub(super) now: Duration,
}

impl Default for Steering {
    fn default() -> Self {
        Self::new(Profile::default())
    }
}

impl Steering {
    /// A device with no tables, whose only vports are the manager's and the wire's.
    pub fn new(profile: Profile) -> Self {
        Self {
            vports: BTreeSet::from([profile.manager]),
            tables: Objects::new("flow table", profile.tables),
            next_group: 1,
            entries: 0,
            roots: BTreeMap::new(),
            counters: Counters::new(profile.counters),
            rewrites: Objects::new("modify header context", profile.modify_headers),
            reformats: Objects::new("packet reformat context", profile.packet_reformats),
            tirs: BTreeMap::new(),
            tunnels: TunnelPorts::default(),
            fdb_to_vport_registers: 0,
            icm: Icm::default(),
            arguments: Arguments::default(),
            hits: Hits::default(),
            definers: Definers::default(),
            connections: Connections::default(),
            samplers: Objects::new("sampler", 1 << sampler::LOG_ALL),
            meters: Objects::new("meter", 1 << meter::LOG_ALL),
            meter_objects: MeterObjects::default(),
            now: Duration::ZERO,
            profile,
        }
    }

    /// Makes a vport known, so that entries and ACLs may name it.
    pub fn add_vport(&mut self, vport: u16) {
        self.vports.insert(vport);
    }

    /// Forgets a vport. Entries that lead to it drop their packets from now on.
    pub fn remove_vport(&mut self, vport: u16) {
        self.vports.remove(&vport);
    }

    /// Makes a TIR known, so that entries may lead to it.
    pub fn add_tir(&mut self, tir: u32) {
        self.tirs.entry(tir).or_default();
    }

    /// Forgets a TIR, unless entries lead to it.
    pub fn remove_tir(&mut self, tir: u32) -> Result<(), Failure> {
        match self.tirs.get(&tir) {
            None => Err(Refusal::Unknown { what: "TIR", id: tir }.into()),
            Some(&uses) if uses > 0 => Err(Refusal::InUse { what: "TIR", id: tir, uses }.into()),
            Some(_) => {
                self.tirs.remove(&tir);
                Ok(())
            }
        }
    }

    /// Sets which registers C (by bit) a function receives from the switch, as MODIFY_ESW_VPORT_CONTEXT says.
    pub fn set_fdb_to_vport_registers(&mut self, registers: u8) {
        self.fdb_to_vport_registers = registers;
    }

    /// What is written at an address in steering memory; None if nobody wrote an entry there.
    pub fn entry_at(&self, address: u64) -> Option<[u8; ENTRY]> {
        SteeringMemory::entry(&self.icm, address)
    }

    /// Where there is room for a block of `length` bytes in the device's memory of a kind; None if there is none.
    pub fn room(&self, kind: icm::Kind, length: u64) -> Option<u64> {
        self.icm.room(kind, length)
    }

    /// How many bytes of memory software has for its tables at the moment.
    pub fn memory_handed_out(&self) -> u64 {
        self.icm.handed_out(icm::Kind::Steering)
    }

    /// Whether copies of a packet that go there lose registers C where they part: in the FDB of devices without `reg_c_preserve`, as Linux
    /// says (`actions_match_supported` in en_tc.c). DPDK samples in NIC RX with registers on those, too.
    pub(super) fn loses_registers(&self, target: Target) -> bool {
        let Target::Table(id) = target else { return false };
        let is_in_fdb = self.tables.get(id).is_some_and(|table| table.domain.kind == TableKind::Fdb);
        is_in_fdb && self.profile.steering_format == Format::Zero
    }

    /// Formats of the match definers that there are.
    pub fn formats_of_definers(&self) -> Vec<u16> {
        self.definers.formats().collect()
    }

    /// Has the parser look for an option of Geneve, by class and type; of one at a time. It is an object with the id that comes
    /// back.
    pub(crate) fn look_for_option(&mut self, option: (u16, u8)) -> Result<u32, String> {
        if let Some((class, kind)) = self.tunnels.geneve_option {
            return Err(format!("the parser already looks for option {class:#x}:{kind:#x}"));
        }
        self.tunnels.geneve_option = Some(option);
        Ok(GENEVE_OPTION)
    }

    /// Has it look for none.
    pub(crate) fn look_for_no_option(&mut self, id: u32) -> Result<(), String> {
        let looks = id == GENEVE_OPTION && self.tunnels.geneve_option.take().is_some();
        looks.then_some(()).ok_or(format!("there is no option of Geneve {id:#x}"))
    }

    /// Whether a table has an entry at an index.
    pub fn has_entry(&self, table: u32, index: u32) -> bool {
        self.tables.get(table).is_some_and(|table| table.entry(index).is_some())
    }

    /// How many entries and tables lead to a table.
    pub fn uses_of_table(&self, table: u32) -> u32 {
        self.tables.uses(table)
    }

    /// Changes how many entries the switch's tables and how many counters there may be. What is there stays.
    pub fn limit(&mut self, entries: usize, counters: usize) {
        self.profile.entries = entries;
        self.profile.counters = counters;
        self.counters.limit = counters;
    }

    /// How many entries the switch's tables have.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// How many flow counters are allocated.
    pub fn counters(&self) -> usize {
        self.counters.allocated
    }

    /// Has counters be told wrong from now on, or right again. They count on.
    pub fn tell_counters(&mut self, telling: Telling) {
        self.counters.tell(telling);
    }

    /// What a flow counter stands at; None if it is not allocated.
    pub fn counter(&self, id: u32) -> Option<Count> {
        self.counters.read(id)
    }

    /// How many steering objects exist, for a leak check.
    pub fn objects_left(&self) -> usize {
        self.census().iter().map(|(_, count)| count).sum()
    }

    /// How many there are of each kind.
    pub fn census(&self) -> Vec<(&'static str, usize)> {
        let groups = || self.tables.iter().flat_map(|(_, table)| table.groups.values());
        vec![
            ("flow tables", self.tables.len()),
            ("flow groups", groups().count()),
            ("flow entries", groups().map(|group| group.len()).sum()),
            ("flow counters", self.counters.len()),
            ("lists of rewrites", self.rewrites.len()),
            ("reformats", self.reformats.len()),
            ("blocks of memory", self.icm.len()),
            ("blocks of arguments", self.arguments.len()),
            ("blocks of first hits", self.hits.len()),
            ("definers", self.definers.len()),
            ("blocks of connections", self.connections.len()),
            ("samplers", self.samplers.len()),
            ("meters", self.meters.len()),
            ("blocks of meters", self.meter_objects.len()),
            ("options of Geneve", usize::from(self.tunnels.geneve_option.is_some())),
        ]
    }

    /// Flow counters that have counted, by their numbers.
    pub fn counted(&self) -> Vec<(u32, Count)> {
        self.counters.counted().collect()
    }

    /// How many entries of a kind of tables count packets: a driver's rules do, and its own means do not.
    pub fn counted_entries(&self, kind: TableKind) -> usize {
        let tables = self.tables.iter().filter(|(_, table)| table.domain.kind == kind);
        tables.flat_map(|(_, table)| table.entries()).filter(|entry| !entry.counters.is_empty()).count()
    }

    /// All tables with their groups and entries in words, a line each.
    pub fn dump(&self) -> String {
        step::dump(&self.tables)
    }

    pub(super) fn check_port(&self, port: Port) -> Result<(), Refusal> {
        match port {
            Port::Vport(vport) if !self.vports.contains(&vport) => {
                Err(Refusal::Unknown { what: "vport", id: vport.into() })
            }
            _ => Ok(()),
        }
    }

    /// Lets time go on, by which meters are filled.
    pub fn pass_time(&mut self, time: Duration) {
        self.now += time;
    }

    /// How many meters of ASO objects have been written and not freed with their blocks.
    pub fn written_meters(&self) -> usize {
        self.meter_objects.written()
    }
}
