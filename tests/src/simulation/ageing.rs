//! Flows that come, are hit at random, fall silent and expire, on a device whose counters lag.
//!
//! The model knows when each packet was there, so it knows of every expiry how early or late it was, whatever the counters
//! told. Silences between two packets of a flow are of every length up to its timeout, and often just short of it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::backend::CounterReader;
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::table::Limits;
use sluice_flow::time::ManualClock;
use sluice_flow::{
    ActionList, Clock, EndReason, Expiry, Field, Flow, FlowId, FlowTable, Generation, MaskedKey, Match, PortNumber,
    Priority, Refusal, Timestamp,
};
use sluice_revalidator::{Config, Revalidator};

use super::do_at_once;
use super::random::Random;
use crate::world::SEED;

/// Readings that the device hands over at once.
const BATCH: usize = 256;
/// The agent's thread waits at least so long between two rounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// How old the counters of a device are.
#[derive(Clone, Copy, Debug)]
pub enum Lag {
    /// So old at every poll, and the device says so.
    Known(Duration),
    /// Of any age up to this, each on its own, and the device cannot tell.
    Unknown(Duration),
}

/// A device, its traffic and the polling.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Flows at a time; each that goes is followed by another.
    pub flows: usize,
    /// The simulation ends after so many have gone.
    pub lifetimes: u64,
    /// When they go; a quarter of the flows has half of it as a timeout of its own.
    pub idle_timeout: Duration,
    /// The usual interval.
    pub poll_interval: Duration,
    /// How old counters are.
    pub lag: Lag,
    /// The device tells when a flow was last hit, as the software NIC does.
    pub tells_use: bool,
    /// What reading a flow takes.
    pub read_takes: Duration,
    /// The thread wakes up to so much later than it wanted.
    pub jitter: Duration,
    /// One poll of so many fails.
    pub fails_one_in: Option<u64>,
    /// After one poll of so many the agent stops for so long, and all traffic with it.
    pub stops: Option<(u64, Duration)>,
    /// What falls at random is the same for the same seed.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Flows that have gone.
    pub expired: u64,
    /// Those that were hit within their timeout.
    pub early: u64,
    /// How late each was, in so many times 100 us.
    lateness: Vec<u64>,
    /// Rounds.
    pub rounds: u64,
    /// The longest time from the beginning of one round to that of the next.
    pub longest_period: Duration,
    /// How long all of it would have taken.
    pub took: Duration,
}

impl Outcome {
    const STEP: Duration = Duration::from_micros(100);

    fn note(&mut self, silent: Duration, timeout: Duration) {
        self.expired += 1;
        let Some(late) = silent.checked_sub(timeout) else {
            self.early += 1;
            return;
        };
        // Rounded up, so that no figure flatters.
        let step = usize::try_from(late.as_nanos().div_ceil(Self::STEP.as_nanos())).expect("not for ages");
        if self.lateness.len() <= step {
            self.lateness.resize(step + 1, 0);
        }
        self.lateness[step] += 1;
    }

