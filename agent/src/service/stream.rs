//! Many requests of one caller who hears of each what became of it.

use sluice_flow::FlowId;
use sluice_flow::table::ReplyTo;
use sluice_offload::Series;

use super::accepted::Accepted;
use super::error::Error;
use super::faces::Service;
use super::flows::{AddFlow, FlowRequest, check_in_port, submit_for};
use super::patience::Patience;
use crate::agent::Agent;

/// Takes many requests on, one after the other; one that fails does not stop the rest. What was accepted takes effect at once. The outcome of
/// each goes to whoever waits for it; a [`FlowBatch`](super::FlowBatch) counts them.
pub struct FlowStream<'a> {
    agent: &'a Agent,
    series: Series<'a>,
    patience: Patience,
}

impl Service {
    /// Begins a stream of requests.
    pub fn stream(&self) -> FlowStream<'_> {
        let agent = self.agent();
        FlowStream { agent, series: agent.queue.series(), patience: Patience::default() }
    }
}

impl<'a> FlowStream<'a> {
    /// Takes on the request that `make` returns, with who waits for its outcome. Whoever gives many at once waits for room instead of hearing
    /// "busy" for what it filled up itself: `make` is called again for each try. Nobody hears of a request that is not accepted.
    pub fn request(&mut self, mut make: impl FnMut() -> (FlowRequest, ReplyTo)) -> Result<FlowId, Error> {
        loop {
            let (request, reply_to) = make();
            match self.try_request(request, reply_to) {
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

    fn try_request(&mut self, request: FlowRequest, reply_to: ReplyTo) -> Result<FlowId, Error> {
        if let FlowRequest::Add(AddFlow { flow }) = request {
            check_in_port(&flow)?;
            return Ok(self.series.add(flow, reply_to)?);
        }
        request.check()?;
        self.series.hand_over();
        submit_for(self.agent, request, reply_to)
    }

    /// Ends the stream.
    pub fn accepted(self) -> Accepted<'a, ()> {
        let Self { agent, series, .. } = self;
        // Hands over what it still holds.
        drop(series);
        Accepted::new(agent, ())
    }
}
