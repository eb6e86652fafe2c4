//! Established connections of a Linux router as flows.
//!
//! ```text
//! kernel --NEW, UPDATE, DESTROY--> Events --> Session --> Table, Ways, plan --> Intake (the agent)
//!   ^  ^                                        |  ^                               |
//!   |  +----- all connections, to compare ------+  +---- what the device counted --+
//!   +-------- timeouts, of connections that packets went by in the device
//! ```
//!
//! The kernel tracks, translates and filters the first packets of each connection. Once it calls a connection assured, and a TCP connection
//! established, the rest of its packets needs no decision any more: both directions become flows, which do what the kernel would do. From
//! the bottom up: [`sluice_ctnetlink`] speaks with the kernel, [`plan()`] says which flows a direction has, and [`ConntrackSource`] brings
//! them to the agent for as long as the kernel has the connection.
//!
//! **What stays in software.** Packets with SYN, FIN or RST, fragments, and packets whose TTL is below 32 match no flow. Connections stay with
//! the kernel that end at this host, need a helper or other sequence numbers, take a device that is no port of the agent, or
//! a way whose next hop is not known, or a shorter MTU than that of the device that they come in by. [`Reason`] has all of it. Connections
//! in a zone are another's, such as Open vSwitch's, and not looked at, nor are those without the [`Mark`] that is asked for.
//!
//! **Where packets go.** The kernel is asked for its way in each direction as for a packet that comes in at the port. Routes, rules,
//! addresses, devices and neighbours are followed. At a port, packets of a device of a VLAN above it have its tag.
//!
//! **What the kernel does not see.** Its timeouts would end a connection whose packets the device forwards. So the timeout is set anew while
//! packets are counted. Its windows of TCP stand still, so that it is told to be liberal about each connection whose flows go in
//! (`IP_CT_TCP_FLAG_BE_LIBERAL`), as it tells itself when nftables' flowtable gives a connection back.
//!
//! **When a connection ends,** the FIN or RST passes through the kernel, whose event takes the flows out before anything else is done.

mod entry;
mod judge;
mod kernel;
mod plan;
mod ports;
mod report;
mod session;
mod source;
mod table;
mod ways;

pub use judge::Reason;
pub use plan::{Planned, Side, TTLS, Tags, Ttl, plan};
pub use sluice_ctnetlink::Mark;
pub use source::{ConntrackSource, Options};
