//! The flow table: every flow, found by UFID and by identity, with what is wanted and what is installed.
//!
//! A flow is a life in a slot. Callers change what is wanted ([`FlowTable::add`], [`modify`](FlowTable::modify),
//! [`delete`](FlowTable::delete)); its worker [looks](FlowTable::look) at the difference to what is installed, hands the
//! change to the backend and [completes](FlowTable::complete) it. Superseded work vanishes by itself: the worker sees
//! only the newest wish. A UFID that is deleted and added again is a new life, which waits for the end of the old one.
//!
//! Locks, in order: a shard of the UFID index, a shard of the identity index, a slot's record; then its counters and the bases
//! of its chunk of slots, or a shard of chains. None is shared by all flows.

mod admission;
mod adoption;
mod ageing;
mod arena;
mod cell;
mod census;
mod chains;
mod expiries;
mod flow_table;
mod free;
mod hand_over;
mod index;
mod life;
mod queries;
pub mod queue;
mod record;
mod request;
mod retry;
mod state;
mod sync;
mod unwritten;
mod withheld;

pub use self::ageing::Taken;
pub use self::cell::{AgeView, Applied};
pub use self::census::Census;
pub use self::chains::Freed;
pub use self::expiries::ExpiryClass;
pub use self::flow_table::FlowTable;
pub use self::queries::FlowView;
pub use self::queue::Lane;
pub use self::request::{Accepted, Completed, Limits, Look, Reply, ReplyTo, Settlement, TableError, Waiter};
pub use self::state::FlowState;
pub use self::unwritten::{Mark, Unwritten, UnwrittenReader};
pub use crate::id::{FlowId, Generation};
