//! The kernel's tables for flows of programs: which there are, and who has room in them.

use std::collections::{BTreeMap, BTreeSet};

use crate::tables::FDB;

pub(crate) const MATCHER: u64 = 256;

/// Tables by their PRM type and priority. The first who needs one makes it, and the last one takes it along.
#[derive(Debug, Default)]
pub(crate) struct RootTables {
    pub(crate) tables: BTreeMap<(u8, u16), RootTable>,
    /// And what leads to them.
    pub(crate) anchors: BTreeMap<(u8, u16), AnchorTable>,
    /// Where packets of the switch go that no flow of a program takes.
    pub(crate) slow_path: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct RootTable {
    pub(crate) id: u64,
    /// First indexes of the matchers that are in it.
    pub(crate) matchers: BTreeSet<u64>,
}

/// A table whose only entry leads to another one, or drops.
#[derive(Debug)]
pub(crate) struct AnchorTable {
    pub(crate) table_type: u8,
    pub(crate) id: u64,
    pub(crate) group: u64,
    /// How many objects of programs' stand for it. If there are none any more, entries may still lead to it.
    pub(crate) uses: u32,
    pub(crate) drops: bool,
}

/// A way back into the tables, from a priority on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    pub(crate) table_type: u8,
    pub(crate) priority: u16,
}

/// Indexes of a table that are a matcher's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) table_type: u8,
    pub(crate) priority: u16,
    pub(crate) table: u64,
    pub(crate) first: u64,
}

impl Place {
    /// The last of them.
    pub(crate) fn last(&self) -> u64 {
        self.first + MATCHER - 1
    }
}

impl RootTables {
    /// The table that packets come to which one of this priority does not take.
    pub(crate) fn behind(&self, table_type: u8, priority: u16) -> Option<u64> {
        let mut others = self.tables.range((table_type, priority + 1)..=(table_type, u16::MAX));
        let next = others.next().map(|(_, table)| table.id);
        next.or(self.slow_path.filter(|_| table_type == FDB))
    }
}

/// Entries of a table, as a power of two.
pub(crate) const LOG_SIZE: u64 = 16;
