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
//!
//! # Example
//!
//! A rule is put in and a frame is let in at port 1, which leaves at port 2.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sluice_flow::backend::{Backend, Change, Injector, OpenConfig, Operation, Outcome};
//! use sluice_flow::text::{parse_actions, parse_key};
//! use sluice_flow::time::ManualClock;
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, FlowId, Generation, MaskedKey, Port, PortKind, PortNumber, Priority};
//! use sluice_offload_soft::SoftNic;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nic = SoftNic::new(&OpenConfig::new("soft0", Arc::new(ManualClock::default())));
//! for (number, name) in [(1, "client"), (2, "server")] {
//!     nic.attach_port(&Port { number: PortNumber(number), name: name.parse()?, kind: PortKind::Physical })?;
//! }
//!
//! let matching = parse_key("in_port(1),eth_type(0x0800)", &())?.matching;
//! let actions = parse_actions("2", &())?;
//! let seed = Seed([7; 16]);
//! let flow = Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed);
//! let id = FlowId { slot: 0, incarnation: 0 };
//! let change = Change { flow: id, generation: Generation(1), operation: Operation::Install(flow) };
//! let mut done = Vec::new();
//! nic.install_queue()?.submit(&mut vec![change], &mut done);
//! assert!(matches!(done[0].result, Ok(Outcome::InPlace { .. })));
//!
//! // Addresses, the type of IPv4, and 46 bytes behind them.
//! let frame = [&[2; 12][..], &[0x08, 0x00, 0x45], &[0; 45]].concat();
//! let verdict = nic.inject(PortNumber(1), &frame)?;
//! assert_eq!(verdict.hits, [id]);
//! assert_eq!(verdict.sent, [(PortNumber(2), frame)]);
//! # Ok(())
//! # }
//! ```

mod backend;
mod chains;
mod chunks;
pub mod classifier;
mod config;
pub mod conntrack;
mod engine;
mod facets;
mod free_list;
mod hardware;
mod jumps;
mod meters;
mod mirrors;
mod nic;
mod open;
pub mod packet;
mod places;
mod ports;
mod programs;
pub mod quiescence;
mod rules;
mod sync;
mod trace;
mod translate;

pub use backend::{RxQueue, SoftNic};
pub use config::{Config, KIND};
pub use engine::Drops;
