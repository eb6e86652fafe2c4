//! Rules, and what belongs to them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use sluice_flow::Flow;
use sluice_flow::connection::Connection;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::refusal::Refusal;

use super::actions::Actions;
use super::after::{AfterChanges, Everywhere, Refused};
use super::capabilities::Capabilities;
use super::connections::{self, Connected, ConnectionChange, Connections};
use super::continuations::{Continuations, Continued};
use super::counters::{BYTES_A_COUNTER, Count, Counters, Told};
use super::growth::Growth;
use super::installed::{Installed, Rules};
use super::kinds::Kinds;
use super::meters::Meters;
use super::mirrors::{self, Copying, Mirrors};
use super::next_hops::{Led, NextHops, Way};
use super::refusal::{explain, refuse};
use super::rule_id::{ByRule, RuleId};
use super::tables::{MatcherId, Tables};
use crate::mlx5::{self, Answer, Context, Domain, DomainKind, Events, Library, Listener, Unavailable};
use crate::translate::{Entrance, Hop, Instance};

/// An eswitch, opened. Its rules go with it.
pub struct Switch {
    pub(super) rules: ByRule<Option<Installed>>,
    /// What flows have besides their first rules.
    pub(super) continued: HashMap<RuleId, Continued>,
    /// What flows have in tables with changes that are deferred.
    pub(super) after: AfterChanges,
    pub(super) kinds: Kinds,
    pub(super) connections: Option<Connections>,
    pub(super) continuations: Continuations,
    pub(super) capabilities: Capabilities,
    pub(super) meters: Meters,
    /// Lead to the tables, and go before them.
    mirrors: Mirrors,
    pub(super) tables: Tables,
    /// Those whose packets come to the tables.
    vports: BTreeSet<u16>,
    pub(super) next_hops: NextHops,
    pub(super) actions: Actions,
    pub(super) counters: Counters,
    /// Counters of rules that are gone, of which it could not be waited until no packet is under them.
    pub(super) unsettled: Vec<RuleId>,
    /// Matchers with more rules than they have room for.
    pub(super) crowded: VecDeque<MatcherId>,
    pub(super) growth: Option<Growth>,
    /// Is told in the midst of work that may take long that it goes on.
    pub(super) goes_on: Box<dyn Fn()>,
    pub(super) domain: Domain,
    context: Context,
}

/// Bytes that a rule takes here, with its counter.
pub(crate) const BYTES_A_RULE: usize = size_of::<Option<Installed>>() + BYTES_A_COUNTER;

impl Switch {
    /// Opens the eswitch that the device called `name` manages. No packets come to our tables yet.
    pub fn open(library: &Rc<Library>, name: &str) -> Result<Self, Unavailable> {
        let context = Context::open(library, name)?;
        let domain = Domain::create(&context, name, DomainKind::Fdb)?;
        // A rule is replaced by one that matches the same, which acts once the old one is gone.
        domain.allow_duplicate_rules(true);
        let failed = |error: mlx5::CallError| Unavailable::NoSteering { name: name.to_owned(), source: error.source };
        let no_counters =
            |reason: Refusal| Unavailable::NoCounters { name: name.to_owned(), reason: reason.to_string() };
        let capabilities = Capabilities::of(&context).map_err(failed)?;
        Ok(Self {
            rules: ByRule::new(),
            continued: HashMap::new(),
            after: AfterChanges::default(),
            kinds: Kinds::default(),
            connections: None,
            continuations: Continuations::new(&domain),
            meters: Meters::new(capabilities.log_meters(), &context, &domain),
            capabilities,
            mirrors: Mirrors::default(),
            tables: Tables::open(library, &context, &domain).map_err(failed)?,
            vports: BTreeSet::new(),
            next_hops: NextHops::new(&domain),
            actions: Actions::new(library, &domain),
            counters: Counters::open(&context).map_err(no_counters)?,
            unsettled: Vec::new(),
            crowded: VecDeque::new(),
            growth: None,
            goes_on: Box::new(|| ()),
            domain,
            context,
        })
    }

    /// Has somebody be told, in the midst of work that may take long, that it goes on.
    pub fn tell_progress(&mut self, goes_on: impl Fn() + 'static) {
        self.goes_on = Box::new(goes_on);
    }

