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

/// The sources of the configuration.
#[derive(Default)]
pub struct Sources(Vec<Box<dyn Source>>);

impl Sources {
    /// Makes what they need. Nobody can connect to them before they run.
    pub fn new(config: &Config) -> Result<Self, FeedbackError> {
        configured(config).map(Self)
    }

    /// Runs them. When they are stopped, the rules of their flows are taken out: nobody would say any more when a flow ends.
    pub fn run(self, agent: &Arc<Agent>, lifecycle: &mut Lifecycle) -> io::Result<()> {
        for mut source in self.0 {
            let agent = agent.clone();
            let name = format!("source-{}", source.origin().name());
            lifecycle.thread(&name, STOP_DEADLINE, move |stop| bring(&mut *source, &agent, &stop, ANSWER_TIME))?;
        }
        Ok(())
    }
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
    };
    Ok(if ovs.handed_over {
        Box::new(HandedOverSource::new(options, &config.run_dir.join(FLOWS_SOCKET))?)
    } else {
        Box::new(DatapathSource::new(options)?)
    })
}

/// Runs a source until it is to stop, and gives the device so long to let its rules go then. Fails if it does not: whoever runs the agent
/// has to hear of rules that go on forwarding, and that nobody ends any more.
fn bring(source: &mut dyn Source, agent: &Agent, stop: &Stop, patience: Duration) -> Result<(), String> {
    let intake = AgentIntake::new(agent, source.origin(), stop.progress());
    let stops = || {
        stop.progress().works();
        stop.channel().try_recv() == Err(TryRecvError::Disconnected)
    };
    // A source that goes on with meters needs to know what they had counted before its flows bring more.
    agent.count_device();
    source.run(&intake, &stops);
    let until = Instant::now() + patience;
    while intake.has_rules() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = intake.count_flows(usize::MAX);
    intake.meters().into_iter().for_each(|meter| _ = intake.remove_meter(meter));
    stop.progress().rests();
    match left {
        0 => Ok(()),
        flows => Err(format!("leaves rules in the device: {flows} flows did not end within {} s", patience.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::OpenConfig;
    use sluice_flow::text::{parse_actions, parse_key};
    use sluice_flow::time::MonotonicClock;
    use sluice_flow::ufid::Seed;
    use sluice_flow::{Expiry, Flow, MaskedKey, Port, PortKind, PortNumber, Priority};
    use sluice_host::lifecycle::StopReport;
    use sluice_host::liveness::Progress;
    use sluice_offload_soft::SoftNic;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::agent::{Keeping, Parts};

    /// Wants one flow for a moment.
    struct Fleeting;

    impl Source for Fleeting {
        fn origin(&self) -> Origin {
            Origin::OpenVswitch
        }

        fn run(&mut self, intake: &dyn Intake, _: &dyn Fn() -> bool) {
            let flow = flow(intake.seed());
            intake.put(flow.clone()).unwrap();
            intake.delete(flow.ufid);
        }
    }

    /// From port 1 to port 2.
    fn flow(seed: &Seed) -> Flow {
        let matching = parse_key("in_port(1),eth_type(0x0800)", &()).unwrap().matching;
        let (key, actions) = (MaskedKey::new(&matching), parse_actions("2", &()).unwrap());
        Flow::new(None, key, actions, Priority::default(), Expiry::default(), seed)
    }

    fn agent() -> (Arc<Agent>, Parts) {
        let clock = Arc::new(MonotonicClock::new());
        let backend = Arc::new(SoftNic::new(&OpenConfig::new("test", clock.clone())));
        Agent::with_keeping(backend, Keeping::default(), Config::default(), Seed([7; 16]), clock).unwrap()
    }

    /// Runs it on an agent whose workers run or do not, and stops that.
    fn stopped(has_workers: bool, patience: Duration) -> StopReport {
        let (agent, parts) = agent();
        let runtime = Runtime::new().unwrap();
        let mut lifecycle = Lifecycle::new(runtime.handle().clone());
        if has_workers {
            parts.run(&agent, &mut lifecycle, |_| ()).unwrap();
        }
        lifecycle.thread("source", STOP_DEADLINE, move |stop| bring(&mut Fleeting, &agent, &stop, patience)).unwrap();
        runtime.block_on(lifecycle.stop())
    }

    #[test]
    fn a_source_whose_rules_do_not_go_does_not_stop_as_if_they_had_gone() {
        assert!(stopped(true, ANSWER_TIME).is_clean());
        let report = stopped(false, Duration::ZERO);
        assert_eq!(report.to_string(), "source leaves rules in the device: 1 flows did not end within 0 s");
    }

    #[test]
    fn a_flow_that_a_source_brings_again_is_accepted_for_the_port_that_has_the_number_now() {
        let (agent, _parts) = agent();
        let progress = Progress::default();
        let intake = AgentIntake::new(&agent, Origin::OpenVswitch, &progress);
        let attach = |name: &str| {
            let port = Port { number: PortNumber(2), name: name.parse().unwrap(), kind: PortKind::Physical };
            intake.attach(port).unwrap();
        };
        let flow = flow(intake.seed());
        let view = || agent.table.view(agent.table.find(flow.ufid).unwrap()).unwrap();
        attach("old");
        intake.put(flow.clone()).unwrap();
        let before = view().generation;
        intake.put(flow.clone()).unwrap();
        assert_eq!(view().generation, before, "nothing has changed");
        intake.detach(PortNumber(2));
        intake.put(flow.clone()).unwrap();
        assert_eq!(view().gone_ports.len(), 1, "it stays withheld for the one that is gone");
        attach("new");
        assert_eq!(view().gone_ports.len(), 1);
        intake.put(flow.clone()).unwrap();
        assert!(view().gone_ports.is_empty());
    }
}
