//! Flows of verbs, and counters of programs.

use std::collections::BTreeMap;

use sluice_connectx::hca::Hca;

use super::flow::{Entry, Flow, Matcher};
use crate::command::{Command, send};
use crate::request::Refused;
use crate::tables::{MATCH, numbered};

/// Entries of flows, by those that look at the same bits: table type, priority and mask.
pub(crate) type Groups = BTreeMap<Key, Group>;

pub(crate) type Key = (u8, u16, [u8; MATCH]);

/// Flows of one mask.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) matcher: Matcher,
    pub(crate) shared: BTreeMap<[u8; MATCH], Shared>,
}

/// An entry of the device's, and what each flow for its packets does: by a number, the first one with the tag.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) made: Flow,
    pub(crate) next: u32,
    pub(crate) parts: BTreeMap<u32, Entry>,
    pub(crate) tag: Option<u64>,
}

impl Shared {
    /// What all of them do. None if they do not agree.
    pub(crate) fn whole(&self) -> Option<Entry> {
        let mut parts = self.parts.values();
        let mut first = parts.next()?.clone();
        first.tag = self.tag;
        parts.try_fold(first, Entry::with)
    }
}

/// A flow: its entries, and the counters that it has.
#[derive(Debug, Clone)]
pub(crate) struct VerbsFlow {
    pub(crate) entries: Vec<Placed>,
    pub(crate) counters: Option<u32>,
}

/// A flow's part of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) group: Key,
    pub(crate) value: [u8; MATCH],
    pub(crate) part: u32,
}

/// Counters of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    /// The device's counter, from the first flow on.
    pub(crate) id: Option<u64>,
    /// What the program wants to know, and where in its answer: packets, or bytes.
    pub(crate) wanted: Vec<(Wanted, usize)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    Packets,
    Bytes,
}

impl Counters {
    pub(crate) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
        match self.id {
            Some(id) => send(hca, &Command::new(0x93a, &numbered::LAYOUT, &[(numbered::ID, id)])).map(|_| ()),
            None => Ok(()),
        }
    }
}
