//! What goes over netlink, as bytes and as values.

pub mod attribute;
pub mod message;
