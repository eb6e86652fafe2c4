//! A full table in front of a device that is slow, with more offered than it takes.
//!
//! Table and revalidator are the real ones, filled to the size in question; the device, its callers and the workers are
//! events on a warped clock. What a round of the revalidator costs is measured on this machine and then counts as time in
//! the model. A worker has one change with the device at a time, which is what a batch comes to when the device's own
//! time is all that matters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::backend::{Change, CounterReader};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::table::{Limits, TableError};
use sluice_flow::time::ManualClock;
use sluice_flow::{Clock, EndReason, Flow, FlowId, FlowTable, Generation, Refusal, Timestamp};
use sluice_revalidator::{Config, Revalidator, Round};

use super::{begin, do_at_once, obey};
use crate::bench::{cpu_timed, five_tuples};
use crate::daemon::memory;
use crate::world::SEED;

const BATCH: usize = 256;
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Flows that fall silent at the end.
const SILENT: usize = 1_000;
/// Rounds within which these must have expired.
const PATIENCE: usize = 20;

/// The device and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Flows that are in the device all the time.
    pub flows: usize,
    /// What one change takes the device, for each worker.
    pub operation: Duration,
    /// Changes that the device makes at a time: one for each worker.
    pub workers: usize,
    /// Flows that may wait for the device; more are told "busy".
    pub unsettled: usize,
    /// Adds that are offered, in multiples of what the device takes.
    pub offered: u32,
    /// What reading one flow's counters takes the device.
    pub read: Duration,
    /// For how long.
    pub span: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Adds taken on.
    pub accepted: u64,
    /// Adds told "busy" at once.
    pub busy: u64,
    /// Rules that came into the device.
    pub installed: u64,
    /// Deletions asked for, none of which may be turned away, and those done.
    pub deletes: (u64, u64),
    /// From the wish to its outcome, in nanoseconds: of adds.
    pub add_latency: Vec<u64>,
    /// The same of deletions.
    pub delete_latency: Vec<u64>,
    /// The most flows that waited for the device.
    pub most_unsettled: usize,
    /// Memory of the table, in bytes a flow.
    pub bytes_a_flow: f64,
    /// Processor time of accepting a flow and taking its outcome, in nanoseconds.
    pub accept_cpu: f64,
    /// Processor time of a round of the revalidator, in nanoseconds a flow.
    pub round_cpu: f64,
    /// Processor time of showing every flow, in nanoseconds a flow.
    pub dump_cpu: f64,
    /// Rounds in the span, and the last of them.
    pub rounds: u64,
    /// Its period and what it saw.
    pub last_round: Round,
    /// Flows that went though they were in use.
    pub evicted: usize,
    /// How late flows expired that fell silent just after a poll.
    pub expired_late: Duration,
}

/// Fills the table and runs the model.
pub fn run(model: &Model) -> Report {
    let mut report = Report::default();
    let clock = Arc::new(ManualClock::default());
    let spare = model.unsettled * 2 + BATCH;
    let limits = Limits { flows: model.flows + spare, unsettled: model.unsettled };
    let before = memory(std::process::id());
    let table = FlowTable::new(SEED, limits, Arc::new(()));
    let mut wanted = five_tuples(usize::MAX >> 1, &SEED);
    let ids = fill(&table, model.flows, &mut wanted, &mut report);
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let bytes = (memory(std::process::id()) - before) as f64 / model.flows as f64;
    // The list of ids is the model's own.
    report.bytes_a_flow = bytes - size_of::<FlowId>() as f64;
    let (spent, shown) = cpu_timed(|| {
        let mut shown = 0;
        table.visit(&mut |view| {
            shown += usize::from(view.placement.is_some());
            std::ops::ControlFlow::Continue(())
        });
        shown
    });
    assert_eq!(shown, model.flows, "all are in the device");
    report.dump_cpu = per(spent, model.flows);
    let mut world = World::new(model, clock, table, ids);
    report.round_cpu = world.calibrate();
    world.run(&mut wanted, &mut report);
    report.expired_late = world.age();
    report
}

/// Puts flows in as a restart finds them: in the device already. Gives their ids.
fn fill(table: &FlowTable, count: usize, wanted: &mut impl Iterator<Item = Flow>, report: &mut Report) -> Vec<FlowId> {
    let mut ids = Vec::with_capacity(count);
    let mut spent = Duration::ZERO;
    while ids.len() < count {
        let flows: Vec<_> = wanted.by_ref().take((count - ids.len()).min(1_000)).collect();
        let (took, ()) = cpu_timed(|| {
            for flow in flows {
                let id = table.add(flow, Timestamp::default(), None).expect("there is room").flow;
                do_at_once(table, id, Timestamp::default());
                ids.push(id);
            }
        });
        spent += took;
    }
    report.accept_cpu = per(spent, count);
    ids
}

