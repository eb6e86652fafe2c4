//! The control socket: the OVS unixctl protocol, JSON-RPC 1.0 over a unix stream socket.
//!
//! The stock `ovs-appctl -t RUN_DIR/sluiced.ctl COMMAND` drives it as it drives Open vSwitch's own daemons. A [`Registry`]
//! of [`Command`]s says what can be asked, a [`Server`] answers, and a [`Client`](sluice_control::Client) asks. Replies are
//! streamed on both sides, so that a dump of a million flows takes as much memory as one of ten.
//!
//! # Example
//!
//! ```
//! use std::os::unix::net::UnixListener;
//!
//! use sluice_control::Client;
//! use sluice_unixctl::{Command, Output, Registry, Request, Server, ServerOptions};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("example.ctl");
//! let mut registry = Registry::new("example");
//! let greet = |request: &Request<'_>, out: &mut dyn Output| {
//!     write!(out, "good morning, {}", request.args[0]).map_err(|error| error.to_string())
//! };
//! registry.register(Command { name: "greet", usage: "NAME", min_args: 1, max_args: 1, run: Box::new(greet) });
//!
//! let runtime = tokio::runtime::Runtime::new()?;
//! let listener = UnixListener::bind(&path)?;
//! let server = runtime.block_on(async { Server::new(listener, registry.into(), ServerOptions::default()) })?;
//! runtime.spawn(server.run(std::future::pending()));
//!
//! assert_eq!(Client::connect(&path)?.call_text("greet", &["Ada"])?, "good morning, Ada\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client_file;
mod command;
mod framing;
mod peer;
mod reply;
mod request;
mod server;

pub use command::{Command, Handler, Output, Registry, Request};
pub use framing::{FramingError, Splitter, Value};
pub use peer::{Admission, Peer, PeerError, group_id};
pub use server::{Deferred, Server, ServerOptions};

#[cfg(test)]
mod tests;
