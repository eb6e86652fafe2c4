//! Chains that the device has open: each that a rule jumps to, from before the rule is put in until after it is gone.
//!
//! Which chain a rule needs is in the table; here is what the device has been asked for. Of each chain one change is under way at most,
//! by the install queue of the worker that asked first. Other flows that need the chain wait for that [`Pending`] change, and no worker
//! waits for another: a flow that waits is handed to its worker again once the change is over. A chain is closed only after another look
//! whether it is needed; a flow that needs it by then has it opened again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluice_flow::backend::{ChainChange, ChainCompletion, ChainOperation};
use sluice_flow::{ChainId, FlowId, FlowTable, Refusal};

const SHARDS: usize = 64;

/// See the [module](self).
pub(super) struct DeviceChains {
    table: Arc<FlowTable>,
    /// Those that are not closed. A shard is locked for a moment, and always before the table.
    shards: [Mutex<HashMap<ChainId, State>>; SHARDS],
}

enum State {
    Open,
    Changing(Arc<Pending>),
}

/// How a chain is found by a flow that needs it.
pub(super) enum Found {
    /// It is open.
    Open,
    /// It was closed, and the caller is to submit its opening.
    Closed(Arc<Pending>),
    /// A change is under way.
    Changing(Arc<Pending>),
}

/// A change to a chain that is under way, and the flows that wait for its end.
#[derive(Default)]
pub(super) struct Pending(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    flows: Vec<FlowId>,
    outcome: Option<Result<(), Refusal>>,
}

impl Pending {
    /// Returns what came of it, or `None` while it is under way. After `Ok` the chain is to be required again: it may have been closed.
    pub(super) fn outcome(&self) -> Option<Result<(), Refusal>> {
        self.0.lock().outcome.clone()
    }

    /// Has a flow wait for the end. Returns [what came of it](Self::outcome) if it is over already.
    pub(super) fn wait(&self, flow: FlowId) -> Option<Result<(), Refusal>> {
        let mut waiting = self.0.lock();
        if waiting.outcome.is_none() {
            waiting.flows.push(flow);
        }
        waiting.outcome.clone()
    }

    /// Returns the flows that have waited.
    fn end(&self, outcome: Result<(), Refusal>) -> Vec<FlowId> {
        let mut waiting = self.0.lock();
        waiting.outcome = Some(outcome);
        std::mem::take(&mut waiting.flows)
    }
}

impl DeviceChains {
    pub(super) fn new(table: Arc<FlowTable>) -> Self {
        Self { table, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns how a chain is found for a rule that jumps there, for which the table holds the chain.
    pub(super) fn require(&self, chain: ChainId) -> Found {
        match self.shard(chain).entry(chain) {
            Entry::Occupied(state) => match state.get() {
                State::Open => Found::Open,
                State::Changing(pending) => Found::Changing(pending.clone()),
            },
            Entry::Vacant(state) => {
                let pending = Arc::<Pending>::default();
                state.insert(State::Changing(pending.clone()));
                Found::Closed(pending)
            }
        }
    }

    /// Returns whether the caller is to submit the closing of a chain: it is open, and no rule needs it.
    pub(super) fn begin_closing(&self, chain: ChainId) -> bool {
        let mut shard = self.shard(chain);
        match shard.get_mut(&chain) {
            Some(state @ State::Open) if !self.table.is_chain_held(chain) => {
                *state = State::Changing(Arc::default());
                true
            }
            _ => false,
        }
    }

    /// Takes the end of a change. Returns the flows that waited for it.
    pub(super) fn complete(&self, completion: ChainCompletion) -> Vec<FlowId> {
        let ChainCompletion { change: ChainChange { chain, operation }, result } = completion;
        let mut shard = self.shard(chain);
        // A change that was refused leaves the chain as it was.
        let is_open = (operation == ChainOperation::Open) == result.is_ok();
        let before = if is_open { shard.insert(chain, State::Open) } else { shard.remove(&chain) };
        drop(shard);
        let Some(State::Changing(pending)) = before else { return Vec::new() };
        // A flow that waits for the end of a closing wants the chain open, whatever came of that.
        pending.end(if operation == ChainOperation::Open { result } else { Ok(()) })
    }

    fn shard(&self, chain: ChainId) -> MutexGuard<'_, HashMap<ChainId, State>> {
        self.shards[chain.0 as usize % SHARDS].lock()
    }
}
