//! Flows in the kernel's flower classifier, over netlink.
//!
//! [`translate`] turns a flow into a rule, or says why there is none, and reads a rule back. [`templates`] builds rules that
//! differ from earlier ones in values only. [`install`] sends rules to the kernel in batches and returns the kernel's own
//! error texts. [`dump`] lists rules with their counters. [`wire`] has the message formats. Network devices and their
//! monitor are in [`sluice_netdev`]. [`probe`] finds out what the running kernel can match, and [`meters`] keeps the
//! policers that flows share.
//!
//! A [`Config`] opens all of this behind the [`Backend`](sluice_flow::Backend) trait. Mirrors come in front of all flows.
//!
//! Flower and the Open vSwitch datapath read some packets differently, and no rule can change that:
//! - OVS ignores a header that ends beyond the packet; flower takes what is there.
//! - Flower does not parse IEEE 802.3 frames with SNAP, transport headers of first fragments, and ARP other than requests
//!   and replies, so they miss rules that would match; OVS parses them. To flower the fields of what it does not parse are
//!   zeros, so that a match on nothing else in these headers is refused, unless `frag=no` or `op` is matched, too.
//! - To flower an IPv6 authentication header is the protocol; to OVS the protocol is the one behind it.
//! - Flower does not recognize PPPoE of another version or code, or without a PPP protocol inside.
//! - After an edit the checksums are computed anew, so a wrong checksum becomes right. With an IPv6 routing header that
//!   still has segments left, the transport checksum becomes wrong, because the kernel sums up the next hop.
//! - act_csum passes over packets that are still to be cut into segments (GRO, TSO). After an edit of an address or port their TCP or UDP
//!   checksum is
//!   wrong, where software forwards.
//! - Packets of a connection that a helper expected are `+rel` until the connection is answered and `+est` afterwards; OVS
//!   says `+new+rel` or `+rel`, and then `+est+rel`. A match on two of them is refused, since no packet would ever match.
//! - A packet to an internal port is delivered as one for this host, also where it is flooded there and is for another machine, and the
//!   host may send it on. OVS's own offload does the same.
//! - `check_pkt_len` compares the length that a packet came with (`tcf_police_mtu_check`), OVS the one that it has. Behind a
//!   push or pop that changes it the action is refused in the same flow; in a later chain it compares the former.
//! - Behind `ct()`, which puts fragments together, `check_pkt_len` compares the length of the whole packet, OVS that of its largest
//!   fragment. The action is refused in the same flow, and in a later chain unless the match says that the packet is not tracked, is a
//!   fragment or is no IP. If `ct_clear` comes between `ct()` and such a chain, the packet is not tracked there, and compared as a whole.
//! - Of Geneve's headers that packets get, none says that it has a critical option (`act_tunnel_key`); those of OVS say so where one is.
//! - Of the total length of Geneve options, only the bits that are set in the wanted length are compared.
//!
//! # Example
//!
//! A VLAN match as flower's attribute, without a kernel.
//!
//! ```
//! use sluice_flow::meter::MeterId;
//! use sluice_flow::text::{parse_actions, parse_key};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, MaskedKey, PortNumber, Priority};
//! use sluice_offload_tc::marks::AgentId;
//! use sluice_offload_tc::context::{Device, DeviceKind, Features, Context};
//! use sluice_offload_tc::translate;
//! use sluice_offload_tc::wire::key::Key;
//!
//! /// The device of port N has the index 100 + N.
//! struct Ports;
//!
//! impl Context for Ports {
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
pub mod context;
pub mod digest;
mod drops;
pub mod dump;
pub mod install;
pub mod label;
pub mod marks;
pub mod meters;
pub mod priorities;
pub mod probe;
pub mod rule;
mod socket;
pub mod templates;
pub mod translate;
pub mod wire;

pub use config::{Config, KIND, OffloadPolicy, TunnelFlags};
pub use socket::SocketError;
