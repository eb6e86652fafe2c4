//! The kernel's flower classifier as the agent sees it.
//!
//! All is of the network namespace of the thread that [opens](crate::Config) it. The name of the device in the configuration is a
//! word: it names the lock that keeps two agents apart, so that those who share a namespace's ports should say the same, such
//! as `system`, or the name of the uplink where each eswitch has its agent.

mod adoption;
mod attach;
mod books;
mod chains;
mod core;
mod departures;
mod doubts;
mod dumps;
mod events;
mod exclusive;
mod facets;
mod failure;
mod inheritance;
mod listing;
mod made;
mod mirrors;
mod open;
mod pairs;
mod ports;
mod queue;
mod reader;
mod removal;
mod strangers;
mod survey;
mod taken_apart;
mod watch;
mod words;

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

use self::core::Core;
use self::queue::Queue;
use self::reader::Reader;
use self::watch::Watch;
use crate::config::Config;
use crate::install::BATCH;
use crate::priorities::Priorities;
use crate::translate::{self, Rules};

/// The classifier, with the thread that follows what happens to it.
struct Classifier {
    core: Arc<Core>,
    _watch: Watch,
}

impl Classifier {
    fn open(open: &OpenConfig, config: &Config) -> Result<Self, Refusal> {
        let core = Arc::new(Core::open(open, config)?);
        let watch = Watch::start(Arc::clone(&core))?;
        Ok(Self { core, _watch: watch })
    }
}

impl Backend for Classifier {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "tc",
            miss: MissPolicy::Kernel,
            chain_miss: MissPolicy::Kernel,
            max_lag: reader::max_lag(self.core.policy),
            // The kernel tells of a rule a moment before it unlinks it.
            last_counters: LastCounters::Bounded,
            modifies_in_place: true,
            max_chain_depth: chains::MAX_DEPTH,
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
        // The kernel tracks them for all that it does, and shows and limits them in its own ways.
        None
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        Some(self)
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        // Who takes a rule is up to the kernel.
        None
    }

    fn injector(&self) -> Option<&dyn Injector> {
        None
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        let ports = self.core.ports.load();
        let Rules { rule, guard } = translate::rules(flow, self.core.agent, &**ports)?;
        let mut text = String::new();
        if let Some(guard) = guard {
            let priority = Priorities::acquire_in_front(guard.priority, guard.protocol)?;
            text = words::rule(&guard, priority, self.core.policy, &ports) + "\n";
        }
        let priority = self.core.acquire_priority(rule.priority, rule.protocol)?;
        self.core.release_priority(rule.protocol);
        Ok(text + &words::rule(&rule, priority, self.core.policy, &ports))
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
        self.core.port_counters(port)
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        None
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
        lost.extend(self.core.take_untold());
        self.core.restore_mirrors(None);
        Ok(lost)
    }

    fn events(&self) -> EventStream {
        self.core.events.stream()
    }
}
