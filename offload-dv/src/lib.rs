//! Flows in the steering tables of an mlx5 NIC, written from userspace, past the kernel's flow code.
//!
//! From the bottom up: [`mlx5`] binds libmlx5, [`translate`] turns a flow into rules or returns the reason why it cannot, [`switch`] keeps
//! the rules of an eswitch, and [`DvNic`] is the backend. One thread calls libmlx5; workers translate flows and hand it the result.
//!
//! # Example
//!
//! A VLAN match as the rule that it becomes, without a device.
//!
//! ```
//! use sluice_flow::refusal::Refusal;
//! use sluice_flow::text::{parse_actions, parse_key};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, MaskedKey, PortNumber, Priority};
//! use sluice_offload_dv::translate::{Vports, translate};
//!
//! /// Port N is vport N.
//! struct Ports;
//!
//! impl Vports for Ports {
//!     fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
//!         u16::try_from(port.0).map_err(|_| Refusal::no_port(port))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = "in_port(1),eth(),eth_type(0x8100),vlan(vid=7),encap(eth_type(0x0800),ipv4(frag=no))";
//! let matching = MaskedKey::new(&parse_key(key, &())?.matching);
//! let actions = parse_actions("pop_vlan,2", &())?;
//! let flow = Flow::new(None, matching, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
//! let rule = translate(&flow, &Ports)?.describe(&|vport| format!("vport {vport}"));
//! assert!(rule.contains(" outer.first_vid=0x7 "), "{rule}");
//! assert!(rule.ends_with("; actions count, pop_vlan, to vport 2"), "{rule}");
//! # Ok(())
//! # }
//! ```

mod arrivals;
mod asks;
mod backend;
mod config;
pub mod connections;
mod conntrack;
mod desk;
mod device;
mod eswitch;
mod events;
mod in_hand;
mod ipsec;
mod meters;
mod mirrors;
pub mod mlx5;
mod owner;
mod ports;
mod queue;
mod reader;
mod rules;
pub mod switch;
pub mod translate;
mod trial;
mod watch;
mod ways;

pub use backend::DvNic;
pub use config::{Config, ConnectionsOf, KIND};
pub use rules::BYTES_A_RULE;
