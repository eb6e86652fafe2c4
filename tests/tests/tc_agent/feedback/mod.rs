//! An ovs-vswitchd with the library that adds what is published to the kernel's answers: it counts and keeps what is forwarded past it,
//! and no agent of any kind does it harm.

mod agent;
mod hostile;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use sluice_feedback::{Handover, Publisher, Totals};
use sluice_flow::ufid::Ufid;
use sluice_tests::daemon::binary;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually, run};

pub(crate) use agent::play as play_agent;
pub(crate) use hostile::ovs_vswitchd_survives_an_agent_of_any_kind;

use crate::source::start_ovs;
use crate::stream::{self, FRAME};

/// After how long without a packet ovs-vswitchd deletes a flow.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The client's port.
const SOURCE: u16 = 6000;

/// A bridge of which packets from client to server are forwarded.
fn start(switch: &Switch, settings: &str) -> OffloadingVswitchd {
    run("modprobe openvswitch");
    let (library, socket) = (binary("libsluice_ovs_feedback.so"), socket(switch));
    assert!(library.exists(), "{} is built by cargo build", library.display());
    let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("SLUICE_OVS_FEEDBACK", &socket)];
    let vswitchd = start_ovs(&["client", "server"], settings, &environment);
    vswitchd.set_rule("in_port=client,udp,actions=output:server");
    vswitchd
}

fn socket(switch: &Switch) -> String {
    std::fs::create_dir_all(switch.folder()).unwrap();
    switch.folder().join("feedback.sock").display().to_string()
}

/// The flow of datagrams in the kernel's datapath, by its UFID, and how many packets ovs-vswitchd is told that it has taken.
fn flow(vswitchd: &OffloadingVswitchd) -> Option<(Ufid, u64)> {
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m"]).unwrap();
    let line = dump.lines().find(|line| line.contains("proto=17"))?;
    let ufid = line.strip_prefix("ufid:").unwrap().split(',').next().unwrap().parse().unwrap();
    Some((ufid, number(line, "packets:")))
}

