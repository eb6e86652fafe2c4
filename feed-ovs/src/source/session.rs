//! One datapath, from the moment it is found to its end.

use std::time::{Duration, Instant};

use sluice_feedback::MeterCount;
use sluice_flow::source::{Intake, SourceReport};
use sluice_netdev::netlink::attribute::Malformed;

use super::Options;
use super::feedback::Feedback;
use super::flows::Flows;
use super::follower::{BEGINS_AGAIN, Follower, GOES_ON};
use super::meters::Meters;
use super::ports::Ports;
use super::told_meters::ToldMeters;
use crate::kernel::{Kernel, KernelError};
use crate::listener::{Heard, Listener};
use crate::wire::Datapath;

/// How often the kernel is asked how many flows it has.
const LOOK: Duration = Duration::from_millis(100);
/// The time between two comparisons, at least.
const BETWEEN_COMPARISONS: Duration = Duration::from_secs(1);
/// How often flows that were not taken on are tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Why a session is over before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The kernel cannot be asked.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There is no such datapath, or no longer.
    #[error("the kernel has no datapath of that name")]
    NoDatapath,
}

impl Trouble {
    /// There is nothing that could be followed.
    pub(super) const fn is_absence(&self) -> bool {
        matches!(self, Self::NoDatapath | Self::Kernel(KernelError::NoModule))
    }

    /// Nothing more is heard, and nothing was wrong with what was.
    pub(super) const fn is_silence(&self) -> bool {
        matches!(self, Self::Kernel(KernelError::Gone | KernelError::Io(_)))
    }
}

impl From<Malformed> for Trouble {
    fn from(reason: Malformed) -> Self {
        Self::Kernel(reason.into())
    }
}

/// A datapath that is followed.
pub(super) struct Session<'a> {
    kernel: Kernel,
    listener: Listener,
    follower: Follower<'a>,
    meters: ToldMeters,
    /// The last look at the number of flows was not as expected.
    differs: bool,
    compared: Instant,
    told: Instant,
}

impl<'a> Session<'a> {
    /// Finds the datapath and brings in what it has.
    pub(super) fn begin(
        options: &'a Options,
        report: &'a mut SourceReport,
        feedback: Option<&'a mut Feedback>,
        intake: &'a dyn Intake,
    ) -> Result<Self, Trouble> {
        let mut kernel = Kernel::open()?;
        // Before anything is asked, so that nothing is missed that comes after the answer.
        let listener = Listener::open(&kernel, options.queue_bytes)?;
        let datapath = find(&mut kernel, options)?;
        let go_on = options.shares_recirculation && can_go_on(&mut kernel, &datapath);
        report.chain_miss = options.shares_recirculation.then_some(if go_on { GOES_ON } else { BEGINS_AGAIN });
        let follower = Follower {
            options,
            report,
            feedback,
            intake,
            datapath: datapath.index,
            flows: Flows::new(go_on, intake),
            ports: Ports::default(),
            meters: Meters::resume(intake),
            must_compare: false,
            told: None,
            is_gone: false,
            has_told_all: false,
        };
        let now = Instant::now();
        let meters = ToldMeters::default();
        let mut session = Self { kernel, listener, follower, meters, differs: false, compared: now, told: now };
        session.meters.follow(&mut session.follower);
        session.compare()?;
        session.follower.report.trouble = None;
        session.tell();
        tracing::info!("{} flows of {} are taken for offload", session.follower.flows.named(), options.datapath);
        Ok(session)
    }

