//! A device with faults: the NIC in software behind an install path that stalls, dawdles, refuses or answers out of order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};
use sluice_flow::backend::{
    Adopter, Auditor, Capabilities, Capacity, ChainChange, ChainCompletion, ChainOperation, Change, Completion,
    Connections, CountedApart, CounterReader, DeviceEvent, EventSender, EventStream, Facet, Handle, Injector,
    InstallQueue, InstalledRule, LooksAt, LookupCounters, LostRule, MeterCounters, MeterFault, Meters, MirrorCounters,
    MirrorFault, Mirrors, NoEvent, Operation, Outlet, PortCounters,
};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::{Backend, Flow, Port, PortNumber, Refusal};

/// How the device misbehaves; changed at any time.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Changes are taken, and nothing is done about them until this ends.
    pub stalled: bool,
    /// Changes to chains are taken, and nothing is done about them until this ends; others pass them by.
    pub stalls_chains: bool,
    /// Handing changes over blocks until this ends.
    pub blocked: bool,
    /// The device answers no question about what it has counted, and takes no port, meter or mirror, until this ends.
    pub hangs: bool,
    /// Whatever waits is done in an arbitrary order.
    pub reorders: bool,
    /// Each change takes so long.
    pub delay: Duration,
    /// Every so-many-th installation or modification is refused,
    pub refuses_every: Option<usize>,
    /// with this, or with a failure of the device.
    pub refusal: Option<Refusal>,
    /// No chain is opened, for this reason.
    pub refuses_chains: Option<Refusal>,
}

/// See the [module](self).
pub struct FaultyDevice {
    inner: Arc<dyn Backend>,
    faults: Arc<Faults>,
    events: EventStream,
}

/// The switch of a device's faults.
pub struct Faults {
    plan: Mutex<Plan>,
    /// Calls that wait for an answer.
    hanging: AtomicUsize,
    changed: Condvar,
    refused: AtomicUsize,
    opened: AtomicUsize,
    events: EventSender,
}

impl Faults {
    /// Changes how the device misbehaves.
    pub fn set(&self, plan: Plan) {
        *self.plan.lock() = plan;
        self.changed.notify_all();
    }

    /// Installations and modifications that were refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Openings of chains that were asked for.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// Has the device tell of something.
    pub fn tell(&self, event: &DeviceEvent) {
        self.events.send(event.clone()).expect("there is room");
    }

    /// How many calls wait for an answer of a device that hangs.
    pub fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    fn wait_while_it_hangs(&self) {
        self.hanging.fetch_add(1, Ordering::SeqCst);
        self.wait_while(|plan| plan.hangs);
        self.hanging.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_while(&self, bad: impl Fn(&Plan) -> bool) -> Plan {
        let mut plan = self.plan.lock();
        self.changed.wait_while(&mut plan, |plan| bad(plan));
        plan.clone()
    }
}

impl FaultyDevice {
    /// Puts faults in front of a device. There are none until some are set.
    pub fn new(inner: Arc<dyn Backend>) -> (Arc<Self>, Arc<Faults>) {
        // There is room for whatever the device keeps.
        let (sender, events) = EventStream::bounded(usize::MAX);
        let (of_inner, own) = (inner.events(), sender.clone());
        thread::spawn(move || pass_on(&of_inner, &own));
        let (plan, hanging, changed, refused, opened) = Default::default();
        let faults = Arc::new(Faults { plan, hanging, changed, refused, opened, events: sender });
        (Arc::new(Self { inner, faults: faults.clone(), events }), faults)
    }
}

/// Passes events on until there are no more.
fn pass_on(events: &EventStream, own: &EventSender) {
    loop {
        match events.next_within(Duration::from_secs(1)) {
            Ok(event) => own.send(event).expect("there is room"),
            Err(NoEvent::Yet) => {}
            Err(NoEvent::Ended) => return,
        }
    }
}

/// Reads the counters of a device that may hang.
struct FaultyReader {
    inner: Box<dyn CounterReader>,
    faults: Arc<Faults>,
}

impl CounterReader for FaultyReader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        self.faults.wait_while_it_hangs();
        self.inner.read(visit)
    }
}

