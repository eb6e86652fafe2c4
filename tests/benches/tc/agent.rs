//! The whole agent in front of the same kernel: a daemon that is given a file, polled, killed and started again, and an agent
//! in this process that is given flows at half of what it takes.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_agent::config::Config;
use sluice_agent::unixctl::Client;
use sluice_flow::backend::{OffloadPolicy, OpenConfig};
use sluice_flow::table::{Settlement, Waiter};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Clock, FlowId};
use sluice_offload_tc::wire::filter::Hook;
use sluice_tests::bench::{quantile, timed};
use sluice_tests::daemon::{Daemon, new_folder, time_of_threads};
use sluice_tests::world::{World, eventually, quick_config};

use crate::lab::{index, listed, run};
use crate::rules::{Maker, Ports, flow_lines};

/// Network devices of the daemon, and those of the agent in this process.
pub(crate) const DEVICES: [&str; 2] = ["agent1", "agent2"];
pub(crate) const WORLD: [&str; 4] = ["p1", "p2", "p3", "p4"];
/// For how long flows come at half of the highest rate.
const SPAN: Duration = Duration::from_secs(5);

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
        let mut config = "backend = \"tc\"\npolicy = \"skip_hw\"\nidle_timeout = \"none\"\n".to_owned();
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
        let done = || self.metric("sluice_revalidator_rounds_total").expect("a metric");
        let past = |rounds: f64| eventually("it revalidates", || done() >= rounds);
        // From end to end of a round.
        past(done() + 1.0);
        let spent = || time_of_threads(self.daemon().pid(), "revalidator");
        let (first, before) = (done(), spent());
        past(first + f64::from(rounds));
        (spent() - before).div_f64(done() - first)
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

struct Request {
    began: Instant,
    done: Sender<Duration>,
}

impl Waiter for Request {
    fn settled(&self, _: FlowId, outcome: &Settlement) {
        assert!(matches!(outcome, Settlement::Installed(_)), "{outcome:?}");
        self.done.send(self.began.elapsed()).expect("the bench listens");
    }
}

/// The time from acceptance to the kernel's answer that one flow in a hundred exceeds, at so many flows a second.
pub(crate) fn latency(rate: f64) -> Duration {
    let clock = Arc::new(MonotonicClock::new());
    let open = OpenConfig {
        policy: OffloadPolicy::SkipHardware,
        ..OpenConfig::new("system", clock.clone() as Arc<dyn Clock>)
    };
    let backend = sluice_offload_tc::open(&open).expect("the classifier");
    let world = World::on(backend, Config { poll_interval: Duration::from_millis(500), ..quick_config() }, clock);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of flows")]
    let number = |span: Duration| (span.as_secs_f64() * rate) as usize;
    let total = number(SPAN);
    let text = flow_lines(total, 1, 2);
    let mut maker = Maker::new(Ports { receiver: 0, sender: 0 });
    let flows: Vec<_> = text.lines().map(|line| maker.flow(line)).collect();
    let (done, outcomes) = unbounded();
    let began = Instant::now();
    let mut flows = flows.into_iter();
    let mut offered = 0;
    while offered < total {
        let due = number(began.elapsed()).min(total);
        for flow in flows.by_ref().take(due - offered) {
            let waiter = Arc::new(Request { began: Instant::now(), done: done.clone() });
            world.agent.queue.add(flow, Some(waiter)).expect("there is room");
        }
        offered = due;
        std::thread::sleep(Duration::from_micros(500));
    }
    world.settle();
    let took: Vec<_> = outcomes.try_iter().collect();
    assert_eq!(took.len(), total, "every flow has its rule");
    let [input, ..] = WORLD;
    let hook = Hook::Ingress { interface: index(input) };
    assert_eq!(listed(hook), total, "rules in the kernel: an agent at half its rate");
    drop(world);
    run("tc", &format!("qdisc del dev {input} ingress"));
    quantile(&took, 0.99)
}