struct World {
    model: Model,
    clock: Arc<ManualClock>,
    table: FlowTable,
    /// All that are in the device, as its counters are read.
    rules: Arc<Mutex<VecDeque<FlowId>>>,
    workers: Vec<ModelWorker>,
    revalidator: Revalidator,
    /// Runs ahead while a round is under way.
    round_clock: Arc<ManualClock>,
    /// What the device and this machine take for each flow of a round.
    a_flow: Arc<Mutex<Duration>>,
    silent: Arc<Mutex<Silent>>,
}

/// Flows of which no packet comes any more.
#[derive(Default)]
struct Silent {
    /// In order.
    flows: Vec<FlowId>,
    /// What each of them has counted.
    packets: u64,
}

#[derive(Default)]
struct ModelWorker {
    queue: VecDeque<FlowId>,
    /// What the device does, and when it will be done.
    under_way: Option<(Change, Timestamp)>,
}

struct Reader {
    rules: Arc<Mutex<VecDeque<FlowId>>>,
    clock: Arc<ManualClock>,
    a_flow: Arc<Mutex<Duration>>,
    silent: Arc<Mutex<Silent>>,
    polls: u64,
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        self.polls += 1;
        let a_flow = *self.a_flow.lock();
        let silent = self.silent.lock();
        let reading = |flow: &FlowId| {
            let packets = if silent.flows.binary_search(flow).is_ok() { silent.packets } else { self.polls };
            let counters = Counters { packets, bytes: packets * 64, ..Counters::default() };
            Reading { flow: *flow, installed_as: Generation(1), counters }
        };
        let rules = self.rules.lock();
        let (front, back) = rules.as_slices();
        for rules in front.chunks(BATCH).chain(back.chunks(BATCH)) {
            let batch: [Reading; BATCH] = std::array::from_fn(|place| reading(rules.get(place).unwrap_or(&rules[0])));
            let now = self.clock.now();
            visit(&batch[..rules.len()], Sampled { earliest: now, latest: now });
            self.clock.advance(a_flow * u32::try_from(rules.len()).expect("a batch is short"));
        }
        Ok(())
    }
}

impl World {
    fn new(model: &Model, clock: Arc<ManualClock>, table: FlowTable, ids: Vec<FlowId>) -> Self {
        let rules = Arc::new(Mutex::new(VecDeque::from(ids)));
        let (round_clock, a_flow) = (Arc::new(ManualClock::default()), Arc::new(Mutex::default()));
        let silent = Arc::<Mutex<Silent>>::default();
        let reader = Reader {
            rules: rules.clone(),
            clock: round_clock.clone(),
            a_flow: a_flow.clone(),
            silent: silent.clone(),
            polls: 0,
        };
        let config =
            Config { idle_timeout: Some(IDLE_TIMEOUT), hard_timeout: None, poll_interval: Duration::from_millis(500) };
        Self {
            model: *model,
            clock,
            table,
            rules,
            workers: (0..model.workers).map(|_| ModelWorker::default()).collect(),
            revalidator: Revalidator::new(config, Box::new(reader)),
            round_clock,
            a_flow,
            silent,
        }
    }

    /// What a round costs this machine, in nanoseconds a flow: counts as time from then on.
    fn calibrate(&mut self) -> f64 {
        let samples: Vec<_> = (0..3).map(|_| cpu_timed(|| self.round()).0).collect();
        let median = crate::bench::median(&samples);
        let flows = u32::try_from(self.model.flows).expect("a number of flows");
        *self.a_flow.lock() = self.model.read + median / flows;
        per(median, self.model.flows)
    }

    fn round(&mut self) -> (Round, Vec<FlowId>) {
        self.round_clock.advance(self.clock.now().since(self.round_clock.now()));
        let mut ends = Vec::new();
        let round = self.revalidator.round(&self.table, &*self.round_clock, &mut |id, _| ends.push(id));
        (round, ends)
    }