    /// The lateness that so great a part of all does not exceed.
    pub fn lateness(&self, part: f64) -> Duration {
        let all: u64 = self.lateness.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank"
        )]
        let rank = (all as f64 * part).ceil() as u64;
        let mut below = 0;
        let step = self.lateness.iter().take_while(|count| {
            below += *count;
            below < rank
        });
        Self::STEP * u32::try_from(step.count()).expect("not for ages")
    }

    /// The greatest lateness.
    pub fn latest(&self) -> Duration {
        Self::STEP * u32::try_from(self.lateness.len().saturating_sub(1)).expect("not for ages")
    }
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    let clock = Arc::new(ManualClock::default());
    let limits = Limits { flows: usize::MAX, unsettled: usize::MAX };
    let table = FlowTable::new(SEED, limits, Arc::new(()));
    let device = Arc::new(Mutex::new(Device::new(scenario, clock.clone())));
    let config =
        Config { idle_timeout: Some(scenario.idle_timeout), hard_timeout: None, poll_interval: scenario.poll_interval };
    let mut revalidator = Revalidator::new(config, Box::new(Reader(device.clone())));
    for place in 0..scenario.flows {
        device.lock().replace(&table, place);
    }
    let mut outcome = Outcome::default();
    let mut random = Random::new(scenario.seed ^ 0x5eed);
    let mut last_began = clock.now();
    let mut is_next_late = false;
    while outcome.expired < scenario.lifetimes {
        let mut ends = Vec::new();
        let round = revalidator.round(&table, &*clock, &mut |id, reason| ends.push((id, reason)));
        outcome.rounds += 1;
        if !is_next_late {
            outcome.longest_period = outcome.longest_period.max(round.began.since(last_began));
        }
        last_began = round.began;
        for (id, reason) in ends {
            assert_eq!(reason, EndReason::Idle, "nothing else ends flows here");
            device.lock().end(&table, id, &mut outcome);
        }
        let spent = clock.now().since(round.began);
        let jitter = Duration::from_nanos(random.below(nanoseconds(scenario.jitter) + 1));
        let pause = round.wait().saturating_sub(spent).max(SHORTEST_PAUSE);
        let stop = scenario.stops.filter(|(cases, _)| random.one_in(*cases));
        is_next_late = stop.is_some();
        if let Some((_, span)) = stop {
            // In the midst of the pause.
            let before = Duration::from_nanos(random.below(nanoseconds(pause)));
            clock.advance(before);
            device.lock().stop(span);
            clock.advance(span + (pause - before));
        } else {
            clock.advance(pause + jitter);
        }
    }
    outcome.took = clock.now().since(Timestamp::default());
    outcome
}

/// The rules, and the traffic on each.
struct Device {
    scenario: Scenario,
    clock: Arc<ManualClock>,
    actions: ActionList,
    rules: Vec<Option<Rule>>,
    /// By slot of the table, the rule's place.
    places: Vec<usize>,
    stops: Stops,
    random: Random,
}

struct Rule {
    flow: FlowId,
    timeout: Duration,
    traffic: Traffic,
}

/// Times in which nothing comes.
#[derive(Default)]
struct Stops(Vec<Stop>);

struct Stop {
    from: Timestamp,
    span: Duration,
}

impl Stops {
    /// The time of the traffic at a time of the clock.
    fn traffic_at(&self, time: Timestamp) -> Timestamp {
        let stood_still = self.0.iter().map(|stop| time.since(stop.from).min(stop.span));
        time.before(stood_still.sum())
    }

    /// The time of the clock at a time of the traffic.
    fn clock_at(&self, time: Timestamp) -> Timestamp {
        self.0.iter().fold(time, |time, stop| if time > stop.from { time.after(stop.span) } else { time })
    }
}

/// The packets of a flow up to a time, on a clock that stands still while everything does.
#[derive(Clone, Copy)]
struct Traffic {
    random: Random,
    timeout: u64,
    /// Where it has been played to; the device never shows it at an earlier time again.
    shown: Timestamp,
    packets: u64,
    /// The last packet, or the installation.
    last: Timestamp,
    /// The one after; `None` if there is none.
    next: Option<Timestamp>,
}

impl Traffic {
    fn new(mut random: Random, timeout: Duration, now: Timestamp) -> Self {
        let random = Random::new(random.draw());
        let mut traffic = Self { random, timeout: nanoseconds(timeout), shown: now, packets: 0, last: now, next: None };
        traffic.next = traffic.after_last();
        traffic
    }

    /// When the next packet comes.
    fn after_last(&mut self) -> Option<Timestamp> {
        if self.random.one_in(4) {
            return None;
        }
        let silence = match self.random.one_in(3) {
            // Just short of the timeout.
            true => self.timeout - 1 - self.random.below(self.timeout / 50),
            false => self.random.below(self.timeout),
        };
        Some(Timestamp(self.last.0 + silence))
    }

    /// Plays on to a time.
    fn play(&mut self, to: Timestamp) {
        self.shown = self.shown.max(to);
        while let Some(next) = self.next.filter(|next| *next <= self.shown) {
            self.packets += 1;
            self.last = next;
            self.next = self.after_last();
        }
    }
}

