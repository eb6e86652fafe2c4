//! Rounds at warped time: what goes, what stays, and why.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::backend::{CounterReader, Handle, Outcome, Placement};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::table::{Limits, Look};
use sluice_flow::time::ManualClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{
    Action, ActionList, Clock, EndReason, Expiry, Field, Flow, FlowId, FlowState, FlowTable, Generation, MaskedKey,
    Match, PortNumber, Priority, Refusal, Timestamp,
};
use sluice_revalidator::{Config, Revalidator, Round};

const SEED: Seed = Seed([3; 16]);

/// A device whose counters a test sets, with a poll that takes as long as the test says, or fails.
#[derive(Default)]
struct Device {
    readings: Mutex<Vec<Reading>>,
    clock: ManualClock,
    poll_takes: Mutex<Duration>,
    /// How old readings are at least, and at most.
    lag: Mutex<(Duration, Duration)>,
    fails: Mutex<bool>,
}

struct Reader(Arc<Device>);

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let began = self.0.clock.now();
        self.0.clock.advance(*self.0.poll_takes.lock());
        if *self.0.fails.lock() {
            return Err(Refusal::Device { reason: "no answer".into() });
        }
        let (least, most) = *self.0.lag.lock();
        let back =
            |time: Timestamp, span: Duration| Timestamp::default().after(time.since(Timestamp::default().after(span)));
        let sampled = Sampled { earliest: back(began, most), latest: back(self.0.clock.now(), least) };
        visit(&self.0.readings.lock(), sampled);
        Ok(())
    }
}

struct Bench {
    device: Arc<Device>,
    table: FlowTable,
    revalidator: Revalidator,
}

const CONFIG: Config = Config {
    idle_timeout: Some(Duration::from_secs(10)),
    hard_timeout: None,
    poll_interval: Duration::from_millis(500),
};

impl Bench {
    fn new(config: Config, flow_limit: usize) -> Self {
        let device = Arc::new(Device::default());
        let limits = Limits { flows: flow_limit, unsettled: usize::MAX };
        let revalidator = Revalidator::new(config, Box::new(Reader(device.clone())));
        Self { table: FlowTable::new(SEED, limits, Arc::new(())), device, revalidator }
    }

    /// A flow that is in the device.
    fn install(&self, port: u32, expiry: Expiry) -> FlowId {
        let id = self.accept(port, expiry);
        let Look::Change(change) = self.table.look(id) else { panic!("nothing to install") };
        let outcome = Outcome::InPlace { handle: Handle(port.into()), placement: Placement::Hardware };
        self.table.complete(&change, Ok(outcome), self.device.clock.now());
        self.table.look(id);
        let counters = Counters::default();
        self.device.readings.lock().push(Reading { flow: id, installed_as: Generation(1), counters });
        id
    }

    fn accept(&self, port: u32, expiry: Expiry) -> FlowId {
        self.table.add(self.flow(port, expiry), self.device.clock.now(), None).unwrap().flow
    }

    fn flow(&self, port: u32, expiry: Expiry) -> Flow {
        let mut matching = Match::default();
        matching.set_exact(Field::InPort, port.into());
        let actions = ActionList::from([Action::Output(PortNumber(2))]);
        Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), expiry, &SEED)
    }

    fn state(&self, id: FlowId) -> Option<FlowState> {
        self.table.view(id).map(|view| view.state)
    }

    fn hit(&self, id: FlowId, packets: u64) {
        let mut readings = self.device.readings.lock();
        let reading = readings.iter_mut().find(|reading| reading.flow == id).unwrap();
        reading.counters.packets += packets;
    }

    /// One round; ends what it says.
    fn round(&mut self) -> (Round, Vec<(FlowId, EndReason)>) {
        let mut ends = Vec::new();
        let round = self.revalidator.round(&self.table, &self.device.clock, &mut |id, reason| ends.push((id, reason)));
        for (id, reason) in &ends {
            self.table.delete(*id, *reason, self.device.clock.now(), None).unwrap();
        }
        (round, ends)
    }

    /// Rounds at the poll interval for so long. Gives what went and when.
    fn run(&mut self, seconds: f64) -> Vec<(FlowId, EndReason, Duration)> {
        let start = self.device.clock.now();
        let mut went = Vec::new();
        while self.device.clock.now().since(start).as_secs_f64() < seconds {
            let (round, ends) = self.round();
            let at = self.device.clock.now().since(start);
            went.extend(ends.into_iter().map(|(id, reason)| (id, reason, at)));
            self.device.clock.advance(round.period.saturating_sub(round.duration));
        }
        went
    }
}

