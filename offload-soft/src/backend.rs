//! The device as the agent sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use sluice_flow::backend::{
    Adopter, Auditor, Backend, Capabilities, Capacity, ChainChange, ChainCompletion, ChainOperation, Change,
    Completion, Connections, CountedApart, CounterReader, EventStream, Handle, Injector, InstallQueue, InstalledRule,
    LastCounters, Listing, LooksAt, LookupCounters, LostRule, Meters, Mirrors, MissPolicy, OpenConfig, Operation,
    Outcome, PortCounters,
};
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::flow::Flow;
use sluice_flow::port::{Port, PortNumber};
use sluice_flow::refusal::Refusal;

use crate::config::{Config, KIND};
use crate::conntrack::Conntrack;
use crate::engine::random::Random;
use crate::engine::{Burst, Drops, Observer};
use crate::jumps::MAX_DEPTH;
use crate::nic::{Nic, Removal};
use crate::places::Places;
use crate::rules::Rule;
use crate::translate::Approvals;

/// Readings handed over at once.
const READINGS: usize = 256;
/// Changes that are best handed over at once: that many modifications and removals share one wait for packets under way.
const BATCH: usize = 64;

/// A NIC in software.
pub struct SoftNic(pub(crate) Arc<Nic>);

impl SoftNic {
    /// A NIC without ports and rules.
    pub fn new(open: &OpenConfig) -> Self {
        Self::configured(open, &Config::default())
    }

    /// The same, with a configuration of its own.
    pub fn configured(open: &OpenConfig, config: &Config) -> Self {
        Self(Arc::new(Nic::new(open, config, Random::new())))
    }

    /// The same, with dice that fall alike for the same seed, for `sample`.
    pub fn with_seed(open: &OpenConfig, seed: u64) -> Self {
        Self(Arc::new(Nic::new(open, &Config::default(), Random::from_seed(seed))))
    }

    /// Packets that no rule of a chain took; `None` for a chain that is not there.
    pub fn chain_misses(&self, chain: ChainId) -> Option<u64> {
        self.0.chains.get(chain).map(|chain| chain.misses())
    }

    /// Packets that went nowhere, though no rule said so.
    pub fn drops(&self) -> &Drops {
        &self.0.drops
    }

    /// A way in at a port for one thread at a time, which takes frames in bursts.
    pub fn rx_queue(&self, port: PortNumber) -> RxQueue {
        RxQueue { nic: Arc::clone(&self.0), port, burst: Box::new(Burst::new()) }
    }

    /// The connections that it tracks.
    pub fn conntrack(&self) -> &Conntrack {
        &self.0.conntrack
    }
}

impl Backend for SoftNic {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "soft",
            miss: MissPolicy::Drop,
            chain_miss: KIND.chain_miss,
            max_lag: Duration::ZERO,
            last_counters: LastCounters::Exact,
            modifies_in_place: true,
            max_chain_depth: MAX_DEPTH,
            batch: BATCH,
            workers: None,
            // What packets are looked up in is what is listed.
            listing: Listing::Device,
        }
    }

    fn meters(&self) -> Option<&dyn Meters> {
        Some(self)
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        Some(self)
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        None
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        None
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        Some(self)
    }

    fn injector(&self) -> Option<&dyn Injector> {
        Some(self)
    }

    fn notes(&self) -> Vec<String> {
        let reasons = self.0.drops.reasons().into_iter().chain(self.0.conntrack.losses().reasons());
        let happened = reasons.filter(|(_, count)| *count > 0);
        happened.map(|(reason, count)| format!("packets that went no further: {count}, {reason}")).collect()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        self.0.explain(flow)
    }

    fn looks_at(&self, _: &Flow) -> Option<LooksAt> {
        None
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.0.ports.attach(port)?;
        self.0.changed(Cause::Port(Some(port.number)));
        Ok(())
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.attach_port(port)
    }

    fn is_absent(&self, _: PortNumber) -> bool {
        false
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        self.0.ports.detach(port)
    }

    fn port_counters(&self, port: PortNumber) -> Option<PortCounters> {
        self.0.ports.table().get(port).map(|port| port.counters())
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        Some(LookupCounters {
            hits: Some(self.0.lookup_counts.hits.load(Ordering::Relaxed)),
            misses: Some(self.0.chains.root().misses()),
            chain_misses: Some(self.0.lookup_counts.chain_misses.load(Ordering::Relaxed)),
            lost: Some(self.0.drops.of_rules()),
        })
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        let number = self.0.queues.fetch_add(1, Ordering::Relaxed);
        let (approvals, places, replaced, removals) = Default::default();
        Ok(Box::new(Queue { nic: Arc::clone(&self.0), number, approvals, places, replaced, removals }))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(Reader { nic: Arc::clone(&self.0), batch: Vec::with_capacity(READINGS) }))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        for (index, slot) in self.0.rules.slots() {
            let Some(handle) = self.0.rules.handle_of(index) else {
                continue;
            };
            let Some(flow) = slot.flow() else {
                continue;
            };
            // Still the same rule after its flow was read.
            if self.0.rules.find(handle).is_some() {
                visit(InstalledRule {
                    handle,
                    flow,
                    is_named: true,
                    rules: 1,
                    placement: slot.placement(),
                    is_current: true,
                });
            }
        }
        Ok(())
    }

    fn counted_apart(&self, _: Handle) -> Result<Option<CountedApart>, Refusal> {
        Ok(None)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        let rules = &self.0.rules;
        let handles = rules.slots().filter_map(|(index, _)| rules.handle_of(index));
        let mut places = Places::default();
        let removals: Vec<_> = handles.filter_map(|handle| self.0.unlink(&mut places, handle)).collect();
        let count = removals.len();
        self.0.settle();
        for (hint, removal) in removals.into_iter().enumerate() {
            self.0.free(hint, removal);
        }
        Ok(count)
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        // The device goes with this process.
        Ok(Vec::new())
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        // The device is this process: nothing is lost behind its back.
        Ok(Vec::new())
    }

    fn events(&self) -> EventStream {
        self.0.events.clone()
    }
}

