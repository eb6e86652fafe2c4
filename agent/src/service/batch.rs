//! Many requests of one caller.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::{FlowId, Refusal, Ufid};
use sluice_offload::{Batch, CountedSeries};

use super::accepted::{Accepted, Pending};
use super::error::Error;
use super::faces::Service;
use super::flows::{AddFlow, FlowRequest, check_in_port, submit};
use super::patience::Patience;
use crate::agent::Agent;

/// Takes many requests on, one after the other; one that fails does not stop the rest. What was accepted takes effect at once,
/// and is answered together.
pub struct FlowBatch<'a> {
    agent: &'a Agent,
    batch: Arc<Batch>,
    series: CountedSeries<'a>,
    patience: Patience,
}

/// The accepted changes of a batch.
pub struct FlowChanges(Arc<Batch>);

/// What became of the changes of a batch so far.
#[derive(Clone, Debug, Default)]
pub struct BatchOutcome {
    /// Requests that ended in the device as wanted.
    pub installed: usize,
    /// Requests that the device refused.
    pub refused: usize,
    /// Deletions that are done.
    pub deleted: usize,
    /// Requests that a later one overtook.
    pub superseded: usize,
    /// Requests without an outcome.
    pub unanswered: usize,
    /// The first refusals, each with its flow as long as that exists.
    pub refusals: Vec<(Option<Ufid>, Arc<Refusal>)>,
}

impl Service {
    /// Begins a batch.
    pub fn batch(&self) -> FlowBatch<'_> {
        let (agent, batch) = (self.agent(), Arc::new(Batch::default()));
        FlowBatch { agent, series: agent.queue.counted_series(batch.clone()), batch, patience: Patience::default() }
    }
}

impl<'a> FlowBatch<'a> {
    /// Takes on the request that `make` returns. Whoever gives many at once waits for room instead of hearing "busy" for what it
    /// filled up itself: `make` is called again for each try.
    pub fn request(&mut self, mut make: impl FnMut() -> FlowRequest) -> Result<FlowId, Error> {
        loop {
            match self.try_request(make()) {
                Err(Error::Busy(_)) if !self.patience.is_over() => {
                    self.series.hand_over();
                    self.patience.wait_for_room(self.agent);
                }
                result => {
                    self.patience.note(self.agent, &result);
                    return result;
                }
            }
        }
    }

    fn try_request(&mut self, request: FlowRequest) -> Result<FlowId, Error> {
        if let FlowRequest::Add(AddFlow { flow }) = request {
            check_in_port(&flow)?;
            return Ok(self.series.add(flow)?);
        }
        request.check()?;
        self.series.hand_over();
        submit(self.agent, request, &self.batch)
    }

    /// Ends the batch.
    pub fn accepted(self) -> Accepted<'a, FlowChanges> {
        let Self { agent, batch, series, .. } = self;
        // Hands over what it still holds.
        drop(series);
        Accepted::new(agent, FlowChanges(batch))
    }
}

impl Pending for FlowChanges {
    type Outcome = BatchOutcome;

    fn outcome(&self, agent: &Agent, at_most: Duration) -> Result<BatchOutcome, Error> {
        let tally = self.0.wait(at_most);
        let named = |id| agent.table.view(id).map(|view| view.flow.ufid);
        Ok(BatchOutcome {
            installed: tally.installed,
            refused: tally.refused,
            deleted: tally.deleted,
            superseded: tally.superseded,
            unanswered: tally.outstanding,
            refusals: tally.refusals.iter().map(|(id, refusal)| (named(*id), refusal.clone())).collect(),
        })
    }
}
