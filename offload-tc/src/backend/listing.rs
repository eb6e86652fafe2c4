//! What is in the kernel, ours and others': adoption, audit, strays and the great clean-up.

use std::collections::{BTreeMap, HashSet};

use sluice_flow::backend::{Adoption, CountedApart, Handle, InstalledRule};
use sluice_flow::chain::ChainId;
use sluice_flow::counters::Counters;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;

use super::books::{Carried, Place, Record, State};
use super::chains::owner_of_end;
use super::core::{Core, device_refusal, socket_refusal};
use super::queue::{add, label, placement_of};
use super::reader::{is_absence, is_ours};
use super::{failure, words};
use crate::dump::{Detail, Lister, Listing};
use crate::install::Request;
use crate::rule::{Label, MirrorNote};
use crate::translate;
use crate::wire::filter::{Filter, FilterId, FilterView, Hook};
use crate::wire::statistics::RuleView;

/// How often a listing that changed while it was read is read again, and how often what is taken out is looked for.
const TRIES: usize = 8;
/// The upper half of handles of rules that are not in the books: no slot comes to so many lives.
const STRAY: u64 = u64::MAX << 32;

/// Rules of ours that no flow has, by the names that they were listed under.
#[derive(Default)]
pub(super) struct Strays {
    names: BTreeMap<u64, FilterId>,
    numbers: BTreeMap<FilterId, u64>,
    last: u64,
}

impl Strays {
    fn handle(&mut self, id: FilterId) -> Handle {
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.names.insert(number, id);
        Handle(STRAY | number)
    }

    fn get(&self, handle: Handle) -> Option<FilterId> {
        self.names.get(&(handle.0 & !STRAY)).copied().filter(|_| handle.0 & STRAY == STRAY)
    }

    fn remove(&mut self, id: &FilterId) {
        if let Some(number) = self.numbers.remove(id) {
            self.names.remove(&number);
        }
    }
}

