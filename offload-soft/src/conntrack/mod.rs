//! Connection tracking: `ct(…)` and `ct_clear`.
//!
//! What a packet gets is what Linux 6.1 gives it in its OVS datapath (`net/openvswitch/conntrack.c` on top of
//! `net/netfilter/nf_conntrack_*.c` and `nf_nat_*.c`, all with their defaults). A packet is found in the table by its
//! tuple, followed by the tracker of its protocol, and translated (`nat` chooses, `rewrite` does it). A new connection
//! enters the table when it is committed, and leaves it when its time is over. Fragments wait for each other in
//! `reassembly`, and a packet that came in pieces leaves in pieces (`fragmentation`).
//!
//! What one connection says about another is read by a gateway (`helper`, with `ftp` and `tftp`), and what it announces
//! is waited for in `expectation`. Rules name timeout policies (`policies`). Zones may be limited (`zones`).
//!
//! What is not here: gateways for other protocols, PPTP. Time comes from the caller.

mod adjustment;
mod congestion;
mod connections;
mod dccp;
mod expectation;
mod fragment;
mod fragmentation;
#[cfg(test)]
mod frames;
mod ftp;
mod gateway;
mod helper;
mod icmp;
mod ip;
mod listing;
mod losses;
mod membership;
mod nat;
mod policies;
mod protocol;
mod reassembly;
mod refusals;
mod request;
mod rewrite;
mod sctp;
mod state;
#[cfg(test)]
mod stories;
mod table;
mod tcp;
mod tcp_segment;
mod tcp_state;
mod tftp;
mod timeouts;
mod tracked;
mod tracker;
mod translation;
mod tuple;
mod zones;

pub use connections::{Conntrack, LIMIT};
pub(crate) use connections::{clear, cut, length};
pub(crate) use fragmentation::Cut;
pub use losses::Losses;
pub(crate) use losses::Stop;
pub(crate) use policies::Policies;
pub(crate) use refusals::check;
pub(crate) use request::Request;
pub use state::ConnectionKey;
pub(crate) use tracked::Tracked;
pub use tuple::Tuple;
