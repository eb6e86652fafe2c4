//! Rebalancing: has the heaviest flows carried by hardware when it is full.
//!
//! Runs on the revalidator's thread, after a round, whose readings it weighs. The [decision](sluice_revalidator::rebalance) is
//! made every [interval](Rebalancing::set_interval) while rules wait for room; flows that make room are moved at once, those
//! that are to follow them as soon as the device says that there is room. So a device is never asked for what it has not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{Facet, Placement, Room};
use sluice_flow::{Backend, FlowId, FlowTable, Timestamp};
use sluice_revalidator::rebalance::{self, Pass, Rebalancer};

use sluice_offload::OffloadQueue;

/// Takes turns in a full device.
pub struct Rebalancing {
    backend: Arc<dyn Backend>,
    rebalancer: Rebalancer,
    interval: Option<Duration>,
    last: Option<Timestamp>,
    /// What the last pass wants in hardware and there was no room for yet, the heaviest first.
    up: VecDeque<FlowId>,
    report: Report,
}

/// What rebalancing has done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether it takes place; otherwise why not.
    pub state: State,
    /// Passes so far.
    pub passes: u64,
    /// The last one.
    pub last: LastPass,
}

/// Whether rebalancing takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No round has looked yet.
    #[default]
    Unknown,
    /// The configuration says so.
    SwitchedOff,
    /// The backend does not have the facet for it.
    Impossible,
    /// So much room there is for rules, or so many wait for some.
    On(Room),
}

/// A pass in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPass {
    /// Flows whose rate was known.
    pub candidates: usize,
    /// What hardware carried, in packets a second.
    pub hardware_rate: u64,
    /// What software carried, in packets a second.
    pub software_rate: u64,
    /// Flows sent to hardware.
    pub up: usize,
    /// Flows sent to software.
    pub down: usize,
    /// How long it took.
    pub duration: Duration,
}

impl Rebalancing {
    /// Has done nothing yet.
    pub fn new(backend: Arc<dyn Backend>, interval: Option<Duration>) -> Self {
        let rebalancer = Rebalancer::new(rebalance::Config::default());
        Self { backend, rebalancer, interval, last: None, up: VecDeque::new(), report: Report::default() }
    }

    /// Time between two passes; `None` for no passes.
    pub fn set_interval(&mut self, interval: Option<Duration>) {
        self.interval = interval;
    }

    /// What was done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// After a round of the revalidator whose poll was complete.
    pub fn round(&mut self, table: &FlowTable, queue: &OffloadQueue, now: impl Fn() -> Timestamp) {
        self.report.state = match (self.backend.capacity(), self.interval) {
            (None, _) => State::Impossible,
            (Some(_), None) => State::SwitchedOff,
            (Some(capacity), Some(_)) => State::On(capacity.room()),
        };
        let (State::On(room), Some(interval)) = (self.report.state, self.interval) else { return self.rest() };
        if room.waiting == 0 {
            return self.rest();
        }
        let began = now();
        if self.last.is_some_and(|last| began.since(last) < interval) {
            return self.send_up(room.free, queue);
        }
        self.last = Some(began);
        let pass = self.rebalancer.pass(began, room.free, |visit| {
            table.visit_ages(|view| {
                if let Some(placement) = table.placement(view.id) {
                    visit(view, placement);
                }
            });
        });
        for id in &pass.down {
            queue.place(*id, Placement::Software);
        }
        self.note(&pass, now().since(began));
        self.up = pass.up.into();
        self.send_up(room.free, queue);
    }

    /// Sends as many as there is room for.
    fn send_up(&mut self, free: usize, queue: &OffloadQueue) {
        for id in self.up.drain(..free.min(self.up.len())) {
            queue.place(id, Placement::Hardware);
        }
    }

    /// There is nothing to share out, so that nothing need be known.
    fn rest(&mut self) {
        self.rebalancer.forget();
        self.up.clear();
        self.last = None;
    }

    fn note(&mut self, pass: &Pass, duration: Duration) {
        let Pass { candidates, hardware_rate, software_rate, up, down } = pass;
        self.report.passes += 1;
        self.report.last = LastPass {
            candidates: *candidates,
            hardware_rate: *hardware_rate,
            software_rate: *software_rate,
            up: up.len(),
            down: down.len(),
            duration,
        };
    }
}

impl State {
    /// Why it does not take place, in a word of a closed set and in words; `None` if it does.
    pub const fn off(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Unknown | Self::On(_) => None,
            Self::SwitchedOff => Some(("config", "rebalance_interval is \"none\"")),
            Self::Impossible => Some(("backend", Facet::Capacity.missing())),
        }
    }
}

impl LastPass {
    /// What part of the packets hardware carried; `None` if there were none.
    pub fn hardware_share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let (hardware, all) = (self.hardware_rate as f64, self.hardware_rate.saturating_add(self.software_rate) as f64);
        (all > 0.0).then(|| hardware / all)
    }
}
