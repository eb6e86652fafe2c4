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
    let capture = write_capture(&daemon, "two.pcap", &[&udp(53), &udp(53)]);
    let out = daemon.sluice(&["trace", &capture, "--in-port", "client"]).out;
    let states: Vec<_> = out.lines().filter(|line| line.contains("ct(commit,zone=3): ")).collect();
    assert_eq!(states.len(), 2, "{out}");
    assert!(states.iter().all(|line| line.contains("ct_state none -> new|trk")), "{states:?}");
    assert!(daemon.appctl(&["dpctl/dump-conntrack"]).out.is_empty(), "no connection was entered");
}

/// A classic capture of some frames.
fn write_capture(daemon: &Daemon, name: &str, frames: &[&[u8]]) -> String {
    let path = daemon.folder().join(name);
    let mut bytes = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        bytes.extend([0, 0, length, length].map(u32::to_be_bytes).concat());
        bytes.extend(*frame);
    }
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn a_short_frame_of_a_capture_is_left_out_however_much_was_told_before_it() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    let long = [udp(53), vec![0; 1_000]].concat();
    let mut frames = vec![long.as_slice(); 40];
    frames.extend([&[2, 0][..], &long]);
    let ran = daemon.sluice(&["trace", &write_capture(&daemon, "long.pcap", &frames), "--in-port", "client"]);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)));
    assert!(ran.out.len() > 64 << 10 && ran.out.contains("frame 40: "), "{} bytes", ran.out.len());
    let end = "\n1 frames were left out and are not numbered, being shorter than an Ethernet header\n";
    assert!(ran.out.ends_with(end), "{}", &ran.out[ran.out.len() - 200..]);

    // Asked for by hand it is refused before anything is told, and nothing of a request is let in.
    let digits: Vec<_> = frames.iter().map(|frame| hex(frame)).collect();
    for command in ["sluice/trace", "sluice/inject"] {
        let params: Vec<_> = [command, "client"].into_iter().chain(digits.iter().map(String::as_str)).collect();
        let ran = daemon.appctl(&params);
        assert_eq!(ran.out, "", "{command}");
        assert!(ran.err.starts_with("sluiced: frame 40: device: 2 bytes are no Ethernet frame"), "{}", ran.err);
    }
    let show = daemon.appctl(&["dpctl/show"]).out;
    assert!(show.contains("  lookups: hit:0 missed:0 lost:0\n"), "{show}");
}

#[test]
fn a_label_stack_is_shown_to_its_bottom() {
    let daemon = Daemon::start(CONFIG);
    let labels = [[0x00, 0x06, 0x41, 0x40], [0x45, 0, 0, 28]].concat();
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x47][..], &labels, &[0; 30]].concat();
    let out = daemon.sluice(&["trace", &hex(&frame), "--in-port", "client"]).out;
    let packet = out.lines().find(|line| line.contains("packet: ")).unwrap();
    assert!(packet.ends_with("eth_type(0x8847),mpls(label=100,tc=0,ttl=64,bos=1)"), "{packet}");
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
    fails(
        &["trace", "/no/such/file", "--in-port", "client"],
        1,
        "/no/such/file: neither a frame in hexadecimal nor a capture",
    );
    fails(&["trace", "zz", "--in-port", "client"], 1, "zz: neither a frame in hexadecimal nor a capture that is there");
    let odd = "001: an odd number of hexadecimal digits is no frame, and there is no capture of this name";
    fails(&["trace", "001", "--in-port", "client"], 1, odd);
    let short = write_capture(&daemon, "short.pcap", &[&[1, 2, 3]]);
    fails(&["trace", &short, "--in-port", "client"], 1, "all frames in it are shorter than an Ethernet header");
    let empty = write_capture(&daemon, "empty.pcap", &[]);
    fails(&["trace", &empty, "--in-port", "client"], 1, "there is no frame in it");
}
