//! What is measured on a real kernel, in the lab's virtual machine: every way of putting the same rules in, in turns.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::dump::{Detail, Lister, Listing};
use sluice_offload_tc::install::{BATCH, Installer, Request};
use sluice_offload_tc::label::Label;
use sluice_offload_tc::wire::filter::Hook;
use sluice_offload_tc::wire::rule_view::RuleView;
use sluice_offload_tc::wire::statistics::Count;
use sluice_tests::bench::timed;
use sluice_tests::lab::{OffloadingVswitchd, Wire};

use crate::agent::Agent;
use crate::floor::{self, Floor};
use crate::latency;
use crate::parts::{Part, Parts};
use crate::revalidation::{self, INPUT};
use crate::rules::{Maker, Ports, batch_lines, flow_lines};

/// Ports of ours and of tc, and those of OVS.
const DEVICES: [&str; 4] = ["bench1", "bench2", "ovs1", "ovs2"];
const WORKERS: usize = 2;

/// How often it is looked whether the kernel rests, for how great a part of the time it then has nothing to do, and how long
/// that is waited for.
const LOOK: Duration = Duration::from_millis(500);
const AT_REST: f64 = 0.85;
const PATIENCE: Duration = Duration::from_secs(120);

/// The times of a round, all for the same number of rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) floor: Duration,
    pub(crate) ours: Duration,
    pub(crate) tc: Duration,
    pub(crate) ovs: Duration,
    pub(crate) floor_of_two: Duration,
    pub(crate) ours_of_two: Duration,
    pub(crate) poll: Duration,
    pub(crate) poll_floor: Duration,
    pub(crate) agent: Duration,
    pub(crate) restart: Duration,
    pub(crate) dump: Duration,
}

/// Everything that a round needs.
pub(crate) struct Lab {
    rules: usize,
    parts: Parts,
    ports: Ports,
    text: String,
    batches: Vec<Vec<u8>>,
    /// Where it is a part.
    peer: Option<Peer>,
    agent: Agent,
    agent_file: String,
}

/// ovs-vswitchd, and the rules for it and for tc.
struct Peer {
    tc_file: String,
    ovs_file: String,
    ovs: OffloadingVswitchd,
    wire: Wire,
}

impl Peer {
    fn start(rules: usize) -> Self {
        let [receiver, sender, from, to] = DEVICES;
        let wire = Wire::new(INPUT);
        run("ip", &format!("link set {INPUT} up"));
        let ovs = OffloadingVswitchd::start(&[from, to, INPUT]);
        let (tc_file, ovs_file) = (ovs.path("tc"), ovs.path("flows"));
        std::fs::write(&tc_file, batch_lines(rules, receiver, sender)).expect("a file in memory");
        let lines = flow_lines(rules, ovs.port(from).0, ovs.port(to).0);
        std::fs::write(&ovs_file, lines).expect("a file in memory");
        Self { tc_file, ovs_file, ovs, wire }
    }
}

impl Lab {
    pub(crate) fn open(rules: usize, parts: Parts) -> Self {
        let modules = "cls_flower sch_ingress act_mirred act_gact openvswitch dummy";
        run("modprobe", &format!("--all {modules}"));
        for device in DEVICES.iter().chain(&latency::WORLD) {
            run("ip", &format!("link add {device} type dummy"));
            run("ip", &format!("link set {device} up"));
        }
        let [receiver, sender, ..] = DEVICES;
        let ports = Ports { receiver: index(receiver), sender: index(sender) };
        let peer = (parts.has(Part::Ways) || parts.has(Part::Revalidation)).then(|| Peer::start(rules));
        let text = flow_lines(rules, 1, 2);
        let batches = floor::batches(&requests(&mut Maker::new(ports), text.lines(), 1));
        let agent = Agent::start();
        let agent_file = agent.file(rules);
        Self { rules, parts, ports, text, batches, peer, agent, agent_file }
    }

    /// Every way once, as far as it is asked for.
    pub(crate) fn round(&mut self) -> Round {
        let mut round = Round::default();
        self.clear();
        round.floor = timed(|| Floor::open().replay(&self.batches)).0;
        self.count("floor");
        (round.poll_floor, ()) = timed(|| Floor::open().discard(self.hook(), true));
        let (poll, counted) = timed(|| self.poll());
        round.poll = poll;
        assert_eq!(counted, self.rules, "counters of every rule");
        self.clear();
        if let Some(peer) = self.peer.as_ref().filter(|_| self.parts.has(Part::Ways)) {
            self.ways(&mut round, peer);
        }
        self.whole_agent(&mut round);
        round
    }

    fn ways(&self, round: &mut Round, peer: &Peer) {
        round.ours = timed(|| install(self.text.lines(), 1, self.ports)).0;
        self.count("ours");
        self.clear();
        round.tc = timed(|| run("tc", &format!("-batch {}", peer.tc_file))).0;
        self.count("tc");
        self.clear();
        round.floor_of_two = self.in_two(|first, _, lab| {
            let half = lab.batches.len() / WORKERS;
            let part = if first { &lab.batches[..half] } else { &lab.batches[half..] };
            Floor::open().replay(part);
        });
        self.count("floor, two at a time");
        self.clear();
        round.ours_of_two = self.in_two(|first, half, lab| {
            let half = half / BATCH * BATCH;
            let lines = lab.text.lines();
            let handle = u32::try_from(half).expect("few") + 1;
            if first { install(lines.take(half), 1, lab.ports) } else { install(lines.skip(half), handle, lab.ports) }
        });
        self.count("ours, two at a time");
        self.clear();
        round.ovs = timed(|| peer.ovs.appctl(&["dpctl/add-flows", &peer.ovs_file]).expect("flows")).0;
        let listed = listed(Hook::Ingress { interface: index(DEVICES[2]) });
        assert_eq!(listed, self.rules, "rules of OVS in the kernel");
        peer.ovs.appctl(&["dpctl/del-flows"]).expect("no flows");
        rest();
    }

