//! A walk over all flows for people: where packets go, and why flows are refused, with what can be done.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sluice_flow::backend::Placement;
use sluice_flow::{FlowState, Refusal, Ufid};

use super::faces::AgentView;

/// So many different reasons are told apart; flows of further ones are counted by their label.
const MOST_REASONS: usize = 1_000;

/// What a walk over all flows found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Flows.
    pub flows: u64,
    /// Flows whose rule is in hardware, or in what the NIC in software counts as hardware.
    pub in_hardware: u64,
    /// Packets that flows there are have counted.
    pub packets: u64,
    /// Those of flows in hardware. Where a rule is in hardware and in software, all of its packets are taken for hardware's.
    pub hardware_packets: u64,
    /// Why flows are refused, the most frequent reason first.
    pub refusals: Vec<RefusedFlows>,
}

/// Flows that are refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFlows {
    /// The kind of refusal.
    pub label: &'static str,
    /// The reason; of a kind with too many of them, that there are.
    pub reason: String,
    /// How many flows.
    pub flows: u64,
    /// One of them.
    pub example: Ufid,
    /// What can be done.
    pub cure: &'static str,
}

impl AgentView {
    /// Walks over all flows. No lock is held meanwhile, but one flow is.
    pub fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let mut reasons: HashMap<String, RefusedFlows> = HashMap::new();
        self.visit(&mut |view| {
            survey.flows += 1;
            survey.packets += view.counters.packets;
            if matches!(view.placement, Some(Placement::Hardware | Placement::Both)) {
                survey.in_hardware += 1;
                survey.hardware_packets += view.counters.packets;
            }
            if let (FlowState::Refused, Some(refusal)) = (view.state, &view.refusal) {
                let (label, mut reason) = (refusal.label(), refusal.to_string());
                if reasons.len() >= MOST_REASONS && !reasons.contains_key(&reason) {
                    reason = format!("{label}: other reasons");
                }
                let example = view.flow.ufid;
                let new = || RefusedFlows { label, reason: reason.clone(), flows: 0, example, cure: cure(refusal) };
                reasons.entry(reason.clone()).or_insert_with(new).flows += 1;
            }
            ControlFlow::Continue(())
        });
        survey.refusals = reasons.into_values().collect();
        survey.refusals.sort_by(|one, other| other.flows.cmp(&one.flows).then_with(|| one.reason.cmp(&other.reason)));
        survey
    }
}

/// What somebody can do about a refusal.
fn cure(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Until { refusal, .. } => cure(refusal),
        Refusal::Action { .. } | Refusal::Field { .. } => {
            "docs/language.md says which backend takes it; otherwise leave the flow to the slow path"
        }
        Refusal::Combination { .. } => "split the flow, so that one does not ask for both",
        Refusal::Busy { .. } => "it is tried again by itself",
        Refusal::Device { .. } => "sluice preflight, and the log of the driver (dmesg)",
        Refusal::Kernel { errno: 17, .. } => {
            "sluice audit: somebody else's rule matches the same; sluice flush --orphans"
        }
        Refusal::Kernel { .. } => "the words are the kernel's: sluice preflight says what it was built without",
        Refusal::Limit { .. } => "remove flows, or make them wider; sluice show has the limits",
        Refusal::Port { .. } | Refusal::PortGone { .. } => {
            "sluice add-port: the flow is tried again once the port is there"
        }
        Refusal::Unsupported { .. } => "use another backend",
        _ => "sluice explain UFID",
    }
}
