//! The control socket: the OVS unixctl protocol, JSON-RPC 1.0 over a unix stream socket.
//!
//! The stock `ovs-appctl -t RUN_DIR/sluiced.ctl COMMAND` drives it as it drives Open vSwitch's own daemons. A [`Registry`]
//! of [`Command`]s says what can be asked, a [`Server`] answers, a [`Client`] asks. Replies are streamed on both sides, so
//! that a dump of a million flows takes as much memory as one of ten.

mod client;
mod command;
mod escape;
mod framing;
mod peer;
mod reply;
mod request;
mod server;

pub use client::{Asked, Client, ClientError};
pub use command::{Command, Handler, Output, Registry, Request};
pub use framing::{FramingError, Splitter, Value};
pub use peer::{Admission, Peer, PeerError, group_id};
pub use server::{Server, ServerOptions};

pub(crate) use escape::escape;

#[cfg(test)]
mod tests;