fn expiry(idle: Option<u64>, hard: Option<u64>, permanent: bool) -> Expiry {
    Expiry { idle: idle.map(Duration::from_secs), hard: hard.map(Duration::from_secs), permanent }
}

#[test]
fn an_idle_flow_goes_after_its_timeout_and_at_most_two_polls_later() {
    let mut bench = Bench::new(CONFIG, 100);
    let idle = bench.install(1, Expiry::default());
    let own = bench.install(2, expiry(Some(3), None, false));
    let went = bench.run(15.0);
    assert_eq!(went.len(), 2);
    for (id, timeout) in [(own, 3.0), (idle, 10.0)] {
        let (_, reason, at) = went.iter().find(|(gone, ..)| *gone == id).unwrap();
        assert_eq!(*reason, EndReason::Idle);
        let late = at.as_secs_f64() - timeout;
        assert!((0.0..=1.0).contains(&late), "{late} s late");
    }
}

#[test]
fn a_flow_that_is_hit_within_its_timeout_stays() {
    let mut bench = Bench::new(CONFIG, 100);
    let used = bench.install(1, Expiry::default());
    for _ in 0..10 {
        assert_eq!(bench.run(9.0), []);
        bench.hit(used, 1);
    }
    let went = bench.run(20.0);
    assert_eq!(went.len(), 1, "and goes once it is not");
}

#[test]
fn counters_of_unknown_age_never_age_a_flow_early() {
    // A hit may show at once or two seconds later, so a flow that looks idle for ten seconds may have been hit eight
    // seconds ago.
    let mut bench = Bench::new(CONFIG, 100);
    *bench.device.lag.lock() = (Duration::ZERO, Duration::from_secs(2));
    let flow = bench.install(1, Expiry::default());
    assert_eq!(bench.run(11.9), [], "idle for less than timeout and lag, as far as can be known");
    bench.hit(flow, 1);
    assert_eq!(bench.run(11.9), []);
    assert_eq!(bench.run(2.0).len(), 1);
}

#[test]
fn counters_of_known_age_are_late_by_two_polls_and_the_lag_at_most() {
    let lag = Duration::from_secs(2);
    let mut bench = Bench::new(CONFIG, 100);
    *bench.device.lag.lock() = (lag, lag);
    let flow = bench.install(1, Expiry::default());
    assert_eq!(bench.run(5.2), []);
    // A packet now; the device shows it when the lag is over.
    assert_eq!(bench.run(lag.as_secs_f64()), []);
    bench.hit(flow, 1);
    let went = bench.run(20.0);
    let since_packet = went[0].2 + lag;
    let late = since_packet.as_secs_f64() - 10.0;
    assert!((0.0..=3.0).contains(&late), "{late} s late");
}

#[test]
fn a_failing_poll_ages_nothing() {
    let mut bench = Bench::new(CONFIG, 100);
    bench.install(1, Expiry::default());
    bench.run(5.0);
    *bench.device.fails.lock() = true;
    assert_eq!(bench.run(60.0), []);
    let (round, _) = bench.round();
    assert_eq!(round.failure.unwrap().to_string(), "device: no answer");
    *bench.device.fails.lock() = false;
    bench.run(1.0);
    assert_eq!(bench.table.census().in_state(FlowState::Deleting), 1, "the count says it was idle all along");
}

