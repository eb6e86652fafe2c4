//! The messages of tc. What is written comes from a plain value (Repr); what is read goes through a reader that checks every
//! length (View). No offset or attribute number leaves this module.
//!
//! `netlink-packet-route` has three of the eleven actions, no tunnel options, no cookies and no terse dumps, and builds a
//! tree of boxes for each message. On the install path every rule is written here, straight into the buffer that is sent.

pub mod action;
pub mod filter;
pub mod flower;
pub mod key;
pub mod labels;
pub mod options;
pub mod rule_view;
pub mod shared;
pub mod statistics;
