//! Tracked connections as operators see them: the stock `ovs-appctl` lists, counts and flushes them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;

use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::vswitchd::Vswitchd;
use sluice_tests::world::eventually;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 9];

/// The one's complement sum of 16-bit words, folded and turned.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// A frame in hexadecimal; the checksum of its payload is at an offset.
fn frame(source: [u8; 4], destination: [u8; 4], protocol: u8, mut payload: Vec<u8>, checksum_at: usize) -> String {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let pseudo = [&source[..], &destination, &[0, protocol], &length].concat();
    let sum = checksum(&[if protocol == 1 { &[] } else { &pseudo }, &payload]);
    payload[checksum_at..checksum_at + 2].copy_from_slice(&sum);
    let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut ip = [&[0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, protocol, 0, 0], &source[..], &destination].concat();
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &payload].concat();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tcp(source: ([u8; 4], u16), destination: ([u8; 4], u16), flags: u8, [seq, ack]: [u32; 2], text: &[u8]) -> String {
    let mut segment = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    segment.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    segment.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    segment.extend(text);
    frame(source.0, destination.0, 6, segment, 16)
}

fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> String {
    let mut datagram = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    datagram.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame(source.0, destination.0, 17, datagram, 6)
}

fn echo(source: [u8; 4], destination: [u8; 4]) -> String {
    frame(source, destination, 1, vec![8, 0, 0, 0, 0x12, 0x34, 0, 1], 2)
}

/// A daemon that commits what comes from the client; FTP with its gateway, and UDP in a zone of its own.
fn tracking() -> Daemon {
    let daemon = Daemon::start(CONFIG);
    let from = |port: &str, protocol: u8| format!("in_port({port}),eth_type(0x0800),ipv4(proto={protocol},frag=no)");
    for (key, actions) in [
        (from("client", 6), "ct(commit,helper=ftp),server"),
        (from("server", 6), "ct(commit),client"),
        (from("client", 17), "ct(commit,zone=7,mark=0x5/0xff,label=0x10/0xff),server"),
        (from("client", 1), "ct(commit),server"),
    ] {
        let ran = daemon.appctl(&["dpctl/add-flow", &key, actions]);
        assert_eq!(ran.err, "", "{key}");
    }
    daemon
}

fn inject(daemon: &Daemon, port: &str, frame: &str) {
    assert_eq!(daemon.appctl(&["sluice/inject", port, frame]).out, "frames:1 hit:1 missed:0 missed_later:0 sent:1\n");
}

