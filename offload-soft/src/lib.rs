//! A NIC in software: the default backend, and the reference for all others.
//!
//! Frames go in by hand ([`Injector`](sluice_flow::backend::Injector)), are parsed as the OVS kernel datapath parses them
//! ([`packet`]), looked up by tuple-space search ([`classifier`]), and rewritten, encapsulated and sent as the actions
//! say: as the kernel does it (`net/openvswitch/actions.c`), or as OVS's userspace where only that can. Nothing that a
//! flow asks for is left out in silence: what the device cannot match or do is refused at installation, with the reason.
//!
//! What is not here: processes that take packets, bonds, a routing table. The CRC of SCTP never counts padding, which
//! the kernel takes in where a frame has it. The device sends tunnel packets to the Ethernet address from which it
//! heard the remote address last, and to the broadcast address before. Its own Ethernet address at a port is `02:00`
//! and the number of the port; its own IP address, where `set(tunnel(…))` gives none, is the one to which tunnel
//! packets came in.

use std::sync::Arc;

use sluice_flow::backend::{Backend, OpenConfig};
use sluice_flow::refusal::Refusal;

mod backend;
mod chains;
mod chunks;
pub mod classifier;
pub mod conntrack;
mod engine;
mod facets;
mod hardware;
mod meters;
mod mirrors;
mod nic;
pub mod packet;
mod ports;
pub mod quiescence;
mod rules;
mod sync;
mod trace;
mod translate;

pub use backend::{RxQueue, SoftNic};
pub use engine::Drops;

/// Opens a NIC in software. Any device name is as good as another, and every call makes a new device.
pub fn open(config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
    Ok(Arc::new(SoftNic::new(config)))
}
