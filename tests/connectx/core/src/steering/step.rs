//! What a walk did, in words: one line a step.

use std::fmt::{self, Write as _};

use super::layout::flow_context;
use super::meter::Color;
use super::objects::Objects;
use super::rewrite::Rewritten;
use super::ste::SteStep;
use super::table::{Domain, Entry, Miss, Table, Target, Verdict};
use super::tracking::{Direction, Outcome};

/// Where a packet enters the device's switch, or leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The network: the uplink, vport 0xffff.
    Wire,
    /// The function behind a vport: 0 is the host's PF, 0xfffe an embedded CPU's.
    Vport(u16),
}

/// The wire's vport number.
const UPLINK: u16 = 0xffff;

impl Port {
    /// The port of a vport.
    #[must_use]
    pub fn of_vport(number: u16) -> Self {
        if number == UPLINK { Self::Wire } else { Self::Vport(number) }
    }

    pub(super) fn vport(self) -> u16 {
        match self {
            Self::Wire => UPLINK,
            Self::Vport(number) => number,
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire => out.write_str("wire"),
            Self::Vport(0xfffe) => out.write_str("vport 0xfffe"),
            Self::Vport(number) => write!(out, "vport {number}"),
        }
    }
}

/// A table as steps name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// Its id.
    pub id: u32,
    /// Its level.
    pub level: u8,
    /// What it belongs to, such as `FDB` or `ingress ACL of vport 1`.
    pub of: String,
}

impl TableName {
    pub(super) fn new(id: u32, table: &Table) -> Self {
        Self { id, level: table.level, of: table.domain.to_string() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} table {:#x} level {}", self.of, self.id, self.level)
    }
}

/// One step of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The packet came in.
    Arrived {
        /// From there.
        from: Port,
        /// Its length.
        bytes: usize,
    },
    /// An entry matched.
    Hit {
        /// The table.
        table: TableName,
        /// The group's id.
        group: u32,
        /// The entry's index.
        entry: u32,
        /// What it matched on.
        matched: String,
        /// What it did.
        did: Vec<Deed>,
    },
    /// No entry of a table matched.
    Missed {
        /// The table.
        table: TableName,
        /// The table that misses lead to; None for what such tables do by default.
        to: Option<u32>,
    },
    /// The packet went into steering memory, since software owns the table.
    Entered {
        /// The table.
        table: TableName,
        /// Its root entry.
        root: u64,
    },
    /// An entry in steering memory was visited.
    Entry(SteStep),
    /// The packet left steering memory at an address that stands for that.
    Left {
        /// The address.
        address: u64,
        /// In words.
        to: String,
    },
    /// The packet ended in steering memory.
    Ended {
        /// For this reason.
        why: String,
    },
    /// There is no table to walk through: the packet passes.
    NoTable {
        /// Of what.
        of: String,
    },
    /// A copy left the switch.
    Sent {
        /// There.
        to: Port,
        /// Its length.
        bytes: usize,
    },
    /// A copy reached a receive queue.
    Received {
        /// The TIR.
        tir: u32,
        /// Its length.
        bytes: usize,
    },
    /// A copy ended.
    Dropped {
        /// For this reason.
        why: &'static str,
    },
}

