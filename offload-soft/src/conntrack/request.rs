//! A `ct` action with what it refers to at hand.

use std::sync::Arc;

use sluice_flow::action::{Commit, Conntrack as Action, Nat};
use sluice_flow::refusal::Refusal;

use super::gateway::Kind;
use super::policies::{Policies, Policy};

/// What is to be done to a packet.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) commit: Commit,
    pub(super) zone: u16,
    pub(super) mark: Option<(u32, u32)>,
    pub(super) label: Option<(u128, u128)>,
    pub(super) nat: Option<Nat>,
    pub(super) helper: Option<Kind>,
    pub(super) policy: Option<Arc<Policy>>,
}

impl Request {
    /// That of an action that was [checked](super::check). Its policy cannot go until [`Request::release`].
    pub(crate) fn link(action: &Action, policies: &Policies) -> Result<Self, Refusal> {
        let Action { commit, zone, mark, label, ref helper, ref timeout, ref nat } = *action;
        let helper = helper.as_deref().and_then(Kind::named);
        let policy = timeout.as_deref().map(|name| policies.acquire(name)).transpose()?;
        Ok(Self { commit, zone, mark, label, nat: nat.clone(), helper, policy })
    }

    /// Lets its policy go.
    pub(crate) fn release(&self) {
        if let Some(policy) = &self.policy {
            policy.release();
        }
    }
}