    /// Has packets of these vports come to our tables; those that match nothing there go to the representor of their port. Those of other
    /// vports, and what representors send, stay with the kernel.
    pub fn lead_from(&mut self, vports: BTreeSet<u16>) -> Result<(), Refusal> {
        if self.vports == vports {
            return Ok(());
        }
        self.mirrors.lead_from(&vports)?;
        if let Err(refusal) = self.tables.lead_from(&vports) {
            // Nor is anything mirrored that is not led to the first chain.
            self.mirrors.lead_from(&self.vports)?;
            return Err(refusal);
        }
        self.vports = vports;
        Ok(())
    }

    /// Returns the vport of the function that manages the eswitch, by which comes what representors send.
    pub fn manager(&self) -> u16 {
        self.capabilities.manager()
    }

    /// Lets connections come, and rules look them up. Called before there is a table of a later chain.
    pub fn accept_connections(&mut self) -> Result<(), Refusal> {
        let connections = Connections::open(&self.domain)?;
        self.tables.lead_rest_to(connections.rest());
        self.continuations.lead_rest_to(connections.rest());
        self.connections = Some(connections);
        Ok(())
    }

    /// Makes changes of connections. From then on packets are found by them, and not by those that are gone.
    pub fn change_connections(&mut self, changes: Vec<ConnectionChange>) -> Result<Connected, Refusal> {
        self.with_connections(|connections, parts| connections.change(changes, parts))
    }

    /// Brings at most `most` connections to tables that flows have opened after they came.
    pub fn fill_connections(&mut self, most: usize) -> Result<Connected, Refusal> {
        if !self.connections.as_ref().is_some_and(Connections::is_unfinished) {
            return Ok(Connected::default());
        }
        self.with_connections(|connections, parts| connections.fill(most, parts))
    }

    /// Begins a listing of all connections, which are told as changes.
    pub fn begin_listing(&mut self) -> Result<(), Refusal> {
        self.with_connections(|connections, _| connections.begin_listing())
    }

    /// Ends a listing: connections that were not told since it began are gone, and to be [forgotten](Self::forget_unlisted).
    pub fn end_listing(&mut self) -> Result<(), Refusal> {
        self.with_connections(|connections, _| connections.end_listing())
    }

    /// Forgets at most `most` connections that the last listing did not have. Returns whether there are more.
    pub fn forget_unlisted(&mut self, most: usize) -> Result<bool, Refusal> {
        self.with_connections(|connections, _| connections.forget_unlisted(most))
    }

    /// Returns the bulks of counters in which connections have theirs.
    pub fn bulks_of_connections(&self) -> BTreeSet<usize> {
        let counters = self.connections.iter().flat_map(Connections::counters);
        counters.map(RuleId::bulk).collect()
    }

    /// Returns the connections whose packets were counted between the time when this was asked last, and when their counters were told last.
    pub fn moved_connections(&mut self) -> Vec<Connection> {
        self.connections.as_mut().map_or_else(Vec::new, |connections| connections.moved(&self.counters))
    }

