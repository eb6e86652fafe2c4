//! Loaded into an unmodified ovs-vswitchd by `LD_PRELOAD`, adds what Sluice has counted to the kernel's answers, and tells Sluice of meters.
//!
//! It stands in for `recvmsg`, by which ovs-vswitchd (2.5 to 4.0) receives all of netlink. A datagram of the family `ovs_flow` costs it a
//! look at each message; any other a look at the message's type. It stands in for `sendmsg` as well, since the kernel tells nobody at
//! which rate a meter limits: that is in the request of ovs-vswitchd alone.
//!
//! It takes no lock, allocates nothing and never waits: what another thread is busy with is left to that one. What it does with messages
//! is in `sluice_feedback::answer`, and what it tells of meters in `sluice_feedback::MeterSetter`.

mod interpose;
mod link;
