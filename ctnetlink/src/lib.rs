//! The connections that Linux tracks, by ctnetlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

mod filter;
mod mark;
mod socket;
pub mod wire;

pub use mark::Mark;
pub use socket::{Changed, Event, Events, Heard, Requests, SocketError, wait};
