//! The classifier as a [`Backend`]: what every device must have.

use std::sync::Arc;

use sluice_flow::backend::{
    Adopter, Auditor, Backend, Capabilities, Capacity, Connections, CountedApart, CounterReader, EventStream, Handle,
    Injector, InstallQueue, InstalledRule, LastCounters, Listing, LooksAt, LookupCounters, LostRule, Meters, Mirrors,
    MissPolicy, OpenConfig, PortCounters,
};
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::port::{Port, PortNumber};
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::policies::Follower;
use super::queue::Queue;
use super::reader::{self, Reader};
use super::watch::Watch;
use super::{ipsec, ledger, text};
use crate::config::{Config, KIND};
use crate::install::BATCH;
use crate::priorities::Priorities;
use crate::translate::Rules;

/// The classifier, with the thread that watches it.
pub(super) struct Classifier {
    pub(super) core: Arc<Core>,
    _watch: Watch,
}

impl Classifier {
    pub(super) fn open(open: &OpenConfig, config: &Config) -> Result<Self, Refusal> {
        let core = Arc::new(Core::open(open, config)?);
        let follower = Follower::open(&core);
        let watch = Watch::start(Arc::clone(&core), follower)?;
        Ok(Self { core, _watch: watch })
    }
}

impl Backend for Classifier {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "tc",
            miss: MissPolicy::Kernel,
            chain_miss: KIND.chain_miss,
            max_lag: reader::max_lag(self.core.policy),
            // The kernel reports a rule's counters just before it unlinks the rule.
            last_counters: LastCounters::Bounded,
            modifies_in_place: true,
            max_chain_depth: ledger::chains::MAX_DEPTH,
            batch: BATCH,
            workers: None,
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
        // The kernel tracks connections for everybody, and shows and limits them by its own means.
        None
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        Some(self)
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        // The kernel decides who takes a rule.
        None
    }

    fn injector(&self) -> Option<&dyn Injector> {
        None
    }

    fn notes(&self) -> Vec<String> {
        let misses = self.core.ledger.chains.counted_twice();
        let missed = || {
            format!(
                "{misses} packets have missed in later chains: flows of the chains before have counted them, and so does whoever forwards them"
            )
        };
        (misses > 0).then(missed).into_iter().chain(ipsec::note(&self.core.ports.load())).collect()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        let ports = self.core.ports.load();
        let Rules { rule, guard } = self.core.rules_of(flow, &ports)?;
        let mut text = String::new();
        if let Some(guard) = guard {
            let priority = Priorities::acquire_in_front(guard.priority, guard.protocol)?;
            text = text::rule(&guard, priority, &ports) + "\n";
        }
        let priority = self.core.ledger.acquire_priority(rule.priority, rule.protocol)?;
        self.core.ledger.release_priority(rule.protocol);
        Ok(text + &text::rule(&rule, priority, &ports))
    }

    fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        let is_looked_at = |field| flow.matching().get(field).1 != 0;
        let has_outer_header = is_looked_at(Field::TunnelFlags) || is_looked_at(Field::TunnelPresent);
        if has_outer_header { self.core.ports.load().looks_at(flow) } else { None }
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.core.attach(port, false)
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.core.attach(port, true)
    }

    fn is_absent(&self, port: PortNumber) -> bool {
        self.core.ports.load().is_absent(port)
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        self.core.detach(port)
    }

    fn port_counters(&self, port: PortNumber) -> Option<PortCounters> {
        self.core.ports.counters(&mut self.core.sockets.control.lock(), port)
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        // What no rule takes, the kernel counts nowhere.
        Some(LookupCounters { chain_misses: Some(self.core.ledger.chains.misses()), ..LookupCounters::default() })
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        Ok(Box::new(Queue::open(Arc::clone(&self.core))?))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(Reader::open(Arc::clone(&self.core))?))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        self.core.installed(visit)
    }

    fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        self.core.counted_apart(handle)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        self.core.flush()
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        self.core.release()
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        self.core.events.resynchronising();
        let mut lost = Reader::open(Arc::clone(&self.core))?.compare()?;
        lost.extend(self.core.events.take_owed());
        self.core.restore_mirrors(None);
        Ok(lost)
    }

    fn events(&self) -> EventStream {
        self.core.events.stream()
    }
}
