//! What the thread of the device knows of the rules in its switch: whose they are, and under which handle.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::action::ActionKind;
use sluice_flow::backend::{Handle, InstalledRule, Outcome, Placement};
use sluice_flow::counters::{Counters, Reading};
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::{Clock, Timestamp};
use sluice_flow::{Cause, ChainId, Flow, FlowId, Generation};
use sluice_netdev::PolicyList;

use crate::asks::Asks;
use crate::events::Events;
use crate::ipsec;
use crate::switch::{self, ByRule, Count, Led, RuleId, Switch, Way};
use crate::translate::{Entrance, Hop, Instance, Template, Vports};
use crate::watch::Progress;

/// The switch with the names of its rules.
pub(crate) struct Rules {
    switch: Switch,
    next_hops: Option<Followed>,
    /// Of IPsec.
    policies: PolicyList,
    /// `None` until it is known which vports ports are.
    vports: Option<Arc<dyn Vports + Send + Sync>>,
    known: ByRule<Known>,
    open: HashSet<ChainId>,
    progress: Arc<Progress>,
}

/// How next hops are followed by somebody.
struct Followed {
    asks: Asks,
    /// Where it is told that flows are to be tried again that may wait for one.
    events: Events,
    clock: Arc<dyn Clock>,
    /// When those were last let go that no flow asks for.
    looked: Timestamp,
}

/// So often next hops are looked through for those that no flow asks for.
const LOOK: Duration = Duration::from_secs(60);

/// What is known of a place for a rule, in 16 bytes.
struct Known {
    /// Counts the rules that were there: a handle of an earlier one is no longer good.
    life: u32,
    /// The flow whose rule it is; [`NO_FLOW`] if there is no rule.
    flow: FlowId,
    installed_as: Generation,
}

/// No table of flows has such a slot.
const NO_FLOW: FlowId = FlowId { slot: u32::MAX, incarnation: 0 };

/// Bytes that a rule takes beyond the flow, which the table of flows has.
pub const BYTES_A_RULE: usize = switch::BYTES_A_RULE + size_of::<Known>();
const _: () = assert!(BYTES_A_RULE <= 88, "a rule takes more than 88 bytes beyond its flow");

/// Rules that are removed.
pub(crate) struct Removal {
    /// So many of their last counters are to be told.
    pub(crate) left: usize,
    /// Those whose last counters are not known, by their places among all, in this order.
    pub(crate) gone: Vec<usize>,
}

/// The batch of whose removals nobody wants to know.
const NOBODY: u64 = 0;

impl Rules {
    pub(crate) fn new(mut switch: Switch, progress: Arc<Progress>) -> Self {
        let told = progress.clone();
        // If the device has failed meanwhile, the next piece of work hears of it.
        switch.tell_progress(move || told.works().unwrap_or_default());
        let (next_hops, policies, vports, open) = Default::default();
        Self { switch, next_hops, policies, vports, known: ByRule::new(), open, progress }
    }

    /// The switch, for what does not concern the names of rules.
    pub(crate) fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Returns the vport of a port of the RDMA device.
    pub(crate) fn vport(&self, port: u32) -> Result<Option<u16>, Refusal> {
        self.switch.vport(port)
    }

    /// Has next hops be followed by who hears these asks. `events` tells when flows that may wait for one are to be tried again.
    pub(crate) fn set_asks(&mut self, asks: Asks, events: Events, clock: Arc<dyn Clock>) {
        let looked = clock.now();
        self.next_hops = Some(Followed { asks, events, clock, looked });
    }

    /// Says which way packets to a next hop go from now on, or why none.
    pub(crate) fn set_way(&mut self, hop: Hop, way: Result<Way, String>) -> Result<Led, Refusal> {
        self.switch.set_way(hop, way)
    }

    /// Takes the policies of IPsec that there are from now on. Returns the ports of tunnels with flows that are in the device against them.
    pub(crate) fn set_policies(&mut self, policies: PolicyList) -> BTreeSet<PortNumber> {
        self.policies = policies;
        let flows = self.all().filter_map(|(id, _)| self.switch.flow(id));
        let refused = flows.filter(|flow| self.check_policies(flow).is_err());
        refused.filter_map(|flow| u32::try_from(flow.matching().get(Field::InPort).0).ok().map(PortNumber)).collect()
    }