#[test]
fn the_first_poll_after_a_gap_evicts_nobody_who_was_hit_in_it() {
    let mut bench = Bench::new(CONFIG, 100);
    let used = bench.install(1, Expiry::default());
    bench.run(2.0);
    bench.device.clock.advance(Duration::from_secs(3600));
    bench.hit(used, 1);
    assert_eq!(bench.run(1.0), []);
}

#[test]
fn a_hard_timeout_ends_a_flow_that_is_in_use_and_one_that_is_not_in_the_device() {
    let mut bench = Bench::new(CONFIG, 100);
    let used = bench.install(1, expiry(None, Some(5), false));
    let pending = bench.accept(2, expiry(None, Some(5), false));
    let pending_without = bench.accept(3, Expiry::default());
    for _ in 0..20 {
        bench.hit(used, 1);
        bench.run(0.5);
    }
    assert_eq!(bench.state(used), Some(FlowState::Deleting));
    assert_eq!(bench.state(pending), Some(FlowState::Deleting));
    assert_eq!(bench.state(pending_without), Some(FlowState::Pending), "what has no counters is not idle");
}

#[test]
fn permanent_flows_neither_age_nor_are_evicted() {
    let mut bench = Bench::new(Config { hard_timeout: Some(Duration::from_secs(20)), ..CONFIG }, 100);
    bench.install(1, expiry(Some(1), Some(1), true));
    assert_eq!(bench.run(100.0), []);
    bench.table.census().set_flow_limit(0);
    assert_eq!(bench.run(5.0), []);
}

#[test]
fn above_the_limit_the_least_used_go_and_no_more_than_are_too_many() {
    let mut bench = Bench::new(Config { idle_timeout: None, ..CONFIG }, 100);
    let flows: Vec<_> = (0..10).map(|port| bench.install(port, Expiry::default())).collect();
    for (index, id) in flows.iter().enumerate() {
        bench.hit(*id, index as u64 + 1);
        bench.round();
        bench.device.clock.advance(Duration::from_millis(500));
    }
    bench.table.census().set_flow_limit(7);
    let (round, ends) = bench.round();
    assert_eq!((round.evicted, round.flow_limit), (3, 7));
    let mut gone: Vec<_> = ends.into_iter().map(|(id, reason)| (reason, id)).collect();
    gone.sort();
    let oldest: Vec<_> = flows[..3].iter().map(|id| (EndReason::Limit, *id)).collect();
    assert_eq!(gone, oldest);
    let (round, _) = bench.round();
    assert_eq!(round.evicted, 0, "those that are going count no more");
}

#[test]
fn slow_polling_lengthens_the_period_and_evicts_nobody() {
    let mut bench = Bench::new(Config { idle_timeout: Some(Duration::from_secs(60)), ..CONFIG }, 100);
    let used = bench.install(1, Expiry::default());
    *bench.device.poll_takes.lock() = Duration::from_secs(5);
    for _ in 0..20 {
        bench.hit(used, 1);
        let (round, ends) = bench.round();
        assert_eq!(round.poll, Duration::from_secs(5));
        assert_eq!(round.period, Duration::from_secs(10), "polling takes at most half of the time");
        assert_eq!(ends, []);
        bench.device.clock.advance(round.period - round.duration);
    }
}

#[test]
fn a_poll_is_set_at_the_deadline_of_the_flow_that_may_go_next() {
    let mut bench = Bench::new(CONFIG, 100);
    let flow = bench.install(1, expiry(Some(3), None, false));
    bench.run(2.9);
    bench.hit(flow, 1);
    bench.device.clock.advance(Duration::from_millis(200));
    bench.round();
    bench.device.clock.advance(Duration::from_millis(300));
    let hit_seen = bench.table.view(flow).unwrap().counters.used.unwrap();
    bench.run(2.4);
    let (round, ends) = bench.round();
    assert_eq!(ends, []);
    let deadline = hit_seen.after(Duration::from_secs(3));
    assert_eq!(round.deadline, Some(deadline));
    assert!(round.wait() < round.period, "{:?}", round.wait());
    bench.device.clock.advance(round.wait());
    let (round, ends) = bench.round();
    assert_eq!(ends, [(flow, EndReason::Idle)]);
    assert!(round.began.since(deadline) <= Duration::from_millis(50));
}