    /// Follows the datapath until it is to stop.
    pub(super) fn run(&mut self, stops: &dyn Fn() -> bool) -> Result<(), Trouble> {
        let mut looked = Instant::now();
        while !stops() {
            self.hear(LOOK.saturating_sub(looked.elapsed()))?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.follower.ports.rest();
                if let Some(feedback) = &mut self.follower.feedback {
                    feedback.serve();
                }
                self.meters.follow(&mut self.follower);
                self.look()?;
            }
            let may_compare = self.compared.elapsed() >= BETWEEN_COMPARISONS;
            let has_left_out = self.follower.flows.taken() < self.follower.flows.named();
            let must_retry = has_left_out && self.compared.elapsed() >= RETRY;
            if self.follower.must_compare && may_compare || must_retry {
                self.compare()?;
            }
            if self.told.elapsed() >= self.follower.intake.poll_interval() {
                self.tell();
            }
        }
        Ok(())
    }

    /// Takes what has changed. What is lost is made up for by a comparison.
    fn hear(&mut self, at_most: Duration) -> Result<Heard, Trouble> {
        let Self { listener, follower, meters, .. } = self;
        let mut failed = None;
        let heard = listener.receive(at_most, &mut |notification| {
            // A flow may name a meter that was set just before.
            meters.follow(follower);
            if let Err(reason) = follower.take(notification) {
                failed = Some(reason);
            }
        })?;
        if let Some(reason) = failed {
            tracing::warn!("a notification of the kernel makes no sense, all is compared: {reason}");
            follower.must_compare = true;
        }
        if follower.is_gone {
            return Err(Trouble::NoDatapath);
        }
        if let Some(datapath) = follower.told.take() {
            self.keep_going_on(&datapath)?;
        }
        let follower = &mut self.follower;
        if heard == Heard::NotAll {
            follower.report.losses += 1;
            tracing::warn!(
                "the kernel told more than there was room for, all flows of {} are compared",
                follower.options.datapath
            );
            // At once: a rule may be there whose flow is gone.
            self.compare()?;
        }
        Ok(heard)
    }

    /// Asks how many flows there are: that they went all at once is told nobody.
    fn look(&mut self) -> Result<(), Trouble> {
        let datapath = find(&mut self.kernel, self.follower.options)?;
        self.keep_going_on(&datapath)?;
        let Datapath { flows, .. } = datapath;
        let expected = self.follower.flows.count();
        // What comes in the same moment is not expected yet.
        let differs =
            self.hear(Duration::ZERO)? == Heard::All && self.follower.flows.count() == expected && flows != expected;
        if differs && self.differs {
            self.follower.must_compare = true;
        }
        self.differs = differs;
        Ok(())
    }

    /// Asks again that packets go on where they missed, if somebody has taken that back. Without it, rules would be wrong.
    fn keep_going_on(&mut self, datapath: &Datapath) -> Result<(), Trouble> {
        if self.follower.flows.go_on() && !datapath.shares_recirculation() {
            tracing::info!("{} is asked again to take packets on where they missed in a chain", datapath.name);
            self.kernel.share_recirculation(datapath)?;
        }
        Ok(())
    }

    /// Has the agent take on all that the datapath has, and nothing else.
    fn compare(&mut self) -> Result<(), Trouble> {
        // What was told before is older than what is read now, and may contradict it.
        self.listener.discard()?;
        let Self { kernel, follower, .. } = self;
        let vports = kernel.vports(follower.datapath)?;
        follower.ports.compare(&vports, follower.options.underlay.as_deref(), follower.intake);
        follower.flows.begin_comparison();
        follower.must_compare = false;
        kernel.flows(follower.datapath, &mut |payload| {
            // One that the kernel does not tell all of is left out, which another comparison would not change.
            let _ = follower.flows.put(payload, &follower.meters, follower.intake);
        })?;
        follower.flows.end_comparison(follower.intake);
        if let Some(feedback) = &mut follower.feedback {
            feedback.retain(|ufid| follower.flows.has(ufid) || MeterCount::meter_of(ufid).is_some());
        }
        follower.report.comparisons += 1;
        self.differs = false;
        self.compared = Instant::now();
        Ok(())
    }

    /// Tells what has come of the flows. Those that somebody has deleted by a command are put in again, as Open vSwitch would.
    fn tell(&mut self) {
        self.follower.must_compare |= self.follower.tell().misses_some;
        self.told = Instant::now();
    }
}

/// Whether a datapath takes packets on where they missed in a chain, of which the kernel has to be asked.
pub(super) fn can_go_on(kernel: &mut Kernel, datapath: &Datapath) -> bool {
    if datapath.shares_recirculation() {
        return true;
    }
    match kernel.share_recirculation(datapath) {
        Ok(()) => true,
        Err(reason) => {
            tracing::info!("{} takes no packets on where they missed in a chain: {reason}", datapath.name);
            false
        }
    }
}

fn find(kernel: &mut Kernel, options: &Options) -> Result<Datapath, Trouble> {
    kernel.datapath(&options.datapath)?.ok_or(Trouble::NoDatapath)
}
