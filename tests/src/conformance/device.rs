//! What the stories do with a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::backend::{
    ChainOperation, Change, CounterReader, Facet, Handle, InstalledRule, Operation, Outcome, Placement,
};
use sluice_flow::counters::{Counters, Reading};
use sluice_flow::port::PortKind;
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Backend, ChainId, Expiry, Flow, FlowId, Generation, MaskedKey, Port, PortNumber, Priority, Refusal, text,
};

use super::{Opened, Subject, Worker};

/// What the packets of a [`Subject`] are matched by.
pub const UDP: &str = "in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,proto=17,frag=no)";

const SEED: Seed = Seed([7; 16]);

/// A device with the ports 1 and 2, a worker and a reader of its counters.
pub struct Device<'a> {
    subject: &'a Subject<'a>,
    opened: Opened,
    worker: Worker,
    reader: Box<dyn CounterReader>,
    slots: u32,
    generations: u32,
}

/// A rule that is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The flow that it is for.
    pub flow: FlowId,
    /// The generation that installed it.
    pub generation: Generation,
    /// The backend's name for it.
    pub handle: Handle,
    /// Where it is.
    pub placement: Placement,
}

impl<'a> Device<'a> {
    /// Opens the device of a subject and attaches its ports.
    pub fn open(subject: &'a Subject<'a>) -> Self {
        Self::of(subject, (subject.open)())
    }

    /// The same of a device that is open already.
    pub fn of(subject: &'a Subject<'a>, opened: Opened) -> Self {
        for number in [1, 2] {
            opened.backend.attach_port(&port(PortNumber(number))).expect("the port is there");
        }
        let worker = Worker::new(&*opened.backend);
        let reader = opened.backend.counter_reader().expect("a reader opens");
        Self { subject, opened, worker, reader, slots: 0, generations: 0 }
    }

    /// The device itself.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.opened.backend
    }

    /// Of a decorator, the device under it.
    pub fn under(&self) -> Option<&dyn Backend> {
        self.opened.under.as_deref()
    }

    /// What holds all changes back, if there is something.
    pub fn stall(&self) -> Option<&(dyn Fn(bool) + Sync)> {
        self.opened.stall.as_deref()
    }

    /// Whether the device has a facet.
    pub fn has(&self, facet: Facet) -> bool {
        facet.is_of(&**self.backend())
    }

    /// The worker.
    pub fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Has so many packets come in that [`UDP`] matches.
    pub fn send(&self, packets: u32) {
        (self.subject.send)(&**self.backend(), packets);
    }

    /// A flow that nobody has had before, under the next generation.
    pub fn new_flow(&mut self) -> (FlowId, Generation) {
        self.slots += 1;
        (FlowId { slot: self.slots, incarnation: 1 }, self.next_generation())
    }

    /// A generation that no change had before.
    pub fn next_generation(&mut self) -> Generation {
        self.generations += 1;
        Generation(self.generations)
    }

    /// Has a chain opened.
    pub fn open_chain(&mut self, chain: ChainId) -> Result<(), Refusal> {
        self.worker.change_chain(chain, ChainOperation::Open)
    }

    /// Has a chain closed.
    pub fn close_chain(&mut self, chain: ChainId) -> Result<(), Refusal> {
        self.worker.change_chain(chain, ChainOperation::Close)
    }

    /// Has a rule put in.
    pub fn install(&mut self, key: &str, actions: &str) -> Result<Rule, Refusal> {
        let (id, generation) = self.new_flow();
        self.place(id, generation, generation, Operation::Install(flow(key, actions)))
    }

    /// Has a rule do something else.
    pub fn modify(&mut self, rule: Rule, key: &str, actions: &str) -> Result<Rule, Refusal> {
        let generation = self.next_generation();
        self.place(rule.flow, generation, rule.generation, Operation::Modify(rule.handle, flow(key, actions)))
    }

    /// Has a rule taken out, and returns its last counters.
    pub fn remove(&mut self, rule: Rule) -> Option<Counters> {
        let generation = self.next_generation();
        match self.make(rule.flow, generation, Operation::Remove(rule.handle)) {
            Ok(Outcome::Removed { last }) => last,
            other => panic!("a rule was to be removed: {other:?}"),
        }
    }

    fn place(
        &mut self,
        id: FlowId,
        generation: Generation,
        installed_as: Generation,
        operation: Operation,
    ) -> Result<Rule, Refusal> {
        match self.make(id, generation, operation)? {
            Outcome::InPlace { handle, placement } => {
                Ok(Rule { flow: id, generation: installed_as, handle, placement })
            }
            other => panic!("a rule was to be put in: {other:?}"),
        }
    }

    fn make(&mut self, flow: FlowId, generation: Generation, operation: Operation) -> Result<Outcome, Refusal> {
        let completion = self.worker.make(vec![Change { flow, generation, operation }]).pop().expect("one");
        assert_eq!((completion.flow, completion.generation), (flow, generation), "an answer to what was asked");
        completion.result
    }

    /// Reads the counters of all rules.
    pub fn read(&mut self) -> BTreeMap<FlowId, Reading> {
        let mut read = BTreeMap::new();
        let mut visit = |readings: &[Reading], _| read.extend(readings.iter().map(|reading| (reading.flow, *reading)));
        self.reader.read(&mut visit).expect("the counters are read");
        read
    }

    /// The packets that a rule counted; `None` if it was not read.
    pub fn packets(&mut self, rule: Rule) -> Option<u64> {
        self.read().get(&rule.flow).map(|reading| reading.counters.packets)
    }

    /// What is installed, by handle.
    pub fn installed(&self) -> BTreeMap<Handle, InstalledRule> {
        let mut rules = BTreeMap::new();
        let mut visit = |rule: InstalledRule| {
            let twice = rules.insert(rule.handle, rule);
            assert!(twice.is_none(), "no two rules have one handle: {twice:?}");
        };
        self.backend().installed(&mut visit).expect("the rules are listed");
        rules
    }
}

/// A port, of the name that its device has everywhere.
pub(super) fn port(number: PortNumber) -> Port {
    Port { number, name: format!("p{number}").parse().expect("a name"), kind: PortKind::Physical }
}

/// A flow from its text.
pub fn flow(key: &str, actions: &str) -> Flow {
    let parsed = text::parse_key(key, &()).expect("a key");
    let actions = text::parse_actions(actions, &()).expect("actions");
    let matching = MaskedKey::new(&parsed.matching);
    Flow::new(parsed.ufid, matching, actions, Priority::default(), Expiry::default(), &SEED)
}

/// The key of one of many flows that have nothing to do with [`UDP`] or each other.
pub(super) fn other(number: usize) -> String {
    format!("in_port(1),eth_type(0x0800),ipv4(dst=10.1.{}.{})", number / 256, number % 256)
}
