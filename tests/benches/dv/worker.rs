//! The backend, and a worker that has as many changes in flight as one of the agent.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use sluice_flow::backend::{Change, Completion, Handle, InstallQueue, OpenConfig, Operation, Outcome};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, Flow, FlowId, Generation};
use sluice_offload_dv::{Config, DvNic};

use crate::rules::{DEVICE, VPORTS};

/// Opens the device with the ports of the rules.
pub(crate) fn open() -> DvNic {
    let vports: BTreeMap<_, _> = ["p1", "p2"].map(str::to_owned).into_iter().zip(VPORTS).collect();
    // A table that grows is moved within one call, for which the emulated device takes seconds.
    let stuck_after = NonZeroU16::MIN.saturating_add(59);
    let config = Config { takeover: true, vports: vports.clone(), stuck_after, ..Config::default() };
    let nic = DvNic::open(&config, &OpenConfig::new(DEVICE, Arc::new(MonotonicClock::new()))).expect("a device");
    for (number, name) in (1..).zip(vports.keys()) {
        let port = Port { number: PortNumber(number), name: name.parse().expect("a name"), kind: PortKind::Physical };
        nic.attach_port(&port).expect("a port");
    }
    nic
}

/// A worker.
pub(crate) struct Worker {
    queue: Box<dyn InstallQueue>,
    batch: usize,
}

struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Worker {
    pub(crate) fn new(nic: &dyn Backend) -> Self {
        let mut queue = nic.install_queue().expect("a queue");
        queue.set_waker(Waker::from(Arc::new(Woken(thread::current()))));
        Self { queue, batch: nic.capabilities().batch }
    }

    /// Installs the rules of flows, whose places in the table of flows begin at `first`, and notes their handles.
    pub(crate) fn install(&mut self, first: usize, flows: &[Flow], handles: &mut [Handle]) {
        self.make(first, flows.iter().map(|flow| Operation::Install(flow.clone())), |index, completion| {
            let Ok(Outcome::InPlace { handle, .. }) = completion.result else { panic!("{completion:?}") };
            handles[index] = handle;
        });
    }

    /// Removes rules, and has their last counters.
    pub(crate) fn remove(&mut self, first: usize, handles: &[Handle]) {
        self.make(first, handles.iter().map(|handle| Operation::Remove(*handle)), |_, completion| {
            assert!(matches!(completion.result, Ok(Outcome::Removed { last: Some(_) })), "{completion:?}");
        });
    }

    /// Makes changes, a batch while another one is in flight.
    fn make(
        &mut self,
        first: usize,
        operations: impl ExactSizeIterator<Item = Operation>,
        mut take: impl FnMut(usize, Completion),
    ) {
        let mut left = operations.len();
        let mut changes = (first..).zip(operations).map(|(slot, operation)| Change {
            flow: FlowId { slot: u32::try_from(slot).expect("few"), incarnation: 1 },
            generation: Generation(1),
            operation,
        });
        let (mut batch, mut done, mut in_flight) = (Vec::with_capacity(self.batch), Vec::new(), 0);
        while left > 0 {
            if in_flight <= self.batch {
                batch.extend(changes.by_ref().take(self.batch));
                in_flight += batch.len();
            }
            match batch.is_empty() {
                true => thread::park_timeout(Duration::from_millis(100)),
                false => self.queue.submit(&mut batch, &mut done),
            }
            self.queue.poll(&mut done);
            (in_flight, left) = (in_flight - done.len(), left - done.len());
            done.drain(..).for_each(|completion| take(completion.flow.slot as usize - first, completion));
        }
    }
}
