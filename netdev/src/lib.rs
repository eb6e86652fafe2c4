//! The network devices of a namespace: which there are and what they are for, what happens to them, and the few that are
//! made here: tunnel devices and the queueing disciplines that filters hang on. Nothing of flows.
//!
//! A [`Monitor`] reads everything once, and then follows the kernel's notifications. What it knows is in its [`Links`];
//! what changes comes as [`Event`]s. Messages about links are taken apart by `netlink-packet-route`; what that lacks
//! (blocks of queueing disciplines, filters that went, devlink) is read here through [`netlink`]. Its asynchronous
//! companion `rtnetlink` is not used: it drops what it cannot decode, leaves requests waiting after an overrun, does not tell
//! of interrupted dumps and loses the kernel's reasons.

mod control;
mod device;
mod devlink;
mod error;
mod event;
mod ingress;
mod lag;
mod message;
mod monitor;
pub mod netlink;
mod port_name;
mod socket_filter;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod touched_filters;
mod tunnel;
mod tunnel_device;

pub use control::Control;
pub use device::{Device, Ifindex, LagDriver, Lower, NamespaceId, ParentDevice, Role, State, SwitchId};
pub use devlink::{DevlinkPort, Flavour};
pub use error::{KernelReason, LinkError};
pub use event::{Event, Generation, Port};
pub use ingress::{
    Block, IngressError, IngressKind, IngressQdisc, NotRemoved, Ownership, ensure_ingress, find_ingress, remove_ingress,
};
pub use lag::{LagError, ensure_lag};
pub use monitor::{Monitor, MonitorOptions};
pub use port_name::{Function, FunctionPart, PortName};
pub use socket_filter::HeardPriorities;
pub use statistics::{Statistics, statistics};
pub use table::{Known, Links};
pub use touched_filters::{Attachment, TouchedFilters};
pub use tunnel::{Mismatch, Tunnel, TunnelKind};
pub use tunnel_device::{
    TunnelError, WantedProtocol, WantedTunnel, ensure_tunnel, is_device_name, recognize_tunnel, remove_tunnel,
};
