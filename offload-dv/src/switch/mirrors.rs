//! Mirrors: tables ahead of that of the first chain, in which packets are copied, and which all lead on.

use std::collections::{BTreeMap, BTreeSet};

use sluice_flow::refusal::Refusal;

use super::counters::Counters;
use super::lead::Lead;
use super::refusal::refuse;
use super::rule_id::RuleId;
use crate::mlx5::{Action, CallError, Domain, MatchParameter, Rule};
use crate::translate::Matched;

/// Tables for mirrors: a packet is copied in each at most once, so that at most so many mirrors of a port copy the same packet. Mirrors
/// whose packets are certain to be others share a table.
pub(super) const STAGES: u32 = 4;

/// What is copied, and where to.
#[derive(Clone, Debug)]
pub struct Copying {
    /// Which packets: of one vport. One that several of these take is copied once.
    pub matched: Vec<Matched>,
    /// The vports that get a copy, each once.
    pub copies: Vec<u16>,
}

impl Copying {
    /// Returns whether no packet is copied by both.
    fn excludes(&self, other: &Self) -> bool {
        let pairs = self.matched.iter().flat_map(|one| other.matched.iter().map(move |other| (one, other)));
        pairs
            .into_iter()
            .all(|(one, other)| MatchParameter::excludes((&one.mask, &one.value), (&other.mask, &other.value)))
    }
}

/// What mirrors share with flows, what leads to the first chain, and the vports whose packets come.
pub(super) struct Parts<'a> {
    pub(super) domain: &'a Domain,
    pub(super) counters: &'a mut Counters,
    pub(super) first: &'a Action,
    pub(super) vports: &'a BTreeSet<u16>,
}

/// The mirrors of an eswitch.
#[derive(Default)]
pub(super) struct Mirrors {
    /// In the order in which they were first set.
    list: Vec<Mirror>,
    tables: Option<Stages>,
}

struct Mirror {
    name: String,
    copying: Copying,
    /// The place of its counter.
    counter: RuleId,
}

/// The rules of all mirrors, which keep their tables. What leads to them goes first.
struct Stages {
    lead: Lead,
    /// The priority of that in the table of level 0.
    order: u16,
    rules: Vec<Rule>,
}

/// The priority of what leads to the first chain, behind those that lead to mirrors.
pub(super) const ROOT_ORDER: u16 = 2;

impl Mirrors {
    /// Makes a mirror, or changes it; its counter goes on. Fails if the device cannot; then all mirrors are as they were.
    pub(super) fn set(&mut self, name: &str, copying: Copying, parts: &mut Parts<'_>) -> Result<(), Refusal> {
        let known = self.list.iter().position(|mirror| mirror.name == name);
        let old = match known {
            Some(place) => Some(std::mem::replace(&mut self.list[place].copying, copying)),
            None => {
                let counter = parts.counters.take()?;
                self.list.push(Mirror { name: name.to_owned(), copying, counter });
                None
            }
        };
        let made = self.make(parts);
        if made.is_err() {
            match (known, old) {
                (Some(place), Some(old)) => self.list[place].copying = old,
                // Packets of some ports may have been led to it, and have been counted.
                _ => parts.counters.rest(self.list.pop().map(|mirror| mirror.counter)),
            }
        }
        made
    }

    /// Removes a mirror. Fails if there is none of that name.
    pub(super) fn remove(&mut self, name: &str, parts: &mut Parts<'_>) -> Result<(), Refusal> {
        let Some(place) = self.list.iter().position(|mirror| mirror.name == name) else {
            return Err(Refusal::Device { reason: format!("there is no mirror {name}").into() });
        };
        let removed = self.list.remove(place);
        if let Err(refusal) = self.make(parts) {
            self.list.insert(place, removed);
            return Err(refusal);
        }
        parts.counters.rest([removed.counter]);
        Ok(())
    }

    /// Has packets of these vports come to the mirrors, and no others.
    pub(super) fn lead_from(&mut self, vports: &BTreeSet<u16>) -> Result<(), Refusal> {
        self.tables.as_mut().map_or(Ok(()), |tables| tables.lead.set(vports)).map_err(refuse)
    }

    /// Returns the place of a mirror's counter; `None` if there is none of that name.
    pub(super) fn counter(&self, name: &str) -> Option<RuleId> {
        self.list.iter().find(|mirror| mirror.name == name).map(|mirror| mirror.counter)
    }

    /// Makes the tables anew and leads packets there, before the old ones go: each packet is in the ones or in the others.
    fn make(&mut self, parts: &Parts<'_>) -> Result<(), Refusal> {
        let tables = match self.list.is_empty() {
            true => None,
            false => {
                let order = self.tables.as_ref().map_or(0, |tables| 1 - tables.order);
                Some(self.stages(order, parts)?)
            }
        };
        let old = std::mem::replace(&mut self.tables, tables);
        if let Some(Stages { lead, rules, .. }) = old {
            drop(lead);
            // From here on no packet is in them. The new ones are made in any case, and count.
            parts.domain.sync().unwrap_or_else(|error| tracing::warn!("packets in flight may not be copied: {error}"));
            drop(rules);
        }
        Ok(())
    }

    fn stages(&self, order: u16, parts: &Parts<'_>) -> Result<Stages, Refusal> {
        let Parts { domain, counters, first, vports } = parts;
        // Mirrors that may copy the same packet are one behind the other.
        let mut stages: BTreeMap<u32, Vec<&Mirror>> = BTreeMap::new();
        for mirror in &self.list {
            let is_free = |stage: &u32| {
                let there = stages.get(stage).into_iter().flatten();
                there.into_iter().all(|other| mirror.copying.excludes(&other.copying))
            };
            let Some(stage) = (0..STAGES).find(is_free) else {
                return Err(Refusal::Limit { what: "mirrors of the same packet".into(), limit: STAGES.into() });
            };
            stages.entry(stage).or_default().push(mirror);
        }
        let everything = MatchParameter::default();
        let (mut next, mut rules) = (Action::clone(first), Vec::new());
        for (stage, mirrors) in stages.into_iter().rev() {
            let table = domain.table(1 + stage).map_err(refuse)?;
            for Mirror { copying, counter, .. } in mirrors {
                let copies = to_all(domain, &copying.copies, &next).map_err(refuse)?;
                for Matched { mask, value, .. } in &copying.matched {
                    let matcher = table.matcher(0, mask).map_err(refuse)?;
                    let actions = [counters.action(*counter)?, copies.clone()];
                    rules.push(matcher.rule(value, actions.into()).map_err(refuse)?);
                }
            }
            let others = table.matcher(1, &everything).map_err(refuse)?;
            rules.push(others.rule(&everything, [next].into()).map_err(refuse)?);
            next = Action::to_table(&table).map_err(refuse)?;
        }
        domain.sync_writes().map_err(refuse)?;
        let lead = Lead::open(domain, order, next, vports).map_err(refuse)?;
        Ok(Stages { lead, order, rules })
    }
}

/// Copies to vports, and the packet itself to where it goes on.
fn to_all(domain: &Domain, copies: &[u16], next: &Action) -> Result<Action, CallError> {
    let ports = copies.iter().map(|vport| Action::to_vport(domain, *vport));
    Action::to_all(domain, ports.chain([Ok(next.clone())]).collect::<Result<_, _>>()?)
}
