//! The two faces of an agent.

use std::sync::Arc;

use crate::agent::Agent;

/// For all that a restart need not know of.
pub struct AgentView {
    agent: Arc<Agent>,
}

/// For requests that change what is wanted. See the [module](super).
pub struct Service {
    view: AgentView,
}

impl Service {
    /// The service of an agent.
    pub fn new(agent: Arc<Agent>) -> Self {
        Self { view: AgentView { agent } }
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
