//! Polls counters, ages flows out, keeps to the flow limit.
//!
//! A [`Revalidator`] decides from counters and time, both handed in: it has no thread and no clock of its own. One
//! [`round`](Revalidator::round) reads all counters in bulk into the table and then goes through the flows:
//!
//! - A flow is idle when readings have shown no growth for its idle timeout: from the latest time that the last packet may
//!   have had, to the time up to which the last reading is known to hold every packet. So nothing is ever called idle
//!   that may have been hit within its timeout, and nothing on fewer than two readings newer than its last change. It is
//!   late by two polls and the device's lag, and by the lag once more if the device does not tell when it counted.
//!   A poll that fails ages nothing.
//! - Between two polls of the usual interval one is set at the [deadline](mod@deadline) of the flow that may go next, as
//!   long as such polls take little of the time.
//! - A gap in which nobody polled is no time in which a flow was idle: the traffic may have been suspended with the
//!   agent, and has a second at least to show itself, or the timeout of the flow if that is shorter.
//! - Flows that stand for one thing together, as the two directions of a session do, idle together: see [`Companion`].
//! - A flow that is not in the device has no counters and does not idle; it goes by its hard timeout or by deletion.
//! - Above the flow limit the least used of the flows that may be evicted go, and only as many as are too many.
//! - A poll that takes long lengthens the period. It never evicts.
//!
//! [`rebalance`] decides who is carried by hardware when that is full.
//!
//! # Example
//!
//! A flow without a packet goes after its idle timeout. Time and counters are made up.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use sluice_flow::backend::{CounterReader, Handle, Outcome, Placement};
//! use sluice_flow::counters::{Counters, Reading, Sampled};
//! use sluice_flow::table::{Limits, Look};
//! use sluice_flow::text::parse_line;
//! use sluice_flow::time::ManualClock;
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Clock, EndReason, Expiry, Flow, FlowTable, Generation, MaskedKey, Priority, Refusal};
//! use sluice_revalidator::{Config, Revalidator};
//!
//! /// A device that has counted nothing for one rule.
//! struct Device {
//!     clock: Arc<ManualClock>,
//!     reading: Reading,
//! }
//!
//! impl CounterReader for Device {
//!     fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
//!         let now = self.clock.now();
//!         visit(&[self.reading], Sampled { earliest: now, latest: now });
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(ManualClock::default());
//! let seed = Seed([7; 16]);
//! let table = FlowTable::new(seed, Limits { flows: 10, unsettled: 10 }, Arc::new(()));
//! let line = parse_line("in_port(1),eth_type(0x0806), actions:2", &())?;
//! let matching = MaskedKey::new(&line.matching);
//! let flow = Flow::new(None, matching, line.actions, Priority::default(), Expiry::default(), &seed);
//! let id = table.add(flow, clock.now(), None)?.flow;
//! let Look::Change(change) = table.look(id) else { return Err("there is nothing to do".into()) };
//! let done = Outcome::InPlace { handle: Handle(1), placement: Placement::Hardware };
//! table.complete(&change, Ok(done), clock.now());
//! table.look(id);
//!
//! let config = Config {
//!     idle_timeout: Some(Duration::from_secs(10)),
//!     hard_timeout: None,
//!     poll_interval: Duration::from_millis(500),
//! };
//! let reading = Reading { flow: id, installed_as: Generation(1), counters: Counters::default() };
//! let mut revalidator = Revalidator::new(config, Box::new(Device { clock: clock.clone(), reading }));
//! let mut ends = Vec::new();
//! while ends.is_empty() {
//!     clock.advance(Duration::from_millis(500));
//!     revalidator.round(&table, &*clock, &mut |flow, reason| ends.push((flow, reason)));
//! }
//! assert_eq!(ends, [(id, EndReason::Idle)]);
//! assert!(clock.now().0 >= 10_000_000_000, "never early");
//! # Ok(())
//! # }
//! ```

mod ageing;
pub mod deadline;
mod gaps;
pub mod rebalance;
mod round;

use sluice_flow::backend::CounterReader;
use sluice_flow::table::AgeView;
use sluice_flow::{Clock, EndReason, FlowId, FlowTable, Timestamp};

use self::ageing::{Ageing, Verdict};
use self::gaps::Gaps;

pub use self::round::{Config, Round};

/// Says which other flow, if any, must be idle, too, for a flow to go as idle. Asked of flows that have been idle for long enough alone.
pub type Companion = Box<dyn Fn(&FlowTable, FlowId) -> Option<FlowId> + Send>;

