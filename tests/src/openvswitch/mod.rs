//! The Linux kernel's Open vSwitch module, spoken to in generic netlink (`include/uapi/linux/openvswitch.h`).
//!
//! Flows go in from the types of `sluice_flow`, not from text: no text can say all that the module takes.

mod actions;
mod attributes;
mod datapath;
mod generic;
mod header;
mod key;
pub mod provider;
mod tunnel;

pub use actions::encode_actions;
pub use datapath::{Datapath, NotInstalled, forget_connections, set_features};
pub use generic::Failure;
pub use key::encode_match;

/// What a flow says that the module has no way to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsayable(pub String);

impl Unsayable {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl std::fmt::Display for Unsayable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}
