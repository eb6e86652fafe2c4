//! The control socket: the OVS unixctl protocol, JSON-RPC 1.0 over a unix stream socket.
//!
//! The stock `ovs-appctl -t RUN_DIR/sluiced.ctl COMMAND` drives it as it drives Open vSwitch's own daemons. A [`Registry`]
//! of [`Command`]s says what can be asked, a [`Server`] answers, and a [`Client`](sluice_control::Client) asks. Replies are
//! streamed on both sides, so that a dump of a million flows takes as much memory as one of ten.

mod command;
mod framing;
mod peer;
mod reply;
mod request;
mod server;

pub use command::{Command, Handler, Output, Registry, Request};
pub use framing::{FramingError, Splitter, Value};
pub use peer::{Admission, Peer, PeerError, group_id};
pub use server::{Server, ServerOptions};

#[cfg(test)]
mod tests;
