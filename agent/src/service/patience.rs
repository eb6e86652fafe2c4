//! How long a caller who gives many requests at once waits for room.

use std::time::{Duration, Instant};

use sluice_flow::FlowId;

use super::error::Error;
use super::flows::count_refusal;
use crate::agent::{ANSWER_TIME, Agent};

/// For one wait without any room: a device that stalls is not waited for again at each request.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    left: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: ANSWER_TIME }
    }
}

impl Patience {
    pub(crate) const fn is_over(&self) -> bool {
        self.left.is_zero()
    }

    pub(crate) fn wait_for_room(&mut self, agent: &Agent) {
        self.wait(|at_most| agent.queue.wait_for_room(at_most));
    }

    /// Waits for something else that makes room.
    pub(super) fn wait(&mut self, wait: impl FnOnce(Duration)) {
        let began = Instant::now();
        wait(self.left);
        self.left = self.left.saturating_sub(began.elapsed());
    }

    /// Notes what came of a request. One that was taken on shows that there is room again.
    pub(super) fn note(&mut self, agent: &Agent, result: &Result<FlowId, Error>) {
        match result {
            Ok(_) => self.left = ANSWER_TIME,
            Err(error) => count_refusal(agent, error),
        }
    }
}
