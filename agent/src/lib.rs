//! The agent: where the parts meet.
//!
//! # Example
//!
//! An agent on the NIC in software, without sockets and without anything that outlives it.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use sluice_agent::agent::{Agent, Keeping};
//! use sluice_agent::config::Config;
//! use sluice_agent::service::{AddFlow, Outcome, Service};
//! use sluice_host::lifecycle::Lifecycle;
//! use sluice_flow::text::{parse_actions, parse_key};
//! use sluice_flow::time::MonotonicClock;
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, MaskedKey, Port, PortKind, PortNumber, Priority};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Runtime::new()?;
//! let (seed, clock) = (Seed([7; 16]), Arc::new(MonotonicClock::new()));
//! let (agent, parts) = Agent::open(Config::default(), seed, clock, Keeping::default())?;
//! let mut lifecycle = Lifecycle::new(runtime.handle().clone());
//! parts.run(&agent, &mut lifecycle, |_| {})?;
//!
//! let service = Service::new(agent);
//! for (number, name) in [(1, "client"), (2, "server")] {
//!     let port = Port { number: PortNumber(number), name: name.parse()?, kind: PortKind::Physical };
//!     let _receipt = service.put(port)?.receipt();
//! }
//! let ports = service.view().ports();
//! let matching = parse_key("in_port(client),eth_type(0x0800)", &*ports)?.matching;
//! let actions = parse_actions("server", &*ports)?;
//! let flow = Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed);
//!
//! // Handing the flow over waits for nobody; what is accepted is waited for, first for the journal, then for the device.
//! let change = service.add(AddFlow { flow })?.durable()?;
//! assert!(matches!(change.outcome(Duration::from_secs(10))?, Outcome::Installed));
//!
//! assert!(runtime.block_on(lifecycle.stop()).is_clean());
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod api;
pub mod backends;
mod bell;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod mirroring;
pub mod observe;
pub mod ovs;
pub mod preflight;
mod reload;
pub mod service;
pub mod sessions;
pub mod source;
pub mod upkeep;

pub use self::agent::ANSWER_TIME;
