//! The source: sessions one after the other.

use std::time::Duration;

use sluice_ctnetlink::Mark;
use sluice_flow::Origin;
use sluice_flow::source::{Intake, Source, SourceReport};

use crate::session::Session;

/// How long a kernel that cannot be asked is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// How soon a source that is to stop does.
const NAP: Duration = Duration::from_millis(50);

/// What is taken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many connections have flows, at most.
    pub connections: usize,
    /// The mark of connections that may have flows.
    pub mark: Mark,
    /// How long a connection that begins is left to the kernel before it has flows.
    pub after: Duration,
    /// Whether connections that the kernel translates have flows.
    pub translated: bool,
    /// The bytes of notifications that wait at most.
    pub queue_bytes: usize,
    /// How often it is looked what was counted.
    pub interval: Duration,
}

/// The connections that the kernel tracks in the network namespace of the thread that runs this.
pub struct ConntrackSource {
    options: Options,
    /// Over all sessions.
    report: SourceReport,
}

impl ConntrackSource {
    /// One that hears nothing yet.
    pub fn new(options: Options) -> Self {
        let mut subject = "connections of the kernel".to_owned();
        if options.mark != Mark::default() {
            subject += &format!(" with the mark {}", options.mark);
        }
        Self { options, report: SourceReport { subject, ..SourceReport::default() } }
    }
}

impl Source for ConntrackSource {
    fn origin(&self) -> Origin {
        Origin::Conntrack
    }

    fn run(&mut self, intake: &dyn Intake, stops: &dyn Fn() -> bool) {
        while !stops() {
            let ended =
                Session::begin(&self.options, &mut self.report, intake).and_then(|mut session| session.run(stops));
            let Err(trouble) = ended else { break };
            take_out(intake);
            let trouble = trouble.to_string();
            if self.report.trouble.as_ref() != Some(&trouble) {
                tracing::warn!("no flows of connections: {trouble}");
            }
            (self.report.trouble, self.report.flows, self.report.flows_left_out) = (Some(trouble), 0, 0);
            self.report.reasons.clear();
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

/// Takes out all that was brought in.
fn take_out(intake: &dyn Intake) {
    let mut ufids = Vec::new();
    intake.visit(&mut |standing| ufids.push(standing.ufid));
    ufids.into_iter().for_each(|ufid| intake.delete(ufid));
}
