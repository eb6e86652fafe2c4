//! Flow tables, groups and entries, and what becomes of a packet in them.
//!
//! [`Steering::command`] takes the PRM commands that build the tables, checked as firmware checks them; [`Steering::receive`]
//! walks a packet through what they built, and says at every step what it did and why.
//!
//! Statuses are those of the PRM. Which of them firmware gives for which mistake is known from drivers' logs for some, and our
//! choice for the rest; syndromes are ours throughout. What the device can do and this engine cannot (ASO other than first
//! hits, meters and connection tracking, crypto, match definers for its own tables, tables of RDMA and sniffers) is refused,
//! never ignored.
//!
//! Actions come in the order that the kernel keeps for software steering: decap, VLAN pop, modify header, VLAN push, encap. These
//! readings are ours: of several matches the lowest index wins; a counter counts the frame as it came to the entry, without FCS;
//! a table without an entry that matches drops in the FDB and in NIC RX, and lets pass in ACLs and in NIC TX; an action that the
//! packet gives no ground for, such as a VLAN pop without a tag, ends the packet with that as the reason.

pub mod address;
pub(crate) mod arguments;
mod bits;
mod counters;
pub(crate) mod definers;
mod entries;
mod failure;
mod fields;
pub(crate) mod hits;
pub mod icm;
mod key;
mod layout;
pub(crate) mod meter;
mod objects;
mod reformat;
mod rewrite;
pub(crate) mod sampler;
pub mod ste;
mod step;
mod table;
mod tables;
pub(crate) mod tracking;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use counters::Dump;
pub use counters::{Count, Telling};
pub(crate) use failure::NO_ROOM;
pub use failure::{Failure, status};
pub use meter::Color;
pub use rewrite::Rewritten;
pub use step::{Deed, Port, Step, TableName};
pub use table::{TableKind, Target};
pub use tracking::{Direction, Outcome};
pub use walk::{Origin, Received, Walk};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::packet::TunnelPorts;
use arguments::Arguments;
use counters::Counters;
use definers::Definers;
use failure::Refusal;
use hits::Hits;
use icm::Icm;
use layout::opcode;
use meter::Meter;
use meter::aso::MeterObjects;
use objects::Objects;
use reformat::Reformat;
use rewrite::Rewrite;
use sampler::Sampler;
use table::{Domain, Table};
use tracking::Connections;

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
    pub steering_format: ste::Format,
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
            steering_format: ste::Format::One,
            software_owner: false,
            finds_more: false,
        }
    }
}

/// The user context whose tables all user contexts may lead packets to.
pub const SHARED_UID: u16 = 0xffff;

/// The id of the only option of Geneve.
const GENEVE_OPTION: u32 = 1;

/// All steering objects of one device.
#[derive(Debug)]
pub struct Steering {
    profile: Profile,
    vports: BTreeSet<u16>,
    tables: Objects<Table>,
    next_group: u32,
    /// Entries of the switch's tables.
    entries: usize,
    /// Roots that were set, or disconnected.
    roots: BTreeMap<Domain, Option<u32>>,
    counters: Counters,
    rewrites: Objects<Rewrite>,
    reformats: Objects<Reformat>,
    /// TIRs that exist, and how often entries lead to them.
    tirs: BTreeMap<u32, u32>,
    tunnels: TunnelPorts,
    /// Registers C, by bit, that the switch hands to the receiving function.
    fdb_to_vport_registers: u8,
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
    samplers: Objects<Sampler>,
    meters: Objects<Meter>,
    /// ASO objects of meters.
    meter_objects: MeterObjects,
    /// How much time has gone by since the device was made.
    now: Duration,
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

    /// Whether `opcode` is a command for [`Self::command`].
    pub fn handles(opcode: u16) -> bool {
        matches!(
            opcode,
            opcode::ADD_VXLAN_UDP_DPORT..=opcode::DELETE_VXLAN_UDP_DPORT
                // Up to QUERY_MODIFY_HEADER_CONTEXT.
                | opcode::SET_FLOW_TABLE_ROOT..=0x942
        )
    }

