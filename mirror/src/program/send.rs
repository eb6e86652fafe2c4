//! `sluice-mirror send`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use prometheus::Registry;
use sluice_control::mirror::Class;
use tracing::error;

use super::config::{self, ConfigFile, Metrics};
use super::serve::{Pages, device, told_to_stop};
use super::ways::Dialer;
use super::{Common, End, Error, play};
use crate::connection::Local;
use crate::sender::{Sender, SenderConfig, SenderMetrics, capacity};
use crate::source::own::OwnTraffic;
use crate::source::psample::SampleSource;
use crate::source::ring::RingSource;
use crate::source::{AgentSource, PlannedRings, Source, SourceError};

/// Requests to send, and receive requests for grants: a collector grants at most as many messages of all classes.
const GRANTS: u32 = 256;

/// Port of the own host where metrics are served, if nothing else is said.
const METRICS: u16 = 9320;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    common: Common,
    /// Send to this collector, HOST:PORT; wins over the file and over what the agent names
    #[arg(long, value_name = "ADDR")]
    collector: Option<String>,
    /// Read the agent's mirror socket here; wins over the file
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
    /// Call this sender so in the collector's files; wins over the file, and over the host's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Read packet rings even if they would bring the mirror's own traffic
    #[arg(long)]
    force: bool,
    /// Do not read packet rings: only what comes over the agent's socket is sent
    #[arg(long)]
    no_rings: bool,
}

pub(super) fn run(options: &Options) -> Result<(), End> {
    let ConfigFile { mirror: mut shared, send: mut file, .. } = config::read(options.common.config.as_deref())?;
    options.common.apply(&mut shared);
    file.collector = options.collector.clone().or(file.collector);
    file.agent = options.agent.clone().unwrap_or(file.agent);
    file.name = options.name.clone().or(file.name);
    file.rings &= !options.no_rings;
    file.check()?;
    if options.common.check {
        return Ok(());
    }
    play(&shared.log, || async {
        let stop = told_to_stop();
        let local = Local::open(&device(&shared.device)?, capacity(GRANTS))?;
        let registry = Registry::new();
        let metrics = SenderMetrics::new(&registry)?;
        let agent = AgentSource::new(&file.agent, local.domain(), file.batching())?;
        let dialer = Dialer::new(file.collector.clone(), agent.plan(), shared.clone());
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        if file.rings {
            let rings = RingSource::new(local.domain(), file.ring());
            let own = if options.force { None } else { Some(OwnTraffic::of(local.context())?) };
            sources.push(Box::new(PlannedRings::new(rings, agent.plan(), own)));
        }
        if !file.sample_groups.is_empty() {
            let groups: Vec<_> = file.sample_groups.iter().map(|group| (*group, Class::Flow)).collect();
            match SampleSource::open(local.domain(), &groups, file.batching()) {
                Ok(samples) => sources.push(Box::new(samples.following(agent.plan()))),
                // All other frames come without them.
                Err(error @ SourceError::Io { .. }) => {
                    error!("no samples are sent, which need CAP_NET_ADMIN and the module psample: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
        sources.push(Box::new(agent));
        let config = SenderConfig {
            name: file.name.clone().unwrap_or_else(host),
            id: random()?,
            // A collector that is back shall not wait for a second.
            back_off: (Duration::from_millis(50), Duration::from_millis(200)),
            heartbeat: Duration::from_millis(500),
        };
        let _pages = Pages::serve(shared.metrics.unwrap_or(Metrics::local(METRICS)), registry)?;
        let sender = Sender::new(local, config, sources, metrics);
        sender.run(dialer, stop).await.map_err(|error| End::Failed(error.into()))
    })
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A number that no other run has.
fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
