//! Takes the flows of a datapath of the kernel for offload, while Open vSwitch keeps every one of them.
//!
//! ```text
//! kernel --NEW, SET, DEL--> Listener --> Session --> Flows, Ports --> Intake (the agent)
//!   ^                                       |
//!   +---- all of it, to compare ------------+ at the start, after lost messages, when the number of flows is another one
//! ```
//!
//! A packet meets the rules of the agent before the datapath, so that Open vSwitch must never see a rule that it has no flow for:
//!
//! - A deletion or change is told by the kernel and passed on at once.
//! - Flows that go all at once (`OVS_FLOW_CMD_DEL` without a key) are not told of. The kernel is asked ten times a second how many it has;
//!   two answers in a row that are not as expected have all flows compared, at most once a second.
//! - A message that is not understood takes the rule of its flow out.
//! - When the source stops, or the datapath is gone, all rules are taken out. If no other datapath comes, ports go as well.
//!
//! A packet that misses in a later chain of tc goes on in the datapath at that recirculation id where the kernel can
//! (`OVS_DP_F_TC_RECIRC_SHARING`), for which the source asks as ovs-vswitchd does with `hw-offload`. That stays so when the source stops, for
//! rules that a kill leaves behind need it, and nothing else heeds it. An ovs-vswitchd that starts keeps it. If another program takes it back,
//! the source asks again. With other kernels the packet begins again.
//!
//! Open vSwitch deletes a flow that the kernel counts nothing for. So what the device counts goes back to ovs-vswitchd by
//! [`sluice_feedback`], if a library of ours is loaded there. Without it flows are made anew every max-idle, and its counters are short. That
//! library tells of meters, too, whose rates the kernel tells nobody; without it, flows that name one are left out.

mod feedback;
mod flows;
mod follower;
mod handed_over;
mod left;
mod meters;
mod ports;
mod refusals;
mod session;
mod told_meters;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_flow::Origin;
use sluice_flow::source::{Intake, Source, SourceReport};

pub use self::feedback::FeedbackError;
use self::feedback::{Feedback, PreparedFeedback};
pub use self::handed_over::HandedOverSource;
use self::session::Session;

/// How long a datapath that is not there is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// How soon a source that is to stop does.
const NAP: Duration = Duration::from_millis(250);
/// How long ports outlive their datapath: Open vSwitch may make it anew, as `ovs-ctl force-reload-kmod` does.
const PORTS_STAY: Duration = Duration::from_secs(5);

/// What is read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The datapath, such as `ovs-system`.
    pub datapath: String,
    /// The port that packets of tunnels take; without one tunnels are left out.
    pub underlay: Option<String>,
    /// Whether the datapath shall take packets on where they missed in a chain, if the kernel can: they come to it from there.
    pub shares_recirculation: bool,
    /// The bytes of notifications that wait at most.
    pub queue_bytes: usize,
    /// The socket at which the library in ovs-vswitchd asks for what was counted, and for how many flows there is memory; `None` if Open
    /// vSwitch is told nothing.
    pub feedback: Option<(PathBuf, usize)>,
}

/// The flows of a datapath.
pub struct DatapathSource {
    options: Options,
    /// Until it runs.
    feedback: Option<PreparedFeedback>,
    /// Over all sessions.
    report: SourceReport,
}

impl DatapathSource {
    /// One that reads nothing yet, and at whose socket nobody is answered before it runs.
    ///
    /// # Errors
    /// Fails if the feedback cannot be shared.
    pub fn new(options: Options) -> Result<Self, FeedbackError> {
        let report = SourceReport { subject: options.datapath.clone(), ..SourceReport::default() };
        let feedback = prepare_feedback(&options, true)?;
        Ok(Self { options, feedback, report })
    }
}

impl Source for DatapathSource {
    fn origin(&self) -> Origin {
        Origin::OpenVswitch
    }

    fn run(&mut self, intake: &dyn Intake, stops: &dyn Fn() -> bool) {
        let mut feedback = open_feedback(self.feedback.take());
        let mut gone_since = None;
        while !stops() {
            let feedback = &mut feedback;
            let begun = Session::begin(&self.options, &mut self.report, feedback.as_mut(), intake);
            let ended = begun.and_then(|mut session| {
                gone_since = None;
                session.run(stops)
            });
            let Err(trouble) = ended else { break };
            if let Some(feedback) = feedback {
                feedback.retain(|_| false);
            }
            take_out(intake);
            take_out_meters(intake);
            if trouble.is_absence() && gone_since.get_or_insert_with(Instant::now).elapsed() >= PORTS_STAY {
                intake.ports().iter().for_each(|port| intake.detach(port.number));
            }
            let trouble = trouble.to_string();
            if self.report.trouble.as_ref() != Some(&trouble) {
                tracing::warn!("no flows of {}: {trouble}", self.options.datapath);
            }
            (self.report.trouble, self.report.flows, self.report.flows_left_out) = (Some(trouble), 0, 0);
            intake.report(self.report.clone());
            let mut waited = Duration::ZERO;
            while waited < AGAIN && !stops() {
                std::thread::sleep(NAP);
                waited += NAP;
            }
        }
        take_out(intake);
    }
}

/// Makes what the feedback needs, if there is to be any.
fn prepare_feedback(options: &Options, wants_meters: bool) -> Result<Option<PreparedFeedback>, FeedbackError> {
    let prepare = |(socket, flows): &(PathBuf, usize)| PreparedFeedback::new(socket, *flows, wants_meters);
    options.feedback.as_ref().map(prepare).transpose()
}

/// Lets ovs-vswitchd ask for the feedback.
fn open_feedback(prepared: Option<PreparedFeedback>) -> Option<Feedback> {
    let opened = prepared.map(PreparedFeedback::open).transpose();
    opened.unwrap_or_else(|error| {
        tracing::error!("Open vSwitch hears nothing of what is forwarded here: {error}");
        None
    })
}

/// Takes out all flows that were brought in.
fn take_out(intake: &dyn Intake) {
    let mut ufids = Vec::new();
    intake.visit(&mut |standing| ufids.push(standing.ufid));
    ufids.into_iter().for_each(|ufid| intake.delete(ufid));
}

/// Takes out the meters that were brought in, as far as the device has no rules any more that use them.
fn take_out_meters(intake: &dyn Intake) {
    intake.meters().into_iter().for_each(|meter| _ = intake.remove_meter(meter));
}
