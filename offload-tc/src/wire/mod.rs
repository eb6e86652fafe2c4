//! The messages of tc as plain values: what is written comes from a value that says what it means (Repr), what is read goes
//! through a reader that checks every length (View), and either way no offset or number of an attribute leaves this module.
//!
//! `netlink-packet-route` has three of the eleven actions, no tunnel options, no notes and no terse dumps, and builds a tree of boxes for
//! each message; on the install path every rule is written here, straight into the one buffer that is sent.

pub mod action;
pub mod filter;
pub mod flower;
pub mod key;
pub mod labels;
pub mod options;
pub mod rule_view;
pub mod shared;
pub mod statistics;
