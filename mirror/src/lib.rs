//! Control traffic that is mirrored to a collector over reliable connections of RDMA: so far the verbs that it will be sent with
//! ([`verbs`]), and how two ends connect over a socket ([`exchange`]).
//!
//! No other crate needs rdma-core at build time, and nothing here is linked into `sluiced`.

pub mod exchange;
pub mod verbs;
