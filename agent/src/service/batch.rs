//! Many requests of one caller.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::table::ReplyTo;
use sluice_flow::{FlowId, Refusal, Ufid};
use sluice_offload::Batch;

use super::accepted::{Accepted, Pending};
use super::error::Error;
use super::faces::Service;
use super::flows::FlowRequest;
use super::stream::FlowStream;
use crate::agent::Agent;

/// Outcomes that are promised at once to who counts them, so that they are not counted one by one while workers count, too.
const PROMISED: usize = 64;

/// Takes many requests on, one after the other; one that fails does not stop the rest. What was accepted takes effect at once,
/// and is answered together: a [stream](FlowStream) whose outcomes are counted.
pub struct FlowBatch<'a> {
    stream: FlowStream<'a>,
    batch: Arc<Batch>,
    /// The batch.
    reply_to: ReplyTo,
    /// Outcomes that the batch expects of requests that are still to come.
    promised: usize,
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
        let batch = Arc::new(Batch::default());
        FlowBatch { stream: self.stream(), reply_to: batch.clone().into(), batch, promised: 0 }
    }
}

impl<'a> FlowBatch<'a> {
    /// Takes on the request that `make` returns. Whoever gives many at once waits for room instead of hearing "busy" for what it
    /// filled up itself: `make` is called again for each try.
    pub fn request(&mut self, mut make: impl FnMut() -> FlowRequest) -> Result<FlowId, Error> {
        if self.promised == 0 {
            self.batch.expect(PROMISED);
            self.promised = PROMISED;
        }
        let flow = self.stream.request(|| (make(), self.reply_to.clone()))?;
        self.promised -= 1;
        Ok(flow)
    }

    /// Ends the batch.
    pub fn accepted(self) -> Accepted<'a, FlowChanges> {
        let Self { stream, batch, promised, .. } = self;
        let accepted = stream.accepted();
        batch.expect_less(promised);
        accepted.of(FlowChanges(batch))
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