    /// Takes which vports ports are.
    pub(crate) fn set_vports(&mut self, vports: Arc<dyn Vports + Send + Sync>) {
        self.switch.set_vports(vports.clone());
        self.vports = Some(vports);
    }

    /// Leads the packets of these tunnels, and of no others, to rules of their own.
    pub(crate) fn set_entrances(&mut self, entrances: &[Entrance]) -> Result<(), Refusal> {
        self.switch.set_entrances(entrances)
    }

    /// Lets a chain be jumped to.
    pub(crate) fn open_chain(&mut self, chain: ChainId) {
        self.open.insert(chain);
    }

    /// Refuses jumps to a chain from now on.
    pub(crate) fn close_chain(&mut self, chain: ChainId) {
        self.open.remove(&chain);
    }

    /// Installs the rule of a flow.
    pub(crate) fn install(&mut self, id: FlowId, generation: Generation, rule: Instance) -> Result<Outcome, Refusal> {
        self.progress.works()?;
        self.check_jump(&rule.template)?;
        self.check_policies(&rule.flow)?;
        let installed = match self.switch.install(rule) {
            Ok(installed) => installed,
            Err(refusal) => {
                self.ask();
                return Err(refusal);
            }
        };
        for bulk in self.known.bulks()..self.switch.bulks() {
            self.known.add_bulk(self.switch.size_of(bulk));
        }
        let known = self.known.get_mut(installed);
        let life = known.life.wrapping_add(1);
        *known = Known { life, flow: id, installed_as: generation };
        Ok(in_hardware(handle(installed, life)))
    }

    /// Makes the rule of a flow do something else.
    pub(crate) fn modify(&mut self, handle: Handle, rule: Instance) -> Result<Outcome, Refusal> {
        self.progress.works()?;
        self.check_jump(&rule.template)?;
        self.check_policies(&rule.flow)?;
        let Some(id) = self.find(handle) else {
            return Err(Refusal::Device { reason: "the rule is gone".into() });
        };
        let replaced = self.switch.replace(id, rule);
        self.ask();
        self.forget();
        replaced?;
        Ok(in_hardware(handle))
    }

    /// Takes rules out; what comes of each is told as of `batch`, of those that are gone already at once: they are removed, without
    /// counters. Fails if the device has failed.
    pub(crate) fn remove(&mut self, handles: &[Handle], batch: u64) -> Result<Removal, Refusal> {
        self.progress.works()?;
        let (mut ids, mut gone) = (Vec::with_capacity(handles.len()), Vec::new());
        for (position, handle) in handles.iter().enumerate() {
            match self.find(*handle) {
                Some(id) => {
                    self.known.get_mut(id).flow = NO_FLOW;
                    ids.push(id);
                }
                None => gone.push(position),
            }
        }
        let removed = self.switch.remove_later(&ids, batch);
        self.forget();
        if let Err(refusal) = removed {
            // They are out of the tables; only what they counted is not known.
            tracing::warn!("the last counters of removed rules are not known: {refusal}");
            return Ok(Removal { left: 0, gone: (0..handles.len()).collect() });
        }
        Ok(Removal { left: ids.len(), gone })
    }

    /// Removes all rules, and returns how many there were. Fails if the device has failed.
    pub(crate) fn flush(&mut self) -> Result<usize, Refusal> {
        /// As many at once as take a small part of the time in which the thread must get on.
        const AT_ONCE: usize = 256;
        let ids: Vec<_> = self.all().map(|(id, _)| id).collect();
        for some in ids.chunks(AT_ONCE) {
            self.progress.works()?;
            some.iter().for_each(|id| self.known.get_mut(*id).flow = NO_FLOW);
            if let Err(refusal) = self.switch.remove_later(some, NOBODY) {
                // They are out of the tables, and nobody asks what they counted.
                tracing::warn!("the counters of flushed rules rest until others are removed: {refusal}");
            }
        }
        self.forget();
        Ok(ids.len())
    }

