//! All that a program can have made.

use std::fmt;

use sluice_connectx::hca::command_name;

use super::devx::DevxObject;
use super::flow::{Flow, FlowAction, Matcher};
use super::queues::{Connection, QueuePair, WorkQueue};
use super::roots::Anchor;
use super::verbs_flow::{Counters, VerbsFlow};

/// What a program has made.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    Pd(u64),
    /// By its key without the lowest byte.
    Mr(u64),
    /// Steering memory: object id, address and length.
    Dm {
        id: u64,
        address: u64,
        length: u64,
    },
    Cq(u64),
    QueuePair(QueuePair),
    Connection(Connection),
    /// By the number of its receive memory.
    SharedReceives(u64),
    WorkQueue(WorkQueue),
    /// A table of 2^`log` receive queues.
    QueueTable {
        id: u64,
        log: u32,
    },
    Uar(u64),
    Umem(u64),
    Devx(DevxObject),
    Matcher(Matcher),
    Anchor(Anchor),
    Flow(Flow),
    FlowAction(FlowAction),
    VerbsFlow(VerbsFlow),
    Counters(Counters),
}

impl Object {
    /// What it is, in a few words.
    pub(crate) fn kind(&self) -> String {
        let kind = match self {
            Self::Pd(_) => "PDs",
            Self::Mr(_) => "MRs",
            Self::Dm { .. } => "DMs",
            Self::Cq(_) => "CQs",
            Self::QueuePair(_) | Self::Connection(_) => "QPs",
            Self::SharedReceives(_) => "SRQs",
            Self::WorkQueue(_) => "WQs",
            Self::QueueTable { .. } => "tables of WQs",
            Self::Uar(_) => "UARs",
            Self::Umem(_) => "umems",
            Self::Devx(object) => return format!("DevX objects of {}", command_name(object.made_by)),
            Self::Matcher(_) => "flow matchers",
            Self::Anchor(_) => "steering anchors",
            Self::Flow(_) => "flows",
            Self::FlowAction(_) => "flow actions",
            Self::VerbsFlow(_) => "flows of verbs",
            Self::Counters(_) => "counters of verbs",
        };
        kind.to_owned()
    }
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pd(id) => write!(out, "PD {id:#x}"),
            Self::Mr(id) => write!(out, "MR {id:#x}"),
            Self::Dm { id, length, .. } => write!(out, "DM {id:#x} of {length:#x} bytes"),
            Self::Cq(id) => write!(out, "CQ {id:#x}"),
            Self::QueuePair(pair) => write!(out, "{pair}"),
            Self::Connection(connection) => write!(out, "QP {:#x}", connection.number),
            Self::SharedReceives(id) => write!(out, "SRQ {id:#x}"),
            Self::WorkQueue(queue) => write!(out, "WQ {:#x}", queue.id),
            Self::QueueTable { id, .. } => write!(out, "table {id:#x} of WQs"),
            Self::Uar(id) => write!(out, "UAR {id:#x}"),
            Self::Umem(id) => write!(out, "umem {id:#x}"),
            Self::Devx(object) => write!(out, "{object}"),
            Self::Matcher(_) => out.write_str("flow matcher"),
            Self::Anchor(_) => out.write_str("steering anchor"),
            Self::Flow(_) => out.write_str("flow"),
            Self::VerbsFlow(_) => out.write_str("flow of verbs"),
            Self::Counters(_) => out.write_str("counters"),
            Self::FlowAction(_) => out.write_str("flow action"),
        }
    }
}