impl Core {
    /// Shows the rules of ours at the ports.
    pub(super) fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        for filter in self.own_rules(&self.ports.load().hooks())? {
            let handle = match self.books.named(&filter.id) {
                Some((_, State::Vacant | State::Arriving | State::Leaving)) => continue,
                Some((entry, _)) => entry.handle,
                None => self.strays.lock().handle(filter.id),
            };
            visit(self.as_installed(&filter, handle));
        }
        Ok(())
    }

    /// Takes over what an earlier run left.
    pub(super) fn adopt(
        &self,
        claim: &mut dyn FnMut(&InstalledRule) -> Option<(FlowId, Generation)>,
    ) -> Result<Adoption, Refusal> {
        let mut adoption = Adoption::default();
        let mut orphans = Vec::new();
        let mut jumps = HashSet::new();
        let hooks = self.hooks_everywhere()?;
        let rules = self.own_rules(&hooks)?;
        for hook in hooks {
            self.adopt_ends(hook)?;
        }
        for filter in rules {
            match self.adopt_one(&filter, claim) {
                Some(flow) => {
                    adoption.adopted += 1;
                    jumps.extend(flow.jumps().into_iter().map(|chain| (filter.id.hook, chain)));
                }
                None => orphans.push(filter.id),
            }
        }
        adoption.orphans = orphans.len();
        orphans.extend(self.chains.take_unused(|hook, chain| jumps.contains(&(hook, chain))));
        let requests: Vec<_> = orphans.into_iter().map(Request::Delete).collect();
        for result in self.installer.lock().submit(&requests) {
            if let Err(refusal) = result
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        for meter in self.meters.left() {
            // One that an adopted rule uses stays.
            let _ = self.meters.remove(meter);
        }
        Ok(adoption)
    }

    fn adopt_one(
        &self,
        filter: &Filter,
        claim: &mut dyn FnMut(&InstalledRule) -> Option<(FlowId, Generation)>,
    ) -> Option<Flow> {
        let label = label(filter)?;
        let ports = self.ports.load();
        let (matching, actions) = translate::flow(filter, &label, &**ports).ok()?;
        let flow = flow_of(&label, &matching, actions);
        let place = Place::of(&filter.id);
        let nobody = FlowId { slot: u32::MAX, incarnation: u32::MAX };
        let handle = self.books.adopt(&filter.id, Record::new(nobody, Generation::NONE, place))?;
        if !self.adopt_priority(place) {
            self.books.forget(handle);
            return None;
        }
        let (placement, is_named) = (placement_of(filter.flower.flags), label.ufid.is_some());
        let rule = InstalledRule { handle, flow, is_named, placement };
        match claim(&rule) {
            Some((flow, generation)) => {
                self.books.give(handle, flow, generation);
                self.books.settle(handle, place, Carried::default());
                Some(rule.flow)
            }
            None => {
                self.forget(handle, place);
                None
            }
        }
    }

    /// Takes the ends of chains into the books that are there.
    fn adopt_ends(&self, hook: Hook) -> Result<(), Refusal> {
        self.list(hook, Detail::Terse, &mut |view| {
            if let Ok(rule) = RuleView::new(view)
                && owner_of_end(rule.cookies[0]) == Some(self.agent)
            {
                self.chains.add_end(hook, ChainId(rule.id.chain));
            }
        })
    }

    /// Shows filters of others at the ports.
    pub(super) fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        let ports = self.ports.load();
        for hook in ports.hooks() {
            let mut found = Vec::new();
            // Other kinds of classifiers are in no terse listing.
            self.list(hook, Detail::Full, &mut |view| {
                let rule = RuleView::new(view).ok().filter(|_| view.is_flower());
                let agent = rule.as_ref().and_then(|rule| match Label::read(rule.cookies) {
                    Some(label) => Some(label.agent),
                    None => owner_of_end(rule.cookies[0])
                        .or_else(|| MirrorNote::read(rule.cookies[0]).map(|note| note.agent)),
                });
                // A filter of handle 0 is the mark that a priority exists.
                if agent != Some(self.agent) && view.id.handle != 0 {
                    found.push(words::foreign(view, ports.name_at(hook), agent));
                }
            })?;
            found.into_iter().for_each(&mut *visit);
        }
        Ok(())
    }

    /// Takes out a rule of ours that no flow has.
    pub(super) fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        let gone = || Refusal::Device { reason: "there is no such rule that is no flow's".into() };
        let id = self.strays.lock().get(handle).ok_or_else(gone)?;
        if self.books.named(&id).is_some() {
            return Err(Refusal::Device { reason: "the rule is a flow's".into() });
        }
        let mut installer = self.installer.lock();
        let found = installer.find(id).map_err(socket_refusal)?;
        let is_ours = |found: &Filter| label(found).is_some_and(|label| label.agent == self.agent);
        if found.as_ref().is_some_and(is_ours)
            && let Some(Err(refusal)) = installer.submit(&[Request::Delete(id)]).pop()
            && !failure::is_absence(&refusal)
        {
            return Err(refusal);
        }
        self.strays.lock().remove(&id);
        Ok(())
    }

    /// What hardware and software counted of a rule.
    pub(super) fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        let Some(entry) = self.books.find(handle) else { return Ok(None) };
        let done = self.installer.lock().submit(&[Request::Read(entry.id())]).pop();
        let told = match done {
            Some(Ok(done)) => done.told,
            Some(Err(refusal)) if failure::is_absence(&refusal) => None,
            Some(Err(refusal)) => return Err(refusal),
            None => None,
        };
        let Some(told) = told else { return Ok(None) };
        let Carried { software, hardware } = add(entry.record.carried(), Some(&told), &entry.id());
        let counters = |count: crate::wire::statistics::Count| Counters {
            packets: count.packets,
            bytes: count.bytes,
            ..Counters::default()
        };
        Ok(Some(CountedApart { hardware: counters(hardware), software: counters(software) }))
    }

    /// Takes out every rule of ours, wherever it is, until there is none.
    pub(super) fn flush(&self) -> Result<usize, Refusal> {
        let mut count = 0;
        for _ in 0..TRIES {
            let mut found = Vec::new();
            let mut ends = 0;
            for hook in self.hooks_everywhere()? {
                self.list(hook, Detail::Terse, &mut |view| {
                    let Ok(rule) = RuleView::new(view) else { return };
                    let is_end = owner_of_end(rule.cookies[0]) == Some(self.agent);
                    if is_end || is_ours(self.agent, &rule) {
                        ends += usize::from(is_end);
                        found.push(rule.id);
                    }
                })?;
            }
            if found.is_empty() {
                return Ok(count);
            }
            let requests: Vec<_> = found.iter().copied().map(Request::Delete).collect();
            let results = self.installer.lock().submit(&requests);
            let done = results.iter().filter(|result| result.is_ok()).count();
            count += done.saturating_sub(ends);
            for (id, _) in found.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
                self.chains.forget_end(id);
                if let Some((entry, _)) = self.books.named(id) {
                    self.forget(entry.handle, entry.record.place);
                }
            }
            if let Some(Err(refusal)) = results.into_iter().find(Result::is_err)
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        Err(Refusal::Busy { reason: "new rules came while they were taken out".into() })
    }

    /// Rules of ours, in full.
    fn own_rules(&self, hooks: &[Hook]) -> Result<Vec<Filter>, Refusal> {
        let mut rules = BTreeMap::new();
        for hook in hooks {
            self.list(*hook, Detail::Full, &mut |view| {
                let Ok(rule) = RuleView::new(view) else { return };
                if is_ours(self.agent, &rule) {
                    // What cannot be taken apart was not made like this: a name without contents is all that is known.
                    let bare = || Filter { id: view.id, flower: bare(&rule) };
                    rules.insert(view.id, view.parse().unwrap_or_else(|_| bare()));
                }
            })?;
        }
        Ok(rules.into_values().collect())
    }

    /// Lists a hook, again if it changed meanwhile; then filters may be shown twice.
    fn list(&self, hook: Hook, detail: Detail, see: &mut dyn FnMut(&FilterView<'_>)) -> Result<(), Refusal> {
        let mut lister = Lister::open().map_err(socket_refusal)?;
        for _ in 0..TRIES {
            let listed = lister.list_any(hook, None, detail, &mut |view| {
                see(view);
                Ok(())
            });
            match listed {
                Ok(Listing::Whole) => return Ok(()),
                Ok(Listing::Interrupted) => {}
                Err(error) if is_absence(&error) => return Ok(()),
                Err(error) => return Err(socket_refusal(error)),
            }
        }
        Err(device_refusal("the rules changed each time that they were listed"))
    }

    fn as_installed(&self, filter: &Filter, handle: Handle) -> InstalledRule {
        let placement = placement_of(filter.flower.flags);
        let label = label(filter);
        let ufid = label.and_then(|label| label.ufid);
        let read = label.and_then(|label| {
            let (matching, actions) = translate::flow(filter, &label, &**self.ports.load()).ok()?;
            Some(flow_of(&label, &matching, actions))
        });
        // One that does what no flow does shows as one that does nothing, under its name.
        let unknown = || {
            let matching = Match::default();
            let none = [].into();
            let key = MaskedKey::new(&matching);
            Flow::new(ufid, key, none, sluice_flow::priority::Priority::default(), Expiry::default(), &SEED)
        };
        InstalledRule { handle, flow: read.unwrap_or_else(unknown), is_named: ufid.is_some(), placement }
    }
}

/// UFIDs are those of the notes. What is made of a match with this is nobody's, and stands where there is none.
const SEED: Seed = Seed([0; 16]);

fn flow_of(label: &Label, matching: &Match, actions: sluice_flow::action::ActionList) -> Flow {
    Flow::new(label.ufid, MaskedKey::new(matching), actions, label.priority, Expiry::default(), &SEED)
}

/// Of a rule that cannot be taken apart, what its notes and flags say.
fn bare(rule: &RuleView<'_>) -> crate::wire::flower::Flower {
    use crate::wire::action::{Action, Control, Cookie, Operation};
    let noted =
        |note: &[u8]| Action { cookie: Cookie::new(note), ..Action::new(Operation::Generic, Control::Other(i32::MIN)) };
    crate::wire::flower::Flower {
        actions: rule.cookies.map(noted).into(),
        flags: rule.flags,
        ..crate::wire::flower::Flower::default()
    }
}