/// Hands changes to a thread that plays the device.
struct FaultyQueue {
    requests: Sender<Request>,
    answers: Arc<Answers>,
    faults: Arc<Faults>,
}

/// What is asked of the device.
enum Request {
    Rule(Change),
    Chain(ChainChange),
}

/// What the device has done, and whom to wake then.
#[derive(Default)]
struct Answers {
    done: Mutex<Vec<Completion>>,
    chains_done: Mutex<Vec<ChainCompletion>>,
    waker: Mutex<Option<Waker>>,
}

impl InstallQueue for FaultyQueue {
    fn submit(&mut self, batch: &mut Vec<Change>, _done: &mut Vec<Completion>) {
        self.faults.wait_while(|plan| plan.blocked);
        for change in batch.drain(..) {
            self.requests.send(Request::Rule(change)).expect("the device thread lives as long as the queue");
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.answers.done.lock());
    }

    fn submit_chain(&mut self, change: ChainChange, _done: &mut Vec<ChainCompletion>) {
        self.faults.wait_while(|plan| plan.blocked);
        self.faults.opened.fetch_add(usize::from(change.operation == ChainOperation::Open), Ordering::SeqCst);
        self.requests.send(Request::Chain(change)).expect("the device thread lives as long as the queue");
    }

    fn poll_chains(&mut self, done: &mut Vec<ChainCompletion>) {
        done.append(&mut self.answers.chains_done.lock());
    }

    fn set_waker(&mut self, waker: Waker) {
        *self.answers.waker.lock() = Some(waker);
    }
}

/// Wakes the thread that plays the device when the one under it has done something.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How often a device looks whether what it holds back may go on.
const LOOK: Duration = Duration::from_millis(1);

