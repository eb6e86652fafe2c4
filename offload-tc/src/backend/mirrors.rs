//! Mirrors: rules in front of all rules of flows. They outlive the agent as those do.
//!
//! The note on a mirror's rule has a number that is made of the mirror's name, so that the next run finds the rule again.
//! A mirror has a rule for each of its matches. Only one rule of a tc priority takes a packet, so each mirror of a hook has its own priority
//! for each protocol: the rules of a mirror that share a protocol share the priority, and a packet is copied once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::OffloadPolicy;
use parking_lot::Mutex;
use sluice_flow::backend::{MirrorCounters, MirrorFault, Placement};
use sluice_flow::key::Match;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::counted::Counted;
use super::failure::{self, socket_refusal};
use super::placement;
use super::ports::table::PortTable;
use super::removal::deleted;
use crate::install::{self, Installer, Report, Request};
use crate::label::MirrorNote;
use crate::marks::AgentId;
use crate::priorities::Priorities;
use crate::socket::SocketError;
use crate::translate;
use crate::wire::action::{Control, Cookie, Operation};
use crate::wire::filter::{Filter, FilterId, Hook};
use crate::wire::flower::{Flower, flag};
use crate::wire::rule_view::RuleView;

type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The handle of the rule of a mirror's first match; the others follow.
const FIRST_HANDLE: u32 = 1;

/// The mirrors of an agent. Changes are made one at a time; neither packets nor flows wait for them.
pub(super) struct Mirrors {
    agent: AgentId,
    policy: OffloadPolicy,
    kernel: Mutex<Kernel>,
    /// How often a rule was put in place.
    changes: AtomicU64,
    shown: Mutex<HashMap<FilterId, Shown>>,
}

/// What a listing has shown of a rule. It is used once: whoever asks again before the next listing has the kernel asked.
struct Shown {
    counted: Counted,
    placement: Placement,
    /// [`Mirrors::changes`] when the listing began: what it shows of a rule that was put in place later may be of the rule before.
    began: u64,
}

struct Kernel {
    installer: Installer,
    parts: BTreeMap<PartName, Known>,
    /// Whether rules of an earlier run that no mirror has taken over are gone from the kernel.
    is_settled: bool,
}

/// A match of a mirror: the mirror's name, and the place of the match.
type PartName = (String, u32);

/// A wanted match of a mirror.
#[derive(Clone)]
struct Known {
    part: Part,
    number: u32,
    /// The name of its rule, which may be gone; `None` if it was never installed.
    rule: Option<FilterId>,
    /// What its earlier rules counted.
    carried: Counted,
    /// What the rule was last seen to have counted: more is not known of one that somebody else deletes.
    seen: Counted,
    /// [`Mirrors::changes`] after the rule was put in place.
    changed: u64,
}

/// One match of a mirror, and where copies go.
#[derive(Clone)]
struct Part {
    place: u32,
    port: PortNumber,
    matching: Match,
    copies: Vec<PortNumber>,
}

/// How the installed rule compares with the wanted one.
enum Found {
    AsWanted,
    /// It has the same match and other actions, or notes of an earlier format.
    OtherActions,
    OtherMatch,
    Missing,
}

impl Mirrors {
    pub(super) fn open(agent: AgentId, policy: OffloadPolicy) -> Result<Self, SocketError> {
        let kernel = Kernel { installer: Installer::open(policy)?, parts: BTreeMap::new(), is_settled: false };
        Ok(Self { agent, policy, kernel: Mutex::new(kernel), changes: AtomicU64::new(0), shown: Mutex::default() })
    }

    /// The netlink port id of the socket for mirrors' rules.
    pub(super) fn socket(&self) -> u32 {
        self.kernel.lock().installer.port()
    }

