//! An Open vSwitch 4.0 that is built with our provider, and hands its flows over.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually, run};

use crate::going_on;
use crate::source::{self, SOURCE, ours};
use crate::stream::{self, Stream};

pub(crate) const TABLE: &str = "[source.ovs]\nhanded_over = true\n";
const BOTH: &[&str] = &["client", "server"];
/// The client's port, whose datagrams Open vSwitch may truncate, which tc cannot.
const TRUNCATED: u16 = 6001;
/// How long Open vSwitch does not hand a flow over that was given back (`deploy/ovs`).
const REFUSED_FOR: Duration = Duration::from_secs(60);

pub(crate) fn flows_that_ovs_hands_over_are_forwarded_and_counted_and_the_refused_are_its_own() {
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    forward(&vswitchd);
    // A flow that was there before the agent moves to the device, and is the kernel's no more.
    let mut sent = stream::sent_from(SOURCE, 20);
    assert!(is_shown_as(&vswitchd, "dp:ovs"), "who else has it?");
    let daemon = source::start(&switch, TABLE);
    eventually("the flow is shown as ours", || {
        sent += stream::sent_from(SOURCE, 1);
        is_shown_as(&vswitchd, "dp:sluice")
    });
    assert!(is_forwarded(&daemon), "ours without a rule");
    sent += stream::sent_from(SOURCE, 50);
    eventually("OpenFlow has counted each packet once", || counted(&vswitchd) == sent);

    // Open vSwitch keeps what the device refuses.
    assert_eq!(stream::send_from(TRUNCATED, 20), 20);
    eventually("the refused flow is in the kernel's datapath", || {
        stream::send_from(TRUNCATED, 1);
        let lines = shown(&vswitchd, TRUNCATED);
        !lines.is_empty() && lines.iter().all(|line| line.contains("dp:ovs"))
    });
    assert!(!ours(&daemon).iter().any(|flow| key(flow).contains(&format!("udp(src={TRUNCATED}"))));

    // What OpenFlow changes, the rule changes; what a command takes away, Open vSwitch forwards by itself.
    let in_vain = "udp,in_port=client,tp_src=6000,actions=drop";
    vswitchd.set_rule(in_vain);
    eventually("the flow drops", || ours(&daemon).iter().any(|flow| flow["actions"] == "drop"));
    forward(&vswitchd);
    eventually("the flow forwards", || {
        stream::send_from(SOURCE, 1);
        is_forwarded(&daemon)
    });
    daemon.sluice(&["flush"]);
    eventually("the datapath has it", || {
        stream::send_from(SOURCE, 1);
        shown(&vswitchd, SOURCE).iter().any(|line| line.contains("dp:ovs"))
    });
    assert_eq!(stream::send_from(SOURCE, 20), 20);

    survive(&switch, &vswitchd, daemon);
}

/// A flow that has packets all the time is in the datapath all the time, so that Open vSwitch does not put it anew.
pub(crate) fn flows_that_ovs_hands_over_in_vain_are_handed_over_again() {
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    vswitchd.set_rule("udp,in_port=client,actions=output:server");
    let daemon = source::start(&switch, TABLE);
    let stream = Stream::start();
    let moves = |when: &str| {
        eventually(&format!("the flow has a rule {when}"), || is_forwarded(&daemon));
        eventually("it has left the datapath", || places(&vswitchd) == [true]);
    };
    let is_given_back = || {
        daemon.sluice(&["flush"]);
        eventually("the datapath has it", || places(&vswitchd) == [false]);
        Instant::now()
    };
    moves("at first");
    let since = is_given_back();
    vswitchd.configure("add-port br0 other -- set interface other type=internal");
    moves("when a port has come");
    assert!(since.elapsed() < REFUSED_FOR, "it is the time that has moved it");
    let since = is_given_back();
    moves("after a minute");
    assert!(since.elapsed() >= REFUSED_FOR, "the agent is asked too early");
    stream.end_without_loss();
}

