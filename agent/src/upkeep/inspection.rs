//! Rules that others have changed: those that the device heard of, and all in turn, are read back and compared with what is
//! wanted, and made anew where they differ.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{Auditor, Handle, ToInspect};
use sluice_flow::table::FlowView;
use sluice_flow::{Backend, FlowId, FlowTable, Refusal, Timestamp};

use super::difference::Kind;
use sluice_offload::OffloadQueue;

/// A rule that was made anew is not made anew in its turn again before so long: who changes it all the time is not fought in
/// every round, unless the device hears of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compares rules with what is wanted, some at a time.
pub struct Inspection {
    backend: Arc<dyn Backend>,
    table: Arc<FlowTable>,
    queue: Arc<OffloadQueue>,
    /// Rules that the device heard of and that could not be read back in the last round. Each is tried twice, and then when it has its turn.
    unread: Vec<Handle>,
    /// Rules that were wrong in their turn in the last round.
    suspects: HashSet<(FlowId, Handle)>,
    /// When rules were made anew in their turn.
    redone: HashMap<FlowId, Timestamp>,
}

/// What came of a round.
#[derive(Debug, Default)]
pub struct Inspected {
    /// Rules that are made anew.
    pub redone: usize,
    /// Why not all could be read back.
    pub failure: Option<Refusal>,
}

impl Inspection {
    /// Of the rules of a device.
    pub fn new(backend: Arc<dyn Backend>, table: Arc<FlowTable>, queue: Arc<OffloadQueue>) -> Self {
        Self { backend, table, queue, unread: Vec::new(), suspects: HashSet::new(), redone: HashMap::new() }
    }

    /// Looks at those rules whose turn it is, and has those made anew that are not what is wanted.
    pub fn round(&mut self, now: Timestamp) -> Inspected {
        let Some(auditor) = self.backend.audit() else { return Inspected::default() };
        let ToInspect { touched, due } = auditor.to_inspect();
        self.redone.retain(|_, at| now.since(*at) < PATIENCE);
        let heard_of: BTreeSet<_> = touched.iter().copied().chain(std::mem::take(&mut self.unread)).collect();
        // A device that goes leaves the rules that send to it without their target, and is said to have gone some time after that
        // (`rcu_barrier` in `dev_change_net_namespace` of the kernel). In the next round its flows are refused already.
        let suspects = std::mem::take(&mut self.suspects);
        let in_turn: BTreeSet<_> = suspects.iter().map(|(_, handle)| *handle).chain(due).collect();
        let in_turn: Vec<_> = in_turn.difference(&heard_of).copied().collect();
        let heard_of: Vec<_> = heard_of.into_iter().collect();
        let (mut wrong, mut failure) = (Vec::new(), None);
        match self.wrong(auditor, &heard_of) {
            Ok(found) => wrong = found,
            Err(refusal) => {
                self.unread = touched;
                failure = Some(refusal);
            }
        }
        match self.wrong(auditor, &in_turn) {
            Ok(found) => {
                for found in found {
                    if !suspects.contains(&found) {
                        self.suspects.insert(found);
                    } else if let Entry::Vacant(vacant) = self.redone.entry(found.0) {
                        vacant.insert(now);
                        wrong.push(found);
                    }
                }
            }
            Err(refusal) => {
                self.suspects = suspects;
                failure = failure.or(Some(refusal));
            }
        }
        for (flow, _) in &wrong {
            if let Some(view) = self.table.view(*flow) {
                tracing::warn!(ufid = %view.flow.ufid, "the rule of a flow was changed by others; it is made anew");
            }
            self.queue.redo(*flow);
        }
        Inspected { redone: wrong.len(), failure }
    }

    /// The rules that are not what is wanted. Table and device cannot be read at one moment, so that these are those that two
    /// looks show.
    fn wrong(&self, auditor: &dyn Auditor, rules: &[Handle]) -> Result<Vec<(FlowId, Handle)>, Refusal> {
        let first = self.look(auditor, rules)?;
        if first.is_empty() {
            return Ok(first);
        }
        let again: Vec<_> = first.iter().map(|(_, handle)| *handle).collect();
        let mut second = self.look(auditor, &again)?;
        second.retain(|found| first.contains(found));
        Ok(second)
    }

    fn look(&self, auditor: &dyn Auditor, rules: &[Handle]) -> Result<Vec<(FlowId, Handle)>, Refusal> {
        let mut wrong = Vec::new();
        if !rules.is_empty() {
            auditor.read_back(rules, &mut |flow, rule| {
                let is_its = |view: &FlowView| view.is_settled() && view.handle == Some(rule.handle);
                let view = self.table.view(flow).filter(is_its);
                if view.is_some_and(|view| Kind::of(&view, Some(&rule)).is_some()) {
                    wrong.push((flow, rule.handle));
                }
            })?;
        }
        Ok(wrong)
    }
}
