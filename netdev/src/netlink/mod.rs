//! Netlink messages and attributes, which all netlink protocols share.
//!
//! Messages are read through checked views and written from plain values into one buffer. Other crates do so for each rule that is
//! installed or listed, hence what is small is `#[inline]`.

pub mod attribute;
pub mod message;
