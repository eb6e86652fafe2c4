//! The whole agent in front of the same kernel: a daemon that is given a file, polled, killed and started again.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_control::Client;
use sluice_offload_tc::wire::filter::Hook;
use sluice_tests::bench::timed;
use sluice_tests::daemon::{Daemon, new_folder, time_of_threads};
use sluice_tests::world::eventually;

use crate::lab::{index, run};
use crate::rules::flow_lines;

/// Network devices of the daemon.
const DEVICES: [&str; 2] = ["agent1", "agent2"];

/// The daemon's network namespace. It hears of every rule that comes and goes in it, for which whoever makes one pays: the
/// others are not to.
const SPACE: &str = "agent";

/// Does something in the daemon's namespace.
pub(crate) fn within<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        let space = File::open(format!("/run/netns/{SPACE}")).expect("the namespace");
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).expect("the right to enter it");
        work()
    };
    // A namespace is entered by a thread, and this one ends there.
    std::thread::scope(|scope| scope.spawn(enter).join().expect("it is done"))
}

/// A daemon on two ports in a namespace of its own, with its log of flows, as by default.
pub(crate) struct Agent {
    folder: PathBuf,
    daemon: Option<Daemon>,
}

impl Agent {
    pub(crate) fn start() -> Self {
        run("ip", &format!("netns add {SPACE}"));
        run("ip", &format!("-n {SPACE} link set lo up"));
        for device in DEVICES {
            run("ip", &format!("-n {SPACE} link add {device} type dummy"));
            run("ip", &format!("-n {SPACE} link set {device} up"));
        }
        let mut agent = Self { folder: new_folder(), daemon: None };
        agent.start_again();
        agent
    }

    fn start_again(&mut self) {
        let mut config = "backend = \"tc\"\ntc.policy = \"skip_hw\"\nidle_timeout = \"none\"\n".to_owned();
        config += "flow_limit = 1000000\ndirty_limit = 1000000\n";
        for (number, device) in (1..).zip(DEVICES) {
            config += &format!("[[port]]\nnumber = {number}\nname = \"{device}\"\n");
        }
        self.daemon = Some(within(|| Daemon::start_in(&self.folder, &config, false)));
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    fn metric(&self, series: &str) -> Option<f64> {
        within(|| self.daemon().metric(series))
    }

    /// Does something with the hook of the port where its flows come in.
    pub(crate) fn at_hook<T: Send>(&self, work: impl FnOnce(Hook) -> T + Send) -> T {
        within(|| work(Hook::Ingress { interface: index(DEVICES[0]) }))
    }

    /// A file with so many flows.
    pub(crate) fn file(&self, rules: usize) -> String {
        let file = self.folder.join(format!("{rules}.txt"));
        std::fs::write(&file, flow_lines(rules, 1, 2)).expect("a file in memory");
        file.display().to_string()
    }

    /// The time until the kernel has all flows of a file, and they are in the log.
    pub(crate) fn install(&self, file: &str) -> Duration {
        let mut client = Client::connect(&self.daemon().socket()).expect("it listens");
        let (wall, said) = timed(|| client.call_text("dpctl/add-flows", &[file]).expect("the file is taken"));
        assert_eq!(said, "", "no line is wrong");
        wall
    }

    /// The processor time that a round of the revalidator takes, over some of them.
    pub(crate) fn revalidation(&self, rounds: u32) -> Duration {
        let mut client = Client::connect(&self.daemon().socket()).expect("it listens");
        // Who is told of its end has nothing to do meanwhile, and takes no processor from it.
        let mut round = || assert_eq!(client.call_text("revalidator/wait", &[]).expect("it revalidates"), "");
        let spent = || time_of_threads(self.daemon().pid(), "revalidator");
        // From end to end of a round.
        round();
        let before = spent();
        (0..rounds).for_each(|_| round());
        (spent() - before) / rounds
    }

    /// Kills it, and gives the time until the next one is ready and has taken over all rules that there were.
    pub(crate) fn restart(&mut self, rules: usize) -> Duration {
        self.daemon().signal("KILL");
        self.daemon = None;
        let (wall, ()) = timed(|| self.start_again());
        let fate = |fate| self.metric(&format!("sluice_start_rules{{fate=\"{fate}\"}}"));
        assert_eq!((fate("adopted"), fate("removed"), fate("to_install")), (Some(rules as f64), Some(0.0), Some(0.0)));
        wall
    }

    pub(crate) fn clear(&self) {
        // It may say that not all is gone yet.
        self.daemon().sluice(&["flush"]);
        eventually("the flows are gone", || self.metric("sluice_flows{state=\"partial\"}") == Some(0.0));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.daemon = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
