//! Flows in the kernel's flower classifier, over netlink.
//!
//! [`translate`] makes a rule of a flow, or says why there is none, and reads a rule back; [`templates`] make those that differ from
//! earlier ones in values alone; [`install`] puts rules into the kernel, many at a time, and brings back the kernel's own words;
//! [`dump`] lists them with their counters. What goes over the socket is in [`wire`]. The network devices and what happens to them
//! are in [`sluice_netdev`]. [`probe`] finds out what the running kernel can match, and [`meters`] keeps the policers that flows
//! share.
//!
//! [`open`] puts them together behind the [`Backend`](sluice_flow::Backend) trait, with the mirrors in front of all flows.
//!
//! Where flower and the Open vSwitch datapath read the same packet differently, and no rule can help it:
//! - A header that ends behind the packet is none in OVS; flower takes what there is.
//! - Frames of IEEE 802.3 with SNAP, transport headers of first fragments and ARP other than requests and replies are not
//!   looked into, and so miss a rule that would; OVS looks.
//! - An authentication header of IPv6 is the protocol to flower; to OVS that is what comes behind it.
//! - PPPoE of another version or code, or with no protocol of PPP inside, is nothing to flower.
//! - After a rewriting, checksums are computed anew, so that a wrong one becomes right. Of IPv6 with a routing header that is
//!   not used up, the one behind it becomes wrong, for the kernel sums up the next hop.
//! - Of a connection that a helper told of, packets are `+rel` until it is answered and `+est` afterwards; OVS says `+new+rel` or
//!   `+rel`, and then `+est+rel`. A match on two of them is refused, since nothing would ever meet it.
//! - Of the length of all Geneve options, only those bits are compared that are set in the wanted one.

mod backend;
pub mod digest;
pub mod dump;
pub mod install;
pub mod marks;
pub mod meters;
pub mod priorities;
pub mod probe;
pub mod rule;
mod socket;
pub mod surroundings;
pub mod templates;
pub mod translate;
pub mod wire;

pub use backend::{check_port, open};
pub use socket::SocketError;
