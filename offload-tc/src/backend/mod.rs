//! The kernel's flower classifier as a [`Backend`](sluice_flow::backend::Backend).
//!
//! Everything belongs to the network namespace of the thread that [opens](crate::Config) the backend. The device in the configuration
//! is only the name of the lock that keeps two agents apart: agents that share the ports of a namespace should use the same
//! name, such as `system`, or the name of the uplink where each eswitch has its own agent.

mod adoption;
mod attach;
mod audit;
mod classifier;
mod core;
mod counted;
mod current;
mod device_changes;
mod doubts;
mod ends;
mod events;
mod facets;
mod failure;
mod flush;
mod holdings;
mod ipsec;
mod ledger;
mod leftovers;
mod listing;
mod loss;
mod mirrors;
mod monitoring;
mod open;
mod placement;
mod policies;
mod ports;
mod queue;
mod read_back;
mod reader;
mod removal;
mod sockets;
mod survey;
mod text;
mod trial;
mod watch;
