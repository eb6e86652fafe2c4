//! Mirrors: a stage of rules in front of those of flows, which outlive the agent as those do.
//!
//! What a mirror is in the kernel follows from its name: its note carries a number that is made of that, so that the next run
//! finds the rule again. Of the rules of one tc priority only one takes a packet, so that each mirror of a hook has its own.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;
use sluice_flow::backend::{MirrorCounters, MirrorFault};
use sluice_flow::mirror::Mirror;
use sluice_flow::refusal::Refusal;

use super::books::Counted;
use super::core::{Core, socket_refusal};
use super::failure;
use super::ports::PortTable;
use super::queue::{counted, placement_of, total};
use super::removal::deleted;
use crate::config::OffloadPolicy;
use crate::install::{self, Done, Installer, Request, Told};
use crate::priorities::Priorities;
use crate::rule::{AgentId, MirrorNote};
use crate::socket::SocketError;
use crate::translate;
use crate::wire::action::{Control, Cookie, Operation};
use crate::wire::filter::{Filter, FilterId, Hook};
use crate::wire::flower::{Flower, flag};

type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The handle of every rule of a mirror: it is alone at its priority.
const HANDLE: u32 = 1;

/// The mirrors of an agent. Changes are made one at a time; packets and flows wait for none of them.
pub(super) struct Mirrors {
    agent: AgentId,
    policy: OffloadPolicy,
    kernel: Mutex<Kernel>,
}

struct Kernel {
    installer: Installer,
    mirrors: BTreeMap<String, Known>,
}

/// A mirror that is wanted.
#[derive(Clone)]
struct Known {
    mirror: Mirror,
    number: u32,
    /// The name of its rule, which may be gone; `None` while it has none.
    rule: Option<FilterId>,
    /// By rules that were there before.
    carried: Counted,
}

/// Whether there is a rule as it is wanted.
enum Found {
    AsWanted,
    /// It matches the same and does something else, or has notes of an earlier format.
    OtherActions,
    OtherMatch,
    Missing,
}

impl Mirrors {
    pub(super) fn open(agent: AgentId, policy: OffloadPolicy) -> Result<Self, SocketError> {
        let kernel = Kernel { installer: Installer::open(policy)?, mirrors: BTreeMap::new() };
        Ok(Self { agent, policy, kernel: Mutex::new(kernel) })
    }

    /// The socket by which rules of mirrors go.
    pub(super) fn socket(&self) -> u32 {
        self.kernel.lock().installer.port()
    }

    /// Makes a mirror, or changes it. One of a port without a device, or with copies to one, is put in once that is there.
    pub(super) fn set(&self, mirror: &Mirror, ports: &PortTable) -> Result<()> {
        let mut kernel = self.kernel.lock();
        let before = kernel.mirrors.get(&mirror.name).cloned();
        let carried = Counted::default();
        let new = || Known { mirror: mirror.clone(), number: kernel.number(&mirror.name), rule: None, carried };
        let mut known = before.clone().unwrap_or_else(new);
        known.mirror = mirror.clone();
        if mirror.copies.iter().chain([&mirror.port()]).any(|port| ports.is_absent(*port)) {
            if let Some(old) = known.rule.take() {
                known.carried = known.carried.plus(kernel.delete(old)?.unwrap_or_default());
            }
            kernel.mirrors.insert(mirror.name.clone(), known);
            return Ok(());
        }
        let done = self.put(&mut kernel, &mut known, ports);
        if let (Err(_), Some(before)) = (&done, before) {
            known.mirror = before.mirror;
        }
        if known.rule.is_some() {
            kernel.mirrors.insert(mirror.name.clone(), known);
        }
        done
    }

