//! Where packets enter the device's switch and leave it.

use std::fmt;

/// Where a packet enters the device's switch, or leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The network: the uplink, vport 0xffff.
    Wire,
    /// The function behind a vport: 0 is the host's PF, 0xfffe an embedded CPU's.
    Vport(u16),
}

/// The wire's vport number.
pub const VPORT_UPLINK: u16 = 0xffff;

/// Vport of the embedded CPU's function.
pub const VPORT_ECPF: u16 = 0xfffe;

impl Port {
    /// The port of a vport.
    #[must_use]
    pub fn of_vport(number: u16) -> Self {
        if number == VPORT_UPLINK { Self::Wire } else { Self::Vport(number) }
    }

    pub(super) fn vport(self) -> u16 {
        match self {
            Self::Wire => VPORT_UPLINK,
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

/// Who sent a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The port.
    pub port: Port,
    /// The send queue's number, for the manager's own packets; 0 otherwise.
    pub sqn: u32,
    /// What the send queue entry says for register A.
    pub metadata: u32,
}

/// Number of a function among all of the device: the embedded CPU's first.
pub fn vhca_id(vport: u16) -> u16 {
    if vport == VPORT_ECPF { 0 } else { vport + 1 }
}
