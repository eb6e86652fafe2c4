//! Who forwards: Open vSwitch with Sluice beside it, or by its own offload.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use sluice_tests::daemon::{Daemon, binary};
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::world::eventually;

#[derive(Clone, Copy)]
pub(crate) enum Contender {
    /// Sluice in front of the kernel's datapath, where an unmodified Open vSwitch keeps all flows.
    InFront,
    /// The offload to tc of the same Open vSwitch.
    OwnOffload,
    /// Sluice, to which an Open vSwitch 4.0 with our provider hands its flows over.
    HandedOver,
    /// The offload to tc of that Open vSwitch.
    OwnOffloadOf4,
}

impl Contender {
    /// Ours first in each pair.
    pub(crate) const PAIRS: [[Self; 2]; 2] =
        [[Self::InFront, Self::OwnOffload], [Self::HandedOver, Self::OwnOffloadOf4]];

    /// Starts it in the namespace of this thread, with a rule for each of these ports of UDP, so that each is a flow of its own.
    ///
    /// `native` has the programs of the Open vSwitch 4.0.
    pub(crate) fn start(self, folder: &Path, native: &Path, ports: RangeInclusive<u16>) -> Running {
        let own_offload = "hw-offload=true tc-policy=skip_hw";
        let running = match self {
            Self::InFront => start_in_front(folder),
            Self::HandedOver => start_handed_over(folder, native),
            Self::OwnOffload => Running { vswitchd: start_ovs(None, own_offload, &[]), agent: None },
            Self::OwnOffloadOf4 => {
                let settings = format!("{own_offload} hw-offload-priority=tc");
                Running { vswitchd: start_ovs(Some(native), &settings, &[]), agent: None }
            }
        };
        running.add_rules(folder, ports);
        running
    }
}

fn start_in_front(folder: &Path) -> Running {
    let library = binary("libsluice_ovs_feedback.so");
    assert!(library.exists(), "{} is built by cargo build", library.display());
    let socket = folder.join("run/ovs-feedback.sock").display().to_string();
    let loaded = [("LD_PRELOAD", library.to_str().expect("a path")), ("SLUICE_OVS_FEEDBACK", &socket)];
    let vswitchd = start_ovs(None, "hw-offload=false", &loaded);
    Running { vswitchd, agent: Some(start_agent(folder, "")) }
}

fn start_handed_over(folder: &Path, native: &Path) -> Running {
    let run_dir = folder.join("run");
    let settings = format!("hw-offload=true hw-offload-priority=sluice sluice-run-dir={}", run_dir.display());
    let vswitchd = start_ovs(Some(native), &settings, &[]);
    let agent = start_agent(folder, "handed_over = true\n");
    eventually("ovs-vswitchd reads what is counted", || agent.log().contains("adds what is counted"));
    Running { vswitchd, agent: Some(agent) }
}

fn start_ovs(programs: Option<&Path>, settings: &str, environment: &[(&str, &str)]) -> OffloadingVswitchd {
    OffloadingVswitchd::start_of(programs, (Some("nic"), &["client", "server"]), settings, environment)
}

fn start_agent(folder: &Path, keys: &str) -> Daemon {
    let config = format!("backend = \"tc\"\ntc.policy = \"skip_hw\"\n[source.ovs]\n{keys}");
    let agent = Daemon::start_in(folder, &config, false);
    eventually("the datapath is read", || agent.metric("sluice_source_up{source=\"ovs\"}") == Some(1.0));
    agent
}

/// One that forwards, until it is dropped.
pub(crate) struct Running {
    vswitchd: OffloadingVswitchd,
    agent: Option<Daemon>,
}

impl Running {
    fn add_rules(&self, folder: &Path, ports: RangeInclusive<u16>) {
        let rules = ports.map(|port| format!("udp,in_port=client,tp_dst={port},actions=output:server\n"));
        let file = folder.join("rules");
        std::fs::create_dir_all(folder).expect("a folder in memory");
        std::fs::write(&file, rules.collect::<String>()).expect("a file in memory");
        self.vswitchd.set_rules(&file);
    }

    /// Has ovs-vswitchd look at no flow again, and keep as many as there are: on a machine as slow as this one it would soon keep few.
    pub(crate) fn keep_all(&self) {
        self.vswitchd.set_for_next("max-idle=3600000");
        for command in [&["revalidator/pause"][..], &["upcall/set-flow-limit", "200000"]] {
            self.vswitchd.appctl(command).expect("a command that it knows");
        }
    }

    /// Has it look at its flows again, without which it would not end.
    pub(crate) fn look_again(&self) {
        self.vswitchd.appctl(&["revalidator/resume"]).expect("a command that it knows");
    }

    /// Ends ovs-vswitchd and starts it again, as `ovs-ctl restart` does: the datapath stays as it is until there are OpenFlow rules again.
    pub(crate) fn restart(&mut self, folder: &Path, ports: RangeInclusive<u16>) {
        self.look_again();
        self.vswitchd.exit();
        self.vswitchd.set_for_next("flow-restore-wait=true");
        self.vswitchd.start_again();
        self.add_rules(folder, ports);
        self.vswitchd.set_for_next("flow-restore-wait=false");
        self.keep_all();
    }

    /// Packets that have come to the kernel's datapath.
    pub(crate) fn by_software(&self) -> u64 {
        let show = self.vswitchd.appctl(&["dpctl/show"]).expect("a command that it knows");
        let count = |what: &str| show.split_once(what)?.1.split(' ').next()?.parse::<u64>().ok();
        ["hit:", "missed:"].map(|what| count(what).expect("a number")).iter().sum()
    }

    /// Ports of UDP of which there are flows: in the kernel's datapath, in tc, or handed over.
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
