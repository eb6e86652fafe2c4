//! The backend with a worker, and a sender that does not stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sluice_flow::backend::{Change, Completion, CounterReader, Handle, InstallQueue, OpenConfig, Operation, Outcome};
use sluice_flow::counters::{Counters, Reading};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, FlowId, Generation};
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::mlx5::Ports;
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::rig::{PORTS, flow_at};

/// Changes of a batch.
const BATCH: usize = 64;

/// The backend, and one worker.
pub(crate) struct Nic {
    queue: Box<dyn InstallQueue>,
    reader: Box<dyn CounterReader>,
    _backend: Arc<dyn Backend>,
}

/// Sends frames in turns into port 2, until it is ended.
pub(crate) struct Sender {
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Datagrams for so many flows.
pub(crate) fn datagrams(flows: u16) -> Vec<Vec<u8>> {
    (0..flows).map(|port| Packet { ports: [1, port], ..Packet::v4(UDP) }.frame()).collect()
}

/// The key of a flow by its UDP port.
fn key(number: u32) -> String {
    format!("in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={number})")
}

fn change(slot: u32, operation: Operation) -> Change {
    Change { flow: FlowId { slot, incarnation: 1 }, generation: Generation(1), operation }
}

impl Nic {
    pub(crate) fn open() -> Self {
        let name = |index: usize| format!("port{}", index + 1);
        let vports = PORTS.iter().enumerate().map(|(index, (vport, _))| (name(index), *vport)).collect();
        let config = Config { takeover: true, vports, ..Config::default() };
        let open = OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()));
        let backend: Arc<dyn Backend> = Arc::new(DvNic::open(&config, &open).unwrap());
        for (index, number) in (0..PORTS.len()).zip(1..) {
            let (number, kind) = (PortNumber(number), PortKind::Representor);
            backend.attach_port(&Port { number, name: name(index).parse().unwrap(), kind }).unwrap();
        }
        Self { queue: backend.install_queue().unwrap(), reader: backend.counter_reader().unwrap(), _backend: backend }
    }

    /// Adds flows by their UDP ports, to port 1, and behind them one that drops what none of them takes, as the last.
    pub(crate) fn add(&mut self, flows: u32) -> Vec<Handle> {
        let rest = flow_at(0, "in_port(2),eth()", "drop");
        let wanted = (0..flows).map(|number| flow_at(1, &key(number), "1")).chain([rest]);
        let changes = (0..).zip(wanted).map(|(slot, flow)| change(slot, Operation::Install(flow))).collect();
        let in_place = |completion: Completion| match completion.result {
            Ok(Outcome::InPlace { handle, .. }) => handle,
            other => panic!("{other:?}"),
        };
        self.done(changes).into_iter().map(in_place).collect()
    }

    /// Has flows send to another port.
    pub(crate) fn modify(&mut self, handles: &[(u32, Handle)], to: &str) {
        let wanted = |(number, handle): &(u32, Handle)| {
            change(*number, Operation::Modify(*handle, flow_at(1, &key(*number), to)))
        };
        for completion in self.done(handles.iter().map(wanted).collect()) {
            assert!(matches!(completion.result, Ok(Outcome::InPlace { .. })), "{completion:?}");
        }
    }

    /// Removes flows, and returns the last counters of each.
    pub(crate) fn remove(&mut self, handles: &[(u32, Handle)]) -> Vec<Counters> {
        let wanted = |(slot, handle): &(u32, Handle)| change(*slot, Operation::Remove(*handle));
        let last = |completion: Completion| match completion.result {
            Ok(Outcome::Removed { last }) => last.expect("the device tells them"),
            other => panic!("{other:?}"),
        };
        self.done(handles.iter().map(wanted).collect()).into_iter().map(last).collect()
    }

    /// Reads the counters of all rules, by the slots of their flows.
    pub(crate) fn read(&mut self) -> Vec<(u32, u64)> {
        let mut read = Vec::new();
        let mut visit = |readings: &[Reading], _| {
            read.extend(readings.iter().map(|reading| (reading.flow.slot, reading.counters.packets)));
        };
        self.reader.read(&mut visit).unwrap();
        read.sort_unstable();
        read
    }

    /// Makes changes, and returns their completions in the same order.
    fn done(&mut self, changes: Vec<Change>) -> Vec<Completion> {
        let order: Vec<_> = changes.iter().map(|change| change.flow).collect();
        let mut done = Vec::new();
        for batch in changes.chunks(BATCH) {
            self.queue.submit(&mut batch.to_vec(), &mut done);
        }
        let until = Instant::now() + Duration::from_secs(60);
        while done.len() < order.len() && Instant::now() < until {
            self.queue.poll(&mut done);
            thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(done.len(), order.len(), "each change is completed");
        done.sort_by_key(|completion| completion.flow.slot);
        assert!(done.windows(2).all(|two| two[0].flow.slot < two[1].flow.slot), "once");
        done
    }
}

impl Sender {
    pub(crate) fn start(ports: &Ports, frames: Vec<Vec<u8>>) -> Self {
        let (sent, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut wire = ports.sender(PORTS[1].1);
        let thread = thread::spawn({
            let (sent, is_over) = (sent.clone(), is_over.clone());
            move || {
                for frame in frames.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    wire(frame);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { sent, is_over, thread: Some(thread) }
    }

    /// Returns how many were sent by now.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends it, and returns how many were sent in all.
    pub(crate) fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.sent()
    }
}

/// Waits until all that was sent is counted, which is `in_all`.
pub(crate) fn until_counted(in_all: u64, mut counted: impl FnMut() -> u64) {
    let mut last = 0;
    eventually("every packet is counted", || {
        last = counted();
        assert!(last <= in_all, "{last} counted of {in_all}");
        last == in_all
    });
}
