//! The connections that Linux tracks, by ctnetlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
//!
//! [`wire`] reads messages through checked attributes, each in one pass that allocates nothing, and writes requests. [`Requests`] lists
//! connections, looks them up, changes and removes them; [`Events`] hears of them, with what a filter lets in ([`assured`], [`others`]). What is made of
//! them is the caller's: flows of the connections of a router, or the connections that a device tracks.

mod filter;
mod mark;
mod socket;
pub mod wire;

pub use filter::{assured, others};
pub use mark::Mark;
pub use socket::{BATCH, Changed, Event, Events, Heard, Requests, SocketError, wait};