    /// Returns the rules as they were put in: the device does not list them.
    pub(crate) fn list(&self) -> Vec<InstalledRule> {
        let rule = |(id, life): (RuleId, u32)| {
            Some(InstalledRule {
                handle: handle(id, life),
                flow: self.switch.flow(id)?.clone(),
                is_named: true,
                rules: 1,
                placement: Placement::Hardware,
                is_current: true,
            })
        };
        self.all().filter_map(rule).collect()
    }

    /// Returns how many bulks of counters there are.
    pub(crate) fn bulks(&self) -> usize {
        self.switch.bulks()
    }

    /// Returns the readings of a bulk of counters as they were told last, in place of what `readings` has.
    pub(crate) fn readings(&self, bulk: usize, readings: &mut Vec<Reading>) {
        readings.clear();
        let Some(counts) = self.switch.all_counts(bulk) else { return };
        let rules = self.known.bulk(bulk).iter().zip(counts).filter(|(known, _)| known.has_rule());
        readings.extend(rules.map(|(Known { flow, installed_as, .. }, count)| Reading {
            flow: *flow,
            installed_as: *installed_as,
            counters: counters(count),
        }));
    }

    /// Waits until all is in the device, which has failed if it cannot be waited for: nobody knows what is in it.
    pub(crate) fn sync(&self) {
        let synced = self.progress.works().and_then(|()| self.switch.sync());
        let _ = synced.inspect_err(|refusal| self.progress.fail(refusal.to_string()));
    }

    fn all(&self) -> impl Iterator<Item = (RuleId, u32)> {
        self.known.iter().filter(|(_, known)| known.has_rule()).map(|(id, known)| (id, known.life))
    }

    /// Asks for next hops that flows were refused for.
    fn ask(&mut self) {
        for hop in self.switch.take_asked() {
            self.next_hops.iter().for_each(|followed| followed.asks.follow(hop));
        }
        self.look_through();
    }

    /// No longer follows next hops that no flow leads to.
    fn forget(&mut self) {
        for hop in self.switch.forget_unused() {
            self.next_hops.iter().for_each(|followed| followed.asks.forget(hop));
        }
        self.look_through();
    }

    /// No longer follows next hops that no flow asks for either, now and then.
    fn look_through(&mut self) {
        let Some(Followed { asks, events, clock, looked }) = &mut self.next_hops else { return };
        let now = clock.now();
        if now.since(*looked) < LOOK {
            return;
        }
        *looked = now;
        for hop in self.switch.forget_unasked() {
            asks.forget(hop);
            // One that waits for it all the same, and is tried seldom or never, asks again.
            events.changed(Cause::Neighbour(Some(hop.destination)));
        }
    }

    #[inline]
    fn check_jump(&self, template: &Template) -> Result<(), Refusal> {
        match template.to() {
            Some(chain) if !self.open.contains(&chain) => {
                let reason = format!("chain {chain} is not open").into();
                Err(Refusal::Action { action: ActionKind::Recirc, reason }.until(Cause::Chain))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_policies(&self, flow: &Flow) -> Result<(), Refusal> {
        self.vports.as_ref().map_or(Ok(()), |vports| ipsec::check_received(&self.policies, flow, &**vports))
    }

    /// Returns the rule of a handle, if it is still that one.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn find(&self, handle: Handle) -> Option<RuleId> {
        let (life, id) = ((handle.0 >> 32) as u32, RuleId(handle.0 as u32));
        let known = self.known.get(id)?;
        (known.life == life && known.has_rule()).then_some(id)
    }
}

impl Known {
    fn has_rule(&self) -> bool {
        self.flow != NO_FLOW
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { life: 0, flow: NO_FLOW, installed_as: Generation::NONE }
    }
}

fn handle(id: RuleId, life: u32) -> Handle {
    Handle(u64::from(life) << 32 | u64::from(id.0))
}

fn in_hardware(handle: Handle) -> Outcome {
    Outcome::InPlace { handle, placement: Placement::Hardware }
}

pub(crate) fn counters(count: Count) -> Counters {
    Counters { packets: count.packets, bytes: count.bytes, ..Counters::default() }
}