    fn run(&mut self, wanted: &mut impl Iterator<Item = Flow>, report: &mut Report) {
        let end = self.clock.now().after(self.model.span);
        let workers = u32::try_from(self.model.workers).expect("a few");
        let between_adds = self.model.operation / (workers * self.model.offered);
        // As many flows go as there is room for, so that deletes and adds share the device.
        let between_deletes = self.model.operation * 2 / workers;
        let (mut next_add, mut next_delete, mut next_round) = (self.clock.now(), self.clock.now(), self.clock.now());
        let mut offered = wanted.next().expect("there is no end of flows");
        loop {
            let done = self.workers.iter().filter_map(|worker| worker.under_way.as_ref().map(|(_, at)| *at)).min();
            let now = [next_add, next_delete, next_round].into_iter().chain(done).min().unwrap_or(end);
            if now >= end {
                break;
            }
            self.clock.advance(now.since(self.clock.now()));
            self.complete(report);
            if now == next_add {
                next_add = now.after(between_adds);
                match self.table.add(offered.clone(), now, None) {
                    Ok(accepted) => {
                        report.accepted += 1;
                        self.enqueue(accepted.flow);
                        offered = wanted.next().expect("there is no end of flows");
                    }
                    Err(TableError::Refused(Refusal::Busy { .. })) => report.busy += 1,
                    Err(other) => panic!("neither taken nor told busy: {other}"),
                }
            }
            if now == next_delete {
                next_delete = now.after(between_deletes);
                let oldest = self.rules.lock().pop_front();
                if let Some(id) = oldest {
                    report.deletes.0 += 1;
                    self.table.delete(id, EndReason::Deleted, now, None).expect("deletes are never turned away");
                    self.enqueue(id);
                }
            }
            if now == next_round {
                let (round, ends) = self.round();
                next_round = now.after(round.wait());
                report.rounds += 1;
                report.evicted += ends.len();
                report.last_round = round;
            }
            report.most_unsettled = report.most_unsettled.max(self.table.census().unsettled());
        }
    }

    /// Has some flows fall silent just after a poll, and gives how late they expire.
    fn age(&mut self) -> Duration {
        let (round, _) = self.round();
        let fell_silent = self.round_clock.now();
        {
            let rules = self.rules.lock();
            let mut silent = self.silent.lock();
            silent.flows = rules.iter().rev().skip(rules.len() / 2).take(SILENT).copied().collect();
            silent.flows.sort_unstable();
            // One packet after the poll that was just now.
            silent.packets = u64::MAX / 128;
        }
        let mut next = round.began.after(round.wait());
        for _ in 0..PATIENCE {
            self.clock.advance(next.since(self.clock.now()));
            let (round, mut ends) = self.round();
            next = round.began.after(round.wait());
            if !ends.is_empty() {
                ends.sort_unstable();
                assert_eq!(ends, self.silent.lock().flows, "those go that are silent, and no other");
                let silence = self.round_clock.now().since(fell_silent);
                return silence.checked_sub(IDLE_TIMEOUT).expect("never early");
            }
        }
        panic!("not within {PATIENCE} rounds");
    }

    fn enqueue(&mut self, id: FlowId) {
        let worker = id.slot as usize % self.workers.len();
        self.workers[worker].queue.push_back(id);
        self.start(worker);
    }

    /// Has a worker that has nothing under way begin what is next.
    fn start(&mut self, worker: usize) {
        let now = self.clock.now();
        let worker = &mut self.workers[worker];
        while worker.under_way.is_none() {
            let Some(id) = worker.queue.pop_front() else { return };
            worker.under_way = begin(&self.table, id).map(|change| (change, now.after(self.model.operation)));
        }
    }

    fn complete(&mut self, report: &mut Report) {
        let now = self.clock.now();
        for worker in 0..self.workers.len() {
            let Some((change, _)) = self.workers[worker].under_way.take_if(|(_, at)| *at <= now) else { continue };
            let completion = obey(&change);
            let installs = matches!(completion.result, Ok(sluice_flow::backend::Outcome::InPlace { .. }));
            let latency = self.table.complete(&change, completion.result, now).latency.expect("the flow is there");
            let latency = u64::try_from(latency.as_nanos()).expect("less than centuries");
            let _ = begin(&self.table, change.flow);
            if installs {
                report.installed += 1;
                report.add_latency.push(latency);
                self.rules.lock().push_back(change.flow);
            } else {
                report.deletes.1 += 1;
                report.delete_latency.push(latency);
            }
            self.start(worker);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn per(span: Duration, count: usize) -> f64 {
    span.as_nanos() as f64 / count as f64
}