#[test]
fn the_deadline_is_later_by_the_lag_of_the_device() {
    let lag = Duration::from_secs(1);
    let mut bench = Bench::new(CONFIG, 100);
    *bench.device.lag.lock() = (lag, lag);
    bench.device.clock.advance(lag);
    bench.install(1, expiry(Some(3), None, false));
    let (round, _) = bench.round();
    assert_eq!(round.lag, lag);
    assert_eq!(round.deadline, Some(Timestamp::default().after(Duration::from_secs(1 + 3 + 1))));
}

#[test]
fn a_deadline_that_a_failing_poll_cannot_meet_is_not_chased() {
    let mut bench = Bench::new(CONFIG, 100);
    bench.install(1, expiry(Some(3), None, false));
    bench.run(2.6);
    *bench.device.fails.lock() = true;
    let (round, _) = bench.round();
    assert_eq!(round.wait(), round.period);
}

#[test]
fn a_flow_that_the_device_does_not_read_neither_goes_nor_keeps_the_poll_busy() {
    // OVS takes flows away that are missing in several dumps, and once did so too early.
    let mut bench = Bench::new(CONFIG, 100);
    let missing = bench.install(1, expiry(Some(1), None, false));
    bench.run(0.5);
    bench.device.readings.lock().clear();
    for _ in 0..100 {
        let (round, ends) = bench.round();
        assert_eq!(ends, []);
        if round.began.since(Timestamp::default()) > Duration::from_secs(2) {
            assert_eq!(round.wait(), round.period);
        }
        bench.device.clock.advance(round.wait());
    }
    assert!(bench.table.view(missing).is_some());
}

#[test]
fn after_a_gap_silent_flows_have_what_is_left_of_their_timeouts() {
    let mut bench = Bench::new(CONFIG, 100);
    let resumed = bench.install(1, Expiry::default());
    bench.install(2, Expiry::default());
    bench.run(2.0);
    // A virtual machine that was suspended with all its peers, on a clock that went on.
    bench.device.clock.advance(Duration::from_secs(3600));
    let (round, ends) = bench.round();
    assert!(round.after_gap);
    assert_eq!(ends, [], "no storm");
    bench.device.clock.advance(round.period);
    assert_eq!(bench.run(7.0), []);
    bench.hit(resumed, 1);
    let went = bench.run(2.0);
    assert_eq!(went.len(), 1, "the one that stayed silent");
    assert_ne!(went[0].0, resumed);
}

#[test]
fn a_flow_that_is_new_after_a_gap_takes_no_chance_from_those_that_were_there() {
    // 400 flows in use, a stop of seven seconds, and one flow that was added just before.
    let mut bench = Bench::new(Config { idle_timeout: Some(Duration::from_secs(6)), ..CONFIG }, 1_000);
    let used: Vec<_> = (0..400).map(|port| bench.install(port, Expiry::default())).collect();
    bench.run(3.0);
    used.iter().for_each(|id| bench.hit(*id, 1));
    bench.run(1.0);
    bench.install(1_000, Expiry::default());
    bench.device.clock.advance(Duration::from_secs(7));
    let resumes = bench.device.clock.now().after(Duration::from_millis(200));
    while bench.device.clock.now() < resumes {
        let (round, ends) = bench.round();
        assert_eq!(ends, []);
        bench.device.clock.advance(round.wait().max(Duration::from_millis(5)));
    }
    used.iter().for_each(|id| bench.hit(*id, 1));
    assert_eq!(bench.run(4.0), []);
}

#[test]
fn a_stop_in_the_midst_of_a_poll_is_a_gap_too() {
    let mut bench = Bench::new(Config { idle_timeout: Some(Duration::from_secs(6)), ..CONFIG }, 100);
    let used = bench.install(1, Expiry::default());
    bench.run(2.0);
    *bench.device.poll_takes.lock() = Duration::from_secs(7);
    let (round, ends) = bench.round();
    assert!(round.after_gap);
    assert_eq!(ends, []);
    *bench.device.poll_takes.lock() = Duration::ZERO;
    bench.device.clock.advance(Duration::from_millis(200));
    assert_eq!(bench.round().1, []);
    bench.hit(used, 1);
    assert_eq!(bench.run(5.0), []);
}

