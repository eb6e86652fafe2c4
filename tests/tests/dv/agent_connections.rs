//! The daemon with the connections of the kernel, as an operator sees it, in a network namespace of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use sluice_tests::daemon::Daemon;
use sluice_tests::mlx5::{Out, Ports, complaints, runner};
use sluice_tests::world::eventually;
use tempfile::TempDir;

use crate::agent::{CONFIG, PROFILE};
use crate::frames::{Packet, UDP};
use crate::kernel::{NAMED, SEEN, conntrack, in_namespace};

const IP: &str = "in_port(host),eth(),eth_type(0x0800),ipv4(frag=no)";
const BACK: &str = "in_port(p0),eth(),eth_type(0x0800),ipv4(frag=no)";

/// A daemon whose flows send packets of connections of zone 7 from the host to the wire, translated, and back.
struct World {
    daemon: Daemon,
    ports: Ports,
    wire: Out,
    host: Out,
    representor: Out,
    _folder: TempDir,
}

impl World {
    /// With connections from where the configuration says.
    fn start(source: &str) -> Self {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let folder = tempfile::tempdir().unwrap();
        let wires = folder.path().join("wires");
        std::fs::create_dir(&wires).unwrap();
        let config = CONFIG.replace("takeover = true", &format!("takeover = true\nconnections = \"{source}\""));
        let daemon = Daemon::start_by(&runner(PROFILE, &wires), &folder.path().join("agent"), &config);
        let later = |key: &str| format!("recirc_id(0x1),ct_state(+trk+est),ct_mark(0x5),{key}");
        let flows = [
            (later(IP), "p0"),
            (later(BACK), "host"),
            (IP.to_owned(), "ct(zone=7,nat),recirc(0x1)"),
            (BACK.to_owned(), "ct(zone=7,nat),recirc(0x1)"),
        ];
        for (key, actions) in flows {
            let ran = daemon.sluice(&["add-flow", "--permanent", &key, actions]);
            assert_eq!(ran.code, Some(0), "{key}: {}", ran.err);
        }
        let ports = Ports::of(&wires);
        let [wire, host, representor] = ["wire", "vport-0", "vport-65534"].map(|name| ports.out(name));
        Self { daemon, ports, wire, host, representor, _folder: folder }
    }

    /// Sends a packet of the connection from the host, and returns it as it is on the wire; `None` if it is at its representor.
    fn on_the_wire(&self) -> Option<Vec<u8>> {
        let frame = Packet::v4(UDP).frame();
        self.ports.send("vport-0", &frame);
        let mut found = None;
        eventually("the frame comes out", || {
            let at_representor = self.representor.at_once().inspect(|seen| assert_eq!(*seen, frame));
            found = self.wire.at_once().map(Some).or_else(|| at_representor.map(|_| None));
            found.is_some()
        });
        found.unwrap()
    }

    fn appctl(&self, arguments: &[&str]) -> String {
        let ran = self.daemon.appctl(arguments);
        assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{arguments:?}");
        ran.out
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let ran = self.daemon.appctl(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.out);
        ran.err.lines().next().unwrap_or_default().to_owned()
    }
}

/// Has the kernel know a connection that it has seen in both directions.
fn begin() {
    conntrack(&format!("-I -p udp {NAMED} {SEEN} --zone 7 --mark 5 --src-nat 10.0.0.9:5000"));
}