fn number(line: &str, name: &str) -> u64 {
    let digits = line.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {line}"));
    digits.split(|other: char| !other.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Packets and bytes that the rule of OpenFlow has counted.
fn counted(vswitchd: &OffloadingVswitchd) -> (u64, u64) {
    let rules = vswitchd.rules();
    let rule = rules.lines().find(|line| line.contains("udp")).unwrap();
    (number(rule, "n_packets="), number(rule, "n_bytes="))
}

fn bytes(packets: u64) -> (u64, u64) {
    (packets, packets * FRAME as u64)
}

/// In ms of `CLOCK_MONOTONIC`.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

/// Has tc forward what the bridge would, and publishes what tc has counted.
struct Shortcut {
    publisher: Publisher,
    handover: Handover,
    ufid: Ufid,
    published: Totals,
}

impl Shortcut {
    fn new(switch: &Switch, ufid: Ufid) -> Self {
        run("tc qdisc add dev client ingress");
        let publisher = Publisher::create(1000, 1).unwrap();
        let handover = Handover::bind(socket(switch).as_ref()).unwrap();
        Self { publisher, handover, ufid, published: Totals::default() }
    }

    /// Begins with a new life of the flow.
    fn open(&mut self) {
        run(
            "tc filter add dev client ingress protocol ip flower skip_hw ip_proto udp action mirred egress redirect dev server",
        );
        self.publisher.withdraw(self.ufid, now());
        self.published = Totals::default();
        self.publish();
    }

    fn close(&self) {
        run("tc filter del dev client ingress");
    }

    fn publish(&mut self) {
        self.handover.serve(&mut self.publisher);
        let filters: Value = serde_json::from_str(&run("tc -s -j filter show dev client ingress")).unwrap();
        let rule = filters.as_array().unwrap().iter().find_map(|filter| filter.pointer("/options/actions/0/stats"));
        let count = |name: &str| rule.unwrap()[name].as_u64().unwrap();
        let packets = count("packets");
        let used = if packets > self.published.packets { now() } else { self.published.used };
        // The action counts what is behind the header of Ethernet.
        let bytes = count("bytes") + 14 * packets;
        self.published = Totals { packets, bytes, used, tcp_flags: 0 };
        self.publisher.publish(self.ufid, self.published).unwrap();
    }
}

pub(crate) fn ovs_vswitchd_counts_and_keeps_what_is_forwarded_past_it() {
    let switch = Switch::set_up();
    // A round that a busy machine holds up would have flows of few packets deleted, though they are not idle.
    let vswitchd = start(&switch, &format!("max-idle={} min-revalidate-pps=0", MAX_IDLE.as_millis()));
    let mut sent = stream::send_from(SOURCE, 10);
    assert_eq!(sent, 10, "by the bridge");
    let (ufid, _) = flow(&vswitchd).unwrap();

    // Packets that the kernel's datapath sees nothing of keep the flow alive.
    let mut shortcut = Shortcut::new(&switch, ufid);
    eventually("the library has the memory", || {
        sent += stream::sent_from(SOURCE, 1);
        shortcut.handover.serve(&mut shortcut.publisher);
        shortcut.publisher.counters().messages > 0
    });
    let (seen, bridged) = (seen_by_the_kernel(), sent);
    shortcut.open();
    let (begun, mut published) = (Instant::now(), Instant::now());
    while begun.elapsed() < 2 * MAX_IDLE {
        sent += stream::sent_from(SOURCE, 20);
        shortcut.publish();
        let pause = published.elapsed();
        assert!(!shortcut.publisher.is_deleted(ufid), "deleted after {:?}, {pause:?} without news", begun.elapsed());
        published = Instant::now();
    }
    assert_eq!(bytes(sent - bridged), (shortcut.published.packets, shortcut.published.bytes), "past the bridge");
    assert_eq!(seen_by_the_kernel(), seen);
    assert_eq!(flow(&vswitchd), Some((ufid, seen + sent - bridged)));
    eventually("OpenFlow counts what tc has forwarded", || counted(&vswitchd) == bytes(sent));

    // It ages as ever.
    eventually("the flow is deleted", || shortcut.publisher.is_deleted(ufid));
    assert!(published.elapsed() > MAX_IDLE / 2, "deleted {:?} after its last packet", published.elapsed());
    eventually("OpenFlow has all of its packets", || counted(&vswitchd) == bytes(sent));
    assert_eq!(flow(&vswitchd), None);

    // A flow of the same UFID is another life, even before the agent has heard of the deletion.
    shortcut.close();
    sent += stream::sent_from(SOURCE, 5);
    assert_eq!(flow(&vswitchd).unwrap().0, ufid);
    rounds(&vswitchd, 3);
    assert_eq!(counted(&vswitchd), bytes(sent));

    // The answer to a deletion has the last packets.
    vswitchd.appctl(&["revalidator/pause"]).unwrap();
    sent += stream::sent_from(SOURCE, 1);
    shortcut.open();
    sent += stream::sent_from(SOURCE, 7);
    shortcut.publish();
    assert!(counted(&vswitchd).0 <= sent - 7, "it revalidates nothing");
    vswitchd.appctl(&["revalidator/purge"]).unwrap();
    assert_eq!((shortcut.publisher.is_deleted(ufid), counted(&vswitchd)), (true, bytes(sent)));
    vswitchd.appctl(&["revalidator/resume"]).unwrap();
    let counters = shortcut.publisher.counters();
    assert_eq!((counters.no_room, counters.malformed), (0, 0), "{counters:?}");
}

/// What the kernel itself says of the flow's packets, to a program without the library.
#[track_caller]
fn seen_by_the_kernel() -> u64 {
    let dump = run("ovs-dpctl dump-flows -m");
    number(dump.lines().find(|line| line.contains("proto=17")).unwrap_or_else(|| panic!("no flow: {dump}")), "packets:")
}

fn rounds(vswitchd: &OffloadingVswitchd, rounds: usize) {
    for _ in 0..rounds {
        vswitchd.appctl(&["revalidator/wait"]).unwrap();
    }
}
