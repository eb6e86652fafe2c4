//! The two faces of an agent.

use std::sync::Arc;

use super::turns::Turns;
use crate::agent::Agent;

/// Takes requests that change nothing that survives a restart. See the [module](super).
pub struct AgentView {
    agent: Arc<Agent>,
}

/// Takes requests that change flows and objects. See the [module](super).
pub struct Service {
    view: AgentView,
    pub(super) turns: Turns,
}

impl Service {
    /// The service of an agent.
    pub fn new(agent: Arc<Agent>) -> Self {
        Self { view: AgentView { agent }, turns: Turns::default() }
    }

    /// What can be read of the agent.
    pub fn view(&self) -> &AgentView {
        &self.view
    }

    pub(super) fn agent(&self) -> &Agent {
        self.view.agent()
    }
}

impl AgentView {
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }
}
