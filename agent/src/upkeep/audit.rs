//! What the table says is in the device against what the device says, and how to mend it.
//!
//! Table and device cannot be read at one moment: a difference is what two looks, one after the other, both find, and
//! flows on their way in or out are given a moment to get there.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use sluice_flow::backend::{Facet, Handle, InstalledRule, LostRule, MeterFault, MirrorFault};
use sluice_flow::table::FlowView;
use sluice_flow::{Backend, FlowId, FlowState, Generation, Refusal, Ufid};

use super::difference::Kind;
use crate::agent::{ANSWER_TIME, Agent};

/// How long a look waits for flows that are on their way in or out.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether a worker has mended a flow.
const MEND_POLL: Duration = Duration::from_millis(5);

/// What an audit found.
#[derive(Debug, Default)]
pub struct Audit {
    /// Rules of ours in the device.
    pub rules: usize,
    /// What differs, in order.
    pub differences: Vec<Difference>,
    /// Flows for which the device has yet to do what is wanted.
    pub waiting: HashSet<(FlowId, Generation)>,
    /// Mirrors that are not in the device as they were set.
    pub mirrors: Vec<MirrorFault>,
    /// Meters that are not in the device as they were set.
    pub meters: Vec<MeterFault>,
    /// Rules of others where ours lie, in the device's own words. They are nobody's fault.
    pub foreign: Vec<String>,
}

/// A difference between table and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Difference {
    /// Which.
    pub kind: Kind,
    /// The flow that the rule is named after.
    pub ufid: Ufid,
    handle: Handle,
    /// The flow as it was looked at, if the table has it.
    flow: Option<(FlowId, Generation)>,
}

/// What was done about a difference.
#[derive(Clone, Debug)]
pub struct Mending {
    /// The difference.
    pub of: Difference,
    /// Whether the device took it.
    pub result: Result<(), Refusal>,
}

impl Audit {
    /// Looks twice.
    pub fn of(agent: &Agent) -> Result<Self, Refusal> {
        let mut audit = Self::look(agent)?;
        audit.wait(agent, PATIENCE);
        if !(audit.differences.is_empty() && audit.waiting.is_empty()) {
            let Self { rules, differences, waiting, .. } = Self::look(agent)?;
            audit.rules = rules;
            let again: HashSet<_> = differences.into_iter().collect();
            audit.differences.retain(|difference| again.contains(difference));
            audit.differences.sort_unstable();
            audit.waiting.retain(|flow| waiting.contains(flow));
        }
        (audit.meters, audit.mirrors) = check_objects(&*agent.backend, false)?;
        if let Some(auditor) = agent.backend.audit() {
            auditor.foreign(&mut |rule| audit.foreign.push(rule))?;
        }
        Ok(audit)
    }

    fn look(agent: &Agent) -> Result<Self, Refusal> {
        let mut rules: HashMap<_, InstalledRule> = HashMap::new();
        agent.backend.installed(&mut |rule| drop(rules.insert(rule.handle, rule)))?;
        let mut audit = Self { rules: rules.values().map(|rule| rule.rules).sum(), ..Self::default() };
        // Of flows about which the device has been asked and not answered.
        let mut unsettled = HashSet::new();
        agent.table.visit(&mut |view| {
            let rule = view.handle.and_then(|handle| rules.remove(&handle));
            let kind = if view.is_settled() {
                Kind::of(&view, rule.as_ref())
            } else {
                unsettled.insert(view.id);
                if view.state != FlowState::Refused {
                    audit.waiting.insert((view.id, view.generation));
                }
                None
            };
            if let (Some(kind), Some(handle)) = (kind, view.handle) {
                let flow = Some((view.id, view.generation));
                audit.differences.push(Difference { kind, ufid: view.flow.ufid, handle, flow });
            }
            ControlFlow::Continue(())
        });
        // What no flow has.
        for (handle, rule) in rules {
            let wanted = agent.table.find_rule(&rule).and_then(|id| agent.table.view(id));
            let (kind, ufid) = match wanted {
                Some(view) if unsettled.contains(&view.id) => continue,
                Some(view) => (Kind::Doubled, view.flow.ufid),
                None => (Kind::Stray, rule.flow.ufid),
            };
            audit.differences.push(Difference { kind, ufid, handle, flow: None });
        }
        Ok(audit)
    }

