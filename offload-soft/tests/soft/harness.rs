//! A device with four wires, and flows without ceremony.

use std::sync::Arc;

use sluice_flow::action::{Action, FieldSet};
use sluice_flow::backend::{
    Backend, ChainChange, ChainCompletion, ChainOperation, Change, Completion, Handle, Injector, InstallQueue,
    OpenConfig, Operation, Outcome, Verdict,
};
use sluice_flow::chain::ChainId;
use sluice_flow::counters::{Counters, Reading};
use sluice_flow::field::Field;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::ManualClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, Priority};
use sluice_offload_soft::{Config, SoftNic};

pub(crate) struct Device {
    pub(crate) nic: Arc<SoftNic>,
    pub(crate) clock: Arc<ManualClock>,
    queue: Box<dyn InstallQueue>,
    next: u32,
}

impl Device {
    pub(crate) fn new() -> Self {
        Self::with_seed(1)
    }

    /// Whose dice fall as the seed says.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self::of(|open| SoftNic::with_seed(open, seed))
    }

    /// Which takes so many rules into hardware.
    pub(crate) fn with_room(rules: usize) -> Self {
        Self::of(|open| SoftNic::configured(open, &Config { hardware_rules: Some(rules) }))
    }

    fn of(nic: impl Fn(&OpenConfig) -> SoftNic) -> Self {
        let clock = Arc::new(ManualClock::default());
        let nic = Arc::new(nic(&OpenConfig::new("soft", clock.clone())));
        for number in 1..=4 {
            nic.attach_port(&port(number, PortKind::Physical)).unwrap();
        }
        let queue = nic.install_queue().unwrap();
        Self { nic, clock, queue, next: 0 }
    }

    /// Makes ports 10 (VXLAN), 11 (Geneve), 12 (GRE), 13 (ERSPAN) and 14 (GTP-U) over port 1.
    pub(crate) fn with_tunnels() -> Self {
        let device = Self::new();
        for (number, protocol) in (10..).zip(TunnelProtocol::ALL) {
            let udp_port = protocol.default_udp_port();
            let tunnel = Tunnel { protocol, udp_port, underlay: PortNumber(1) };
            device.nic.attach_port(&port(number, PortKind::Tunnel(tunnel))).unwrap();
        }
        device
    }

    pub(crate) fn submit(&mut self, operation: Operation) -> Result<Outcome, Refusal> {
        self.next += 1;
        let flow = FlowId { slot: self.next, incarnation: 1 };
        let mut done = vec![];
        self.queue.submit(&mut vec![Change { flow, generation: Generation(7), operation }], &mut done);
        assert_eq!(done.len(), 1);
        let Completion { flow: completed, generation, result } = done.remove(0);
        assert_eq!(generation, Generation(7));
        assert_eq!(completed, flow);
        result
    }

    pub(crate) fn open_chain(&mut self, chain: ChainId) {
        self.change_chain(chain, ChainOperation::Open);
    }

    pub(crate) fn close_chain(&mut self, chain: ChainId) {
        self.change_chain(chain, ChainOperation::Close);
    }

    fn change_chain(&mut self, chain: ChainId, operation: ChainOperation) {
        let (change, mut done) = (ChainChange { chain, operation }, vec![]);
        self.queue.submit_chain(change, &mut done);
        assert_eq!(done, [ChainCompletion { change, result: Ok(()) }]);
    }

    pub(crate) fn add(&mut self, flow: Flow) -> Result<Handle, Refusal> {
        match self.submit(Operation::Install(flow))? {
            Outcome::InPlace { handle, .. } => Ok(handle),
            Outcome::Removed { .. } => panic!("an install removed"),
        }
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Counters> {
        match self.submit(Operation::Remove(handle)).unwrap() {
            Outcome::Removed { last } => last,
            Outcome::InPlace { .. } => panic!("a removal installed"),
        }
    }

    pub(crate) fn inject(&self, number: u32, frame: &[u8]) -> Verdict {
        self.nic.inject(PortNumber(number), frame).unwrap()
    }

    pub(crate) fn readings(&self) -> Vec<Reading> {
        let mut all = vec![];
        self.nic.counter_reader().unwrap().read(&mut |batch, _| all.extend_from_slice(batch)).unwrap();
        all
    }

    /// What one frame becomes under the actions of a rule that matches what `matching` says; sent to port 2.
    pub(crate) fn rewrite(matching: impl FnOnce(&mut Match), actions: Vec<Action>, frame: &[u8]) -> Vec<u8> {
        let mut device = Self::new();
        let actions = [actions, vec![output(2)]].concat();
        device.add(flow(matching, actions)).unwrap();
        let mut verdict = device.inject(1, frame);
        assert_eq!(verdict.missed, None, "the rule does not match");
        let (number, sent) = verdict.sent.pop().expect("nothing was sent");
        assert_eq!((number, verdict.sent.len()), (PortNumber(2), 0));
        sent
    }
}

pub(crate) fn port(number: u32, kind: PortKind) -> Port {
    Port { number: PortNumber(number), name: format!("p{number}").parse().expect("a name"), kind }
}

pub(crate) fn flow(matching: impl FnOnce(&mut Match), actions: Vec<Action>) -> Flow {
    flow_at(0, matching, actions)
}

pub(crate) fn flow_at(priority: u8, matching: impl FnOnce(&mut Match), actions: Vec<Action>) -> Flow {
    let mut full = Match::default();
    full.set_exact(Field::RecircId, 0);
    matching(&mut full);
    let matching = MaskedKey::new(&full);
    let priority = Priority::new(priority).unwrap();
    Flow::new(None, matching, actions.into(), priority, Expiry::default(), &Seed([3; 16]))
}

pub(crate) fn output(number: u32) -> Action {
    Action::Output(PortNumber(number))
}

pub(crate) fn recirc(chain: u32) -> Action {
    Action::Recirc(ChainId(chain))
}

pub(crate) fn set_masked(fields: &[(Field, u128, u128)]) -> FieldSet {
    FieldSet { attribute: fields[0].0.spec().attribute, fields: fields.into() }
}

pub(crate) fn set(fields: &[(Field, u128)]) -> Action {
    let fields: Vec<_> = fields.iter().map(|(field, value)| (*field, *value, field.full_mask())).collect();
    Action::Set(set_masked(&fields))
}

pub(crate) fn is_ipv4(full: &mut Match) {
    full.set_exact(Field::EthType, 0x0800);
}

pub(crate) fn is_ipv6(full: &mut Match) {
    full.set_exact(Field::EthType, 0x86dd);
}

/// IPv4 with a protocol.
pub(crate) fn v4(protocol: u8) -> impl FnOnce(&mut Match) {
    move |full| {
        is_ipv4(full);
        full.set_exact(Field::Ipv4Proto, protocol.into());
    }
}

/// IPv6 with a protocol.
pub(crate) fn v6(protocol: u8) -> impl FnOnce(&mut Match) {
    move |full| {
        is_ipv6(full);
        full.set_exact(Field::Ipv6Proto, protocol.into());
    }
}
