//! The NIC in software, with which a device is compared.

use std::sync::Arc;

use sluice_flow::backend::{Backend, ChainChange, ChainOperation, Change, OpenConfig, Operation};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::ManualClock;
use sluice_flow::{ChainId, Flow};
use sluice_offload_soft::SoftNic;

/// It has ports 1 to 4, if it is not given others, and chains up to 9.
pub(crate) struct Reference {
    pub(crate) nic: SoftNic,
    flows: u32,
}

impl Reference {
    pub(crate) fn open(clock: &Arc<ManualClock>) -> Self {
        let port = |number| {
            let name = format!("p{number}").parse().unwrap();
            Port { number: PortNumber(number), name, kind: PortKind::Physical }
        };
        Self::with_ports(&(1..=4).map(port).collect::<Vec<_>>(), clock)
    }

    /// The same with other ports.
    pub(crate) fn with_ports(ports: &[Port], clock: &Arc<ManualClock>) -> Self {
        let nic = SoftNic::new(&OpenConfig::new("soft", clock.clone()));
        ports.iter().for_each(|port| nic.attach_port(port).unwrap());
        let mut queue = nic.install_queue().unwrap();
        for chain in 1..10 {
            let change = ChainChange { chain: ChainId(chain), operation: ChainOperation::Open };
            queue.submit_chain(change, &mut vec![]);
        }
        Self { nic, flows: 0 }
    }

    pub(crate) fn add(&mut self, flow: &Flow) {
        self.flows += 1;
        let change = Change {
            flow: FlowId { slot: self.flows, incarnation: 1 },
            generation: Generation(1),
            operation: Operation::Install(flow.clone()),
        };
        let mut done = vec![];
        self.nic.install_queue().unwrap().submit(&mut vec![change], &mut done);
        assert!(done[0].result.is_ok(), "{:?}", done[0].result);
    }
}
