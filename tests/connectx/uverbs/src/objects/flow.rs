//! Matchers, flows and what flows do.

use sluice_connectx::hca::Hca;

use super::roots::Place;
use crate::command::{Command, send};
use crate::request::Refused;
use crate::tables::{action, numbered};

/// A mask with a priority: a group of a table.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    pub(crate) place: Place,
    pub(crate) group: u64,
}

/// An entry.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) table_type: u8,
    pub(crate) table: u64,
    pub(crate) index: u64,
}

pub(crate) const UNDO_MODIFY_HEADER: u16 = 0x941;

pub(crate) const UNDO_REFORMAT: u16 = 0x93e;

/// A context for entries: the opcode that takes it back, and its id.
#[derive(Debug, Clone)]
pub(crate) struct FlowAction {
    pub(crate) undo: u16,
    pub(crate) id: u64,
}

/// What an entry does: the bits of its actions, and what they need.
#[derive(Debug, Default, Clone)]
pub(crate) struct Entry {
    pub(crate) tag: Option<u64>,
    pub(crate) actions: u64,
    pub(crate) destinations: Vec<[u8; 8]>,
    pub(crate) counters: Vec<[u8; 8]>,
    pub(crate) reformat: u64,
    pub(crate) rewrite: u64,
}

impl Entry {
    /// One that gives packets a tag, if any, and does nothing else yet.
    pub(crate) fn tagged(tag: Option<u64>) -> Self {
        Self { tag, ..Self::default() }
    }

    /// One more action, if there is none of its kind yet.
    pub(crate) fn also(&mut self, flow_action: &FlowAction) -> bool {
        let (bit, place) = match flow_action.undo {
            UNDO_REFORMAT => (action::REFORMAT, &mut self.reformat),
            _ => (action::MODIFY_HEADER, &mut self.rewrite),
        };
        let is_new = self.actions & bit == 0;
        self.actions |= bit;
        *place = flow_action.id;
        is_new
    }

    /// One for what another flow does with the same packets, too, if that can be (`check_conflicting_ftes`).
    pub(crate) fn with(mut self, other: &Self) -> Option<Self> {
        let differs = (self.actions ^ other.actions) & (action::DROP | action::REFORMAT | action::MODIFY_HEADER) != 0;
        let is_other_tag = other.tag.is_some() && other.tag.unwrap_or(0) != self.tag.unwrap_or(0);
        if differs || is_other_tag {
            return None;
        }
        self.actions |= other.actions;
        for (own, others) in [(&mut self.destinations, &other.destinations), (&mut self.counters, &other.counters)] {
            let new: Vec<_> = others.iter().filter(|element| !own.contains(element)).copied().collect();
            own.extend(new);
        }
        Some(self)
    }
}

impl FlowAction {
    pub(crate) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
        send(hca, &Command::new(self.undo, &numbered::LAYOUT, &[(numbered::ID, self.id)])).map(|_| ())
    }
}
