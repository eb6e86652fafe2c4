//! The backend with one worker's queue and one reader, as an agent has them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_flow::backend::{
    Adopter, Auditor, BackendConfig, ChainChange, ChainCompletion, ChainOperation, Change, CounterReader, DeviceEvent,
    Handle, InstallQueue, InstalledRule, Meters, Mirrors, OpenConfig, Operation, Outcome, Owner, Placement,
};
use sluice_flow::chain::ChainId;
use sluice_flow::counters::Counters;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::key::MaskedKey;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::LineReader;
use sluice_flow::time::MonotonicClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Backend, text};
use sluice_offload_tc::{Config, OffloadPolicy};

pub(crate) const OWNER: Owner = Owner(0x5eed);
/// What is sent to the second host, and to the first.
pub(crate) const TO_B: &str = "in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,proto=17,frag=no)";
pub(crate) const TO_A: &str = "in_port(2),eth_type(0x0800),ipv4(dst=10.0.0.1,proto=17,frag=no)";

pub(crate) struct Device {
    pub(crate) backend: Arc<dyn Backend>,
    queue: Box<dyn InstallQueue>,
    reader: Box<dyn CounterReader>,
    slots: u32,
    generations: u32,
}

/// A rule that is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) id: FlowId,
    pub(crate) handle: Handle,
    pub(crate) placement: Placement,
}

impl Device {
    /// With both ports, software only.
    pub(crate) fn open() -> Self {
        Self::with_policy(OffloadPolicy::SkipHardware)
    }

    /// With both ports.
    pub(crate) fn with_policy(policy: OffloadPolicy) -> Self {
        let mut device = Self::bare(policy, OWNER);
        device.attach(1);
        device.attach(2);
        device
    }

    /// Without ports.
    pub(crate) fn bare(policy: OffloadPolicy, owner: Owner) -> Self {
        Self::with_state(policy, owner, None)
    }

    /// Without ports, and with a folder for what the next run shall know.
    pub(crate) fn with_state(policy: OffloadPolicy, owner: Owner, state_dir: Option<PathBuf>) -> Self {
        let config = Config { policy, ..Config::default() };
        let open = OpenConfig { owner, state_dir, ..OpenConfig::new("system", Arc::new(MonotonicClock::new())) };
        let backend = config.open(&open).unwrap();
        let (queue, reader) = (backend.install_queue().unwrap(), backend.counter_reader().unwrap());
        Self { backend, queue, reader, slots: 0, generations: 0 }
    }

    pub(crate) fn meters(&self) -> &dyn Meters {
        self.backend.meters().expect("the classifier has meters")
    }

    pub(crate) fn mirrors(&self) -> &dyn Mirrors {
        self.backend.mirrors().expect("the classifier has mirrors")
    }

    pub(crate) fn adoption(&self) -> &dyn Adopter {
        self.backend.adoption().expect("rules stay in the kernel")
    }

    pub(crate) fn audit(&self) -> &dyn Auditor {
        self.backend.audit().expect("others can get at the rules")
    }

    pub(crate) fn attach(&mut self, number: u32) {
        self.backend.attach_port(&port(number)).unwrap();
    }

    pub(crate) fn open_chain(&mut self, chain: ChainId) {
        self.change_chain(ChainChange { chain, operation: ChainOperation::Open });
    }

    pub(crate) fn close_chain(&mut self, chain: ChainId) {
        self.change_chain(ChainChange { chain, operation: ChainOperation::Close });
    }

    fn change_chain(&mut self, change: ChainChange) {
        let mut done = Vec::new();
        self.queue.submit_chain(change, &mut done);
        assert_eq!(done, [ChainCompletion { change, result: Ok(()) }]);
    }

    pub(crate) fn install(&mut self, key: &str, actions: &str) -> Result<Rule, Refusal> {
        self.install_all(&[(key, actions)]).pop().unwrap()
    }