#[test]
fn connections_of_the_kernel_are_in_the_device_until_they_end_or_are_flushed() {
    let name = "agent_connections::connections_of_the_kernel_are_in_the_device_until_they_end_or_are_flushed";
    in_namespace(name, || {
        let world = World::start("kernel");
        assert_eq!(world.on_the_wire(), None);
        assert_eq!(world.appctl(&["dpctl/dump-conntrack"]), "");
        begin();
        eventually("packets are in hardware", || world.on_the_wire().is_some());
        let there = Packet { from: 9, ports: [5000, 2222], ..Packet::v4(UDP) };
        assert_eq!(world.on_the_wire(), Some(there.frame()));
        // The answer is translated back.
        let answer = Packet { from: 2, to: 9, ports: [2222, 5000], ..Packet::v4(UDP) };
        world.ports.send("wire", &answer.frame());
        let mut received = None;
        eventually("the answer comes out", || {
            received = world.host.at_once();
            received.is_some()
        });
        assert_eq!(received, Some(Packet { to: 1, ports: [2222, 1111], ..answer }.frame()));

        // The kernel deletes it: DESTROY.
        conntrack(&format!("-D -p udp {NAMED} --zone 7"));
        let ended = Instant::now();
        eventually("packets are at the representor", || world.on_the_wire().is_none());
        assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());

        // And so does whoever flushes it, which the kernel does itself then.
        begin();
        eventually("packets are in hardware again", || world.on_the_wire().is_some());
        world.appctl(&["dpctl/flush-conntrack", "zone=7", "ct_nw_src=10.0.0.2"]);
        assert!(world.on_the_wire().is_some(), "another one was meant");
        world.appctl(&["dpctl/flush-conntrack", "zone=7", "ct_nw_src=10.0.0.1,ct_nw_proto=17"]);
        let flushed = Instant::now();
        eventually("packets are at the representor", || world.on_the_wire().is_none());
        assert!(flushed.elapsed() < Duration::from_secs(1), "{:?}", flushed.elapsed());
        assert_eq!(conntrack("-L"), "");
        let log = world.daemon.log();
        assert_eq!(complaints(&log).collect::<Vec<_>>(), Vec::<&str>::new());
    });
}

