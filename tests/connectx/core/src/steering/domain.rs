//! Kinds of tables, whose they are, and where entries send packets.

use std::fmt;

use super::port::Port;

/// PRM flow table types that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// Packets that a function receives.
    NicReceive,
    /// Packets that a function sends, before they reach the switch.
    NicTransmit,
    /// Packets on their way from the switch to a vport.
    EgressAcl,
    /// Packets on their way from a vport, or the wire, into the switch.
    IngressAcl,
    /// The switch itself.
    Fdb,
    /// Remote memory accesses that a function receives, of which there are none here: the kernel has a table that allows them in
    /// switchdev mode.
    RdmaReceive,
}

impl TableKind {
    pub(super) fn from_prm(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::NicReceive,
            1 => Self::NicTransmit,
            2 => Self::EgressAcl,
            3 => Self::IngressAcl,
            4 => Self::Fdb,
            7 => Self::RdmaReceive,
            _ => return None,
        })
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NicReceive => "NIC RX",
            Self::NicTransmit => "NIC TX",
            Self::EgressAcl => "egress ACL",
            Self::IngressAcl => "ingress ACL",
            Self::Fdb => "FDB",
            Self::RdmaReceive => "RDMA RX",
        })
    }
}

/// What a table belongs to: each has a root of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Domain {
    pub(super) kind: TableKind,
    /// The vport; 0 for the FDB, of which there is one.
    pub(super) vport: u16,
}

impl fmt::Display for Domain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TableKind::Fdb => write!(out, "{}", self.kind),
            kind => write!(out, "{kind} of {}", Port::of_vport(self.vport)),
        }
    }
}

/// Where an entry sends a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Out of the switch.
    Port(Port),
    /// To a flow table.
    Table(u32),
    /// To a receive queue of the function.
    Tir(u32),
    /// To a sampler.
    Sampler(u32),
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(out, "{port}"),
            Self::Table(id) => write!(out, "table {id:#x}"),
            Self::Tir(id) => write!(out, "TIR {id:#x}"),
            Self::Sampler(id) => write!(out, "sampler {id:#x}"),
        }
    }
}
