//! What both ends of the control socket share: `sluiced`, which listens on it, and `sluice`, which asks.
//!
//! The control socket speaks the OVS unixctl protocol, JSON-RPC 1.0 over a unix stream socket. The end that listens is in the agent.
//! - A [`Client`] asks, an agent or any Open vSwitch daemon, and hands the answer on as it arrives.
//! - [`parts`] reads a text in parts of whole lines, so that no more than a part of it is held at a time.
//! - [`answers`] are the answers that programs read.
//! - [`duration`] is the text form of a span of time, in commands and in the configuration.
//! - [`mirror`] is what the agent and `sluice-mirror` share about mirrored control traffic.
//! - [`control_socket`], [`READY_COMMAND`], [`READY`], [`OBSERVE_OVS`] and [`IDLE_LIMIT`] are what both ends must agree on.
//!
//! ```
//! use sluice_control::{Client, ClientError, control_socket};
//!
//! /// Lists the flows of the agent with this run folder.
//! fn dump_flows(run_dir: &std::path::Path) -> Result<String, ClientError> {
//!     let mut client = Client::connect(&control_socket(run_dir))?;
//!     client.call_text("dpctl/dump-flows", &["-m"])
//! }
//!
//! let nobody = dump_flows("/nowhere".as_ref());
//! assert!(matches!(nobody, Err(ClientError::Transport(_))));
//! ```

pub mod answers;
mod client;
pub mod duration;
mod escape;
pub mod mirror;
pub mod parts;
mod well_known;

pub use client::{Asked, Client, ClientError};
pub use escape::escape;
pub use well_known::{
    API_SOCKET, CONTROL_SOCKET, IDLE_LIMIT, OBSERVE_OVS, READY, READY_COMMAND, api_socket, control_socket,
};
