//! What programs make by commands of their own.

use std::fmt;

use nix::errno::Errno;
use sluice_connectx::command::layouts::output;
use sluice_connectx::hca::{Hca, command_name};

use crate::command::execute;
use crate::request::Refused;

/// What a program has made by a command of its own.
#[derive(Debug, Clone)]
pub(crate) struct DevxObject {
    pub(crate) made_by: u16,
    pub(crate) id: u64,
    /// How many flow counters it is, if it is of those.
    pub(crate) counters: u64,
    /// Type of the flow table that it is, or belongs to.
    pub(crate) table_type: u8,
    /// The command that undoes it.
    pub(crate) undo: Vec<u8>,
}

impl fmt::Display for DevxObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DevX object {:#x} of {}", self.id, command_name(self.made_by))
    }
}

impl DevxObject {
    pub(crate) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
        let answer = execute(hca, &self.undo);
        match output::STATUS.read(&answer) {
            Some(0) => Ok(()),
            _ => Err(Refused::new(Errno::EREMOTEIO, format!("{self} cannot be destroyed"))),
        }
    }

    /// A flow table's id and type.
    pub(crate) fn flow_table(&self) -> Option<(u64, u8)> {
        (self.made_by == CREATE_FLOW_TABLE).then_some((self.id, self.table_type))
    }

    /// The id of a flow counter that is so far behind the first of this block.
    pub(crate) fn flow_counter(&self, offset: u32) -> Option<u64> {
        (u64::from(offset) < self.counters).then_some(self.id + u64::from(offset))
    }

    /// Whether an id is its own, or that of a flow counter in this block.
    pub(crate) fn is(&self, id: u64) -> bool {
        (self.id..self.id + self.counters.max(1)).contains(&id)
    }

    /// A TIR's number.
    pub(crate) fn tir(&self) -> Option<u64> {
        const CREATE_TIR: u16 = 0x900;
        (self.made_by == CREATE_TIR).then_some(self.id)
    }
}

pub(crate) const CREATE_FLOW_TABLE: u16 = 0x930;
