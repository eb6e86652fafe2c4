//! The way from an accepted change to its answer, one type for each step.
//!
//! A change that is not durable yet has no receipt and no outcome:
//!
//! ```compile_fail,E0599
//! # use sluice_agent::service::{Accepted, FlowChange, Receipt};
//! fn answer(accepted: Accepted<'_, FlowChange>) -> Receipt {
//!     accepted.receipt()
//! }
//! ```
//!
//! ```
//! # use sluice_agent::service::{Accepted, Error, FlowChange, Receipt};
//! fn answer(accepted: Accepted<'_, FlowChange>) -> Result<Receipt, Error> {
//!     Ok(accepted.durable()?.receipt())
//! }
//! ```

use std::time::Duration;

use super::error::Error;
use crate::agent::{ANSWER_TIME, Agent};

/// A change that was accepted and that the journal may not have yet. It has neither outcome nor receipt: the only way on is
/// [`durable`](Self::durable).
#[must_use = "a change is answered only once it is durable"]
pub struct Accepted<'a, C> {
    agent: &'a Agent,
    change: C,
}

/// A change that survives the death of the agent, as far as the agent keeps anything.
#[must_use = "its receipt is the answer"]
pub struct Durable<'a, C> {
    agent: &'a Agent,
    change: C,
}

/// Proves that a change is durable. A command that changes something succeeds with one, and there is no other way to get it.
#[must_use = "the receipt is the answer"]
#[derive(Debug)]
pub struct Receipt(());

/// A change whose outcome the device decides later.
pub trait Pending {
    /// What the device made of it.
    type Outcome;

    /// Waits for the device, at most `at_most` from one outcome to the next.
    fn outcome(&self, agent: &Agent, at_most: Duration) -> Result<Self::Outcome, Error>;
}

impl<'a, C> Accepted<'a, C> {
    pub(super) fn new(agent: &'a Agent, change: C) -> Self {
        Self { agent, change }
    }

    /// The same, with what it is that was changed.
    pub(super) fn of<D>(self, change: D) -> Accepted<'a, D> {
        Accepted { agent: self.agent, change }
    }

    /// What was changed.
    pub fn change(&self) -> &C {
        &self.change
    }

    /// Waits until the journal has the change. Fails if the journal is late already or does not answer within [`ANSWER_TIME`];
    /// the change stays accepted.
    pub fn durable(self) -> Result<Durable<'a, C>, Error> {
        let Self { agent, change } = self;
        agent.journal.as_ref().map_or(Ok(()), |journal| journal.wait(ANSWER_TIME))?;
        Ok(Durable { agent, change })
    }
}

impl<'a, C> Durable<'a, C> {
    /// A change that was made durable while it was accepted.
    pub(super) fn at_once(agent: &'a Agent, change: C) -> Self {
        Self { agent, change }
    }

    /// What was changed.
    pub fn change(&self) -> &C {
        &self.change
    }

    /// Proves that the change is durable.
    pub fn receipt(&self) -> Receipt {
        Receipt(())
    }
}

impl<C: Pending> Durable<'_, C> {
    /// Waits for the device, at most `at_most` from one outcome to the next, and returns what it made of the change.
    pub fn outcome(&self, at_most: Duration) -> Result<C::Outcome, Error> {
        self.change.outcome(self.agent, at_most)
    }
}
