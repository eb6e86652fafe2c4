//! What an earlier run left, by its notes: enough to adopt what has not changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_flow::backend::{Claims, InstalledRule};
use sluice_flow::chain::ChainId;
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::flow::Flow;
use sluice_flow::id::Generation;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::counted::Counted;
use super::holdings::OtherOwners;
use super::ledger::chains::owner_of_end;
use super::ledger::record::{FirstReadings, Place, Record, UNCLAIMED};
use super::listing::list;
use super::placement;
use super::ports::table::PortTable;
use super::reader::max_lag;
use crate::dump::Detail;
use crate::label::Label;
use crate::marks::{Format, Mark};
use crate::priorities::Priorities;
use crate::templates::{Lookup, Templates};
use crate::translate::Rules;
use crate::wire::filter::{Filter, FilterId, Hook};
use crate::wire::rule_view::RuleView;

/// All rules of ours.
pub(super) struct Survey {
    /// Rules of flows, by name.
    pub(super) rules: Vec<LabelledRule>,
    /// Rules of mirrors that no longer exist.
    pub(super) orphans: Vec<FilterId>,
    /// Chain ends with notes of an earlier format.
    pub(super) old_ends: Vec<FilterId>,
    /// What other owners have.
    pub(super) others: OtherOwners,
    /// Priorities and protocols of rules that are not this agent's.
    pub(super) taken: BTreeSet<(u16, u16)>,
    sampled: Sampled,
}

/// A flow's rule as a terse listing shows it.
pub(super) struct LabelledRule {
    pub(super) id: FilterId,
    label: Label,
    /// Bits of [`flag`](crate::wire::flower::flag).
    flags: u32,
    counted: Counted,
}

/// What was adopted by notes.
#[derive(Default)]
pub(super) struct Adopted {
    pub(super) count: usize,
    /// Chains that the rules jump to.
    pub(super) jumps: Vec<(Hook, ChainId)>,
    /// Rules whose notes do not say enough.
    pub(super) doubtful: Vec<FilterId>,
    readings: Vec<Reading>,
}

/// Translates flows, many of them alike.
struct Translator<'a> {
    core: &'a Core,
    ports: Arc<PortTable>,
    /// Ports whose rules may have stopped forwarding, which notes do not show.
    bare: Vec<PortNumber>,
    templates: Templates,
    message: Vec<u8>,
}

impl Survey {
    /// Lists the hooks, and enters chain ends into the ledger.
    pub(super) fn of(core: &Core, hooks: &[Hook]) -> Result<Self, Refusal> {
        let wanted = core.mirrors.rules();
        let earliest = core.clock.now().before(max_lag(core.policy));
        let (mut rules, mut orphans, mut old_ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut others, mut taken) = (OtherOwners::default(), BTreeSet::new());
        for hook in hooks {
            list(*hook, Detail::Terse, &mut |view| {
                let Ok(rule) = RuleView::new(view) else { return };
                let note = rule.cookies[0];
                if let Some(label) = Label::read(rule.cookies).filter(|label| label.agent == core.agent) {
                    let RuleView { id, flags, .. } = rule;
                    rules.push(LabelledRule { id, label, flags, counted: Counted::listed(&rule) });
                } else if owner_of_end(note) == Some(core.agent) {
                    core.ledger.chains.adopt_end(*hook, ChainId(rule.id.chain));
                    old_ends.extend(
                        Mark::of_rule(rule.cookies).filter(|mark| mark.format != Format::CURRENT).map(|_| rule.id),
                    );
                } else if core.mirrors.is_ours(note) {
                    orphans.extend((!wanted.contains(&rule.id)).then_some(rule.id));
                } else {
                    taken.insert((rule.id.priority, rule.id.protocol));
                    others.see(&rule);
                }
            })?;
        }
        // A listing that was repeated shows some rules twice; the last one counts.
        rules.reverse();
        rules.sort_by_key(|rule| rule.id);
        rules.dedup_by_key(|rule| rule.id);
        orphans.sort_unstable();
        orphans.dedup();
        Ok(Self { rules, orphans, old_ends, others, taken, sampled: Sampled { earliest, latest: core.clock.now() } })
    }