    /// Makes a mirror, or changes it. If the device of its port or of a copy is absent, it is installed once that comes. After a refusal it
    /// is as it was before.
    pub(super) fn set(&self, mirror: &Mirror, ports: &PortTable) -> Result<()> {
        let mut kernel = self.kernel.lock();
        let before = kernel.parts_of(&mirror.name);
        for (place, matching) in (0..).zip(&mirror.matches) {
            let (port, copies) = (mirror.port(), mirror.copies.clone());
            let part = Part { place, port, matching: *matching, copies };
            if let Err(refusal) = self.set_part(&mut kernel, &mirror.name, part, ports) {
                for place in 0..=place {
                    let name = (mirror.name.clone(), place);
                    // The refusal says why; the mirror is as it was as far as the kernel takes that.
                    let _ = match before.iter().find(|(known, _)| *known == name) {
                        Some((_, known)) => self.set_part(&mut kernel, &mirror.name, known.part.clone(), ports),
                        None => kernel.remove_part(&name),
                    };
                }
                return Err(refusal);
            }
        }
        let is_gone = |name: &PartName| usize::try_from(name.1).is_ok_and(|place| place >= mirror.matches.len());
        let gone = before.into_iter().filter(|(name, _)| is_gone(name));
        gone.into_iter().try_for_each(|(name, _)| kernel.remove_part(&name))
    }

    fn set_part(&self, kernel: &mut Kernel, mirror: &str, part: Part, ports: &PortTable) -> Result<()> {
        let name = (mirror.to_owned(), part.place);
        let before = kernel.parts.get(&name).cloned();
        let new = || {
            let (carried, seen) = Default::default();
            Known { part: part.clone(), number: kernel.number(&name), rule: None, carried, seen, changed: 0 }
        };
        let mut known = before.clone().unwrap_or_else(new);
        known.part = part;
        if known.part.copies.iter().chain([&known.part.port]).any(|port| ports.is_absent(*port)) {
            if let Some(old) = known.rule {
                let counted = kernel.delete(old)?;
                known.end(counted);
            }
            kernel.parts.insert(name, known);
            return Ok(());
        }
        let done = self.put(kernel, &name, &mut known, ports);
        if let (Err(_), Some(before)) = (&done, before) {
            known.part = before.part;
        }
        if known.rule.is_some() {
            kernel.parts.insert(name, known);
        }
        done
    }