fn lines(daemon: &Daemon, args: &[&str]) -> Vec<String> {
    let ran = daemon.appctl(args);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{args:?}");
    let mut lines: Vec<_> = ran.out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn connections_are_listed_counted_and_flushed() {
    let daemon = tracking();
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack"]), [""; 0]);
    inject(&daemon, "client", &tcp((CLIENT, 40_000), (SERVER, 21), 0x02, [999, 0], b""));
    inject(&daemon, "client", &udp((CLIENT, 1000), (SERVER, 53)));
    inject(&daemon, "client", &echo(CLIENT, SERVER));
    let icmp = "icmp,orig=(src=10.0.0.1,dst=192.0.2.9,id=4660,type=8,code=0),reply=(src=192.0.2.9,dst=10.0.0.1,id=4660,type=0,code=0)";
    let ftp = "tcp,orig=(src=10.0.0.1,dst=192.0.2.9,sport=40000,dport=21),reply=(src=192.0.2.9,dst=10.0.0.1,sport=21,dport=40000),protoinfo=(state=SYN_SENT),helper=ftp";
    let dns = "udp,orig=(src=10.0.0.1,dst=192.0.2.9,sport=1000,dport=53),reply=(src=192.0.2.9,dst=10.0.0.1,sport=53,dport=1000),zone=7,mark=5,labels=0x10";
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack"]), [icmp, ftp, dns]);
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack", "zone=7"]), [dns]);
    let device = daemon.appctl(&["dpctl/dump-dps"]).out;
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack", device.trim(), "zone=0"]), [icmp, ftp]);

    let long = lines(&daemon, &["dpctl/dump-conntrack", "-m", "-s", "zone=7"]).remove(0);
    assert!(long.contains(",zone=7,status=CONFIRMED,timeout="), "{long}");
    let total =
        "Connections Stats:\n    Total: 3\n  TCP: 1\n    Conn per TCP states:\n\t  [SYN_SENT]=1\n  UDP: 1\n  ICMP: 1\n";
    assert_eq!(daemon.appctl(&["dpctl/ct-stats-show", "-m"]).out, total);
    assert_eq!(daemon.appctl(&["dpctl/ct-stats-show", "zone=7"]).out, "Connections Stats:\n    Total: 1\n  UDP: 1\n");

    for unlike in ["ct_nw_src=10.0.0.2", "ct_nw_src=10.0.0.1,ct_nw_proto=6"] {
        assert_eq!(lines(&daemon, &["dpctl/flush-conntrack", "zone=7", unlike]), [""; 0], "{unlike}");
        assert_eq!(lines(&daemon, &["dpctl/dump-conntrack"]), [icmp, ftp, dns], "{unlike}");
    }
    let like = "ct_nw_src=10.0.0.1,ct_nw_proto=17,ct_tp_dst=53";
    assert_eq!(lines(&daemon, &["dpctl/flush-conntrack", device.trim(), "zone=7", "mark=5/5", like]), [""; 0]);
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack"]), [icmp, ftp]);
    assert_eq!(lines(&daemon, &["dpctl/flush-conntrack"]), [""; 0]);
    assert_eq!(lines(&daemon, &["dpctl/dump-conntrack"]), [""; 0]);
    let failure = |args: &[&str]| daemon.appctl(args).err.lines().next().unwrap_or_default().to_owned();
    let nowhere = "sluiced: opening datapath soft@elsewhere (No such device)";
    assert_eq!(failure(&["dpctl/flush-conntrack", "soft@elsewhere", "zone=7"]), nowhere);
    assert_eq!(failure(&["dpctl/flush-conntrack", "zone=x"]), "sluiced: failed to parse zone (Invalid argument)");
    for command in ["dpctl/dump-conntrack", "dpctl/ct-stats-show"] {
        let ran = daemon.appctl(&[command, "zone=many"]);
        assert_eq!((ran.code, ran.err.contains("expected zone=N")), (Some(2), true), "{command}: {}", ran.err);
    }
}

#[test]
fn the_size_of_the_table_is_told_and_changed_as_by_ovs_vswitchd() {
    let daemon = tracking();
    let vswitchd = Vswitchd::start();
    let ours = |args: &[&str]| daemon.appctl(args);
    let theirs = |args: &[&str]| {
        let ran = vswitchd.appctl(args);
        (ran.out, ran.err.lines().next().unwrap_or_default().replace("ovs-vswitchd: ", "sluiced: "))
    };
    let both = |args: &[&str]| {
        let ran = ours(args);
        let found = (ran.out, ran.err.lines().next().unwrap_or_default().to_owned());
        assert_eq!(found, theirs(args), "{args:?}");
        found.0
    };
    assert_eq!(both(&["dpctl/ct-get-nconns"]), "0\n");
    both(&["dpctl/ct-set-maxconns", "many"]);
    assert_eq!(both(&["dpctl/ct-set-maxconns", "1"]), "setting maxconns successful\n");
    assert_eq!(both(&["dpctl/ct-get-maxconns"]), "1\n");
    // How many buckets there are is each one's own affair.
    let empty = theirs(&["dpctl/ct-bkts"]).0.replace("Total Buckets: 1\n", "Total Buckets: 64\n");
    assert_eq!(ours(&["dpctl/ct-bkts"]).out, empty);

    inject(&daemon, "client", &udp((CLIENT, 1000), (SERVER, 53)));
    inject(&daemon, "client", &udp((CLIENT, 1001), (SERVER, 53)));
    assert_eq!(ours(&["dpctl/ct-get-nconns"]).out, "1\n", "the second one takes the place of the first");
    let buckets = ours(&["dpctl/ct-bkts"]).out;
    assert!(buckets.starts_with("Total Buckets: 64\nCurrent Connections: 1\n\n+-----------+-"), "{buckets}");
    let row = |line: &&str| line.contains("|") && line.contains("..");
    let rows: Vec<_> = buckets.lines().filter(row).collect();
    assert_eq!((rows.len(), &rows[0][..14]), (8, "   0..  7   | "), "{buckets}");
    let counts: Vec<_> = rows.iter().flat_map(|row| row[14..].split_whitespace()).collect();
    assert_eq!((counts.len(), counts.iter().filter(|count| **count == "1").count()), (64, 1), "{buckets}");
    let more = ours(&["dpctl/ct-bkts", "gt=1"]).out;
    assert_eq!(more.matches("    1").count(), 0, "{more}");
}

#[test]
fn a_transfer_that_was_announced_is_listed_with_its_parent() {
    let daemon = tracking();
    let (inside, outside) = ((CLIENT, 40_000), (SERVER, 21));
    inject(&daemon, "client", &tcp(inside, outside, 0x02, [999, 0], b""));
    inject(&daemon, "server", &tcp(outside, inside, 0x12, [4999, 1000], b""));
    inject(&daemon, "client", &tcp(inside, outside, 0x10, [1000, 5000], b"USER anonymous\r\n"));
    inject(&daemon, "client", &tcp(inside, outside, 0x10, [1016, 5000], b"PORT 10,0,0,1,19,137\r\n"));
    inject(&daemon, "server", &tcp((SERVER, 20), (CLIENT, 5001), 0x02, [1, 0], b""));
    let all = lines(&daemon, &["dpctl/dump-conntrack", "-m"]);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].contains("protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,flags_orig="), "{}", all[0]);
    assert!(all[1].contains(",status=EXPECTED|CONFIRMED,"), "{}", all[1]);
    assert!(all[1].ends_with(",parent=(src=10.0.0.1,dst=192.0.2.9,sport=40000,dport=21)"), "{}", all[1]);
}

