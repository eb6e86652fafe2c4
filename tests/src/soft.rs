//! A software NIC in this process with a scenario's flows.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::action::jumps;
use sluice_flow::backend::{Backend, Change, Injector, OpenConfig, Operation};
use sluice_flow::chain::ChainId;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::key::MaskedKey;
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
    /// A new device with these ports and a scenario's flows.
    pub fn set_up(ports: &[Port], scenario: &Scenario) -> Result<Self, Refusal> {
        let nic = SoftNic::new(&OpenConfig { device: "soft".into(), clock: Arc::new(MonotonicClock::new()) });
        for port in ports {
            nic.attach_port(port)?;
        }
        for meter in &scenario.meters {
            nic.set_meter(meter)?;
        }
        for chain in scenario.flows.iter().flat_map(|(_, actions)| jumps(actions)) {
            if chain != ChainId::ROOT {
                nic.open_chain(chain)?;
            }
        }
        let mut queue = nic.install_queue()?;
        for (slot, (matching, actions)) in (1..).zip(&scenario.flows) {
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
            let completion = done.pop().expect("the software NIC completes at once");
            completion.result?;
        }
        Ok(Self { nic })
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
}