    /// Removes a mirror.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let mut kernel = self.kernel.lock();
        let parts = kernel.parts_of(name);
        if parts.is_empty() {
            return Err(Refusal::Device { reason: format!("there is no mirror {name}").into() });
        }
        parts.iter().try_for_each(|(name, _)| kernel.remove_part(name))
    }

    /// A listing of rules begins. Returns what [`show`](Self::show) is to be given of it.
    pub(super) fn begin_listing(&self) -> u64 {
        self.shown.lock().clear();
        self.changes.load(Ordering::Acquire)
    }

    /// A listing shows a rule. Those of mirrors, of which there may be a hundred at a port, are so read with the flows.
    pub(super) fn show(&self, rule: &RuleView<'_>, began: u64) {
        if self.is_ours(rule.cookies[0]) {
            let (counted, placement) = (Counted::listed(rule), placement::of_flags(rule.flags));
            self.shown.lock().insert(rule.id, Shown { counted, placement, began });
        }
    }

    /// What a mirror copied, as of the last listing or of now.
    pub(super) fn counters(&self, name: &str) -> Option<MirrorCounters> {
        let mut kernel = self.kernel.lock();
        let mut sum: Option<MirrorCounters> = None;
        for (name, Known { rule, carried, changed, .. }) in kernel.parts_of(name) {
            let Some(id) = rule else { continue };
            let shown = self.shown.lock().remove(&id).filter(|shown| shown.began >= changed);
            let asked = || {
                let report = kernel.report(id).ok().flatten()?;
                Some((Counted::reported(&report, &id), placement::of_flags(report.flags)))
            };
            // While a rule is missing, what is known of the mirror is less than it has counted.
            let (counted, placement) = shown.map(|shown| (shown.counted, shown.placement)).or_else(asked)?;
            if let Some(known) = kernel.parts.get_mut(&name) {
                known.seen = counted;
            }
            let all = carried.plus(counted).total();
            let before = sum.unwrap_or(MirrorCounters { packets: 0, bytes: 0, placement });
            sum = Some(MirrorCounters {
                packets: before.packets + all.packets,
                bytes: before.bytes + all.bytes,
                // Of rules in several places it cannot be said where the mirror is.
                placement: if before.placement == placement { placement } else { Placement::Unknown },
            });
        }
        sum
    }

    /// Compares mirrors with the kernel, those of one hook or all, and restores them if asked.
    pub(super) fn check(&self, hook: Option<Hook>, ports: &PortTable, mends: bool) -> Result<Vec<MirrorFault>> {
        let mut kernel = self.kernel.lock();
        let names: Vec<_> = kernel.parts.keys().cloned().collect();
        let mut faults = Vec::new();
        for name in names {
            let Some(mut known) = kernel.parts.get(&name).cloned() else { continue };
            // Without its port a mirror has no place where it could be missing.
            let Ok(wanted) = self.wanted(&known, ports) else { continue };
            if hook.is_some_and(|hook| hook != wanted.id.hook) {
                continue;
            }
            let is_there = match kernel.look(known.rule, &wanted, ports)? {
                Found::AsWanted => continue,
                Found::OtherActions | Found::OtherMatch => true,
                Found::Missing => false,
            };
            let mended = mends.then(|| self.put(&mut kernel, &name, &mut known, ports));
            kernel.parts.insert(name.clone(), known);
            faults.push(MirrorFault { name: name.0, is_there, mended });
        }
        Ok(faults)
    }

    /// Deletes the rules of mirrors at a hook whose port goes; the mirrors stay.
    pub(super) fn park(&self, hook: Hook) {
        let mut kernel = self.kernel.lock();
        let names: Vec<_> = kernel.parts.keys().cloned().collect();
        for name in names {
            let Some(mut known) = kernel.parts.get(&name).cloned() else { continue };
            let Some(id) = known.rule.filter(|id| id.hook == hook) else { continue };
            let counted = kernel.delete(id).ok().flatten();
            known.end(counted);
            kernel.parts.insert(name, known);
        }
    }

    /// What an earlier run left, and no mirror has taken over, is gone: from now on it is not looked for.
    pub(super) fn settle(&self) {
        self.kernel.lock().is_settled = true;
    }

    /// The names of the mirrors' rules.
    pub(super) fn rules(&self) -> HashSet<FilterId> {
        self.kernel.lock().parts.values().filter_map(|known| known.rule).collect()
    }

    /// Forgets all mirrors.
    pub(super) fn forget(&self) {
        self.kernel.lock().parts.clear();
    }

    /// Whether a note is a mirror's of this agent.
    pub(super) fn is_ours(&self, note: &[u8]) -> bool {
        MirrorNote::read(note).is_some_and(|note| note.agent == self.agent)
    }

    /// The rule of a mirror, at the first priority.
    fn wanted(&self, known: &Known, ports: &PortTable) -> Result<Filter> {
        let Known { part: Part { place, matching, copies, .. }, number, .. } = known;
        let note = MirrorNote { agent: self.agent, number: *number };
        let rule = translate::mirror(&translate::Mirror { matching: *matching, copies: copies.clone(), note }, ports)?;
        let priority = Priorities::of_mirror(0)?;
        let handle = FIRST_HANDLE + place;
        let id = FilterId { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol, handle };
        let flags = rule.flower.flags | install::flags(self.policy);
        Ok(Filter { id, flower: Flower { flags, ..rule.flower } })
    }

    /// Installs the rule of a mirror as it is wanted. A refusal leaves the old one.
    fn put(&self, kernel: &mut Kernel, name: &PartName, known: &mut Known, ports: &PortTable) -> Result<()> {
        let mut wanted = self.wanted(known, ports)?;
        let hook = wanted.id.hook;
        let refine = |refusal| failure::refine(refusal, hook, ports);
        let own = known.rule.filter(|id| is_same_place(*id, wanted.id));
        let there = own.or_else(|| kernel.left(&name.0, &wanted));
        let found = kernel.look(there, &wanted, ports)?;
        let (is_kept, is_missing) = (matches!(found, Found::AsWanted), matches!(found, Found::Missing));
        let id = match (there, found) {
            (Some(id), Found::AsWanted) => id,
            (Some(id), Found::OtherActions) => {
                wanted.id = id;
                let report = kernel.report(id)?;
                kernel.installer.submit_one(Request::Replace(wanted)).map_err(refine)?;
                let by_old = report.map(|report| Counted::reported(&report, &id));
                known.carried = known.carried.plus(by_old.unwrap_or_else(|| known.seen_of(id)));
                id
            }
            // The kernel does not replace a rule by one with another mask: the new one is added beside it first.
            (_, Found::OtherMatch) => kernel.add(&name.0, wanted, None).map_err(refine)?,
            (free, _) => kernel.add(&name.0, wanted, free).map_err(refine)?,
        };
        // Of a rule that is missing nothing is left, or somebody else's has its name.
        let missing = there.filter(|_| is_missing).map(|gone| known.seen_of(gone));
        known.carried = known.carried.plus(missing.unwrap_or_default());
        let replaced = there.filter(|there| !is_missing && *there != id);
        let elsewhere = known.rule.filter(|_| own.is_none());
        let old = [replaced, elsewhere].map(|old| old.map(|old| (old, known.seen_of(old))));
        known.seen = if is_kept { known.seen_of(id) } else { Counted::default() };
        known.rule = Some(id);
        known.changed = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        for (old, seen) in old.into_iter().flatten() {
            known.carried = known.carried.plus(kernel.delete(old)?.unwrap_or(seen));
        }
        Ok(())
    }
}

