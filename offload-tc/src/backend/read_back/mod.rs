//! Rules of ours, read back.

pub(crate) mod collector;
pub(crate) mod rule;
