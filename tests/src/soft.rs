//! A software NIC in this process with a scenario's flows.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::action::{ActionList, jumps};
use sluice_flow::backend::{Backend, ChainChange, ChainOperation, Change, Injector, Meters, OpenConfig, Operation};
use sluice_flow::chain::ChainId;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::port::{Port, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::MonotonicClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, Priority};
use sluice_offload_soft::SoftNic;

use crate::scenario::Scenario;

/// What came out of each port, in order.
pub type Sent = BTreeMap<PortNumber, Vec<Vec<u8>>>;

/// A software NIC with a scenario's flows.
pub struct Soft {
    nic: SoftNic,
}

impl Soft {
    /// A new device with these ports and a scenario's meters and flows.
    pub fn set_up(ports: &[Port], scenario: &Scenario) -> Result<Self, Refusal> {
        let soft = Self::with_ports(ports)?;
        for meter in &scenario.meters {
            soft.nic.set_meter(meter)?;
        }
        match soft.install(&scenario.flows)?.into_iter().flatten().next() {
            Some(refusal) => Err(refusal),
            None => Ok(soft),
        }
    }

    /// Which of some flows a new device with these ports refuses, each tried after those before it.
    pub fn refusals(ports: &[Port], flows: &[(Match, ActionList)]) -> Result<Vec<Option<Refusal>>, Refusal> {
        Self::with_ports(ports)?.install(flows)
    }

    fn with_ports(ports: &[Port]) -> Result<Self, Refusal> {
        let nic = SoftNic::new(&OpenConfig::new("soft", Arc::new(MonotonicClock::new())));
        for port in ports {
            nic.attach_port(port)?;
        }
        Ok(Self { nic })
    }

    /// Installs flows, numbered from 1, and says what the device refuses of them.
    fn install(&self, flows: &[(Match, ActionList)]) -> Result<Vec<Option<Refusal>>, Refusal> {
        let mut queue = self.nic.install_queue()?;
        for chain in flows.iter().flat_map(|(_, actions)| jumps(actions)).filter(|chain| *chain != ChainId::ROOT) {
            // A NIC in software opens it at once.
            queue.submit_chain(ChainChange { chain, operation: ChainOperation::Open }, &mut vec![]);
        }
        let mut refusals = vec![];
        for (slot, (matching, actions)) in (1..).zip(flows) {
            let flow = Flow::new(
                None,
                MaskedKey::new(matching),
                Arc::clone(actions),
                Priority::default(),
                Expiry::default(),
                &Seed([0; 16]),
            );
            let change = Change {
                flow: FlowId { slot, incarnation: 1 },
                generation: Generation(1),
                operation: Operation::Install(flow),
            };
            let mut done = vec![];
            queue.submit(&mut vec![change], &mut done);
            refusals.push(done.pop().expect("the software NIC completes at once").result.err());
        }
        Ok(refusals)
    }

    /// Lets a frame in.
    pub fn inject(&self, port: PortNumber, frame: &[u8]) -> Sent {
        self.inject_and_tell(port, frame).0
    }

    /// Lets a frame in, and tells which flows it hit, by their numbers from 1.
    pub fn inject_and_tell(&self, port: PortNumber, frame: &[u8]) -> (Sent, Vec<u32>) {
        let verdict = self.nic.inject(port, frame).unwrap_or_else(|refusal| panic!("at port {port}: {refusal}"));
        let mut sent = Sent::new();
        for (port, frame) in verdict.sent {
            sent.entry(port).or_default().push(frame);
        }
        (sent, verdict.hits.iter().map(|flow| flow.slot).collect())
    }
}