impl Known {
    /// The rule is deleted, and counted so much, if it was there still.
    fn end(&mut self, counted: Option<Counted>) {
        self.carried = self.carried.plus(counted.unwrap_or(self.seen));
        (self.rule, self.seen) = (None, Counted::default());
    }

    /// What a rule was last seen to have counted, if it is that of this match.
    fn seen_of(&self, id: FilterId) -> Counted {
        if self.rule == Some(id) { self.seen } else { Counted::default() }
    }
}

impl Kernel {
    /// The matches of a mirror.
    fn parts_of(&self, mirror: &str) -> Vec<(PartName, Known)> {
        let parts = self.parts.iter().filter(|((name, _), _)| name == mirror);
        parts.map(|(name, known)| (name.clone(), known.clone())).collect()
    }

    /// Deletes the rule of a match, and forgets the match.
    fn remove_part(&mut self, name: &PartName) -> Result<()> {
        if let Some(id) = self.parts.get(name).and_then(|known| known.rule) {
            self.delete(id)?;
        }
        self.parts.remove(name);
        Ok(())
    }

    /// The number of a new match: a hash of its name, or the next free number.
    fn number(&self, (mirror, place): &PartName) -> u32 {
        let is_free = |number: &u32| self.parts.values().all(|known| known.number != *number);
        let first = if *place == 0 { hash(mirror) } else { hash(&format!("{mirror}#{place}")) };
        (0..).map(|step| first.wrapping_add(step)).find(is_free).unwrap_or(first)
    }

    /// Adds a rule of a mirror at the first priority of its hook that no other mirror has, except for one that is free again. Returns its
    /// name.
    fn add(&mut self, mirror: &str, mut rule: Filter, free: Option<FilterId>) -> Result<FilterId> {
        for place in 0.. {
            rule.id.priority = Priorities::of_mirror(place)?;
            if free != Some(rule.id) && self.is_taken(mirror, rule.id) {
                continue;
            }
            match self.installer.submit_one(Request::Add(rule.clone())) {
                // Somebody else's. If its protocol differs, the kernel says that the request is invalid.
                Err(refusal) if failure::is_duplicate(&refusal) => {}
                Err(refusal) if failure::is_absence(&refusal) && self.is_anybodys(rule.id) => {}
                other => return other.map(|_| rule.id),
            }
        }
        Err(failure::duplicate())
    }

