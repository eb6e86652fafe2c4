//! `sluice trace`: what it tells of a packet, and that the device does not notice.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_tests::daemon::Daemon;
use sluice_tests::frames::udp;

const CONFIG: &str = "
[[port]]
number = 1
name = \"client\"
[[port]]
number = 2
name = \"server\"
";

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_hit_is_told_with_its_subtable_its_effects_and_its_bytes_and_nothing_is_counted() {
    let daemon = Daemon::start(CONFIG);
    let flow = "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=53)";
    assert_eq!(daemon.sluice(&["add-flow", flow, "set(ipv4(ttl=9)),recirc(0x5)"]).err, "");
    let next = "recirc_id(0x5),in_port(client),eth_type(0x0800)";
    assert_eq!(daemon.sluice(&["add-flow", next, "push_vlan(vid=7,pcp=0),server"]).err, "");

    let ran = daemon.sluice(&["trace", &hex(&udp(53)), "--in-port", "client"]);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)));
    for part in [
        "frame 0: 60 bytes into port 1 (client)",
        "chain 0:",
        "udp.dst,no vlan (1 flow): hit",
        "set(ipv4(ttl=9)): ipv4.ttl 64 -> 9",
        "chain 0x5:",
        "push_vlan(vid=7,pcp=0): vlan absent -> present, vlan.tpid none -> 0x8100",
        "60 -> 64 bytes",
        "sent: 64 bytes out of port 2 (server)",
        "result: 2 hit, 1 sent",
    ] {
        assert!(ran.out.contains(part), "{part:?} is not in\n{}", ran.out);
    }
    let dump = daemon.sluice(&["dump-flows"]).out;
    assert_eq!(dump.matches("packets:0").count(), 2, "{dump}");
}

#[test]
fn a_miss_names_the_flow_that_it_misses_by_least_and_in_what() {
    let daemon = Daemon::start(CONFIG);
    let flow = "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=53)";
    daemon.sluice(&["add-flow", flow, "server"]);
    daemon.sluice(&["add-flow", "in_port(server),eth_type(0x86dd)", "client"]);
    let out = daemon.sluice(&["trace", &hex(&udp(80)), "--in-port", "client"]).out;
    let near = out.lines().find(|line| line.contains("near: ")).unwrap_or_else(|| panic!("{out}"));
    assert!(near.ends_with("differs in udp.dst (80, not 53)"), "{near}");
    assert!(out.contains("missed in chain 0: counted and dropped"), "{out}");
}

#[test]
fn frames_of_a_capture_see_the_connections_that_earlier_ones_would_have_made() {
    let daemon = Daemon::start(CONFIG);
    let track = "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no)";
    assert_eq!(daemon.sluice(&["add-flow", track, "ct(commit,zone=3),recirc(0x1)"]).err, "");
    let capture = daemon.folder().join("two.pcap");
    let mut bytes = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    for _ in 0..2 {
        bytes.extend([0u32, 0, 60, 60].map(u32::to_be_bytes).concat());
        bytes.extend(udp(53));
    }
    std::fs::write(&capture, bytes).unwrap();
    let out = daemon.sluice(&["trace", &capture.display().to_string(), "--in-port", "client"]).out;
    let states: Vec<_> = out.lines().filter(|line| line.contains("ct(commit,zone=3): ")).collect();
    assert_eq!(states.len(), 2, "{out}");
    assert!(states.iter().all(|line| line.contains("ct_state none -> new|trk")), "{states:?}");
    assert!(daemon.appctl(&["dpctl/dump-conntrack"]).out.is_empty(), "no connection was entered");
}

#[test]
fn what_cannot_be_traced_is_said() {
    let daemon = Daemon::start(CONFIG);
    let fails = |args: &[&str], code: i32, reason: &str| {
        let ran = daemon.sluice(args);
        assert_eq!(ran.code, Some(code), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
    };
    fails(&["trace", "00ff", "--in-port", "nobody"], 2, "there is no port nobody");
    fails(&["trace", "00ff", "--in-port", "client"], 2, "2 bytes are no Ethernet frame");
    fails(&["trace", "/no/such/file", "--in-port", "client"], 1, "/no/such/file");
}