fn play_device(mut inner: Box<dyn InstallQueue>, requests: &Receiver<Request>, answers: &Answers, faults: &Faults) {
    inner.set_waker(Waker::from(Arc::new(Unpark(thread::current()))));
    let mut count = 0;
    let mut random = 0x9e37_79b9_usize;
    while let Ok(first) = requests.recv() {
        let mut waiting = vec![first];
        loop {
            let plan = faults.wait_while(|plan| plan.stalled);
            waiting.extend(requests.try_iter());
            if waiting.is_empty() {
                break;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let first = if plan.reorders { (random >> 33) % waiting.len() } else { 0 };
            let may_go = |at: &usize| !(plan.stalls_chains && matches!(waiting[*at], Request::Chain(_)));
            let Some(next) = (first..waiting.len()).chain(0..first).find(may_go) else {
                waiting.extend(requests.recv_timeout(LOOK));
                continue;
            };
            let request = waiting.remove(next);
            if !plan.delay.is_zero() {
                thread::sleep(plan.delay);
            }
            match request {
                Request::Rule(change) => {
                    count += 1;
                    make(change, count, &plan, &mut *inner, answers, faults);
                }
                Request::Chain(change) => make_chain(change, &plan, &mut *inner, answers),
            }
            if let Some(waker) = &*answers.waker.lock() {
                waker.wake_by_ref();
            }
        }
    }
}

fn make(change: Change, count: usize, plan: &Plan, inner: &mut dyn InstallQueue, answers: &Answers, faults: &Faults) {
    let refuses = plan.refuses_every.is_some_and(|every| count.is_multiple_of(every));
    let mut done = Vec::new();
    if refuses && !matches!(change.operation, Operation::Remove(_)) {
        faults.refused.fetch_add(1, Ordering::SeqCst);
        let usual = || Refusal::Device { reason: "as the test demands".into() };
        let result = Err(plan.refusal.clone().unwrap_or_else(usual));
        done.push(Completion { flow: change.flow, generation: change.generation, result });
    } else {
        inner.submit(&mut vec![change], &mut done);
        while done.is_empty() {
            thread::park();
            inner.poll(&mut done);
        }
    }
    answers.done.lock().append(&mut done);
}

fn make_chain(change: ChainChange, plan: &Plan, inner: &mut dyn InstallQueue, answers: &Answers) {
    let mut done = Vec::new();
    match plan.refuses_chains.clone().filter(|_| change.operation == ChainOperation::Open) {
        Some(refusal) => done.push(ChainCompletion { change, result: Err(refusal) }),
        None => {
            inner.submit_chain(change, &mut done);
            while done.is_empty() {
                thread::park();
                inner.poll_chains(&mut done);
            }
        }
    }
    answers.chains_done.lock().append(&mut done);
}

impl Backend for FaultyDevice {
    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal> {
        let inner = self.inner.install_queue()?;
        let (requests, taken) = unbounded();
        let answers = Arc::new(Answers::default());
        let (answer, faults) = (answers.clone(), self.faults.clone());
        thread::spawn(move || play_device(inner, &taken, &answer, &faults));
        Ok(Box::new(FaultyQueue { requests, answers, faults: self.faults.clone() }))
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn meters(&self) -> Option<&dyn Meters> {
        self.inner.meters().map(|_| self as &dyn Meters)
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        self.inner.mirrors().map(|_| self as &dyn Mirrors)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        self.inner.connections()
    }

    fn adoption(&self) -> Option<&dyn Adopter> {
        self.inner.adoption()
    }

    fn audit(&self) -> Option<&dyn Auditor> {
        self.inner.audit()
    }

    fn capacity(&self) -> Option<&dyn Capacity> {
        self.inner.capacity()
    }

    fn injector(&self) -> Option<&dyn Injector> {
        self.inner.injector()
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        self.inner.explain(flow)
    }

    fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        self.inner.looks_at(flow)
    }

    fn attach_port(&self, port: &Port) -> Result<(), Refusal> {
        self.faults.wait_while_it_hangs();
        self.inner.attach_port(port)
    }

    fn expect_port(&self, port: &Port) -> Result<(), Refusal> {
        self.faults.wait_while_it_hangs();
        self.inner.expect_port(port)
    }

    fn is_absent(&self, port: PortNumber) -> bool {
        self.inner.is_absent(port)
    }

    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal> {
        self.inner.detach_port(port)
    }

    fn port_counters(&self, port: PortNumber) -> Option<PortCounters> {
        self.faults.wait_while_it_hangs();
        self.inner.port_counters(port)
    }

    fn lookup_counters(&self) -> Option<LookupCounters> {
        self.faults.wait_while_it_hangs();
        self.inner.lookup_counters()
    }

    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal> {
        Ok(Box::new(FaultyReader { inner: self.inner.counter_reader()?, faults: self.faults.clone() }))
    }

    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        self.inner.installed(visit)
    }

    fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        self.inner.counted_apart(handle)
    }

    fn flush(&self) -> Result<usize, Refusal> {
        self.inner.flush()
    }

    fn release(&self) -> Result<Vec<String>, Refusal> {
        self.inner.release()
    }

    fn resync(&self) -> Result<Vec<LostRule>, Refusal> {
        self.inner.resync()
    }

    /// Those of the device, and those that the test has it tell.
    fn events(&self) -> EventStream {
        self.events.clone()
    }
}

impl Meters for FaultyDevice {
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal> {
        self.faults.wait_while_it_hangs();
        Facet::Meters.require(self.inner.meters())?.set_meter(meter)
    }

    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal> {
        Facet::Meters.require(self.inner.meters())?.remove_meter(meter)
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        self.faults.wait_while_it_hangs();
        self.inner.meters()?.meter_counters(meter)
    }

    fn check_meters(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        Facet::Meters.require(self.inner.meters())?.check_meters(mends)
    }
}

impl Mirrors for FaultyDevice {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        self.faults.wait_while_it_hangs();
        Facet::Mirrors.require(self.inner.mirrors())?.set_mirror(mirror)
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        Facet::Mirrors.require(self.inner.mirrors())?.remove_mirror(name)
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        self.faults.wait_while_it_hangs();
        self.inner.mirrors()?.mirror_counters(name)
    }

    fn check_mirrors(&self, mends: bool) -> Result<Vec<MirrorFault>, Refusal> {
        Facet::Mirrors.require(self.inner.mirrors())?.check_mirrors(mends)
    }

    fn outlet(&self) -> Outlet<'_> {
        self.inner.mirrors().map_or(Outlet::Ports, Mirrors::outlet)
    }
}
