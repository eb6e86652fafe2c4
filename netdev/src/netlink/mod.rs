//! Netlink messages and attributes, as all protocols of netlink have them.

pub mod attribute;
pub mod message;