#[test]
fn connections_of_the_kernel_are_listed_counted_and_limited() {
    let name = "agent_connections::connections_of_the_kernel_are_listed_counted_and_limited";
    in_namespace(name, || {
        begin();
        let world = World::start("kernel");
        eventually("packets are in hardware", || world.on_the_wire().is_some());
        conntrack("-I -p tcp --src fd00::1 --dst fd00::2 --sport 40000 --dport 80 --state ESTABLISHED --timeout 100");
        conntrack("-I -p icmp --src 10.0.0.1 --dst 10.0.0.2 --icmp-type 8 --icmp-code 0 --icmp-id 4660 --timeout 100");
        let udp = "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1111,dport=2222),\
                   reply=(src=10.0.0.2,dst=10.0.0.9,sport=2222,dport=5000),zone=7,mark=5";
        let tcp = "tcp,orig=(src=fd00::1,dst=fd00::2,sport=40000,dport=80),\
                   reply=(src=fd00::2,dst=fd00::1,sport=80,dport=40000),protoinfo=(state=ESTABLISHED)";
        let icmp = "icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=4660,type=8,code=0),\
                    reply=(src=10.0.0.2,dst=10.0.0.1,id=4660,type=0,code=0)";
        let listed = |arguments: &[&str]| {
            let mut lines: Vec<_> = world.appctl(arguments).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(listed(&["dpctl/dump-conntrack"]), [icmp, tcp, udp]);
        assert_eq!(listed(&["dpctl/dump-conntrack", "zone=7"]), [udp]);
        let long = world.appctl(&["dpctl/dump-conntrack", "-m", "-s", "zone=7"]);
        let status = ",zone=7,status=SEEN_REPLY|ASSURED|CONFIRMED|SRC_NAT|SRC_NAT_DONE";
        assert!(long.contains(status) && long.contains(",timeout="), "{long}");
        assert_eq!(world.appctl(&["dpctl/ct-get-nconns"]), "3\n");
        let stats = "Connections Stats:\n    Total: 3\n  TCP: 1\n  UDP: 1\n  ICMP: 1\n";
        assert_eq!(world.appctl(&["dpctl/ct-stats-show"]), stats);
        assert!(world.appctl(&["memory/show"]).contains("connections:3 "));
        let show = world.daemon.sluice(&["show"]).out;
        assert!(show.contains("connections"), "{show}");

        // Those that the kernel has for the whole machine are not for who is in a namespace.
        let limit: u32 = world.appctl(&["dpctl/ct-get-maxconns"]).trim().parse().unwrap();
        assert!(limit > 0);
        let told = "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2)";
        let refusals = [
            (
                &["sluice/add-connection", told][..],
                "the kernel tracks them itself (`connections = \"kernel\"` in [dv])",
            ),
            (&["dpctl/ct-bkts"], "it is not known how connections are spread over buckets"),
            (&["dpctl/ct-set-limits", "default=5"], "there is no limit for the connections of a zone"),
        ];
        for (arguments, reason) in refusals {
            let refusal = world.refused(arguments);
            assert!(refusal.contains(reason), "{refusal}");
        }
        world.appctl(&["dpctl/flush-conntrack", "ct_nw_proto=1"]);
        assert_eq!(listed(&["dpctl/dump-conntrack"]), [tcp, udp]);
        // It began before the agent, so that the kernel does not tell of its end (`nf_conntrack_events` of 2).
        world.appctl(&["dpctl/flush-conntrack"]);
        let flushed = Instant::now();
        eventually("packets are at the representor", || world.on_the_wire().is_none());
        assert!(flushed.elapsed() < Duration::from_secs(1), "{:?}", flushed.elapsed());
        assert_eq!(listed(&["dpctl/dump-conntrack"]), [""; 0]);
        assert_eq!(world.appctl(&["dpctl/ct-get-nconns"]), "0\n");
    });
}

#[test]
fn connections_that_are_added_by_command_are_in_the_device_until_they_are_flushed() {
    let name = "agent_connections::connections_that_are_added_by_command_are_in_the_device_until_they_are_flushed";
    in_namespace(name, || {
        let world = World::start("commands");
        assert_eq!(world.on_the_wire(), None);
        let connection = "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1111,dport=2222),\
                          reply=(src=10.0.0.2,dst=10.0.0.9,sport=2222,dport=5000),zone=7,mark=5";
        let add = |more: &str| {
            let ran = world.daemon.sluice(&["add-connection", &format!("{connection}{more}")]);
            assert_eq!(ran.code, Some(0), "{}", ran.err);
        };
        add("");
        eventually("packets are in hardware", || world.on_the_wire().is_some());
        let there = Packet { from: 9, ports: [5000, 2222], ..Packet::v4(UDP) };
        assert_eq!(world.on_the_wire(), Some(there.frame()));
        // As it is listed it can be added again, with another mark, which the later flows do not match.
        assert_eq!(world.appctl(&["dpctl/dump-conntrack"]), format!("{connection}\n"));
        world.appctl(&["sluice/add-connection", &connection.replace("mark=5", "mark=6")]);
        eventually("packets are at the representor", || world.on_the_wire().is_none());
        add("");
        eventually("packets are in hardware", || world.on_the_wire().is_some());
        assert_eq!(world.appctl(&["dpctl/ct-get-nconns"]), "1\n");
        world.appctl(&["dpctl/flush-conntrack", "zone=7"]);
        let flushed = Instant::now();
        eventually("packets are at the representor", || world.on_the_wire().is_none());
        assert!(flushed.elapsed() < Duration::from_secs(1), "{:?}", flushed.elapsed());
        assert_eq!(world.appctl(&["dpctl/dump-conntrack"]), "");

        // No packet goes by it.
        world.appctl(&[
            "sluice/add-connection",
            &connection.replace("sport=1111", "sport=1112").replace("zone=7", "timeout=1"),
        ]);
        eventually("it times out", || world.appctl(&["dpctl/dump-conntrack"]).is_empty());

        let refusal = world.refused(&["sluice/add-connection", "udp,orig=(src=10.0.0.1)"]);
        assert!(refusal.contains("parsing connection: orig: expected src, dst, sport and dport"), "{refusal}");
        world.appctl(&["dpctl/ct-set-maxconns", "0"]);
        let refusal = world.refused(&["sluice/add-connection", connection]);
        assert!(refusal.contains("connections: there are as many as there may be (0)"), "{refusal}");
    });
}