/// Flows that were refused one after another may be handed over again one after another, and the datapath may have very many others.
pub(crate) fn flows_that_ovs_hands_over_in_vain_are_not_looked_for_one_by_one() {
    const FLOWS: u16 = 8;
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    let _daemon = source::start(&switch, TABLE);
    let number = |before: &str, after: &str| {
        let show = vswitchd.appctl(&["dpif/offload/show"]).unwrap();
        let number = show.split(after).next().and_then(|text| text.rsplit(before).next()?.parse::<u16>().ok());
        number.unwrap_or_else(|| panic!("no number between {before:?} and {after:?}: {show}"))
    };
    let refused = || number(" that move, ", " refused");
    let looks = || number(" looked through ", " times");
    eventually("the datapath was looked through for the agent", || looks() > 0);
    for (before, port) in (0..FLOWS).zip(TRUNCATED..) {
        vswitchd.set_rule(&format!("udp,in_port=client,tp_src={port},actions=output(port=server,max_len=1400)"));
        eventually("one flow more is refused", || {
            stream::send_from(port, 1);
            refused() > before
        });
        std::thread::sleep(Duration::from_secs(1));
    }
    let before = looks();
    eventually("the first may be handed over again", || refused() < FLOWS);
    let began = Instant::now();
    eventually("all may be handed over again", || refused() == 0);
    eventually("it is looked whether they are there", || looks() > before);
    // On a busy machine they were refused further apart: a look every ten seconds, and those at the ends of that time.
    let most = began.elapsed().as_secs() / 10 + 3;
    assert!(u64::from(looks() - before) <= most, "{before} times, and then {}, where {most} more may be", looks());
}

/// Packets come before the agent has put their flow in. They differ where the flow does not look, for which Open vSwitch gives each another UFID.
pub(crate) fn a_flow_that_ovs_hands_over_has_one_name_however_its_first_packets_differ() {
    const FIRST: u16 = 5;
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    vswitchd.set_rule("udp,in_port=client,actions=output:server");
    let daemon = source::start(&switch, TABLE);
    eventually("ovs-vswitchd has the agent", || {
        vswitchd.appctl(&["dpif/offload/show"]).unwrap().contains(": connected,")
    });
    daemon.signal("STOP");
    for port in SOURCE..SOURCE + FIRST {
        assert_eq!(stream::send_from(port, 1), 1, "ovs-vswitchd has not forwarded it");
    }
    assert_eq!(places(&vswitchd), [true]);
    daemon.signal("CONT");
    eventually("the flow has a rule", || is_forwarded(&daemon));
    let sent = stream::sent_from(SOURCE + FIRST, 20) + u64::from(FIRST);
    eventually("OpenFlow has counted each packet once", || counted_by(&vswitchd, "udp,") == sent);
    assert_eq!(places(&vswitchd), [true]);
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
}

/// On a kernel that cannot go on where a packet missed, translations stay in the kernel's datapath, and so does all that comes after them.
pub(crate) fn connections_that_ovs_hands_over_are_whole_in_the_device_or_whole_in_the_datapath() {
    run("modprobe --all openvswitch act_ct");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    going_on::translate(&vswitchd);
    let daemon = source::start(&switch, TABLE);
    let mut sent = stream::sent_from(SOURCE, 20);
    sent += going_on::talk(30);
    if going_on::is_possible() {
        let both = || ["client", "server"].map(|port| going_on::in_place(&daemon, port));
        eventually("packets of the connection have rules in both chains", || both() == [2, 2]);
        let before = going_on::counts(&daemon);
        sent += going_on::talk(50);
        eventually("the rules have forwarded all of them", || {
            going_on::counts(&daemon) == before.map(|packets| packets + 50)
        });
    } else {
        let is_left = |line: &str| line.contains("dp:ovs") || !line.contains("recirc(");
        let dump = || vswitchd.appctl(&["dpctl/dump-flows", "-m", "filter=udp"]).unwrap();
        eventually("translations are in the datapath", || dump().lines().all(is_left));
        sent += going_on::talk(30);
        let before = missed(&vswitchd);
        sent += going_on::talk(50);
        // Neighbours are looked for now and then.
        assert!(missed(&vswitchd) < before + 10, "packets have come to ovs-vswitchd");
    }
    eventually("OpenFlow has counted each packet once", || going_on::counted(&vswitchd) == sent);
    assert_eq!(going_on::connections(), 1, "no packet has begun again as one of another connection");
}

/// Open vSwitch makes a flow again before the agent has heard that it was deleted, and after all flows were deleted at once.
pub(crate) fn a_flow_that_ovs_hands_over_again_is_counted_from_nothing() {
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    forward(&vswitchd);
    let daemon = source::start(&switch, TABLE);
    let mut sent = 0;
    let carries = |sent: &mut u64| {
        eventually("the flow has a rule", || {
            *sent += stream::sent_from(SOURCE, 1);
            is_forwarded(&daemon)
        });
        *sent += stream::sent_from(SOURCE, 50);
        eventually("OpenFlow has counted each packet", || counted(&vswitchd) >= *sent);
        revalidate(&vswitchd);
        assert_eq!(counted(&vswitchd), *sent, "packets that were counted twice");
    };
    carries(&mut sent);

    daemon.signal("STOP");
    vswitchd.appctl(&["revalidator/purge"]).unwrap();
    // So that a packet comes to ovs-vswitchd.
    run("tc filter del dev client ingress");
    sent += stream::sent_from(SOURCE, 1);
    assert!(is_shown_as(&vswitchd, "dp:sluice"), "it is not handed over again");
    revalidate(&vswitchd);
    assert_eq!(counted(&vswitchd), sent, "packets of the flow before it");
    daemon.signal("CONT");
    carries(&mut sent);

    vswitchd.appctl(&["dpctl/del-flows"]).unwrap();
    eventually("no rule is left", || !is_forwarded(&daemon));
    carries(&mut sent);
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
}

