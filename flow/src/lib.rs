//! The vocabulary of flow offload.
//!
//! Everybody in this workspace speaks these words: what a flow matches ([`key`], [`field`]), what it does
//! ([`action`]), how both are written ([`text`]), how it is named ([`ufid`]), why a device said no
//! ([`refusal`]), where flows live ([`table`]) and what a device must offer to carry them ([`backend`]).
//! There is no I/O here and no thread.
//!
//! # Example
//!
//! A flow, from its text through the table into a device and back to text. Who calls stands for a worker here.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sluice_flow::backend::{Handle, Operation, Outcome, Placement};
//! use sluice_flow::table::{Limits, Look};
//! use sluice_flow::text::{Style, parse_line, write_key};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Field, Flow, FlowState, FlowTable, MaskedKey, Priority, Timestamp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // What a caller wants: a match and actions in the grammar of `ovs-appctl dpctl/dump-flows`.
//! let line = parse_line("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0), actions:2", &())?;
//! assert_eq!(line.matching.mask.get(Field::Ipv4Dst), 0xff00_0000);
//! let seed = Seed([7; 16]);
//! let matching = MaskedKey::new(&line.matching);
//! let flow = Flow::new(line.ufid, matching, line.actions, Priority::default(), Expiry::default(), &seed);
//!
//! // The table accepts it. Nothing is in the device yet.
//! let table = FlowTable::new(seed, Limits { flows: 10, unsettled: 10 }, Arc::new(()));
//! let accepted = table.add(flow.clone(), Timestamp(1), None)?;
//! assert_eq!(table.view(accepted.flow).map(|view| view.state), Some(FlowState::Pending));
//! assert!(table.add(flow, Timestamp(2), None).is_err(), "it exists");
//!
//! // A worker looks, hands the change to the backend, and takes the completion in.
//! let Look::Change(change) = table.look(accepted.flow) else { return Err("there is nothing to do".into()) };
//! assert!(matches!(change.operation, Operation::Install(_)));
//! let done = Outcome::InPlace { handle: Handle(1), placement: Placement::Hardware };
//! table.complete(&change, Ok(done), Timestamp(3));
//! assert!(matches!(table.look(accepted.flow), Look::Nothing), "the device has what is wanted");
//!
//! // What a dump shows.
//! let view = table.view(accepted.flow).ok_or("the flow is gone")?;
//! assert_eq!((view.state, view.placement), (FlowState::Offloaded, Some(Placement::Hardware)));
//! let mut text = String::new();
//! write_key(&mut text, &view.flow.matching(), &Style::default())?;
//! assert_eq!(text, "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0)");
//! # Ok(())
//! # }
//! ```

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
pub mod origin;
mod packet_match;
pub mod parts;
pub mod port;
pub mod priority;
mod recent;
pub mod refusal;
pub mod source;
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
pub use origin::{ControllerName, Origin};
pub use port::{Port, PortKind, PortName, PortNumber};
pub use priority::Priority;
pub use recent::FlowMaker;
pub use refusal::Refusal;
pub use source::Source;
pub use table::{FlowState, FlowTable};
pub use time::{Clock, Timestamp};
pub use ufid::Ufid;
