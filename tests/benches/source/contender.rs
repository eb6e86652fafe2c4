//! Who forwards: Open vSwitch with Sluice beside it, or by its own offload.

use std::collections::BTreeSet;
use std::path::Path;

use sluice_tests::daemon::{Daemon, binary};
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::world::eventually;

use crate::lab::PORTS;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    Sluice,
    OwnOffload,
}

impl Contender {
    /// Ours first.
    pub(crate) const BOTH: [Self; 2] = [Self::Sluice, Self::OwnOffload];

    /// Starts it in the namespace of this thread, with a rule for each port of UDP, so that each is a flow of its own.
    pub(crate) fn start(self, folder: &Path) -> Running {
        let ports = ["client", "server"];
        if self == Self::OwnOffload {
            let settings = "hw-offload=true tc-policy=skip_hw";
            let running = Running { vswitchd: start_ovs(&ports, settings, &[]), agent: None };
            running.add_rules(folder);
            return running;
        }
        let library = binary("libsluice_ovs_feedback.so");
        assert!(library.exists(), "{} is built by cargo build", library.display());
        let socket = folder.join("run/ovs-feedback.sock").display().to_string();
        let loaded = [("LD_PRELOAD", library.to_str().expect("a path")), ("SLUICE_OVS_FEEDBACK", &socket)];
        let vswitchd = start_ovs(&ports, "hw-offload=false", &loaded);
        let config = "backend = \"tc\"\ntc.policy = \"skip_hw\"\n[source.ovs]\n";
        let agent = Daemon::start_in(folder, config, false);
        eventually("the datapath is read", || agent.metric("sluice_source_up{source=\"ovs\"}") == Some(1.0));
        let running = Running { vswitchd, agent: Some(agent) };
        running.add_rules(folder);
        running
    }
}

fn start_ovs(ports: &[&str], settings: &str, environment: &[(&str, &str)]) -> OffloadingVswitchd {
    OffloadingVswitchd::start_of(None, (Some("nic"), ports), settings, environment)
}

/// One that forwards, until it is dropped.
pub(crate) struct Running {
    vswitchd: OffloadingVswitchd,
    agent: Option<Daemon>,
}

impl Running {
    fn add_rules(&self, folder: &Path) {
        let rules = PORTS.map(|port| format!("udp,in_port=client,tp_dst={port},actions=output:server\n"));
        let file = folder.join("rules");
        std::fs::create_dir_all(folder).expect("a folder in memory");
        std::fs::write(&file, rules.collect::<String>()).expect("a file in memory");
        self.vswitchd.set_rules(&file);
    }

    /// Ports of UDP of which there are flows in the kernel's datapath, or in tc.
    pub(crate) fn flows(&self) -> BTreeSet<u16> {
        let dump = self.vswitchd.appctl(&["dpctl/dump-flows"]).expect("a command that it knows");
        let port = |line: &str| line.split_once("udp(dst=")?.1.split(')').next()?.parse().ok();
        dump.lines().filter_map(port).collect()
    }

    /// Whether the agent is there, as it has to be at the end.
    pub(crate) fn is_alive(&self) -> bool {
        self.agent.as_ref().is_none_or(|agent| agent.sluice(&["show"]).code == Some(0))
    }
}