    /// Whether a rule of a mirror cannot be at this place because of another one of ours.
    fn is_taken(&self, mirror: &str, id: FilterId) -> bool {
        let is_beside = |rule: FilterId| (rule.protocol, true) == (id.protocol, rule.handle != id.handle);
        let rules = self.parts.iter().filter_map(|((of, _), known)| Some((of, known.rule?)));
        let mut there =
            rules.filter(|(_, rule)| (rule.hook, rule.chain, rule.priority) == (id.hook, id.chain, id.priority));
        there.any(|(of, rule)| of != mirror || !is_beside(rule))
    }

    /// Whether somebody has a rule at a priority, of whatever protocol.
    fn is_anybodys(&mut self, id: FilterId) -> bool {
        const ANY: u16 = 0;
        !matches!(self.installer.find(FilterId { protocol: ANY, ..id }), Ok(None))
    }

    /// The rule that an earlier run left for this match of a mirror.
    fn left(&mut self, mirror: &str, wanted: &Filter) -> Option<FilterId> {
        if self.is_settled {
            return None;
        }
        for place in 0.. {
            let Ok(priority) = Priorities::of_mirror(place) else { break };
            let id = FilterId { priority, ..wanted.id };
            if self.is_taken(mirror, id) {
                continue;
            }
            // A rule that cannot be read is somebody else's.
            let found = self.installer.find(id).ok().flatten();
            if found.is_some_and(|found| note(&found) == note(wanted)) {
                return Some(id);
            }
        }
        None
    }

    /// Compares the installed rule of a mirror with the wanted one.
    fn look(&mut self, there: Option<FilterId>, wanted: &Filter, ports: &PortTable) -> Result<Found> {
        let Some(id) = there.filter(|id| is_same_place(*id, wanted.id)) else { return Ok(Found::Missing) };
        let found = self.installer.find(id).map_err(socket_refusal)?;
        let Some(found) = found.filter(|found| note(found) == note(wanted)) else { return Ok(Found::Missing) };
        let is_same_match =
            translate::matching(&found, ports).is_some_and(|shown| Some(shown) == translate::matching(wanted, ports));
        Ok(match (is_same_match, work(&found) == work(wanted)) {
            (true, true) => Found::AsWanted,
            (true, false) => Found::OtherActions,
            (false, _) => Found::OtherMatch,
        })
    }

    fn report(&mut self, id: FilterId) -> Result<Option<Report>> {
        match self.installer.submit_one(Request::Read(id)) {
            Ok(done) => Ok(done.report),
            Err(refusal) if failure::is_absence(&refusal) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Deletes a rule; returns what it counted, if it existed.
    fn delete(&mut self, id: FilterId) -> Result<Option<Counted>> {
        let result = self.installer.submit_one(Request::Delete(id));
        deleted(&mut self.installer, id, result)
    }
}

/// Whether a rule can stay where it is: each priority has one protocol.
fn is_same_place(one: FilterId, other: FilterId) -> bool {
    (one.hook, one.chain, one.protocol) == (other.hook, other.chain, other.protocol)
}

/// The note on a mirror's rule.
fn note(filter: &Filter) -> Option<MirrorNote> {
    MirrorNote::read(filter.flower.actions.first()?.cookie.as_ref().map(Cookie::bytes)?)
}

/// Actions, placement and notes of a rule, for comparison.
fn work(filter: &Filter) -> (Vec<(&Operation, Control)>, u32, Option<Cookie>) {
    let actions = &filter.flower.actions;
    let notes = actions.first().and_then(|action| action.cookie);
    let actions = actions.iter().map(|action| (&action.operation, action.control)).collect();
    (actions, filter.flower.flags & (flag::SKIP_HW | flag::SKIP_SW), notes)
}

/// FNV-1a of 32 bits.
fn hash(name: &str) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    name.bytes().fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_the_same_number_in_every_run() {
        // http://www.isthe.com/chongo/src/fnv/test_fnv.c
        assert_eq!([hash(""), hash("a"), hash("foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
