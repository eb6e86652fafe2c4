//! Installed rules as flows.

pub(crate) mod collector;
pub(crate) mod rule;
