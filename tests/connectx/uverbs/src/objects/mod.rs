//! What programs have made, and how it is unmade.

mod devx;
mod flow;
mod object;
mod queues;
mod roots;
mod verbs_flow;

pub(crate) use devx::{CREATE_FLOW_TABLE, DevxObject};
pub(crate) use flow::{Entry, Flow, FlowAction, Matcher, UNDO_MODIFY_HEADER, UNDO_REFORMAT};
pub(crate) use object::Object;
pub(crate) use queues::{CREATE_TRANSPORT_DOMAIN, Connection, QueuePair, QueuePairState, QueueState, WorkQueue};
pub(crate) use roots::{Anchor, AnchorTable, LOG_SIZE, Place, RootTable, RootTables};
pub(crate) use verbs_flow::{Counters, Group, Groups, Key, Placed, Shared, VerbsFlow, Wanted};
