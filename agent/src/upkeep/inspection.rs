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
    /// Rules that were wrong in their turn in the last round.
    suspects: HashSet<(FlowId, Handle)>,
    /// When rules were made anew in their turn.
    redone: HashMap<FlowId, Timestamp>,
}

impl Inspection {
    /// Of the rules of a device.
    pub fn new(backend: Arc<dyn Backend>, table: Arc<FlowTable>, queue: Arc<OffloadQueue>) -> Self {
        Self { backend, table, queue, suspects: HashSet::new(), redone: HashMap::new() }
    }

    /// Looks at those rules whose turn it is, and has those made anew that are not what is wanted. Says how many these are.
    pub fn round(&mut self, now: Timestamp) -> Result<usize, Refusal> {
        let Some(auditor) = self.backend.audit() else { return Ok(0) };
        let ToInspect { touched, due } = auditor.to_inspect();
        self.redone.retain(|_, at| now.since(*at) < PATIENCE);
        let mut wrong = self.wrong(auditor, &touched)?;
        // A device that goes leaves the rules that send to it without their target, and is said to have gone some time after that
        // (`rcu_barrier` in `dev_change_net_namespace` of the kernel). In the next round its flows are refused already.
        let suspects = std::mem::take(&mut self.suspects);
        let mut in_turn: BTreeSet<_> = suspects.iter().map(|(_, handle)| *handle).chain(due).collect();
        for handle in &touched {
            in_turn.remove(handle);
        }
        let in_turn: Vec<_> = in_turn.into_iter().collect();
        for found in self.wrong(auditor, &in_turn)? {
            if !suspects.contains(&found) {
                self.suspects.insert(found);
            } else if let Entry::Vacant(vacant) = self.redone.entry(found.0) {
                vacant.insert(now);
                wrong.push(found);
            }
        }
        for (flow, _) in &wrong {
            if let Some(view) = self.table.view(*flow) {
                tracing::warn!(ufid = %view.flow.ufid, "the rule of a flow was changed by others; it is made anew");
            }
            self.queue.redo(*flow);
        }
        Ok(wrong.len())
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
