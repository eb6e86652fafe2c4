//! Flows in the kernel's flower classifier, over netlink.
//!
//! [`translate`] makes a rule of a flow, or says why there is none, and reads a rule back; [`templates`] make those that differ from
//! earlier ones in values alone; [`install`] puts rules into the kernel, many at a time, and brings back the kernel's own words;
//! [`dump`] lists them with their counters. What goes over the socket is in [`wire`]. The network devices and what happens to them
//! are in [`sluice_netdev`]. [`probe`] finds out what the running kernel can match, and [`meters`] keeps the policers that flows
//! share.
//!
//! A [`Config`] opens all of this behind the [`Backend`](sluice_flow::Backend) trait, with the mirrors in front of all flows.
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
//!
//! # Example
//!
//! What flower is asked for a VLAN tag, without a kernel.
//!
//! ```
//! use sluice_flow::meter::MeterId;
//! use sluice_flow::text::{parse_actions, parse_key};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, MaskedKey, PortNumber, Priority};
//! use sluice_offload_tc::rule::AgentId;
//! use sluice_offload_tc::surroundings::{Device, DeviceKind, Features, Surroundings};
//! use sluice_offload_tc::translate;
//! use sluice_offload_tc::wire::key::Key;
//!
//! /// The device of port N has the index 100 + N.
//! struct Ports;
//!
//! impl Surroundings for Ports {
//!     fn device(&self, port: PortNumber) -> Option<Device> {
//!         Some(Device { interface: 100 + port.0, kind: DeviceKind::Wire })
//!     }
//!
//!     fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
//!         let port = PortNumber(interface.checked_sub(100)?);
//!         Some((port, self.device(port)?))
//!     }
//!
//!     fn police(&self, _meter: MeterId) -> Option<u32> {
//!         None
//!     }
//!
//!     fn meter(&self, _police: u32) -> Option<MeterId> {
//!         None
//!     }
//!
//!     fn features(&self) -> Features {
//!         Features::default()
//!     }
//! }
//!
//! fn flow(key: &str, actions: &str) -> Result<Flow, Box<dyn std::error::Error>> {
//!     let (matching, actions) = (parse_key(key, &())?.matching, parse_actions(actions, &())?);
//!     let matching = MaskedKey::new(&matching);
//!     Ok(Flow::new(None, matching, actions, Priority::default(), Expiry::default(), &Seed([7; 16])))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tagged = "in_port(1),eth(),eth_type(0x8100),vlan(vid=7,pcp=0),encap(eth_type(0x0800),ipv4(frag=no))";
//! let rule = translate::rule(&flow(tagged, "pop_vlan,2")?, AgentId(1), &Ports)?;
//! assert_eq!(rule.flower.get(Key::VlanId), Some((7, 0xfff)));
//! assert_eq!(Key::VlanId.spec().value, 23, "TCA_FLOWER_KEY_VLAN_ID");
//!
//! // What flower cannot do is refused by name.
//! let refusal = translate::rule(&flow("in_port(1),eth_type(0x0806)", "lb_output(1)")?, AgentId(1), &Ports);
//! let refusal = refusal.unwrap_err();
//! assert_eq!(refusal.label(), "action");
//! assert!(refusal.to_string().starts_with("action lb_output: "));
//! # Ok(())
//! # }
//! ```

mod backend;
mod config;
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

pub use config::{Config, KIND, OffloadPolicy, TunnelFlags};
pub use socket::SocketError;
