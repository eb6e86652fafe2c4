//! Network devices: which there are in a network namespace, what they are for, how they change, and the few that Sluice makes.
//! Nothing of flows.
//!
//! **What a device is.** A [`Device`] is what the kernel says about a network device (`RTM_NEWLINK`), and its [`Role`] what
//! that means to Sluice: a physical port, a representor, a bond, a tunnel and so on. [`Role::Representor`] names the
//! [`Function`] of the NIC that the device stands for. It comes from devlink ([`DevlinkPort`]) or, with drivers that do not
//! have that, from the name that the driver gave the port ([`PortName`]). Ports of one eswitch have the same [`SwitchId`]. A
//! [`Tunnel`] says of a tunnel device what it speaks, on which UDP port, and whether it is in collect-metadata mode.
//!
//! **The table.** [`Links`] holds all devices by number and by name. Numbers and names are used again, hence each device has a
//! [`Generation`] that is not.
//!
//! **The monitor.** A [`Monitor`] reads everything once, and then follows the kernel's notifications. What it knows is in its
//! [`Links`]; what changes comes as [`Event`]s: devices that come, go, move to another namespace, get another name, state,
//! eswitch or master; queueing disciplines that come and go; filters that somebody else puts in, replaces or removes, as far as
//! they are [heard of](HeardPriorities). A classic BPF program on the socket keeps the notifications about our own filters out.
//!
//! **Requests.** A [`Control`] is a socket for requests. It asks again for a list that changed while it was read, and keeps the
//! kernel's own words for a refusal in [`LinkError`]. [`statistics()`] reads the counters of a device.
//!
//! **Where filters hang.** [`ensure_ingress`] and [`remove_ingress`] make and remove the queueing discipline that holds the
//! filters of a device ([`IngressQdisc`]), and never touch one that somebody else made. [`ensure_lag`] does so for a bond or
//! team and its members, which share a [`Block`] of filters.
//!
//! **Tunnel devices.** [`ensure_tunnel`], [`recognize_tunnel`] and [`remove_tunnel`] make, find and remove the device of a
//! [`WantedTunnel`]. Those that are made here carry a mark, by which they are recognized after a restart.
//!
//! **Taps.** [`ensure_tap`] and [`remove_tap`] make and remove silent devices at which copies of packets can be captured.
//!
//! **Next hops.** [`NextHops`] tells whom the kernel would give packets for an address to, by which device, and what becomes of that:
//! routes, addresses, devices and neighbours are followed.
//!
//! **Netlink.** [`netlink`] reads and writes messages and attributes, also for other crates that speak netlink. Messages about
//! links are read by `netlink-packet-route`; what that lacks (blocks of queueing disciplines, filters that went, devlink) is
//! read here. Its asynchronous companion `rtnetlink` makes, changes and removes devices. It reads none and follows none: it drops
//! what it cannot decode, leaves requests waiting after an overrun, and does not tell of interrupted dumps.
//!
//! ```
//! use std::time::Duration;
//!
//! use sluice_netdev::{LinkError, Monitor, MonitorOptions, Role};
//!
//! /// Prints the representors of this network namespace, and then what happens to devices.
//! fn follow() -> Result<(), LinkError> {
//!     let mut monitor = Monitor::open(MonitorOptions::default())?;
//!     for known in monitor.links().iter() {
//!         if let Role::Representor(function) = &known.device.role {
//!             println!("{} is the representor of {function}", known.device.name);
//!         }
//!     }
//!     loop {
//!         for event in monitor.poll(Duration::from_secs(1))? {
//!             println!("{event:?}");
//!         }
//!     }
//! }
//! ```

pub mod bpf;
mod changes;
mod control;
mod device;
mod devlink;
mod error;
mod eswitch;
mod event;
mod feature;
mod hardware_filters;
mod ingress;
mod ipsec;
mod kind;
mod lag;
mod links;
mod message;
mod monitor;
pub mod netlink;
mod next_hop;
mod port_name;
mod rdma;
mod route;
mod rule;
mod socket_filter;
mod statistics;
mod tap_device;
#[cfg(test)]
mod tests;
mod touched_filters;
mod traffic_control;
mod tunnel;
mod tunnel_device;
mod vlan;

pub use control::Control;
pub use device::{Device, Ifindex, LagDriver, Lower, NamespaceId, ParentDevice, Role, State, SwitchId};
pub use devlink::{DevlinkPort, Flavour};
pub use error::{KernelReason, LinkError};
pub use eswitch::{EswitchMode, eswitch_mode};
pub use event::{Event, Generation, Port};
pub use feature::has_feature;
pub use hardware_filters::filters_in_hardware;
pub use ingress::{
    IngressError, IngressKind, IngressQdisc, NotRemoved, Ownership, ensure_ingress, find_ingress, remove_ingress,
};
pub use ipsec::{Addresses, IpsecPolicies, Packets, PolicyList};
pub use lag::{LagError, ensure_lag};
pub use links::{Known, Links};
pub use monitor::{Monitor, MonitorOptions};
pub use next_hop::{Found, NextHop, NextHops, NextHopsWaker, NoNextHop, PacketPorts, Target};
pub use port_name::{Function, FunctionPart, PortName};
pub use rdma::rdma_port;
pub use route::MacAddress;
pub use socket_filter::HeardPriorities;
pub use statistics::{Statistics, statistics};
pub use tap_device::{TapError, ensure_tap, is_tap, remove_tap};
pub use touched_filters::{Attachment, Block, TouchedFilters};
pub use tunnel::{Mismatch, Tunnel, TunnelKind};
pub use tunnel_device::{
    TunnelError, WantedProtocol, WantedTunnel, ensure_tunnel, is_device_name, recognize_tunnel, remove_tunnel,
};
pub use vlan::{VlanDevice, VlanTag};