impl Device {
    fn new(scenario: &Scenario, clock: Arc<ManualClock>) -> Self {
        Self {
            scenario: *scenario,
            clock,
            actions: [sluice_flow::Action::Output(PortNumber(2))].into(),
            rules: (0..scenario.flows).map(|_| None).collect(),
            places: Vec::new(),
            stops: Stops::default(),
            random: Random::new(scenario.seed),
        }
    }

    /// Nothing comes for so long.
    fn stop(&mut self, span: Duration) {
        self.stops.0.push(Stop { from: self.clock.now(), span });
    }

    /// Puts a new flow in at a place, and installs its rule.
    fn replace(&mut self, table: &FlowTable, place: usize) {
        let now = self.clock.now();
        let own = place.is_multiple_of(4).then_some(self.scenario.idle_timeout / 2);
        let mut matching = Match::default();
        matching.set_exact(Field::SkbMark, place as u128);
        let expiry = Expiry { idle: own, ..Expiry::default() };
        let matching = MaskedKey::new(&matching);
        let flow = Flow::new(None, matching, self.actions.clone(), Priority::default(), expiry, &SEED);
        let flow = table.add(flow, now, None).expect("there is room").flow;
        do_at_once(table, flow, now);
        let timeout = own.unwrap_or(self.scenario.idle_timeout);
        self.random.draw();
        let traffic = Traffic::new(self.random, timeout, self.stops.traffic_at(now));
        self.rules[place] = Some(Rule { flow, timeout, traffic });
        let slot = flow.slot as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, usize::MAX);
        }
        self.places[slot] = place;
    }

    /// Takes a flow out, notes how long it was silent in truth, and puts another in.
    fn end(&mut self, table: &FlowTable, id: FlowId, outcome: &mut Outcome) {
        let now = self.clock.now();
        let place = self.places[id.slot as usize];
        let mut rule = self.rules[place].take().expect("a flow ends once");
        assert_eq!(rule.flow, id, "of this life");
        let traffic_now = self.stops.traffic_at(now);
        rule.traffic.play(traffic_now);
        // Of each stop but the first in a silence, what was planned to pass without a look counts as such.
        let last = self.stops.clock_at(rule.traffic.last);
        let stops = self.stops.0.iter().filter(|stop| stop.from.after(stop.span) > last).count();
        let planned = self.scenario.poll_interval * u32::try_from(stops.saturating_sub(1)).expect("few");
        outcome.note(traffic_now.since(rule.traffic.last) + planned, rule.timeout);
        table.delete(id, EndReason::Idle, now, None).expect("it is there");
        do_at_once(table, id, now);
        self.replace(table, place);
    }
}

struct Reader(Arc<Mutex<Device>>);

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let Device { scenario, clock, rules, random, stops, .. } = &mut *self.0.lock();
        let mut batch = Vec::with_capacity(BATCH);
        let fails = scenario.fails_one_in.is_some_and(|cases| random.one_in(cases));
        let fails_at = if fails { random.below(rules.len() as u64) } else { u64::MAX };
        for (number, rules) in rules.chunks_mut(BATCH).enumerate() {
            if (number * BATCH) as u64 > fails_at {
                return Err(Refusal::Device { reason: "no answer".into() });
            }
            let asked = clock.now();
            clock.advance(scenario.read_takes * u32::try_from(rules.len()).expect("a batch is short"));
            let sampled = match scenario.lag {
                Lag::Known(lag) => Sampled { earliest: asked.before(lag), latest: asked.before(lag) },
                Lag::Unknown(most) => Sampled { earliest: asked.before(most), latest: clock.now() },
            };
            for rule in rules.iter_mut().flatten() {
                let span = nanoseconds(sampled.latest.since(sampled.earliest));
                let shown = sampled.earliest.after(Duration::from_nanos(random.below(span + 1)));
                rule.traffic.play(stops.traffic_at(shown));
                let packets = rule.traffic.packets;
                let used = (scenario.tells_use && packets > 0).then(|| stops.clock_at(rule.traffic.last));
                let counters = Counters { packets, bytes: packets * 64, used, ..Counters::default() };
                batch.push(Reading { flow: rule.flow, installed_as: Generation(1), counters });
            }
            visit(&batch, sampled);
            batch.clear();
        }
        Ok(())
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("less than centuries")
}
