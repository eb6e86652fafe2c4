//! Flows in the kernel's flower classifier, over netlink.

pub mod links;
pub mod wire;
