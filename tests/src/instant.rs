//! A device that does everything at once and forwards nothing, for benches of what lies in front of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};
use sluice_flow::backend::{
    Adopter, Auditor, Capabilities, Capacity, ChainChange, ChainCompletion, Change, Completion, Connections,
    CountedApart, CounterReader, EventStream, Handle, Injector, InstallQueue, InstalledRule, LastCounters, Listing,
    LooksAt, LookupCounters, LostRule, Meters, Mirrors, MissPolicy, Operation, Outcome, Placement, PortCounters,
};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::{Backend, Flow, Port, PortNumber, Refusal};

/// See the [module](self).
pub struct InstantDevice {
    shared: Arc<Shared>,
    arrivals: Receiver<Instant>,
}

struct Shared {
    rules: AtomicUsize,
    door: Mutex<Door>,
    moved: Condvar,
    arrived: Sender<Instant>,
}

#[derive(Default)]
struct Door {
    is_closed: bool,
    waiting: usize,
}

impl InstantDevice {
    /// Without rules.
    pub fn new() -> Arc<Self> {
        let (arrived, arrivals) = bounded(1);
        let shared = Shared { rules: AtomicUsize::new(0), door: Mutex::default(), moved: Condvar::new(), arrived };
        Arc::new(Self { shared: Arc::new(shared), arrivals })
    }

    /// Rules that it has.
    pub fn rules(&self) -> usize {
        self.shared.rules.load(Ordering::SeqCst)
    }

    /// When a batch of changes arrived: the first one since this was last asked.
    pub fn arrival(&self) -> Receiver<Instant> {
        while self.arrivals.try_recv().is_ok() {}
        self.arrivals.clone()
    }

    /// Who hands changes over waits from now on.
    pub fn close(&self) {
        self.shared.door.lock().is_closed = true;
    }

    /// Returns when somebody waits.
    pub fn wait_for_a_visitor(&self) {
        self.shared.moved.wait_while(&mut self.shared.door.lock(), |door| door.waiting == 0);
    }

    /// Lets those in who wait.
    pub fn open(&self) {
        self.shared.door.lock().is_closed = false;
        self.shared.moved.notify_all();
    }
}

impl Shared {
    fn pass(&self) {
        let mut door = self.door.lock();
        door.waiting += 1;
        self.moved.notify_all();
        self.moved.wait_while(&mut door, |door| door.is_closed);
        door.waiting -= 1;
    }
}

struct Queue(Arc<Shared>);

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        let _ = self.0.arrived.try_send(Instant::now());
        self.0.pass();
        done.extend(batch.drain(..).map(|change| {
            let outcome = match change.operation {
                Operation::Install(_) => {
                    self.0.rules.fetch_add(1, Ordering::SeqCst);
                    Outcome::InPlace { handle: Handle(change.flow.slot.into()), placement: Placement::Hardware }
                }
                Operation::Modify(handle, _) | Operation::Move(handle, _) => {
                    Outcome::InPlace { handle, placement: Placement::Hardware }
                }
                Operation::Remove(_) => {
                    self.0.rules.fetch_sub(1, Ordering::SeqCst);
                    Outcome::Removed { last: None }
                }
            };
            Completion { flow: change.flow, generation: change.generation, result: Ok(outcome) }
        }));
    }

    fn poll(&mut self, _done: &mut Vec<Completion>) {}

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        done.push(ChainCompletion { change, result: Ok(()) });
    }

    fn poll_chains(&mut self, _done: &mut Vec<ChainCompletion>) {}

    fn set_waker(&mut self, _waker: Waker) {}
}

struct NoReadings;

impl CounterReader for NoReadings {
    fn read(&mut self, _visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Backend for InstantDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "instant",
            miss: MissPolicy::Drop,
            chain_miss: MissPolicy::Drop,
            max_lag: Duration::ZERO,
            last_counters: LastCounters::Bounded,
            modifies_in_place: true,
            max_chain_depth: 16,
            batch: 64,
            workers: None,
            listing: Listing::Ledger,
        }
    }

    fn meters(&self) -> Option<&dyn Meters> {
        None
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        None
    }

    fn connections(&self) -> Option<&dyn Connections> {
        None
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        None
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        None
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        None
    }

    fn injector(&self) -> Option<&dyn Injector> {
        None
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        Ok(flow.ufid.to_string())
    }

    fn looks_at(&self, _flow: &Flow) -> Option<LooksAt> {
        None
    }

    fn attach_port(&self, _port: &Port) -> Result<(), Refusal> {
        Ok(())
    }

    fn expect_port(&self, _port: &Port) -> Result<(), Refusal> {
        Ok(())
    }

    fn is_absent(&self, _port: PortNumber) -> bool {
        false
    }

    fn detach_port(&self, _port: PortNumber) -> Result<(), Refusal> {
        Ok(())
    }

    fn port_counters(&self, _port: PortNumber) -> Option<PortCounters> {
        None
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        None
    }

    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        Ok(Box::new(Queue(self.shared.clone())))
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(NoReadings))
    }

    fn installed(&self, _visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        Ok(())
    }

    fn counted_apart(&self, _handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        Ok(None)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        Ok(self.shared.rules.swap(0, Ordering::SeqCst))
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        Ok(Vec::new())
    }

    fn events(&self) -> EventStream {
        EventStream::silent()
    }
}
