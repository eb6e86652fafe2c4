//! Mirrors of the software NIC: what becomes of packets is the same with them, and copies go out as the packets came.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;

use sluice_flow::backend::{Backend, Injector, Mirrors, OpenConfig};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::text;
use sluice_flow::time::MonotonicClock;
use sluice_offload_soft::SoftNic;
use sluice_tests::daemon::Daemon;
use sluice_tests::frames::udp;

const CONFIG: &str = "
[[port]]
number = 1
name = \"client\"
[[port]]
number = 2
name = \"server\"
[[port]]
number = 3
name = \"tap\"
[[mirror]]
name = \"dns\"
key = \"in_port(client),eth_type(0x0800),ipv4(proto=17),udp(dst=53)\"
ports = [\"tap\"]
";

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn mirrors_are_configured_added_shown_counted_traced_and_removed_without_a_word_about_flows() {
    let daemon = Daemon::start(CONFIG);
    let works = |args: &[&str]| {
        let ran = daemon.sluice(args);
        assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{args:?}");
        ran.out
    };
    let inject = |frame: &[u8]| daemon.appctl(&["sluice/inject", "client", &hex(frame)]).out;
    works(&["add-flow", "in_port(client),eth_type(0x0800)", "set(ipv4(ttl=9)),server"]);
    works(&["add-mirror", "all", "in_port(1)", "tap,server"]);
    assert_eq!(inject(&udp(53)), "frames:1 hit:1 missed:0 missed_later:0 sent:4\n", "the flow's, one copy, and two");
    assert_eq!(inject(&udp(80)), "frames:1 hit:1 missed:0 missed_later:0 sent:3\n");
    let poll = || assert_eq!(daemon.appctl(&["revalidator/wait"]).code, Some(0));
    poll();
    let shown = works(&["show-mirrors"]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert_eq!(
        lines[0],
        "mirror:all, key:recirc_id(0),in_port(client),eth(), ports:tap,server, packets:2, bytes:120, in:hardware"
    );
    assert!(
        lines[1].starts_with("mirror:dns, key:recirc_id(0),in_port(client),eth(),eth_type(0x0800),ipv4("),
        "{shown}"
    );
    assert!(lines[1].ends_with("), ports:tap, packets:1, bytes:60, in:hardware"), "{shown}");
    assert_eq!(daemon.metric("sluice_mirror_packets_total{mirror=\"all\"}"), Some(2.0));
    assert_eq!(daemon.metric("sluice_mirror_bytes_total{mirror=\"dns\"}"), Some(60.0));

    let traced = works(&["trace", &hex(&udp(53)), "--in-port", "client"]);
    let at = |part: &str| traced.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{traced}"));
    assert!(at("mirror dns copies it\n") < at("mirror all copies it\n"), "in the order in which they were set");
    assert!(at("mirror all copies it\n") < at("sent: 60 bytes out of port 3 (tap)").max(at("chain 0:")));
    assert!(at("mirror all copies it\n") < at("chain 0:"), "before the lookup\n{traced}");
    poll();
    assert_eq!(daemon.metric("sluice_mirror_packets_total{mirror=\"all\"}"), Some(2.0), "a trace is not counted");

    works(&["add-mirror", "all", "in_port(server)", "tap"]);
    assert_eq!(inject(&udp(80)), "frames:1 hit:1 missed:0 missed_later:0 sent:1\n", "it is of another port now");
    poll();
    assert_eq!(daemon.metric("sluice_mirror_packets_total{mirror=\"all\"}"), Some(2.0), "what it counted goes on");
    let fails = |args: &[&str], reason: &str| {
        let ran = daemon.sluice(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
    };
    fails(&["del-port", "server"], "port 2 is used by mirror all: delete that first");
    works(&["del-mirror", "all"]);
    assert_eq!(works(&["show-mirrors"]).lines().count(), 1);
    assert_eq!(works(&["audit"]), "1 rules, all as wanted (listed by the device)\n", "a mirror is no rule of a flow");
    fails(&["del-mirror", "all"], "there is no mirror all");
    fails(&["add-mirror", "x", "eth_type(0x0800)", "tap"], "a mirror is of one port");
    fails(&["add-mirror", "x", "recirc_id(0x5),in_port(1)", "tap"], "a mirror comes before the first chain");
    fails(&["add-mirror", "x", "in_port(1)", "nobody"], "there is no port nobody");
    fails(&["add-mirror", "x", "in_port(1),bogus(1)", "tap"], "parsing flow key");
}

#[test]
fn a_reload_changes_mirrors_and_no_flow() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    let changed = daemon.config().replace("udp(dst=53)", "udp(dst=54)").replace("\"dns\"", "\"other\"");
    std::fs::write(daemon.folder().join("sluiced.toml"), changed).unwrap();
    let ran = daemon.sluice(&["reload"]);
    assert_eq!(ran.out.trim(), "changed: mirror", "{}", ran.err);
    let shown = daemon.sluice(&["show-mirrors"]).out;
    assert!(shown.starts_with("mirror:other, ") && shown.contains("udp(dst=54)") && shown.lines().count() == 1);
    assert_eq!(daemon.sluice(&["dump-flows"]).out.lines().count(), 1);
}

fn nic() -> SoftNic {
    let nic = SoftNic::new(&OpenConfig::new("test", Arc::new(MonotonicClock::new())));
    for number in 1..4 {
        let port = Port {
            number: PortNumber(number),
            name: format!("p{number}").parse().expect("a name"),
            kind: PortKind::Physical,
        };
        nic.attach_port(&port).unwrap();
    }
    nic
}

fn mirror(name: &str, key: &str, copies: &[u32]) -> Mirror {
    let matching = text::parse_key(key, &()).unwrap().matching;
    Mirror::new(name, matching, copies.iter().map(|port| PortNumber(*port)).collect()).unwrap()
}

#[test]
fn packets_that_no_flow_takes_are_copied_alone_and_in_bursts_and_miss_still() {
    let nic = nic();
    nic.set_mirror(&mirror("dns", "in_port(1),eth_type(0x0800),ipv4(proto=17),udp(dst=53)", &[3])).unwrap();
    let frames = [udp(53), udp(80), udp(53)];
    let mut alone = vec![];
    for frame in &frames {
        let verdict = nic.inject(PortNumber(1), frame).unwrap();
        assert_eq!(verdict.missed, Some(sluice_flow::ChainId::ROOT));
        alone.extend(verdict.sent);
    }
    assert_eq!(alone, [(PortNumber(3), udp(53)), (PortNumber(3), udp(53))], "byte for byte");
    let mut together = vec![];
    let burst: Vec<_> = frames.iter().map(Vec::as_slice).collect();
    nic.rx_queue(PortNumber(1)).receive(&burst, |port, frame| together.push((port, frame.to_vec()))).unwrap();
    assert_eq!(together, alone);
    let counted = nic.mirror_counters("dns").unwrap();
    assert_eq!((counted.packets, counted.bytes), (4, 240));
    assert_eq!(nic.chain_misses(sluice_flow::ChainId::ROOT), Some(6));
    nic.remove_mirror("dns").unwrap();
    assert!(nic.inject(PortNumber(1), &udp(53)).unwrap().sent.is_empty());
    assert!(nic.remove_mirror("dns").is_err() && nic.mirror_counters("dns").is_none());
}

#[test]
fn a_mirror_that_the_device_cannot_have_is_refused_with_the_reason() {
    let nic = nic();
    let label = |mirror: &Mirror| nic.set_mirror(mirror).unwrap_err().label();
    assert_eq!(label(&mirror("a", "in_port(1)", &[9])), "port");
    assert_eq!(label(&mirror("a", "in_port(9)", &[1])), "port");
    let tunnel = Tunnel { protocol: TunnelProtocol::Gre, udp_port: None, underlay: PortNumber(2) };
    nic.attach_port(&Port {
        number: PortNumber(4),
        name: "gre0".parse().expect("a name"),
        kind: PortKind::Tunnel(tunnel),
    })
    .unwrap();
    assert_eq!(label(&mirror("a", "in_port(1)", &[3, 4])), "combination");
    assert!(nic.mirror_counters("a").is_none());
}

#[test]
fn a_dump_says_of_each_flow_which_mirrors_copy_its_packets() {
    let daemon = Daemon::start(&format!("{CONFIG}[[mirror]]\nprotocols = [\"arp\", \"bgp\"]\n"));
    let works = |args: &[&str]| {
        let ran = daemon.sluice(args);
        assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{args:?}");
        ran.out
    };
    let flows = [
        ("in_port(client),eth_type(0x0806)", "~arp.1"),
        ("in_port(client),eth_type(0x0800),ipv4(proto=17)", "dns"),
        ("in_port(client),eth_type(0x0800),ipv4(proto=6),tcp(dst=80)", "~bgp.1"),
        ("in_port(client),eth_type(0x0800),ipv4(proto=6),tcp(src=7,dst=80)", ""),
        ("in_port(server),eth_type(0x0800),ipv4(proto=17)", ""),
        ("recirc_id(5),in_port(client),eth_type(0x0806)", ""),
        ("in_port(server)", "~arp.2 ~bgp.2"),
    ];
    for (key, names) in flows {
        works(&["add-flow", key, "3"]);
        let line = works(&["dump-flows", "-m"]);
        let told = line.split_once("mirrors[").map_or("", |(_, rest)| rest.split_once(']').unwrap().0);
        assert_eq!(told, names, "{line}");
        let object: serde_json::Value = serde_json::from_str(&works(&["dump-flows", "--json", "-m"])).unwrap();
        let listed: Vec<_> =
            object[0]["mirrors"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(listed.join(" "), names);
        works(&["del-flows"]);
    }
}