/// Polls and decides.
pub struct Revalidator {
    config: Config,
    reader: Box<dyn CounterReader>,
    companion: Companion,
    gaps: Gaps,
}

impl Revalidator {
    /// A revalidator that takes its counters from `reader`.
    pub fn new(config: Config, reader: Box<dyn CounterReader>) -> Self {
        Self { config, reader, companion: Box::new(|_, _| None), gaps: Gaps::default() }
    }

    /// The same with flows that idle together.
    #[must_use]
    pub fn with_companions(self, companion: Companion) -> Self {
        Self { companion, ..self }
    }

    /// Changes the configuration from the next round on.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
    }

    /// Polls, then hands every flow that has to go to `end`, which must not call back.
    pub fn round(&mut self, table: &FlowTable, clock: &dyn Clock, end: &mut dyn FnMut(FlowId, EndReason)) -> Round {
        let began = clock.now();
        let mut round = Round { began, flow_limit: table.census().flow_limit(), ..Round::default() };
        let was_late = self.gaps.begin(began);
        self.poll(table, clock, &mut round);
        let has_hung = self.gaps.polled(began, clock.now());
        round.after_gap = was_late || has_hung;
        let mut candidates = self.age(table, clock.now(), &mut round, end);
        evict(&mut candidates, &mut round, end);
        round.duration = clock.now().since(began);
        // Polling takes at most half of the time.
        round.period = self.config.poll_interval.max(round.duration * 2);
        self.gaps.end(&round);
        round
    }

    fn poll(&mut self, table: &FlowTable, clock: &dyn Clock, round: &mut Round) {
        let result = self.reader.read(&mut |readings, sampled| {
            round.readings += readings.len();
            round.lag = round.lag.max(round.began.since(sampled.earliest));
            let taken = table.take_readings(readings, sampled);
            round.grown += taken.grown;
            round.backwards += taken.backwards;
        });
        round.failure = result.err();
        round.poll = clock.now().since(round.began);
    }

    /// Sends away what its timeouts say. Gives what stays and may be evicted.
    fn age(
        &self,
        table: &FlowTable,
        now: Timestamp,
        round: &mut Round,
        end: &mut dyn FnMut(FlowId, EndReason),
    ) -> Vec<Candidate> {
        let mut ageing = Ageing::new(&self.config, table, &self.gaps, now, round);
        let mut candidates = Vec::new();
        let may_evict = table.census().live() > round.flow_limit;
        table.visit_ages(|view| {
            round.flows += 1;
            match ageing.judge(view) {
                Verdict::Over(EndReason::Hard) => {
                    round.hard += 1;
                    end(view.id, EndReason::Hard);
                }
                Verdict::Over(reason) if !self.is_kept(table, view.id, &mut ageing) => {
                    round.idle += 1;
                    end(view.id, reason);
                }
                Verdict::Stays | Verdict::Over(_) if may_evict => candidates.push(Candidate::of(view)),
                Verdict::Stays | Verdict::Over(_) | Verdict::Permanent => {}
            }
        });
        round.deadline = ageing.deadline();
        candidates
    }

    /// Whether an idle flow stays because its companion is there and does not go. It goes in the round in which both are idle.
    fn is_kept(&self, table: &FlowTable, id: FlowId, ageing: &mut Ageing<'_>) -> bool {
        let companion = (self.companion)(table, id).and_then(|companion| table.age(companion));
        companion.is_some_and(|view| !matches!(ageing.judge(&view), Verdict::Over(_)))
    }
}

/// A flow that may be evicted, and how little it is used: last growth first, then packets.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    grown: Timestamp,
    packets: u64,
    id: FlowId,
}

impl Candidate {
    fn of(view: &AgeView) -> Self {
        Self { grown: view.grown, packets: view.packets, id: view.id }
    }
}

/// Sends away as many of the least used as there are too many.
fn evict(candidates: &mut [Candidate], round: &mut Round, end: &mut dyn FnMut(FlowId, EndReason)) {
    let staying = round.flows - round.idle - round.hard;
    let too_many = staying.saturating_sub(round.flow_limit).min(candidates.len());
    if too_many == 0 {
        return;
    }
    candidates.select_nth_unstable(too_many - 1);
    for candidate in &candidates[..too_many] {
        end(candidate.id, EndReason::Limit);
    }
    round.evicted = too_many;
}
