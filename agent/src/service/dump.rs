//! Flows, all or some.

use std::ops::ControlFlow;

use sluice_flow::table::FlowView;
use sluice_flow::{FlowState, MaskedKey, Match};

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
            && self.filter.as_ref().is_none_or(|filter| could_concern(filter, &view.flow.matching()))
    }
}

/// Whether a flow could concern a packet that the filter describes. Only the bits that the flow does not wildcard are held against
/// the filter (`lib/dpctl.c` of OVS, dump-flows).
pub fn could_concern(filter: &Match, matching: &MaskedKey<'_>) -> bool {
    let Match { key, mask } = filter;
    let mut stored = matching.mask().words().zip(matching.values());
    stored.all(|((word, flow_mask), value)| (value ^ key.words[word]) & flow_mask & mask.words[word] == 0)
}
