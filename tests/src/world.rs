//! An agent in this process, on any device.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_agent::ANSWER_TIME;
use sluice_agent::agent::{Agent, Keeping};
use sluice_agent::config::Config;
use sluice_flow::backend::{InstalledRule, OpenConfig, Verdict};
use sluice_flow::port::PortKind;
use sluice_flow::time::MonotonicClock;
use sluice_flow::ufid::Seed;
use sluice_flow::{Backend, Clock, Expiry, Flow, MaskedKey, Port, PortNumber, Priority, text};
use sluice_host::lifecycle::Lifecycle;
use sluice_host::liveness::Liveness;
use sluice_journal::{Journal, JournalOptions, Opened};
use sluice_offload_soft::SoftNic;
use tokio::runtime::Runtime;

/// A running agent with the ports 1 to 4.
pub struct World {
    /// The agent.
    pub agent: Arc<Agent>,
    lifecycle: Option<Lifecycle>,
    runtime: Runtime,
}

/// The seed of every test.
pub const SEED: Seed = Seed([42; 16]);

/// A NIC in software.
pub fn soft_nic(clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(SoftNic::new(&OpenConfig::new("test", clock)))
}

/// A NIC in software that takes so many rules into what counts as hardware.
pub fn soft_nic_with_room(hardware_rules: usize, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    let config = sluice_offload_soft::Config { hardware_rules: Some(hardware_rules) };
    Arc::new(SoftNic::configured(&OpenConfig::new("test", clock), &config))
}

/// Polls every 10 ms; nothing ages by itself.
pub fn quick_config() -> Config {
    Config { poll_interval: Duration::from_millis(10), idle_timeout: None, workers: 2, ..Config::default() }
}

impl World {
    /// An agent on a NIC in software.
    pub fn soft(config: Config) -> Self {
        let clock = Arc::new(MonotonicClock::new());
        Self::on(soft_nic(clock.clone()), config, clock)
    }

    /// An agent on a device.
    pub fn on(backend: Arc<dyn Backend>, config: Config, clock: Arc<dyn Clock>) -> Self {
        Self::start(backend, config, clock, None)
    }

    /// An agent that keeps its flows in a folder, and takes those on that are there.
    pub fn with_journal_in(folder: &Path, backend: Arc<dyn Backend>, config: Config, clock: Arc<dyn Clock>) -> Self {
        let options = JournalOptions {
            sync_interval: config.sync_interval,
            clock: clock.clone(),
            wall: Arc::new(std::time::SystemTime::now),
        };
        let opened = Journal::open(folder, options).expect("the log of flows opens");
        Self::start(backend, config, clock, Some(opened))
    }

    fn start(backend: Arc<dyn Backend>, mut config: Config, clock: Arc<dyn Clock>, opened: Option<Opened>) -> Self {
        config.ports = (1..=4)
            .map(|n| Port {
                number: PortNumber(n),
                name: format!("p{n}").parse().expect("a name"),
                kind: PortKind::Physical,
            })
            .collect();
        let runtime = Runtime::new().expect("a runtime");
        let keeping = Keeping { journal: opened.as_ref().map(|opened| opened.journal.clone()), objects: None };
        let (agent, parts) = Agent::with_keeping(backend, keeping, config, SEED, clock).expect("the agent starts");
        let mut lifecycle = Lifecycle::new(runtime.handle().clone());
        if let Some(opened) = opened {
            agent.keep_flows(opened, &mut lifecycle).expect("the flows come back");
        }
        parts.run(&agent, &mut lifecycle, |_| ()).expect("threads start");
        Self { agent, lifecycle: Some(lifecycle), runtime }
    }

    /// Whether its parts get on with their work.
    pub fn liveness(&self) -> Liveness {
        self.lifecycle.as_ref().expect("it runs").liveness()
    }

    /// A flow from its text.
    pub fn flow(&self, key: &str, actions: &str) -> Flow {
        let parsed = text::parse_key(key, &*self.agent.ports()).expect("a key");
        let actions = text::parse_actions(actions, &*self.agent.ports()).expect("actions");
        let matching = MaskedKey::new(&parsed.matching);
        Flow::new(parsed.ufid, matching, actions, Priority::default(), Expiry::default(), &SEED)
    }

    /// The flow for UDP datagrams that come in at port 1 for a port.
    pub fn udp_flow(&self, destination_port: u16, actions: &str) -> Flow {
        let key = format!("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={destination_port})");
        self.flow(&key, actions)
    }

    /// Lets a frame in.
    pub fn inject(&self, port: u32, frame: &[u8]) -> Verdict {
        let injector = self.agent.backend.injector().expect("a NIC in software");
        injector.inject(PortNumber(port), frame).expect("the frame is taken")
    }

    /// What the device lists.
    pub fn installed(&self) -> Vec<InstalledRule> {
        let mut rules = Vec::new();
        self.agent.backend.installed(&mut |rule| rules.push(rule)).expect("the device lists its rules");
        rules
    }

    /// Waits until the log has all that was accepted, if there is one.
    pub fn wait_for_journal(&self) {
        self.agent.journal.iter().for_each(|journal| journal.wait(ANSWER_TIME).expect("it is written"));
    }

    /// Waits until every accepted change has an outcome.
    pub fn settle(&self) {
        eventually("every change has an outcome", || self.agent.table.census().unsettled() == 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(lifecycle) = self.lifecycle.take() {
            let report = self.runtime.block_on(lifecycle.stop());
            if !std::thread::panicking() {
                assert!(report.is_clean(), "{report}");
            }
        }
    }
}

/// Waits for something that other threads bring about.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    // In the machine of `tests/lab/run`, which is emulated, everything takes many times as long.
    let patience = Duration::from_secs(if std::env::var_os("LAB_OUT").is_some() { 240 } else { 30 });
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", patience.as_secs());
        std::thread::sleep(Duration::from_millis(1));
    }
}
