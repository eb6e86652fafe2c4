//! Where flows come from besides commands: the sources of the configuration, each on a thread of its own, and what they tell of themselves.

mod intake;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::TryRecvError;
use parking_lot::Mutex;
use sluice_feed_ovs::source::{DatapathSource, Options};
use sluice_flow::source::{Source, SourceReport};
use sluice_flow::{FlowState, Origin};
use sluice_host::lifecycle::{Lifecycle, Stop};

use self::intake::AgentIntake;
use crate::agent::{ANSWER_TIME, Agent};
use crate::config::Config;

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
    for mut source in configured(&agent.config()) {
        let agent = agent.clone();
        let name = format!("source-{}", source.origin().name());
        lifecycle.thread(&name, STOP_DEADLINE, move |stop| {
            bring(&mut *source, &agent, &stop);
            Ok(())
        })?;
    }
    Ok(())
}

fn configured(config: &Config) -> Vec<Box<dyn Source>> {
    let ovs = config.sources.ovs.as_ref().map(|ovs| -> Box<dyn Source> {
        Box::new(DatapathSource::new(Options {
            datapath: ovs.datapath.clone(),
            underlay: ovs.underlay.clone(),
            queue_bytes: ovs.queue_bytes,
            interval: config.poll_interval,
        }))
    });
    ovs.into_iter().collect()
}

fn bring(source: &mut dyn Source, agent: &Agent, stop: &Stop) {
    let intake = AgentIntake::new(agent, source.origin(), stop.progress());
    let stops = || {
        stop.progress().works();
        stop.channel().try_recv() == Err(TryRecvError::Disconnected)
    };
    source.run(&intake, &stops);
    let until = Instant::now() + ANSWER_TIME;
    while intake.has_rules() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    stop.progress().rests();
}

/// Whether a flow is on its way out, which a source need not hear of any more.
const fn is_ending(state: FlowState) -> bool {
    matches!(state, FlowState::Deleting)
}