/// Frames in bursts, at one port.
pub struct RxQueue {
    nic: Arc<Nic>,
    port: PortNumber,
    burst: Box<Burst>,
}

impl RxQueue {
    /// Lets frames (without FCS) in, one after the other, and hands each one that leaves to `send`. All are looked up in
    /// the first chain before anything is done with the first, up to 16 at a time. Fails before anything is done if the
    /// port is none that frames come in at, or one of them is too short.
    pub fn receive(&mut self, frames: &[&[u8]], send: impl FnMut(PortNumber, &[u8])) -> Result<(), Refusal> {
        self.nic.receive(self.port, frames, &mut self.burst, &mut Sender(send))
    }
}

/// Cares only for what leaves.
struct Sender<F>(F);

impl<F: FnMut(PortNumber, &[u8])> Observer for Sender<F> {
    fn sent(&mut self, port: PortNumber, frame: &[u8]) {
        (self.0)(port, frame);
    }
}

/// The install path of one worker.
struct Queue {
    nic: Arc<Nic>,
    number: usize,
    approvals: Approvals,
    places: Places,
    /// What rules were that this batch has changed; empty between batches.
    replaced: Vec<Rule>,
    /// Rules that this batch has unlinked; empty between batches.
    removals: Vec<(Change, Removal)>,
}

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        for change in batch.drain(..) {
            let result = match &change.operation {
                Operation::Install(flow) => self
                    .nic
                    .install(self.number, &mut self.approvals, &mut self.places, change.flow, change.generation, flow)
                    .map(|(handle, placement)| Outcome::InPlace { handle, placement }),
                Operation::Modify(handle, flow) => {
                    self.nic.modify(self.number, &mut self.approvals, *handle, flow).map(|(placement, old)| {
                        self.replaced.extend(old);
                        Outcome::InPlace { handle: *handle, placement }
                    })
                }
                Operation::Move(handle, to) => {
                    self.nic.relocate(*handle, *to).map(|placement| Outcome::InPlace { handle: *handle, placement })
                }
                Operation::Remove(handle) => match self.nic.unlink(&mut self.places, *handle) {
                    Some(removal) => {
                        self.removals.push((change, removal));
                        continue;
                    }
                    // Flushed, or removed before: it is gone, and so are its counters.
                    None => Ok(Outcome::Removed { last: None }),
                },
            };
            done.push(Completion { flow: change.flow, generation: change.generation, result });
        }
        if self.replaced.is_empty() && self.removals.is_empty() {
            return;
        }
        self.nic.settle();
        self.replaced.drain(..).for_each(|rule| self.nic.discard(&rule));
        for (change, removal) in self.removals.drain(..) {
            let last = self.nic.free(self.number, removal);
            let result = Ok(Outcome::Removed { last });
            done.push(Completion { flow: change.flow, generation: change.generation, result });
        }
    }

    /// Everything is done when [`Self::submit`] returns.
    fn poll(&mut self, _: &mut Vec<Completion>) {}

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        match change.operation {
            ChainOperation::Open => self.nic.chains.open(change.chain),
            ChainOperation::Close => self.nic.chains.close(change.chain),
        }
        done.push(ChainCompletion { change, result: Ok(()) });
    }

    fn poll_chains(&mut self, _: &mut Vec<ChainCompletion>) {}

    fn set_waker(&mut self, _: Waker) {}
}

/// Walks the slots in order.
struct Reader {
    nic: Arc<Nic>,
    batch: Vec<Reading>,
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let mut earliest = self.nic.clock.now();
        for (_, slot) in self.nic.rules.slots() {
            self.batch.extend(slot.reading());
            if self.batch.len() == READINGS {
                let latest = self.nic.clock.now();
                visit(&self.batch, Sampled { earliest, latest });
                self.batch.clear();
                earliest = latest;
            }
        }
        if !self.batch.is_empty() {
            visit(&self.batch, Sampled { earliest, latest: self.nic.clock.now() });
            self.batch.clear();
        }
        // A good moment to put the busiest subtables first, off the way of packets and installs.
        self.nic.chains.for_each(|chain| chain.rules.sort());
        Ok(())
    }
}
