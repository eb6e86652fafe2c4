//! Handing every flow of a table over, from some threads, and the peers' passes over as many elements.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use sluice_agent::config::Config;
use sluice_flow::FlowId;
use sluice_flow::table::Accepted;
use sluice_flow::table::queue::LookQueue;
use sluice_flow::time::MonotonicClock;
use sluice_tests::bench;
use sluice_tests::instant::InstantDevice;
use sluice_tests::world::{SEED, World, eventually, quick_config};

/// An agent whose device has all flows, so that a look finds nothing to do.
pub(crate) struct Populated {
    world: World,
    device: Arc<InstantDevice>,
    flows: Vec<Accepted>,
}

/// An agent with one worker, on a device that is done at once.
pub(crate) fn agent(flows: usize) -> (World, Arc<InstantDevice>) {
    let device = InstantDevice::new();
    let limit = flows + 10;
    let config = Config {
        workers: 1,
        dirty_limit: limit,
        flow_limit: limit,
        poll_interval: Duration::from_secs(3600),
        ..quick_config()
    };
    (World::on(device.clone(), config, Arc::new(MonotonicClock::new())), device)
}

impl Populated {
    pub(crate) fn with_flows(count: usize) -> Self {
        let (world, device) = agent(count);
        let add = |flow| world.agent.queue.add(flow, None).expect("accepted");
        let ids: Vec<FlowId> = bench::five_tuples(count, &SEED).map(add).collect();
        world.settle();
        assert_eq!(device.rules(), count, "the device has every flow");
        let flows = ids.into_iter().map(|id| world.agent.table.look_again(id).expect("it is there")).collect();
        Self { world, device, flows }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn with_worker_running(&self, callers: usize) -> f64 {
        let mean = pass(&self.flows, callers, |flow| {
            self.world.agent.queue.hand_over(flow);
        });
        self.drain();
        mean
    }

    pub(crate) fn with_device_stalled(&self, callers: usize) -> f64 {
        self.while_stalled(|| {
            pass(&self.flows, callers, |flow| {
                self.world.agent.queue.hand_over(flow);
            })
        })
    }

    /// With a reader in the worker's place that takes and counts, as the reader of OVS's benchmark does.
    pub(crate) fn with_reader_alone(&self, callers: usize) -> f64 {
        let (queue, mut reader) = LookQueue::new();
        let table = &self.world.agent.table;
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut count = 0;
                while count < self.flows.len() {
                    match table.take(&mut reader) {
                        Some(_) => count += 1,
                        None => std::hint::spin_loop(),
                    }
                }
            });
            let mean = pass(&self.flows, callers, |flow| {
                let _ = table.hand_over(flow, &queue);
            });
            counting.join().expect("it takes every flow");
            mean
        })
    }

    pub(crate) fn sampled_with_worker_running(&self) -> Vec<u64> {
        let samples = samples(&self.flows, |flow| {
            self.world.agent.queue.hand_over(flow);
        });
        self.drain();
        samples
    }

    pub(crate) fn sampled_with_device_stalled(&self) -> Vec<u64> {
        self.while_stalled(|| {
            samples(&self.flows, |flow| {
                self.world.agent.queue.hand_over(flow);
            })
        })
    }

    /// Stalls the worker: it hands a change to the device that the device does not take.
    fn while_stalled<R>(&self, work: impl FnOnce() -> R) -> R {
        self.device.close();
        let flow = self.world.udp_flow(1, "2");
        let bait = self.world.agent.queue.add(flow, None).expect("accepted");
        self.device.wait_for_a_visitor();
        let result = work();
        // A count may be a second old.
        eventually("every flow is in the queue", || self.world.agent.queue.reports()[0].queued == self.flows.len());
        self.device.open();
        self.drain();
        self.world.agent.queue.delete(bait, sluice_flow::EndReason::Deleted, None).expect("accepted");
        self.world.settle();
        result
    }

    fn drain(&self) {
        eventually("the worker has looked at every flow", || self.world.agent.queue.reports()[0].queued == 0);
    }
}

/// OVS's queue, with so many elements that its whole milliseconds are fine enough. Its own assertions see to it that every
/// element arrives.
pub(crate) fn ovs(callers: usize) -> f64 {
    const ELEMENTS: u32 = 3_000_000;
    let report = bench::ovstest(&["test-mpsc-queue", "benchmark", &ELEMENTS.to_string(), &callers.to_string()]);
    let line = report.lines().find(|line| line.trim_start().starts_with("mpsc-queue:")).expect("a line for the queue");
    let average = line.trim_end().strip_suffix(" ms").and_then(|line| line.rsplit(' ').next()).expect("milliseconds");
    average.parse::<f64>().expect("a number") * 1e6 / f64::from(ELEMENTS)
}

pub(crate) fn channel(populated: &Populated, callers: usize) -> f64 {
    let (sender, receiver) = unbounded();
    let reader = std::thread::spawn(move || receiver.iter().count());
    let mean = pass(&populated.flows, callers, |flow| sender.send(flow.flow).expect("there is a reader"));
    drop(sender);
    assert_eq!(reader.join().expect("the reader ends"), populated.len());
    mean
}

/// The mean of the callers' times over all flows, in nanoseconds.
fn pass(flows: &[Accepted], callers: usize, hand_over: impl Fn(Accepted) + Sync) -> f64 {
    let barrier = Barrier::new(callers);
    let part = |flows: &[Accepted]| {
        barrier.wait();
        bench::timed(|| flows.iter().for_each(|flow| hand_over(*flow))).0
    };
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let part = &part;
        let parts = flows.chunks(flows.len().div_ceil(callers));
        let threads: Vec<_> = parts.map(|flows| scope.spawn(move || part(flows))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller ends")).collect()
    });
    times.iter().sum::<Duration>().as_secs_f64() * 1e9 / times.len() as f64 / flows.len() as f64
}

/// Times every so-many-th hand-over by itself.
fn samples(flows: &[Accepted], hand_over: impl Fn(Accepted)) -> Vec<u64> {
    const EVERY: usize = 16;
    let mut samples = Vec::with_capacity(flows.len() / EVERY + 1);
    for part in flows.chunks(EVERY) {
        samples.push(nanoseconds(|| hand_over(part[0])));
        part[1..].iter().for_each(|flow| hand_over(*flow));
    }
    samples
}

/// What the clock shows of nothing.
pub(crate) fn samples_of_the_clock() -> Vec<u64> {
    (0..100_000).map(|_| nanoseconds(|| ())).collect()
}

pub(crate) fn nanoseconds<R>(work: impl FnOnce() -> R) -> u64 {
    let began = Instant::now();
    std::hint::black_box(work());
    u64::try_from(began.elapsed().as_nanos()).expect("less than centuries")
}