    /// Returns how many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.as_ref().map_or(0, Connections::len)
    }

    /// Returns the vport of a port of the RDMA device; `None` if the kernel does not tell.
    pub fn vport(&self, port: u32) -> Result<Option<u16>, Refusal> {
        self.context.vport(port).map_err(refuse)
    }

    /// Opens what another thread takes the device's events by.
    pub fn events(&self) -> io::Result<Events> {
        self.context.events()
    }

    /// Leads the packets of these tunnels, and of no others, to rules of their own; those that match none of these are at the
    /// representor as they came in.
    pub fn set_entrances(&mut self, entrances: &[Entrance]) -> Result<(), Refusal> {
        self.tables.set_entrances(entrances)
    }

    /// Says which way packets to a next hop go from now on, or why none. They are dropped then, and if the device has no room for what sends
    /// them there. Fails if it cannot even drop them.
    pub fn set_way(&mut self, hop: Hop, way: Result<Way, String>) -> Result<Led, Refusal> {
        let led = self.next_hops.set(hop, way, &mut self.actions)?;
        self.actions.prune();
        self.sync()?;
        Ok(led)
    }

    /// Returns the next hops that flows were refused for, since it is not known which way packets go there. Each is told of once.
    pub fn take_asked(&mut self) -> Vec<Hop> {
        self.next_hops.take_asked()
    }

    /// Lets next hops go that rules led to and no rule leads to any more, and returns them.
    pub fn forget_unused(&mut self) -> Vec<Hop> {
        self.next_hops.prune()
    }

    /// Lets next hops go that no rule leads to, and that no flow has asked for since this was last called, and returns them.
    pub fn forget_unasked(&mut self) -> Vec<Hop> {
        self.next_hops.prune_unasked()
    }

    /// Installs a rule. Fails if libmlx5 or the device refuses; then nothing has changed.
    pub fn install(&mut self, rule: Instance) -> Result<RuleId, Refusal> {
        let id = self.counters.take()?;
        if !rule.template.is_continued() && self.tables.after(rule.template.chain()).is_empty() {
            // As most are.
            return match self.insert_alone(rule, id) {
                Ok(installed) => {
                    self.hold(id, installed);
                    Ok(id)
                }
                Err(refusal) => {
                    self.counters.give_back(id);
                    Err(refusal)
                }
            };
        }
        match self.insert_everywhere(rule, id) {
            Ok(Everywhere { first: (installed, continued), after }) => {
                if let Some(continued) = continued {
                    self.continued.insert(id, continued);
                }
                if !after.is_empty() {
                    self.after.put(id, after);
                }
                self.hold(id, installed);
                Ok(id)
            }
            Err(Refused { refusal, had_rules }) => {
                if had_rules {
                    self.counters.rest([id]);
                } else {
                    self.counters.give_back(id);
                }
                Err(refusal)
            }
        }
    }

    #[inline]
    fn hold(&mut self, id: RuleId, installed: Installed) {
        for bulk in self.rules.bulks()..self.counters.bulks() {
            self.rules.add_bulk(self.counters.size_of(bulk));
        }
        *self.rules.get_mut(id) = Some(installed);
    }

    /// Replaces a rule by one that matches the same and does something else, without a packet that meets neither. It goes on
    /// counting where the old one stood. Fails as [`install`](Self::install) does, and the old rule stays.
    pub fn replace(&mut self, id: RuleId, rule: Instance) -> Result<(), Refusal> {
        if self.installed(id).is_none() {
            return Err(no_rule(id));
        }
        let inserted = self.insert_everywhere(rule, id);
        let Everywhere { first: (new, continued), after } = inserted.map_err(|Refused { refusal, .. }| refusal)?;
        let is_beside = self.installed(id).is_some_and(|old| old.rule.is_beside(new.rule.shape()));
        if !is_beside || !after.is_empty() {
            // Rings are written side by side: what is new must be there before what is old goes.
            self.sync()?;
        }
        let before = match continued {
            Some(continued) => self.continued.insert(id, continued),
            None => self.continued.remove(&id),
        };
        let was_continued = before.is_some();
        let old_after = self.after.put(id, after);
        let was_last = self.rules.get_mut(id).replace(new).is_some_and(|old| self.release(old, before));
        let was_last = self.release_after(old_after) || was_last;
        if was_continued && let Err(refusal) = self.wait_for_packets() {
            // The next one that waits frees it.
            tracing::warn!("the later rules of a modified flow are removed another time: {refusal}");
        }
        if was_last {
            self.prune();
        }
        Ok(())
    }

    /// Returns what a rule is for.
    pub fn flow(&self, id: RuleId) -> Option<&Flow> {
        self.installed(id).map(|installed| &installed.flow)
    }

    /// Takes rules out of the tables. What each of them counted, every packet that it took, is [told](Self::told) later, as of `batch`;
    /// their names are free some time after that. If the device cannot be waited for, they are out of the tables all the same, and what
    /// they counted is not told.
    pub fn remove_later(&mut self, ids: &[RuleId], batch: u64) -> Result<(), Refusal> {
        if let Some(id) = ids.iter().find(|id| self.installed(**id).is_none()) {
            return Err(no_rule(*id));
        }
        let mut was_last = false;
        for id in ids {
            if let Some(installed) = self.rules.get_mut(*id).take() {
                let continued = if installed.kind.is_none() { self.continued.remove(id) } else { None };
                was_last |= self.release(installed, continued);
                if !self.after.rules.is_empty() {
                    let after = self.after.take(*id);
                    was_last |= self.release_after(after);
                }
            }
        }
        let waited = self.wait_for_packets();
        if was_last {
            self.prune();
        }
        match waited {
            Ok(()) => self.counters.settle(ids, batch),
            Err(_) => self.unsettled.extend(ids),
        }
        waited
    }

    /// Makes a mirror, or changes it; it goes on counting. Fails if the device cannot copy so; it copies as before then.
    pub fn set_mirror(&mut self, name: &str, copying: Copying) -> Result<(), Refusal> {
        self.with_mirrors(|mirrors, parts| mirrors.set(name, copying, parts))
    }

    /// Removes a mirror. Fails if there is none of that name.
    pub fn remove_mirror(&mut self, name: &str) -> Result<(), Refusal> {
        self.with_mirrors(|mirrors, parts| mirrors.remove(name, parts))
    }

    /// Returns the bulk of a mirror's counter; `None` if there is none of that name.
    pub fn bulk_of_mirror(&self, name: &str) -> Option<usize> {
        self.mirrors.counter(name).map(RuleId::bulk)
    }

    /// Returns what a mirror has copied, as its bulk was told last; `None` if there is none of that name.
    pub fn mirror_count(&self, name: &str) -> Option<Count> {
        self.mirrors.counter(name).map(|counter| self.counters.count(counter))
    }

    /// Returns whether the device has meters.
    pub fn has_meters(&self) -> bool {
        self.capabilities.log_meters().is_some()
    }

    /// Makes a meter, or changes it: rules follow, and its counters go on. Returns whether it is new. Fails if the device has no such
    /// meter; then it is as it was.
    pub fn set_meter(&mut self, meter: &Meter) -> Result<bool, Refusal> {
        self.meters.set(meter, &mut self.counters)
    }

    /// Removes a meter. Fails if a rule uses it, or there is none.
    pub fn remove_meter(&mut self, id: MeterId) -> Result<(), Refusal> {
        self.meters.remove(id, &mut self.counters)
    }

    /// Returns the bulks of a meter's counters: of packets that pass, and of others. `None` if there is none of that number.
    pub fn bulks_of_meter(&self, id: MeterId) -> Option<[usize; 2]> {
        self.meters.counters(id).map(|counters| counters.map(RuleId::bulk))
    }

    /// Returns what passed a meter and what did not, as the bulks were told last; `None` if there is none of that number.
    pub fn meter_counts(&self, id: MeterId) -> Option<[Count; 2]> {
        self.meters.counters(id).map(|counters| counters.map(|counter| self.counters.count(counter)))
    }

    /// Returns how many bulks of counters there are.
    pub fn bulks(&self) -> usize {
        self.counters.bulks()
    }

    /// Returns how many counters a bulk has, and rules whose names are of it at most.
    pub fn size_of(&self, bulk: usize) -> usize {
        self.counters.size_of(bulk)
    }

    /// Asks for the counters of a bulk, of which `reader` is [told](Self::told) later.
    pub fn ask(&mut self, bulk: usize, reader: u64) {
        self.counters.ask(bulk, reader);
    }

    /// Takes note of an answer of the device.
    pub fn answered(&mut self, answer: Answer) {
        self.counters.answered(answer);
    }

    /// Returns the number of the oldest query that the device has not answered.
    pub fn oldest_query(&self) -> Option<u64> {
        self.counters.oldest_query()
    }

    /// Returns what has come of what was asked for.
    pub fn told(&mut self) -> Vec<Told> {
        self.counters.told()
    }

    /// Returns what each counter of a bulk has counted for its rule, as it was told last, whether it has a rule or not.
    pub(crate) fn all_counts(&self, bulk: usize) -> Option<impl Iterator<Item = Count>> {
        self.counters.counts(bulk)
    }

    /// Returns what rules have counted whose counters are in a bulk, as it was told last.
    pub fn counts(&self, bulk: usize) -> impl Iterator<Item = (RuleId, Count)> {
        let places = self.rules.bulk(bulk).iter().enumerate().zip(self.all_counts(bulk).into_iter().flatten());
        places.filter(|((_, rule), _)| rule.is_some()).map(move |((index, _), count)| (RuleId::of(bulk, index), count))
    }

    /// Returns a handle by which another thread waits for answers.
    pub fn listener(&self) -> io::Result<Listener> {
        self.counters.listener()
    }

    /// Has an answer with the number [`END`](super::counters::END) come, for whoever listens.
    pub(crate) fn end(&self) -> Result<(), Refusal> {
        self.counters.end()
    }

    /// Waits until the rules that were installed are in the device.
    pub fn sync(&self) -> Result<(), Refusal> {
        self.domain.sync_writes().map_err(refuse)
    }

    fn with_mirrors<R>(&mut self, change: impl FnOnce(&mut Mirrors, &mut mirrors::Parts<'_>) -> R) -> R {
        let Self { mirrors, domain, counters, tables, vports, .. } = self;
        change(mirrors, &mut mirrors::Parts { domain, counters, first: tables.first(), vports })
    }

    fn with_connections<R>(
        &mut self,
        change: impl FnOnce(&mut Connections, &mut connections::Parts<'_>) -> R,
    ) -> Result<R, Refusal> {
        let Some(connections) = &mut self.connections else { return Err(no_connections()) };
        let parts = &mut connections::Parts { actions: &mut self.actions, counters: &mut self.counters };
        let done = change(connections, parts);
        let has_freed = connections.has_freed();
        self.sync()?;
        if has_freed {
            self.prune();
            self.wait_for_packets()?;
        }
        Ok(done)
    }

    /// Makes a rule of a flow in one table, and those that follow from it.
    pub(super) fn insert(&mut self, rule: Instance, id: RuleId) -> Result<Rules, Refusal> {
        if !rule.template.is_continued() {
            return self.insert_alone(rule, id).map(|installed| (installed, None));
        }
        self.prepare(&rule)?;
        self.insert_continued(rule, id).map(|(first, continued)| (first, Some(continued)))
    }

    fn prepare(&mut self, rule: &Instance) -> Result<(), Refusal> {
        let is_new = rule.template.to().is_some() && !self.kinds.has(&rule.template);
        if is_new { self.prepare_jump(&rule.template) } else { Ok(()) }
    }

    /// Makes a rule of a flow that has one only in its table.
    fn insert_alone(&mut self, rule: Instance, id: RuleId) -> Result<Installed, Refusal> {
        self.prepare(&rule)?;
        let Instance { flow, template } = rule;
        let entered = self.kinds.enter(&template, &mut self.tables, &mut self.next_hops, &mut self.actions);
        let kind = match entered {
            Ok(kind) => kind,
            Err(refusal) => {
                self.prune();
                return Err(explain(refusal, &template));
            }
        };
        match self.kinds.rule(kind, &flow, self.counters.counter(id)) {
            Ok(rule) => {
                if let Some(matcher) = self.kinds.get(kind).map(|kind| kind.matcher)
                    && self.tables.add_rule(matcher)
                    && !template.is_after_changes()
                {
                    self.crowded.push_back(matcher);
                }
                Ok(Installed { rule, flow, kind: Some(kind) })
            }
            Err(refusal) => {
                if self.kinds.leave(kind, &mut self.tables) {
                    self.prune();
                }
                Err(explain(refusal, &template))
            }
        }
    }

    fn installed(&self, id: RuleId) -> Option<&Installed> {
        self.rules.get(id)?.as_ref()
    }

    /// Takes a rule out of the tables. Returns whether it was the last of its kind.
    pub(super) fn release(&mut self, Installed { rule, kind, .. }: Installed, continued: Option<Continued>) -> bool {
        drop(rule);
        if let Some(Continued { matcher, continuation }) = continued {
            self.continuations.leave(continuation);
            self.tables.release(matcher);
        }
        let Some(kind) = kind else { return true };
        if let Some(matcher) = self.kinds.get(kind).map(|kind| kind.matcher) {
            self.tables.remove_rule(matcher);
        }
        self.kinds.leave(kind, &mut self.tables)
    }

    /// Lets actions and tables go that no rule has any more.
    pub(super) fn prune(&mut self) {
        self.close_tables();
        self.actions.prune();
        self.tables.prune();
        self.connections.iter_mut().for_each(Connections::prune);
        self.continuations.prune();
    }
}

pub(super) fn no_connections() -> Refusal {
    Refusal::Device { reason: "no connections come to this switch".into() }
}

fn no_rule(id: RuleId) -> Refusal {
    Refusal::Device { reason: format!("there is no rule {}", id.0).into() }
}
