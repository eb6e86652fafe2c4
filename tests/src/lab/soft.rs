//! The software NIC's side.

use std::sync::Arc;

use sluice_flow::action::{ActionList, jumps};
use sluice_flow::backend::{Backend, Change, Injector, OpenConfig, Operation};
use sluice_flow::chain::ChainId;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::Meter;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::MonotonicClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, Priority};
use sluice_offload_soft::SoftNic;

use super::{OWN_IP, OWN_IPV6, OWN_MAC, PEER_IP, PEER_IPV6, PEER_MAC, Sent, UNDERLAY, ports};
use crate::scenario::Scenario;

/// A software NIC with a scenario's flows.
pub struct Soft {
    nic: SoftNic,
}

impl Soft {
    /// A new device with a scenario's flows.
    pub fn set_up(scenario: &Scenario) -> Result<Self, Refusal> {
        let soft = Self::with_ports(&scenario.meters);
        match soft.install(&scenario.flows).into_iter().flatten().next() {
            Some(refusal) => Err(refusal),
            None => {
                soft.meet_the_neighbour();
                Ok(soft)
            }
        }
    }

    /// Which of some flows a new device refuses.
    pub fn refusals(flows: &[(Match, ActionList)]) -> Vec<Option<Refusal>> {
        Self::with_ports(&[]).install(flows)
    }

    fn with_ports(meters: &[Meter]) -> Self {
        let nic = SoftNic::new(&OpenConfig { device: "soft".into(), clock: Arc::new(MonotonicClock::new()) });
        for port in ports() {
            nic.attach_port(&port).unwrap_or_else(|refusal| panic!("{refusal}"));
        }
        for meter in meters {
            nic.set_meter(meter).unwrap_or_else(|refusal| panic!("{refusal}"));
        }
        Self { nic }
    }

    /// Installs flows, numbered from 1, and says what it refuses.
    fn install(&self, flows: &[(Match, ActionList)]) -> Vec<Option<Refusal>> {
        for chain in flows.iter().flat_map(|(_, actions)| jumps(actions)).filter(|chain| *chain != ChainId::ROOT) {
            self.nic.open_chain(chain).expect("a chain can be opened");
        }
        let mut queue = self.nic.install_queue().expect("a queue");
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
                operation: Operation::Install(Arc::new(flow)),
            };
            let mut done = vec![];
            queue.submit(&mut vec![change], &mut done);
            refusals.push(done.pop().expect("the software NIC completes at once").result.err());
        }
        refusals
    }

    /// Lets a frame in.
    pub fn inject(&self, port: PortNumber, frame: &[u8]) -> Sent {
        let verdict = self.nic.inject(port, frame).unwrap_or_else(|refusal| panic!("at port {port}: {refusal}"));
        let mut sent = Sent::new();
        for (port, frame) in verdict.sent {
            sent.entry(port).or_default().push(frame);
        }
        sent
    }

    /// The kernel is told who is on the underlay; the software NIC learns it from what it hears.
    fn meet_the_neighbour(&self) {
        let arp = [&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1][..], &PEER_MAC, &PEER_IP, &[0; 6], &OWN_IP].concat();
        // An IPv6 packet with nothing in it.
        let empty = [&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64][..], &PEER_IPV6, &OWN_IPV6].concat();
        for rest in [arp, empty] {
            self.inject(PortNumber(UNDERLAY), &[&OWN_MAC[..], &PEER_MAC, &rest].concat());
        }
    }
}