    fn whole_agent(&mut self, round: &mut Round) {
        round.agent = self.agent.install(&self.agent_file);
        assert_eq!(self.agent.at_hook(listed), self.rules, "rules in the kernel: the agent");
        if self.parts.has(Part::Restart) {
            round.restart = self.agent.restart(self.rules);
            (round.dump, ()) = self.agent.at_hook(|hook| timed(|| Floor::open().discard(hook, false)));
        }
        self.agent.clear();
    }

    /// Processor times of rounds of our revalidator and of that of OVS, which begins with it.
    pub(crate) fn revalidation(&self, rounds: usize, flows: usize) -> Vec<[Duration; 2]> {
        let Some(Peer { ovs, wire, .. }) = &self.peer else { return Vec::new() };
        revalidation::rounds(rounds, flows, (&self.agent, ovs), wire, DEVICES[3])
    }

    fn hook(&self) -> Hook {
        Hook::Ingress { interface: self.ports.receiver }
    }

    /// Two threads, each with a half.
    fn in_two(&self, work: impl Fn(bool, usize, &Self) + Sync) -> Duration {
        let half = self.rules / WORKERS;
        timed(|| {
            std::thread::scope(|scope| {
                let work = &work;
                for first in [true, false] {
                    scope.spawn(move || work(first, half, self));
                }
            });
        })
        .0
    }

    /// Reads the counters of all rules as a backend does: whose each is, and what it counted.
    fn poll(&self) -> usize {
        let mut lister = Lister::open().expect("a socket");
        let (mut rules, mut total) = (0, Count::default());
        let listing = lister.list(self.hook(), Detail::Terse, &mut |view| {
            let rule = RuleView::new(view)?;
            let count = rule.id.with_headers(rule.software);
            if Label::read(rule.cookies).is_some() {
                rules += 1;
                total.packets += count.packets;
                total.bytes += count.bytes;
            }
            Ok(())
        });
        assert_eq!(listing.expect("a listing"), Listing::Whole);
        std::hint::black_box(total);
        rules
    }

    fn clear(&self) {
        let [receiver, ..] = DEVICES;
        // There is none the first time.
        let _ = Command::new("tc").args(["qdisc", "del", "dev", receiver, "clsact"]).output();
        let mut installer = Installer::open(OffloadPolicy::SkipHardware).expect("a socket");
        installer.make_hooks(self.ports.receiver).expect("hooks");
        rest();
    }

    fn count(&self, who: &str) {
        assert_eq!(listed(self.hook()), self.rules, "rules in the kernel: {who}");
    }
}

/// Waits until the kernel has nothing to do: it goes on freeing rules for a while after it has said that they are gone, and
/// that would count against whoever comes next.
pub(crate) fn rest() {
    // The time that processors had nothing to do, in hundredths of a second of one (proc(5)).
    let idle = || -> f64 {
        let stat = std::fs::read_to_string("/proc/stat").expect("statistics");
        stat.split_whitespace().nth(4).and_then(|idle| idle.parse().ok()).expect("a number")
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let begun = Instant::now();
    loop {
        let before = idle();
        std::thread::sleep(LOOK);
        if idle() - before >= LOOK.as_secs_f64() * 100.0 * processors * AT_REST {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the kernel does not come to rest");
    }
}

/// The rules at a hook.
pub(crate) fn listed(hook: Hook) -> usize {
    let mut rules = 0;
    let listing = Lister::open().expect("a socket").list(hook, Detail::Terse, &mut |_| {
        rules += 1;
        Ok(())
    });
    assert_eq!(listing.expect("a listing"), Listing::Whole);
    rules
}

/// Puts rules in, from text to the answer of the kernel.
fn install<'a>(lines: impl Iterator<Item = &'a str>, first: u32, ports: Ports) {
    let mut maker = Maker::new(ports);
    let mut installer = Installer::open(OffloadPolicy::SkipHardware).expect("a socket");
    let mut lines = lines.peekable();
    let mut handle = first;
    while lines.peek().is_some() {
        let requests = requests(&mut maker, lines.by_ref().take(BATCH), handle);
        handle += u32::try_from(requests.len()).expect("few");
        let failed = installer.submit(&requests).into_iter().find_map(Result::err);
        assert_eq!(failed, None);
    }
}

pub(crate) fn requests<'a>(maker: &mut Maker<'_>, lines: impl Iterator<Item = &'a str>, first: u32) -> Vec<Request> {
    lines.zip(first..).map(|(line, handle)| maker.request(line, handle).expect("a rule")).collect()
}

pub(crate) fn index(device: &str) -> u32 {
    // By a socket, and so in the namespace of the thread, which what is mounted at /sys does not follow.
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).expect("a socket");
    name_to_index(&socket, device).expect("a device")
}

pub(crate) fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).output().expect("a program of the system");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {said}");
}