/// The agent takes nothing more, and there is no room for what it must be told, while flows are taken away from it one after another.
pub(crate) fn ovs_hands_over_and_outlives_an_agent_that_stalls_while_a_chain_is_taken_back() {
    /// More than there is room for.
    const FLOWS: usize = 1000;
    /// So that a message has 28 kB.
    const OUTPUTS: usize = 3500;
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, BOTH);
    let daemon = source::start(&switch, TABLE);
    let show = || vswitchd.appctl(&["dpif/offload/show"]).unwrap();
    eventually("ovs-vswitchd has the agent", || show().contains(": connected,"));
    daemon.signal("STOP");
    // Revalidators would delete flows that no OpenFlow rule has made, and cannot read such long ones.
    vswitchd.appctl(&["revalidator/pause"]).unwrap();
    let (client, server) = (vswitchd.port("client"), vswitchd.port("server"));
    let outputs = format!("{server},").repeat(OUTPUTS);
    // All are of one chain and lead to it: the first that goes to the kernel takes the others along.
    let flows = (1..=FLOWS).map(|number| {
        let address = format!("10.0.{}.{}", number >> 8, number & 0xff);
        let key = format!("in_port({client}),eth(),eth_type(0x0800),ipv4(dst={address},frag=no)");
        format!("ufid:{number:08x}-0000-0000-0000-000000000000,recirc_id(0x7),{key} {outputs}recirc(7)\n")
    });
    let file = vswitchd.path("flows");
    std::fs::write(&file, flows.collect::<String>()).unwrap();
    let added = vswitchd.appctl(&["dpctl/add-flows", &file]).unwrap();
    daemon.signal("KILL");
    assert_eq!(added, "", "not all are taken");
    assert!(show().contains(", 0 flows and 0 that move"), "there was room for all of them: {}", show());
    for command in ["dpctl/del-flows", "revalidator/resume"] {
        vswitchd.appctl(&[command]).unwrap();
    }
}

/// As in the kernel's datapath, packets go on without an ovs-vswitchd, and the next one begins with nothing.
pub(crate) fn rules_of_flows_that_ovs_hands_over_outlive_it_until_the_next_one_is_at_work() {
    run("modprobe openvswitch");
    let switch = Switch::set_up();
    let mut vswitchd = start_ovs(&switch, BOTH);
    forward(&vswitchd);
    let daemon = source::start(&switch, TABLE);
    stream::sent_from(SOURCE, 20);
    eventually("the flow has a rule", || is_forwarded(&daemon));
    vswitchd.kill();
    eventually("the agent has seen it", || daemon.sluice(&["show"]).out.contains("as it has left them"));
    assert_eq!(stream::send_from(SOURCE, 50), 50, "nobody forwards");

    // The next one begins once it has its OpenFlow rules, however long that takes.
    vswitchd.set_for_next("flow-restore-wait=true");
    vswitchd.start_again();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(stream::send_from(SOURCE, 50), 50, "rules are gone before the next one is at work");
    forward(&vswitchd);
    vswitchd.set_for_next("flow-restore-wait=false");
    eventually("nothing is left of the one before", || !is_forwarded(&daemon));
    let mut sent = stream::sent_from(SOURCE, 20);
    eventually("the flow has a rule", || is_forwarded(&daemon));
    sent += stream::sent_from(SOURCE, 50);
    eventually("OpenFlow has counted each packet once", || counted(&vswitchd) == sent);

    // The same at an end in order, and one comes that keeps its flows in the kernel.
    vswitchd.exit();
    eventually("the agent has seen it", || daemon.sluice(&["show"]).out.contains("as it has left them"));
    assert_eq!(stream::send_from(SOURCE, 50), 50, "nobody forwards");
    vswitchd.set_for_next("hw-offload=false");
    vswitchd.start_again();
    eventually("no rule is left", || switch.filters("client").is_empty());
    // It may have taken the qdisc away before the agent looked.
    eventually("the agent says why", || daemon.log().contains("hands nothing over"));
}