#[test]
fn timeout_policies_of_the_configuration_come_and_go_with_a_reload() {
    let policy = "[[ct_timeout]]\nname = \"short\"\nudp_single = 5\n";
    let daemon = Daemon::start(&format!("{CONFIG}{policy}"));
    let key = "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no)";
    assert_eq!(daemon.appctl(&["dpctl/add-flow", key, "ct(commit,timeout=short),server"]).err, "");
    inject(&daemon, "client", &udp((CLIENT, 1000), (SERVER, 53)));
    let shown = lines(&daemon, &["dpctl/dump-conntrack", "-s"]).remove(0);
    assert!(["timeout=4", "timeout=5"].iter().any(|end| shown.ends_with(end)), "{shown}");

    let config = daemon.config();
    let file = daemon.folder().join("sluiced.toml");
    fs::write(&file, config.replace("udp_single = 5", "udp_single = 900")).unwrap();
    assert_eq!(daemon.appctl(&["sluice/reload"]).out, "changed: ct_timeout\n");
    assert_eq!(daemon.appctl(&["sluice/show-ct-timeouts"]).out, "name:short, udp_single=900\n");
    fs::write(&file, config.replace(policy, "")).unwrap();
    let refused = daemon.appctl(&["sluice/reload"]);
    assert!(format!("{}{}", refused.out, refused.err).contains("timeout=short is used by 1"), "{refused:?}");
    daemon.appctl(&["dpctl/del-flow", key]);
    eventually("nothing uses it any more", || daemon.appctl(&["sluice/del-ct-timeout", "short"]).err.is_empty());
}

#[test]
fn a_zone_has_no_more_connections_than_it_may_have() {
    let daemon = tracking();
    let get = |args: &[&str]| daemon.appctl(&[&["dpctl/ct-get-limits"], args].concat()).out;
    assert_eq!(get(&[]), "default limit=0\n");
    let device = daemon.appctl(&["dpctl/dump-dps"]).out;
    assert_eq!(lines(&daemon, &["dpctl/ct-set-limits", device.trim(), "default=5", "zone=7,limit=1"]), [""; 0]);
    inject(&daemon, "client", &udp((CLIENT, 1000), (SERVER, 53)));
    let second = daemon.appctl(&["sluice/inject", "client", &udp((CLIENT, 1001), (SERVER, 53))]).out;
    assert_eq!(second, "frames:1 hit:1 missed:0 missed_later:0 sent:0\n", "it is dropped");
    inject(&daemon, "client", &echo(CLIENT, SERVER));
    assert_eq!(get(&[]), "default limit=5\nzone=7,limit=1,count=1\n");
    assert_eq!(get(&[device.trim(), "zone=0,7"]), "default limit=5\nzone=0,limit=5,count=1\nzone=7,limit=1,count=1\n");

    assert_eq!(lines(&daemon, &["dpctl/ct-del-limits", "default", "zone=7"]), [""; 0]);
    assert_eq!(get(&[]), "default limit=0\n");
    inject(&daemon, "client", &udp((CLIENT, 1001), (SERVER, 53)));
    assert_eq!(get(&["zone=7"]), "default limit=0\nzone=7,limit=0,count=2\n");

    for (args, reason) in [
        (&["dpctl/ct-set-limits", "default=many"][..], "sluiced: invalid default limit (Invalid argument)"),
        (&["dpctl/ct-set-limits", "zone=7"], "sluiced: failed to parse zone limit (Invalid argument)"),
        (&["dpctl/ct-del-limits", "7"], "sluiced: invalid argument 7 (Invalid argument)"),
        (&["dpctl/ct-get-limits", "zone=x"], "sluiced: invalid zone (Invalid argument)"),
    ] {
        let ran = daemon.appctl(args);
        assert_eq!((ran.code, ran.err.contains(reason)), (Some(2), true), "{args:?}: {}", ran.err);
    }
}
