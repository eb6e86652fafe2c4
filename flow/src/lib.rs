//! The vocabulary of flow offload.
//!
//! Everybody in this workspace speaks these words: what a flow matches ([`key`], [`field`]), what it does
//! ([`action`]), how both are written ([`text`]), how it is named ([`ufid`]), why a device said no
//! ([`refusal`]), where flows live ([`table`]) and what a device must offer to carry them ([`backend`]).
//! There is no I/O here and no thread.

pub mod action;
pub mod backend;
pub mod cause;
pub mod chain;
pub mod connection;
pub mod consume;
pub mod counters;
pub mod event;
pub mod field;
pub mod flow;
pub mod id;
pub mod intern;
pub mod key;
pub mod meter;
pub mod mirror;
mod name;
mod packet_match;
pub mod port;
pub mod priority;
pub mod refusal;
pub mod table;
pub mod text;
pub mod time;
pub mod timeout;
pub mod trace;
pub mod ufid;

pub use action::{Action, ActionKind, ActionList, FieldSet};
pub use backend::Backend;
pub use cause::Cause;
pub use chain::ChainId;
pub use counters::Counters;
pub use event::{EndReason, Event, EventSink, Wish};
pub use field::{Attribute, Field};
pub use flow::{Expiry, Flow};
pub use id::{FlowId, Generation};
pub use key::{Key, MaskedKey, Match};
pub use name::NameError;
pub use port::{Port, PortKind, PortName, PortNumber};
pub use priority::Priority;
pub use refusal::Refusal;
pub use table::{FlowState, FlowTable};
pub use time::{Clock, Timestamp};
pub use ufid::Ufid;