    /// Removes a mirror.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let mut kernel = self.kernel.lock();
        let no_mirror = || Refusal::Device { reason: format!("there is no mirror {name}").into() };
        let rule = kernel.mirrors.get(name).ok_or_else(no_mirror)?.rule;
        if let Some(id) = rule {
            kernel.delete(id)?;
        }
        kernel.mirrors.remove(name);
        Ok(())
    }

    /// What a mirror copied.
    pub(super) fn counters(&self, name: &str) -> Option<MirrorCounters> {
        let mut kernel = self.kernel.lock();
        let Known { rule, carried, .. } = kernel.mirrors.get(name)?.clone();
        let id = rule?;
        let told = kernel.tell(id).ok()??;
        let all = total(carried.plus(counted(&told, &id)));
        Some(MirrorCounters { packets: all.packets, bytes: all.bytes, placement: placement_of(told.flags) })
    }

    /// Compares mirrors with what is in the kernel, those of a hook or all, and puts them right if that is wanted.
    pub(super) fn check(&self, hook: Option<Hook>, ports: &PortTable, mends: bool) -> Result<Vec<MirrorFault>> {
        let mut kernel = self.kernel.lock();
        let names: Vec<_> = kernel.mirrors.keys().cloned().collect();
        let mut faults = Vec::new();
        for name in names {
            let Some(mut known) = kernel.mirrors.get(&name).cloned() else { continue };
            // Without its port there is no place for it, and none where it could be missing.
            let Ok(wanted) = self.wanted(&known, ports) else { continue };
            if hook.is_some_and(|hook| hook != wanted.id.hook) {
                continue;
            }
            let is_there = match kernel.look(known.rule, &wanted, ports)? {
                Found::AsWanted => continue,
                Found::OtherActions | Found::OtherMatch => true,
                Found::Missing => false,
            };
            let mended = mends.then(|| self.put(&mut kernel, &mut known, ports));
            kernel.mirrors.insert(name.clone(), known);
            faults.push(MirrorFault { name, is_there, mended });
        }
        Ok(faults)
    }

    /// Takes the rules of mirrors out at a hook whose port goes; the mirrors stay.
    pub(super) fn park(&self, hook: Hook) {
        let mut kernel = self.kernel.lock();
        let names: Vec<_> = kernel.mirrors.keys().cloned().collect();
        for name in names {
            let Some(mut known) = kernel.mirrors.get(&name).cloned() else { continue };
            let Some(id) = known.rule.filter(|id| id.hook == hook) else { continue };
            let by_rule = kernel.delete(id).ok().flatten().unwrap_or_default();
            (known.rule, known.carried) = (None, known.carried.plus(by_rule));
            kernel.mirrors.insert(name, known);
        }
    }

    /// The names of the rules that mirrors have.
    pub(super) fn rules(&self) -> HashSet<FilterId> {
        self.kernel.lock().mirrors.values().filter_map(|known| known.rule).collect()
    }

    /// No mirror is wanted any more.
    pub(super) fn forget(&self) {
        self.kernel.lock().mirrors.clear();
    }

    /// Whether a rule has the note of a mirror of this agent.
    pub(super) fn is_ours(&self, note: &[u8]) -> bool {
        MirrorNote::read(note).is_some_and(|note| note.agent == self.agent)
    }

    /// The rule of a mirror, at the first priority.
    fn wanted(&self, known: &Known, ports: &PortTable) -> Result<Filter> {
        let Known { mirror: Mirror { matching, copies, .. }, number, .. } = known;
        let note = MirrorNote { agent: self.agent, number: *number };
        let rule = translate::mirror(&translate::Mirror { matching: *matching, copies: copies.clone(), note }, ports)?;
        let priority = Priorities::of_mirror(0)?;
        let id = FilterId { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol, handle: HANDLE };
        let flags = rule.flower.flags | install::flags(self.policy);
        Ok(Filter { id, flower: Flower { flags, ..rule.flower } })
    }

    /// Has the rule of a mirror be there as it is wanted. A refusal leaves what there was.
    fn put(&self, kernel: &mut Kernel, known: &mut Known, ports: &PortTable) -> Result<()> {
        let mut wanted = self.wanted(known, ports)?;
        let hook = wanted.id.hook;
        let refine = |refusal| failure::refine(refusal, hook, ports);
        let own = known.rule.filter(|id| is_same_place(*id, wanted.id));
        let there = own.or_else(|| kernel.left(&wanted));
        let before = [known.rule, there];
        let found = kernel.look(there, &wanted, ports)?;
        let id = match (there, found) {
            (Some(id), Found::AsWanted) => id,
            (Some(id), Found::OtherActions) => {
                wanted.id = id;
                let told = kernel.tell(id)?;
                kernel.one(Request::Replace(wanted)).map_err(refine)?;
                let by_old = told.map(|told| counted(&told, &id)).unwrap_or_default();
                known.carried = known.carried.plus(by_old);
                id
            }
            // The kernel replaces no rule by one of another mask, so that the new one is put in beside it first.
            (_, Found::OtherMatch) => kernel.add(wanted, None).map_err(refine)?,
            (free, _) => kernel.add(wanted, free).map_err(refine)?,
        };
        known.rule = Some(id);
        for old in before.into_iter().flatten().filter(|old| *old != id) {
            let by_old = kernel.delete(old)?.unwrap_or_default();
            known.carried = known.carried.plus(by_old);
        }
        Ok(())
    }
}