    /// Has flows claim the rules that are, by their notes, what would be installed now.
    pub(super) fn adopt(&self, core: &Core, claims: &mut dyn Claims) -> Adopted {
        let mut translator = Translator::new(core);
        let mut adopted = Adopted::default();
        for rule in &self.rules {
            match translator.adopt(rule, claims) {
                Some((flow, reading)) => {
                    adopted.count += 1;
                    adopted.jumps.extend(flow.jumps().into_iter().map(|chain| (rule.id.hook, chain)));
                    adopted.readings.push(reading);
                }
                None => adopted.doubtful.push(rule.id),
            }
        }
        adopted.jumps.sort_unstable();
        adopted.jumps.dedup();
        adopted
    }

    /// What the rules had counted, unless some of them must be read in full.
    pub(super) fn first_readings(&self, adopted: Adopted) -> Option<FirstReadings> {
        let Adopted { doubtful, readings, .. } = adopted;
        (doubtful.is_empty() && !readings.is_empty()).then_some(FirstReadings { readings, sampled: self.sampled })
    }
}

impl<'a> Translator<'a> {
    fn new(core: &'a Core) -> Self {
        let ports = core.ports.load_full();
        Self { core, bare: ports.bare(), ports, templates: Templates::new(), message: Vec::new() }
    }

    /// Has the flow of a rule claim it, if the rule is what would be installed now. Returns the flow and its counters.
    fn adopt(&mut self, rule: &LabelledRule, claims: &mut dyn Claims) -> Option<(Flow, Reading)> {
        let place = Place::of(&rule.id);
        let flow = claims.wanted(rule.label.ufid?)?;
        if self.bare.iter().any(|port| flow.names_port(*port)) {
            return None;
        }
        if self.expected(&flow)? != (place, rule.label) {
            return None;
        }
        let ledger = &self.core.ledger;
        let handle = ledger.adopt(&rule.id, Record::new(UNCLAIMED, Generation::NONE, place))?;
        let installed = InstalledRule {
            handle,
            flow,
            is_named: true,
            rules: 1,
            placement: placement::of_flags(rule.flags),
            // The digest covers everything that the rule was asked to be.
            is_current: true,
        };
        let Some((owner, generation)) = claims.claim(&installed) else {
            ledger.vacate(handle);
            return None;
        };
        ledger.assign(handle, owner, generation);
        ledger.settle(handle, place, Counted::default(), None);
        let reading = Reading { flow: owner, installed_as: generation, counters: rule.counted.total() };
        Some((installed.flow, reading))
    }

    /// Where the rule of a flow would be now, and its notes; `None` if there are two rules, or if the priority of its
    /// protocol is not fixed.
    fn expected(&mut self, flow: &Flow) -> Option<(Place, Label)> {
        let found = self.templates.look_up(flow, &*self.ports);
        if let Lookup::Hit(template) = found {
            let (hook, chain, protocol) = (template.hook, template.chain, template.protocol);
            let place = Place { hook, chain, priority: Priorities::fixed(flow.priority, protocol)?, protocol };
            return Some((place, template.label(flow, &mut self.message)));
        }
        let Rules { rule, guard: None } = self.core.rules_of(flow, &self.ports).ok()? else { return None };
        let (hook, chain, protocol) = (rule.hook, rule.chain, rule.protocol);
        let place = Place { hook, chain, priority: Priorities::fixed(flow.priority, protocol)?, protocol };
        let filter =
            Filter { id: FilterId { hook, chain, priority: place.priority, protocol, handle: 0 }, flower: rule.flower };
        if let Lookup::Learn(vacancy) = found {
            self.templates.learn(vacancy, flow, &filter, &*self.ports);
        }
        Some((place, Label::of(&filter.flower)?))
    }
}
