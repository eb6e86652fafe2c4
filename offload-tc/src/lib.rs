//! Flows in the kernel's flower classifier, over netlink.

pub mod rule;
pub mod surroundings;
pub mod translate;
pub mod wire;