    /// Installs flows at a time.
    pub(crate) fn install_all<T: AsRef<str>>(&mut self, flows: &[(T, &str)]) -> Vec<Result<Rule, Refusal>> {
        // As the agent has them: those with the same mask and the same actions share these.
        let mut reader = LineReader::new(&());
        let operations = flows.iter().map(|(key, actions)| {
            self.slots += 1;
            reader.read(&format!("{} {actions}", key.as_ref())).unwrap();
            (FlowId { slot: self.slots, incarnation: 1 }, Operation::Install(reader.flow(&SEED)))
        });
        let operations: Vec<_> = operations.collect();
        let ids: Vec<_> = operations.iter().map(|(id, _)| *id).collect();
        ids.into_iter().zip(self.submit(operations)).map(|(id, result)| in_place(id, result)).collect()
    }

    pub(crate) fn modify(&mut self, rule: Rule, key: &str, actions: &str) -> Result<Rule, Refusal> {
        let result = self.submit(vec![(rule.id, Operation::Modify(rule.handle, flow(key, actions)))]).pop().unwrap();
        in_place(rule.id, result)
    }

    pub(crate) fn relocate(&mut self, rule: Rule) -> Result<Outcome, Refusal> {
        self.submit(vec![(rule.id, Operation::Move(rule.handle, Placement::Hardware))]).pop().unwrap()
    }

    pub(crate) fn remove(&mut self, rule: Rule) -> Option<Counters> {
        self.remove_all(&[rule]).pop().unwrap()
    }

    pub(crate) fn remove_all(&mut self, rules: &[Rule]) -> Vec<Option<Counters>> {
        let operations = rules.iter().map(|rule| (rule.id, Operation::Remove(rule.handle))).collect();
        let results = self.submit(operations).into_iter();
        results
            .map(|result| match result {
                Ok(Outcome::Removed { last }) => last,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn submit(&mut self, operations: Vec<(FlowId, Operation)>) -> Vec<Result<Outcome, Refusal>> {
        self.generations += 1;
        let generation = Generation(self.generations);
        let ids: Vec<_> = operations.iter().map(|(id, _)| *id).collect();
        let mut batch: Vec<_> =
            operations.into_iter().map(|(flow, operation)| Change { flow, generation, operation }).collect();
        let mut done = vec![];
        self.queue.submit(&mut batch, &mut done);
        assert!(batch.is_empty());
        let mut results: BTreeMap<_, _> = done.into_iter().map(|done| (done.flow, done.result)).collect();
        ids.iter().map(|id| results.remove(id).expect("every change is completed")).collect()
    }

    /// What all rules counted: packets and bytes.
    pub(crate) fn counted(&mut self) -> BTreeMap<FlowId, (u64, u64)> {
        let mut counted = BTreeMap::new();
        let mut visit = |readings: &[sluice_flow::counters::Reading], _| {
            for reading in readings {
                counted.insert(reading.flow, (reading.counters.packets, reading.counters.bytes));
            }
        };
        self.reader.read(&mut visit).unwrap();
        counted
    }

    pub(crate) fn installed(&self) -> Vec<InstalledRule> {
        let mut rules = vec![];
        self.backend.installed(&mut |rule| rules.push(rule)).unwrap();
        rules
    }

    pub(crate) fn foreign(&self) -> Vec<String> {
        let mut filters = vec![];
        self.audit().foreign(&mut |filter| filters.push(filter)).unwrap();
        filters
    }

    /// What has been told by now.
    pub(crate) fn events(&self) -> Vec<DeviceEvent> {
        self.backend.events().drain()
    }
}

pub(crate) fn port(number: u32) -> Port {
    Port { number: PortNumber(number), name: format!("p{number}").parse().expect("a name"), kind: PortKind::Physical }
}

const SEED: Seed = Seed([7; 16]);

/// A flow from its text.
pub(crate) fn flow(key: &str, actions: &str) -> Flow {
    let parsed = text::parse_key(key, &()).unwrap();
    let actions = text::parse_actions(actions, &()).unwrap();
    let matching = MaskedKey::new(&parsed.matching);
    Flow::new(parsed.ufid, matching, actions, Priority::default(), Expiry::default(), &SEED)
}

fn in_place(id: FlowId, result: Result<Outcome, Refusal>) -> Result<Rule, Refusal> {
    match result? {
        Outcome::InPlace { handle, placement } => Ok(Rule { id, handle, placement }),
        other => panic!("{other:?}"),
    }
}
