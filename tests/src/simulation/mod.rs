//! What does not fit on this machine, or would take too long: at warped time, with the real table and revalidator.
//!
//! Nothing here has a thread or looks at the time: one step follows the other on a clock that stands in between.

pub mod ageing;
pub mod random;
pub mod scaling;

use sluice_flow::backend::{Change, Completion, Operation, Outcome, Placement};
use sluice_flow::table::Look;
use sluice_flow::{FlowId, FlowTable, Timestamp, backend::Handle};

/// What a device does that takes everything.
pub(crate) fn obey(change: &Change) -> Completion {
    let result = Ok(match &change.operation {
        Operation::Install(_) => {
            Outcome::InPlace { handle: Handle(change.flow.slot.into()), placement: Placement::Hardware }
        }
        Operation::Modify(handle, _) | Operation::Move(handle, _) => {
            Outcome::InPlace { handle: *handle, placement: Placement::Hardware }
        }
        Operation::Remove(_) => Outcome::Removed { last: None },
    });
    Completion { flow: change.flow, generation: change.generation, result }
}

/// The change that a worker would begin now.
pub(crate) fn begin(table: &FlowTable, id: FlowId) -> Option<Change> {
    match table.look(id) {
        Look::Change(change) => Some(change),
        Look::Nothing | Look::Freed(_) | Look::Held | Look::Retired { .. } => None,
    }
}

/// Has a device that needs no time do all that is wanted of a flow.
pub(crate) fn do_at_once(table: &FlowTable, id: FlowId, now: Timestamp) {
    while let Some(change) = begin(table, id) {
        let completion = obey(&change);
        table.complete(&change, completion.result, now);
    }
}
