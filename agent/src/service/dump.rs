//! Flows, all or some.

use std::ops::ControlFlow;

use sluice_flow::table::FlowView;
use sluice_flow::{FlowState, Match};

use super::faces::AgentView;

/// Which flows are shown.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Those that could concern a packet of this match.
    pub filter: Option<Match>,
    /// Those of one of these kinds; all if there is none.
    pub kinds: Vec<FlowKind>,
}

/// Kinds of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// All.
    All,
    /// Those whose packets all go through the device.
    Offloaded,
    /// Those that the device does not have.
    NotOffloaded,
    /// Those whose packets go through the device in part.
    PartlyOffloaded,
    /// Those that have a rule in the backend of this name.
    InBackend(String),
}

impl AgentView {
    /// Shows the flows that are wanted until `visit` breaks off. While it runs no lock is held, but one flow is.
    pub fn dump(&self, wanted: &Dump, visit: &mut dyn FnMut(&FlowView) -> ControlFlow<()>) {
        let backend = self.capabilities().name;
        self.visit(&mut |view| if wanted.wants(&view, backend) { visit(&view) } else { ControlFlow::Continue(()) });
    }
}

impl Dump {
    fn wants(&self, view: &FlowView, backend: &str) -> bool {
        let is_of = |kind: &FlowKind| match kind {
            FlowKind::All => true,
            FlowKind::Offloaded => view.state == FlowState::Offloaded,
            FlowKind::NotOffloaded => !matches!(view.state, FlowState::Offloaded | FlowState::Partial),
            FlowKind::PartlyOffloaded => view.state == FlowState::Partial,
            FlowKind::InBackend(name) => view.placement.is_some() && name == backend,
        };
        (self.kinds.is_empty() || self.kinds.iter().any(is_of))
            && self.filter.as_ref().is_none_or(|filter| view.flow.matching().could_concern(filter))
    }
}