impl Kernel {
    /// The number of a new mirror: made of its name, and another one only if a mirror has that.
    fn number(&self, name: &str) -> u32 {
        let is_free = |number: &u32| self.mirrors.values().all(|known| known.number != *number);
        let first = hash(name);
        (0..).map(|step| first.wrapping_add(step)).find(is_free).unwrap_or(first)
    }

    /// Puts a rule in at the first priority of its hook that no mirror has, but for one that is free again. Says where it is.
    fn add(&mut self, mut rule: Filter, free: Option<FilterId>) -> Result<FilterId> {
        for place in 0.. {
            rule.id.priority = Priorities::of_mirror(place)?;
            if free != Some(rule.id) && self.is_taken(rule.id) {
                continue;
            }
            match self.one(Request::Add(rule.clone())) {
                // Somebody else's. Of another protocol, the kernel says that the request is invalid.
                Err(refusal) if failure::is_duplicate(&refusal) => {}
                Err(refusal) if failure::is_absence(&refusal) && self.is_anybodys(rule.id) => {}
                other => return other.map(|_| rule.id),
            }
        }
        Err(failure::duplicate())
    }

    /// Whether another mirror is at a place.
    fn is_taken(&self, id: FilterId) -> bool {
        let rules = self.mirrors.values().filter_map(|known| known.rule);
        rules.into_iter().any(|rule| (rule.hook, rule.chain, rule.priority) == (id.hook, id.chain, id.priority))
    }

    /// Whether somebody has a rule at a priority, of whatever protocol.
    fn is_anybodys(&mut self, id: FilterId) -> bool {
        const ANY: u16 = 0;
        !matches!(self.installer.find(FilterId { protocol: ANY, ..id }), Ok(None))
    }

    /// The rule that an earlier run of the agent left of the mirror that has a rule like this one.
    fn left(&mut self, wanted: &Filter) -> Option<FilterId> {
        for place in 0.. {
            let Ok(priority) = Priorities::of_mirror(place) else { break };
            let id = FilterId { priority, ..wanted.id };
            if self.is_taken(id) {
                continue;
            }
            // What cannot be read is somebody else's.
            let found = self.installer.find(id).ok().flatten();
            if found.is_some_and(|found| note(&found) == note(wanted)) {
                return Some(id);
            }
        }
        None
    }

    /// Whether the rule of a mirror is there as it is wanted.
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

    fn tell(&mut self, id: FilterId) -> Result<Option<Told>> {
        match self.one(Request::Read(id)) {
            Ok(done) => Ok(done.told),
            Err(refusal) if failure::is_absence(&refusal) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Takes a rule out; what it counted, if it was there.
    fn delete(&mut self, id: FilterId) -> Result<Option<Counted>> {
        let result = self.one(Request::Delete(id));
        deleted(&mut self.installer, id, result)
    }

    fn one(&mut self, request: Request) -> Result<Done> {
        let none = || Err(Refusal::Device { reason: "no answer".into() });
        self.installer.submit(&[request]).pop().unwrap_or_else(none)
    }
}

impl Core {
    /// Puts meters right that somebody has changed. What cannot be is found again by the next audit.
    pub(super) fn restore_meters(&self) {
        let _ = self.meters.check(true);
    }

    /// Puts mirrors right that somebody has taken out, at a hook or anywhere. What cannot be is found again by the next audit.
    pub(super) fn restore_mirrors(&self, hook: Option<Hook>) {
        let _ = self.mirrors.check(hook, &self.ports.load(), true);
    }
}

/// Whether a rule can stay where it is: each priority has one protocol.
fn is_same_place(one: FilterId, other: FilterId) -> bool {
    (one.hook, one.chain, one.protocol) == (other.hook, other.chain, other.protocol)
}

/// The note on a rule, if it is a mirror's.
fn note(filter: &Filter) -> Option<MirrorNote> {
    MirrorNote::read(filter.flower.actions.first()?.cookie.as_ref().map(Cookie::octets)?)
}

/// What a rule does, who is to take it, and its notes as they are written.
fn work(filter: &Filter) -> (Vec<(&Operation, Control)>, u32, Option<Cookie>) {
    let actions = &filter.flower.actions;
    let notes = actions.first().and_then(|action| action.cookie);
    let actions = actions.iter().map(|action| (&action.operation, action.control)).collect();
    (actions, filter.flower.flags & (flag::SKIP_HW | flag::SKIP_SW), notes)
}

/// A number made of a name: FNV-1a of 32 bits.
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