/// Waits until all flows have been looked at that are there now.
fn revalidate(vswitchd: &OffloadingVswitchd) {
    // A round may have begun before.
    for _ in 0..2 {
        vswitchd.appctl(&["revalidator/wait"]).unwrap();
    }
}

/// Packets for which the kernel's datapath has asked ovs-vswitchd.
fn missed(vswitchd: &OffloadingVswitchd) -> u64 {
    let show = vswitchd.appctl(&["dpctl/show"]).unwrap();
    let (_, count) = show.split_once("missed:").unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

/// Kills the agent under traffic, of which nothing is lost; its flows move to the next one. When Open vSwitch is
/// taken down, no rule is left.
fn survive(switch: &Switch, vswitchd: &OffloadingVswitchd, mut daemon: Daemon) {
    let stream = Stream::start();
    eventually("the stream has a rule", || is_forwarded(&daemon));
    daemon.signal("KILL");
    daemon.wait();
    eventually("its flows are in the datapath", || {
        let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m"]).unwrap();
        !dump.contains("dp:sluice") && dump.contains("dp:ovs")
    });
    let mut daemon = source::start(switch, TABLE);
    eventually("the flow has a rule again", || is_forwarded(&daemon));
    eventually("it has left the datapath", || is_shown_as(vswitchd, "dp:sluice"));
    stream.end_without_loss();
    vswitchd.appctl(&["exit", "--cleanup"]).unwrap();
    eventually("no rule is left", || switch.filters("client").is_empty());
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
    assert!(daemon.wait().success());
}

/// An ovs-vswitchd that hands flows over to the agent of a switch.
pub(crate) fn start_ovs(switch: &Switch, ports: &[&str]) -> OffloadingVswitchd {
    let run_dir = switch.folder().join("run");
    let settings =
        format!("hw-offload=true hw-offload-priority=sluice min-revalidate-pps=0 sluice-run-dir={}", run_dir.display());
    source::start_ovs(ports, &settings, &[])
}

fn forward(vswitchd: &OffloadingVswitchd) {
    for rule in [
        format!("udp,in_port=client,tp_src={SOURCE},actions=output:server"),
        format!("priority=40000,udp,in_port=client,tp_src={TRUNCATED},actions=output(port=server,max_len=1400)"),
        "priority=1,udp,in_port=client,actions=output:server".to_owned(),
        "udp,in_port=server,actions=output:client".to_owned(),
    ] {
        vswitchd.set_rule(&rule);
    }
}

/// Whether a rule forwards datagrams of the client.
pub(crate) fn is_forwarded(daemon: &Daemon) -> bool {
    let is_it = |flow: &Value| {
        key(flow).contains("in_port(client)") && key(flow).contains("proto=17") && flow["actions"] != "drop"
    };
    ours(daemon).iter().any(|flow| is_it(flow) && flow["state"] == "partial")
}

fn key(flow: &Value) -> &str {
    flow["key"].as_str().unwrap()
}

/// Flows of the datapath whose packets come from a port of the client, as Open vSwitch shows them.
fn shown(vswitchd: &OffloadingVswitchd, port: u16) -> Vec<String> {
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m", "--names"]).unwrap();
    let port = format!("udp(src={port}");
    dump.lines().filter(|line| line.contains("in_port(client)") && line.contains(&port)).map(str::to_owned).collect()
}

/// Of each flow of the client's datagrams, whether it is shown as ours and not as the datapath's.
fn places(vswitchd: &OffloadingVswitchd) -> Vec<bool> {
    let dump = vswitchd.appctl(&["dpctl/dump-flows", "-m", "--names", "filter=udp"]).unwrap();
    let lines = dump.lines().filter(|line| line.contains("in_port(client)"));
    lines.map(|line| line.contains("dp:sluice")).collect()
}

/// Whether Open vSwitch has flows of the client's first port, all of them in one place.
pub(crate) fn is_shown_as(vswitchd: &OffloadingVswitchd, place: &str) -> bool {
    let lines = shown(vswitchd, SOURCE);
    !lines.is_empty() && lines.iter().all(|line| line.contains(place))
}

/// Packets that OpenFlow has counted for the stream.
pub(crate) fn counted(vswitchd: &OffloadingVswitchd) -> u64 {
    counted_by(vswitchd, "tp_src=6000")
}

/// Packets that the OpenFlow rule with these words has counted.
fn counted_by(vswitchd: &OffloadingVswitchd, words: &str) -> u64 {
    let rules = vswitchd.rules();
    let rule = rules.lines().find(|line| line.contains(words)).unwrap();
    rule.split("n_packets=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
}