    /// Carries out one command. `input` is the whole input mailbox from the opcode on; the answer is the whole output
    /// mailbox, with status and syndrome zero. `uid` is the DevX user context, 0 for the kernel's own commands: a user context
    /// does not see objects of others.
    pub fn command(&mut self, opcode: u16, uid: u16, input: &[u8]) -> Result<Vec<u8>, Failure> {
        let carry_out = match opcode {
            opcode::ADD_VXLAN_UDP_DPORT => Self::add_vxlan_port,
            opcode::DELETE_VXLAN_UDP_DPORT => Self::delete_vxlan_port,
            opcode::SET_FLOW_TABLE_ROOT => Self::set_flow_table_root,
            opcode::CREATE_FLOW_TABLE => Self::create_flow_table,
            opcode::DESTROY_FLOW_TABLE => Self::destroy_flow_table,
            opcode::QUERY_FLOW_TABLE => Self::query_flow_table,
            opcode::MODIFY_FLOW_TABLE => Self::modify_flow_table,
            opcode::CREATE_FLOW_GROUP => Self::create_flow_group,
            opcode::DESTROY_FLOW_GROUP => Self::destroy_flow_group,
            opcode::QUERY_FLOW_GROUP => Self::query_flow_group,
            opcode::SET_FLOW_TABLE_ENTRY => Self::set_flow_table_entry,
            opcode::QUERY_FLOW_TABLE_ENTRY => Self::query_flow_table_entry,
            opcode::DELETE_FLOW_TABLE_ENTRY => Self::delete_flow_table_entry,
            opcode::ALLOC_FLOW_COUNTER => Self::alloc_flow_counter,
            opcode::DEALLOC_FLOW_COUNTER => Self::dealloc_flow_counter,
            opcode::QUERY_FLOW_COUNTER => Self::query_flow_counter,
            opcode::ALLOC_PACKET_REFORMAT_CONTEXT => Self::alloc_packet_reformat_context,
            opcode::DEALLOC_PACKET_REFORMAT_CONTEXT => Self::dealloc_packet_reformat_context,
            opcode::ALLOC_MODIFY_HEADER_CONTEXT => Self::alloc_modify_header_context,
            opcode::DEALLOC_MODIFY_HEADER_CONTEXT => Self::dealloc_modify_header_context,
            _ => return Err(Refusal::Opcode(opcode).into()),
        };
        needs(input, layout::SHORT_OUTPUT)?;
        Ok(carry_out(self, uid, input)?)
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
    pub fn entry_at(&self, address: u64) -> Option<[u8; ste::ENTRY]> {
        ste::SteeringMemory::entry(&self.icm, address)
    }

    /// Where there is room for a block of `length` bytes in the device's memory of a kind; None if there is none.
    pub fn room(&self, kind: icm::Kind, length: u64) -> Option<u64> {
        self.icm.room(kind, length)
    }

    /// How many bytes of memory software has for its tables at the moment.
    pub fn memory_handed_out(&self) -> u64 {
        self.icm.handed_out(icm::Kind::Steering)
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

    /// How many steering objects exist, for a leak check: tables, groups, entries, counter allocations, modify-header and
    /// reformat contexts, blocks of steering memory, of arguments and of ASO objects, match definers, samplers, meters,
    /// the option of Geneve.
    pub fn objects_left(&self) -> usize {
        let in_tables: usize =
            self.tables.iter().flat_map(|(_, table)| table.groups.values()).map(|group| 1 + group.len()).sum();
        in_tables
            + self.tables.len()
            + self.counters.len()
            + self.rewrites.len()
            + self.reformats.len()
            + self.icm.len()
            + self.arguments.len()
            + self.hits.len()
            + self.definers.len()
            + self.connections.len()
            + self.samplers.len()
            + self.meters.len()
            + self.meter_objects.len()
            + usize::from(self.tunnels.geneve_option.is_some())
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

    fn check_port(&self, port: Port) -> Result<(), Refusal> {
        match port {
            Port::Vport(vport) if !self.vports.contains(&vport) => {
                Err(Refusal::Unknown { what: "vport", id: vport.into() })
            }
            _ => Ok(()),
        }
    }

    fn add_vxlan_port(&mut self, _uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        let port = layout::VXLAN_UDP_PORT.u16(input);
        if !self.tunnels.vxlan.contains(&port) {
            self.tunnels.vxlan.push(port);
        }
        Ok(answer(layout::SHORT_OUTPUT))
    }

    fn delete_vxlan_port(&mut self, _uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        let port = layout::VXLAN_UDP_PORT.u16(input);
        if !self.tunnels.vxlan.contains(&port) {
            return Err(Refusal::Unknown { what: "VXLAN port", id: port.into() });
        }
        self.tunnels.vxlan.retain(|known| *known != port);
        Ok(answer(layout::SHORT_OUTPUT))
    }
}

/// Refuses an input that ends before a command's layout does.
fn needs(input: &[u8], bytes: usize) -> Result<(), Refusal> {
    if input.len() < bytes {
        return Err(Refusal::Short { has: input.len(), needs: bytes });
    }
    Ok(())
}

/// An output of so many bytes that says success.
fn answer(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

/// The output of a command that made something.
fn answer_with_id(id: u32) -> Vec<u8> {
    let mut output = answer(layout::SHORT_OUTPUT);
    layout::OUT_ID.put(&mut output, id);
    output
}