/// One thing that an entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Moved a counter by a packet.
    Counted {
        /// The counter.
        counter: u32,
        /// The octets that it moved by.
        bytes: usize,
    },
    /// Took so many bytes of tunnel headers away.
    Decapsulated(usize),
    /// Took a VLAN tag away: its TCI.
    PoppedVlan(u16),
    /// Changed a field.
    Rewrote(Rewritten),
    /// Put a VLAN tag on: EtherType and TCI.
    PushedVlan(u16, u16),
    /// Applied a packet reformat context; the frame's length before and after.
    Reformatted {
        /// The context.
        id: u32,
        /// Length before.
        from: usize,
        /// Length after.
        to: usize,
    },
    /// Took bytes away or put some in: the frame's length before and after.
    Resized {
        /// Length before.
        from: usize,
        /// Length after.
        to: usize,
    },
    /// Marked the packet for its receiver.
    Tagged(u32),
    /// A line of an ASO object was hit.
    Hit {
        /// The object.
        object: u32,
        /// Which of its lines.
        line: u16,
        /// Whether it had been hit before.
        was: bool,
    },
    /// A meter in an ASO object colored it.
    Metered {
        /// The object.
        object: u32,
        /// Which of its meters.
        meter: usize,
        /// The color.
        color: Color,
    },
    /// An ASO object that tracks a connection looked at it.
    Tracked {
        /// The object.
        object: u32,
        /// The end that it comes from.
        direction: Direction,
        /// What came of it.
        outcome: Outcome,
    },
    /// Sent it there.
    Forwarded(Target),
    /// Let it pass.
    Allowed,
    /// Ended it.
    Dropped,
    /// Could not do what it should, so the packet ends.
    Failed(&'static str),
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { from, bytes } => write!(out, "{bytes} bytes from {from}"),
            Self::Hit { table, group, entry, matched, did } => {
                write!(out, "{table}: group {group:#x} entry {entry} ({matched})")?;
                for (place, deed) in did.iter().enumerate() {
                    write!(out, "{}{deed}", if place == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            Self::Missed { table, to: Some(to) } => write!(out, "{table}: miss, on to table {to:#x}"),
            Self::Missed { table, to: None } => write!(out, "{table}: miss, default"),
            Self::Entered { table, root } => write!(out, "{table}: into steering memory at {root:#x}"),
            Self::Entry(step) => write!(out, "  {step}"),
            Self::Left { address, to } => write!(out, "out of steering memory at {address:#x}: {to}"),
            Self::Ended { why } => write!(out, "ended: {why}"),
            Self::NoTable { of } => write!(out, "{of}: no table"),
            Self::Sent { to, bytes } => write!(out, "{bytes} bytes to {to}"),
            Self::Received { tir, bytes } => write!(out, "{bytes} bytes to TIR {tir:#x}"),
            Self::Dropped { why } => write!(out, "dropped: {why}"),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted { counter, bytes } => write!(out, "counter {counter:#x} +{bytes} bytes"),
            Self::Decapsulated(bytes) => write!(out, "decap of {bytes} bytes"),
            Self::PoppedVlan(tci) => write!(out, "pop VLAN {:#x}", tci),
            Self::Rewrote(Rewritten { field, change: Some((from, to)) }) => write!(out, "{field} {from:#x}->{to:#x}"),
            Self::Rewrote(Rewritten { field, change: None }) => write!(out, "no {field} to change"),
            Self::PushedVlan(ethertype, tci) => write!(out, "push VLAN {ethertype:#06x} {tci:#x}"),
            Self::Reformatted { id, from, to } => write!(out, "reformat {id:#x} from {from} to {to} bytes"),
            Self::Resized { from, to } => write!(out, "from {from} to {to} bytes"),
            Self::Tagged(tag) => write!(out, "tag {tag:#x}"),
            Self::Hit { object, line, was } => {
                write!(out, "line {line} of ASO {object:#x} {}", if *was { "was hit before" } else { "is hit first" })
            }
            Self::Metered { object, meter, color } => write!(out, "{color} by meter {meter} of ASO {object:#x}"),
            Self::Tracked { object, direction, outcome } => {
                let end = match direction {
                    Direction::Initiator => "initiator",
                    Direction::Responder => "responder",
                };
                write!(out, "{outcome} from the {end} of ASO {object:#x}")
            }
            Self::Forwarded(target) => write!(out, "to {target}"),
            Self::Allowed => out.write_str("allow"),
            Self::Dropped => out.write_str("drop"),
            Self::Failed(why) => write!(out, "cannot: {why}"),
        }
    }
}

/// Tables with their groups and entries, a line each.
pub(super) fn dump(tables: &Objects<Table>) -> String {
    let mut text = String::new();
    for (id, table) in tables.iter() {
        let miss = match table.miss {
            Miss::Default => String::new(),
            Miss::Table(id) => format!(", misses to table {id:#x}"),
        };
        let terminates = if table.termination { ", terminates" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}, {} entries{miss}{terminates}", TableName::new(id, table), table.size());
        for group in table.groups.values() {
            let mask = group.described.value(&group.mask[..]);
            let _ = writeln!(text, "  group {:#x}, {} to {}: {mask}", group.id, group.first, group.last);
            for entry in table.entries().filter(|entry| (group.first..=group.last).contains(&entry.index)) {
                let matched = group.described.value(entry.value());
                let _ = writeln!(text, "    entry {}: {matched}: {}", entry.index, actions(entry));
            }
        }
    }
    text
}

fn actions(entry: &Entry) -> String {
    let mut words = vec![format!("actions {:#x}", flow_context::ACTION.u16(&entry.context))];
    words.extend(entry.counters.iter().map(|id| format!("counter {id:#x}")));
    words.extend(entry.rewrite.iter().map(|id| format!("modify header {id:#x}")));
    words.extend(entry.reformats().map(|id| format!("reformat {id:#x}")));
    words.extend(entry.meters.iter().map(|metered| format!("meter {} of ASO {:#x}", metered.meter, metered.object)));
    match &entry.verdict {
        Verdict::Allow => words.push("allow".to_owned()),
        Verdict::Drop => words.push("drop".to_owned()),
        Verdict::Forward(destinations) => {
            words.extend(destinations.iter().map(|destination| format!("to {}", destination.target)));
        }
    }
    words.join(", ")
}

/// What a domain is called where it has no table.
pub(super) fn no_table(domain: Domain) -> Step {
    Step::NoTable { of: domain.to_string() }
}