#[test]
fn gap_after_gap_keeps_nobody_for_ever() {
    let mut bench = Bench::new(CONFIG, 100);
    bench.install(1, Expiry::default());
    let mut went = Vec::new();
    // Of each time between two gaps it has half a second.
    for _ in 0..22 {
        bench.device.clock.advance(Duration::from_secs(60));
        went.extend(bench.round().1);
    }
    assert_eq!(went.len(), 1);
}

#[test]
fn near_the_zero_of_the_clock_nothing_is_early() {
    // OVS's timers of a machine that has just started have overflowed below zero.
    let mut bench = Bench::new(Config { idle_timeout: Some(Duration::from_millis(1_500)), ..CONFIG }, 100);
    *bench.device.lag.lock() = (Duration::ZERO, Duration::from_secs(2));
    bench.install(1, Expiry::default());
    assert_eq!(bench.run(3.4), [], "counted from the beginning, and seen with two seconds of doubt");
    assert_eq!(bench.run(1.5).len(), 1);
}

#[test]
fn a_limit_below_two_thousand_recovers() {
    // OVS's limit once stayed down for ever after it had come below 2,000.
    let mut bench = Bench::new(Config { idle_timeout: None, ..CONFIG }, 3_000);
    let flows: Vec<_> = (0..1_500).map(|port| bench.install(port, Expiry::default())).collect();
    bench.table.census().set_flow_limit(500);
    let (round, ends) = bench.round();
    assert_eq!((round.evicted, ends.len()), (1_000, 1_000));
    bench.table.census().set_flow_limit(3_000);
    *bench.device.poll_takes.lock() = Duration::from_secs(3);
    for _ in 0..3 {
        let (round, ends) = bench.round();
        assert_eq!((round.flow_limit, round.evicted, ends.len()), (3_000, 0, 0), "nor does a slow poll lower it");
        bench.device.clock.advance(round.period - round.duration);
    }
    bench.accept(10_000, Expiry::default());
    assert_eq!(flows.iter().filter(|id| bench.state(**id) == Some(FlowState::Offloaded)).count(), 500);
}

#[test]
fn one_slow_poll_lengthens_one_period() {
    let mut bench = Bench::new(CONFIG, 100);
    bench.install(1, Expiry::default());
    *bench.device.poll_takes.lock() = Duration::from_secs(2);
    assert_eq!(bench.round().0.period, Duration::from_secs(4));
    *bench.device.poll_takes.lock() = Duration::ZERO;
    assert_eq!(bench.round().0.period, CONFIG.poll_interval);
}

#[test]
fn a_modification_gives_a_flow_its_new_timeout() {
    let mut bench = Bench::new(CONFIG, 100);
    let flow = bench.install(1, expiry(Some(3600), None, false));
    bench.run(2.0);
    let shorter = bench.flow(1, expiry(Some(1), None, false));
    bench.table.modify(flow, shorter, false, bench.device.clock.now(), None).unwrap();
    assert_eq!(bench.run(3.0).len(), 1);
}

#[test]
fn more_kinds_of_timeouts_than_are_listed_all_hold() {
    let mut bench = Bench::new(CONFIG, 1_000);
    let kinds = (0..200_u32).map(|number| Duration::from_millis(2_000 + u64::from(number) * 10));
    let with = |(number, idle)| (bench.install(number, Expiry { idle: Some(idle), ..Expiry::default() }), idle);
    let flows: HashMap<_, _> = (0..).zip(kinds).map(with).collect();
    let went = bench.run(6.0);
    assert_eq!(went.len(), flows.len());
    for (id, _, at) in went {
        let late = at.as_secs_f64() - flows[&id].as_secs_f64();
        assert!((0.0..=1.0).contains(&late), "{late} s late");
    }
}