    /// Waits until the device has done what was wanted of the flows that wait for it, at most so long.
    fn wait(&self, agent: &Agent, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        for (flow, generation) in &self.waiting {
            let waits = |view: FlowView| {
                view.generation == *generation && matches!(view.state, FlowState::Pending | FlowState::Deleting)
            };
            while agent.table.view(*flow).is_some_and(waits) && Instant::now() < deadline {
                thread::sleep(MEND_POLL);
            }
        }
    }

    /// Whether all is as wanted.
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.waiting.is_empty() && self.mirrors.is_empty() && self.meters.is_empty()
    }

    /// Counts what is not as wanted of a kind: rules, meters and mirrors.
    pub fn count(&self, kind: Kind) -> usize {
        let rules = self.differences.iter().filter(|difference| difference.kind == kind).count();
        let objects =
            self.meters.iter().map(|fault| fault.is_there).chain(self.mirrors.iter().map(|fault| fault.is_there));
        let of_kind = |is_there: bool| kind == if is_there { Kind::Changed } else { Kind::Missing };
        rules + objects.filter(|is_there| of_kind(*is_there)).count()
    }

    /// Makes the device what the table says, and waits for it.
    pub fn mend(&self, agent: &Agent) -> Result<Vec<Mending>, Refusal> {
        let of_kind = |kinds: &'static [Kind]| self.differences.iter().filter(|found| kinds.contains(&found.kind));
        // First what may lie where the right rule is to go.
        let mut mendings: Vec<_> = of_kind(&[Kind::Doubled, Kind::Stray])
            .map(|found| {
                let auditor = Facet::Audit.require(agent.backend.audit());
                Mending { of: *found, result: auditor.and_then(|auditor| auditor.remove_stray(found.handle)) }
            })
            .collect();
        if of_kind(&[Kind::Missing]).next().is_some() {
            // Whatever the backend has in its own ledger of them is to go, too.
            agent.backend.resync()?.into_iter().for_each(|lost| agent.queue.lost(lost));
        }
        for found in of_kind(&[Kind::Missing, Kind::Changed]) {
            let Some((flow, _)) = found.flow else { continue };
            match found.kind {
                Kind::Missing => agent.queue.lost(LostRule { flow, handle: found.handle }),
                _ => agent.queue.redo(flow),
            }
        }
        let deadline = Instant::now() + ANSWER_TIME;
        self.wait(agent, ANSWER_TIME);
        mendings.extend(of_kind(&[Kind::Missing, Kind::Changed]).filter_map(|found| {
            let (flow, _) = found.flow?;
            Some(Mending { of: *found, result: outcome(agent, flow, deadline) })
        }));
        Ok(mendings)
    }
}

/// Compares meters and mirrors with what the device has, as far as it has any, and puts them right if that is wanted.
pub fn check_objects(backend: &dyn Backend, mends: bool) -> Result<(Vec<MeterFault>, Vec<MirrorFault>), Refusal> {
    let meters = backend.meters().map_or(Ok(Vec::new()), |meters| meters.check_meters(mends))?;
    let mirrors = backend.mirrors().map_or(Ok(Vec::new()), |mirrors| mirrors.check_mirrors(mends))?;
    Ok((meters, mirrors))
}

/// Takes every rule of ours out of the device that no flow has.
pub fn sweep(agent: &Agent) -> Result<Vec<Mending>, Refusal> {
    let mut found = Audit::of(agent)?;
    found.differences.retain(|difference| matches!(difference.kind, Kind::Doubled | Kind::Stray));
    found.mend(agent)
}

/// Waits until a worker has done what is to be done about a flow. One that somebody deletes meanwhile is done with.
fn outcome(agent: &Agent, flow: FlowId, deadline: Instant) -> Result<(), Refusal> {
    loop {
        let Some(view) = agent.table.view(flow) else { return Ok(()) };
        match (view.state, &view.refusal) {
            (FlowState::Refused, Some(refusal)) => return Err(Refusal::clone(refusal)),
            (FlowState::Pending, _) if Instant::now() < deadline => thread::sleep(MEND_POLL),
            (FlowState::Pending, _) => {
                return Err(Refusal::Busy { reason: "the device has not answered yet".into() });
            }
            _ => return Ok(()),
        }
    }
}
