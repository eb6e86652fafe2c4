//! The vports of an eswitch.

use sluice_flow::port::{PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;

/// The uplink, as a vport.
pub const UPLINK: u16 = 0xffff;

/// Which vport a port of the datapath is.
pub trait Vports {
    /// Returns the vport; fails if there is no such port, or it is none of the switch.
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal>;

    /// Returns the vport of the function that manages the eswitch, if it is known. By it comes what the kernel's representors send.
    fn manager(&self) -> Option<u16> {
        None
    }

    /// Returns whether connections come to the switch, so that packets can be tracked in it.
    fn has_connections(&self) -> bool {
        false
    }

    /// Returns what a tunnel port is; `None` for a port of another kind.
    fn tunnel(&self, _port: PortNumber) -> Option<Tunnel> {
        None
    }
}
