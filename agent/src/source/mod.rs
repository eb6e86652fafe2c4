//! Where flows come from besides commands: the sources of the configuration, each on a thread of its own, and what they tell of themselves.

mod intake;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::TryRecvError;
use parking_lot::Mutex;
use sluice_feed_conntrack::{ConntrackSource, Options as ConnectionOptions};
use sluice_feed_ovs::source::{DatapathSource, FeedbackError, HandedOverSource, Options};
use sluice_flow::Origin;
use sluice_flow::backend::MissPolicy;
use sluice_flow::source::{Intake, Source, SourceReport};
use sluice_host::lifecycle::{Lifecycle, Stop};

use self::intake::AgentIntake;
use crate::agent::{ANSWER_TIME, Agent};
use crate::config::{Config, Feedback, OvsSource};

/// In the run folder: where the library in ovs-vswitchd looks for the agent, unless it is told otherwise.
const FEEDBACK_SOCKET: &str = "ovs-feedback.sock";

/// In the run folder: where ovs-vswitchd hands flows over.
const FLOWS_SOCKET: &str = "ovs-flows.sock";

/// How long a source may take to stop and to have its rules taken out.
const STOP_DEADLINE: Duration = ANSWER_TIME.saturating_add(Duration::from_secs(5));

/// What sources told last of themselves.
#[derive(Debug, Default)]
pub struct Reports(Mutex<Vec<(Origin, SourceReport)>>);

impl Reports {
    /// What each source told last, in no order.
    pub fn all(&self) -> Vec<(Origin, SourceReport)> {
        self.0.lock().clone()
    }

    fn note(&self, origin: Origin, report: SourceReport) {
        let mut reports = self.0.lock();
        reports.retain(|(known, _)| *known != origin);
        reports.push((origin, report));
    }
}

/// Runs the sources of the configuration. When they are stopped, the rules of their flows are taken out: nobody would say any more when a
/// flow ends.
pub fn run(agent: &Arc<Agent>, lifecycle: &mut Lifecycle) -> io::Result<()> {
    for mut source in configured(&agent.config()).map_err(io::Error::other)? {
        let agent = agent.clone();
        let name = format!("source-{}", source.origin().name());
        lifecycle.thread(&name, STOP_DEADLINE, move |stop| {
            bring(&mut *source, &agent, &stop);
            Ok(())
        })?;
    }
    Ok(())
}

fn configured(config: &Config) -> Result<Vec<Box<dyn Source>>, FeedbackError> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if let Some(ovs) = &config.sources.ovs {
        sources.push(datapath(ovs, config)?);
    }
    if let Some(conntrack) = &config.sources.conntrack {
        sources.push(Box::new(ConntrackSource::new(ConnectionOptions {
            connections: conntrack.connections,
            mark: conntrack.mark,
            after: conntrack.after,
            translated: conntrack.translated.unwrap_or_else(|| translates_whole(config)),
            queue_bytes: conntrack.queue_bytes,
            interval: config.poll_interval,
        })));
    }
    Ok(sources)
}

/// Whether rules translate all packets as the kernel does, checksums included: in software, tc does not those that are still to be cut into
/// segments.
fn translates_whole(config: &Config) -> bool {
    config.backend.name() != "tc" || config.backend.settings().get("policy").is_some_and(|policy| policy == "skip_sw")
}

fn datapath(ovs: &OvsSource, config: &Config) -> Result<Box<dyn Source>, FeedbackError> {
    let feedback = match ovs.feedback {
        Feedback::Shared => Some((config.run_dir.join(FEEDBACK_SOCKET), config.flow_limit)),
        Feedback::None => None,
    };
    let options = Options {
        datapath: ovs.datapath.clone(),
        underlay: ovs.underlay.clone(),
        shares_recirculation: config.backend.kind().chain_miss == MissPolicy::Kernel,
        queue_bytes: ovs.queue_bytes,
        feedback,
        interval: config.poll_interval,
    };
    Ok(if ovs.handed_over {
        Box::new(HandedOverSource::open(options, &config.run_dir.join(FLOWS_SOCKET))?)
    } else {
        Box::new(DatapathSource::open(options)?)
    })
}

fn bring(source: &mut dyn Source, agent: &Agent, stop: &Stop) {
    let intake = AgentIntake::new(agent, source.origin(), stop.progress());
    let stops = || {
        stop.progress().works();
        stop.channel().try_recv() == Err(TryRecvError::Disconnected)
    };
    // A source that goes on with meters needs to know what they had counted before its flows bring more.
    agent.count_device();
    source.run(&intake, &stops);
    let until = Instant::now() + ANSWER_TIME;
    while intake.has_rules() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    intake.meters().into_iter().for_each(|meter| _ = intake.remove_meter(meter));
    stop.progress().rests();
}
