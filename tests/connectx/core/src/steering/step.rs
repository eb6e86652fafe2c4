//! What a walk did, in words: one line a step.

use std::fmt::{self, Write as _};

use super::deed::Deed;
use super::domain::Domain;
use super::layout::flow_context;
use super::objects::Objects;
use super::port::Port;
use super::ste::SteStep;
use super::table::{Entry, Miss, Table, Verdict};

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
