//! The daemon on an emulated BlueField-3, as an operator sees it.

use std::process::Command;

use sluice_control::mirror::Message;
use sluice_tests::control_frames::samples;
use sluice_tests::daemon::{Daemon, binary, run};
use sluice_tests::mirror_client::MirrorClient;
use sluice_tests::mlx5::{Out, Ports, complaints, runner};
use sluice_tests::world::eventually;
use tempfile::TempDir;

use crate::frames::{Packet, UDP};

pub(crate) const PROFILE: &str = "bluefield-3";
pub(crate) const CONFIG: &str = r#"
backend = "dv"
device = "mlx5_0"
idle_timeout = "none"
poll_interval = "20ms"
[dv]
takeover = true
vports = { p0 = 65535, host = 0, vf0 = 1 }
[[port]]
number = 1
name = "p0"
[[port]]
number = 2
name = "host"
kind = "representor"
[[port]]
number = 3
name = "vf0"
kind = "representor"
"#;
const KEY: &str = "in_port(host),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)";

/// A daemon with a device, whose far ends are in `folder`.
fn start(folder: &TempDir) -> (Daemon, Ports) {
    start_with(folder, "")
}

/// The same with tables of the configuration on top.
fn start_with(folder: &TempDir, tables: &str) -> (Daemon, Ports) {
    let wires = folder.path().join("wires");
    // Those of a device that was here before are nobody's any more.
    let _ = std::fs::remove_dir_all(&wires);
    std::fs::create_dir(&wires).unwrap();
    let daemon = Daemon::start_by(&runner(PROFILE, &wires), &folder.path().join("agent"), &format!("{CONFIG}{tables}"));
    (daemon, Ports::of(&wires))
}

fn signal(daemon: &Daemon, name: &str) {
    let pid = std::fs::read_to_string(daemon.run_dir().join("sluiced.pid")).unwrap();
    assert!(Command::new("kill").args([&format!("-{name}"), pid.trim()]).status().unwrap().success());
}

fn sluice(daemon: &Daemon, args: &[&str]) -> String {
    let ran = daemon.sluice(args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
    ran.out
}

fn comes_out(out: &Out, frame: &[u8]) {
    let mut found = None;
    eventually("the frame comes out", || {
        found = out.at_once();
        found.is_some()
    });
    assert_eq!(found.as_deref(), Some(frame));
}

#[test]
fn flows_carry_packets_and_count_them_and_leave_nothing_in_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, ports) = start(&folder);
    let (wire, function) = (ports.out("wire"), ports.out("vport-1"));
    let frame = Packet::v4(UDP).frame();
    sluice(&daemon, &["add-flow", KEY, "p0"]);
    (0..5).for_each(|_| {
        ports.send("vport-0", &frame);
        comes_out(&wire, &frame);
    });
    sluice(&daemon, &["mod-flow", KEY, "vf0"]);
    ports.send("vport-0", &frame);
    comes_out(&function, &frame);
    eventually("all packets are counted", || sluice(&daemon, &["dump-flows", "-m"]).contains("packets:6, "));
    let flows = sluice(&daemon, &["dump-flows", "-m"]);
    assert!(flows.contains(&format!("bytes:{}, ", 6 * frame.len())), "{flows}");
    assert!(flows.contains("offloaded:yes, dp:dv, actions:vf0"), "{flows}");
    let refused = daemon.sluice(&["add-flow", "in_port(host),eth(),eth_type(0x0806),arp(sip=10.0.0.1)", "p0"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("field arp.sip: the device has no field for it"), "{}", refused.err);
    let audit = sluice(&daemon, &["audit"]);
    assert!(audit.contains("1 rules, all as wanted (from the backend's own ledger"), "{audit}");
    let explained = sluice(&daemon, &["explain", KEY, "set(eth(dst=02:00:00:00:00:09)),p0,vf0"]);
    let words = "match misc.source_port=0x0 outer.ethertype=0x800 outer.cvlan_tag=0x0 outer.svlan_tag=0x0 outer.ip_version=0x4 \
                 outer.frag=0x0 outer.dst_ipv4=0xa000002; actions count, modify_header(0x1004000002000000 0x1005001000000009), \
                 to p0 and vf0";
    assert!(explained.contains(words), "{explained}");
    signal(&daemon, "TERM");
    assert!(daemon.wait().success());
    let log = daemon.log();
    assert_eq!(complaints(&log).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn control_traffic_comes_out_of_the_port_that_is_named_and_the_plan_does_not_claim_to_know_more() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, ports) = start_with(&folder, "[mirror]\nprotocols = [\"arp\", \"bfd\", \"nd\"]\nto = \"vf0\"\n");
    let (wire, function) = (ports.out("wire"), ports.out("vport-1"));
    sluice(&daemon, &["add-flow", KEY, "p0"]);
    let shown = sluice(&daemon, &["show-mirrors"]);
    assert_eq!(shown.matches(", to:vf0, packets:0, ").count(), 6, "three classes at two ports: {shown}");
    let message = MirrorClient::connect(&daemon.run_dir()).next().unwrap();
    let Ok(Message::Plan(plan)) = Message::parse(&message) else { panic!("no plan") };
    let taps: Vec<_> = plan.taps.iter().map(|tap| (tap.in_port, tap.name.as_str(), tap.netdev.as_deref())).collect();
    assert_eq!((taps, plan.taps[0].classes.to_string()), (vec![(None, "vf0", None)], "arp,nd,bfd".to_owned()));
    let samples = samples();
    let find = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap().frame.clone();
    let bfd = find("bfd");
    ports.send("vport-0", &bfd);
    comes_out(&function, &bfd);
    comes_out(&wire, &bfd);
    let dns = Packet::v4(UDP).frame();
    ports.send("vport-0", &dns);
    comes_out(&wire, &dns);
    assert_eq!(function.at_once(), None, "nothing else is copied");
    eventually("the copy is counted", || {
        daemon.metric("sluice_control_mirror_packets_total{class=\"bfd\"}") == Some(1.0)
    });
}

#[test]
fn flows_come_back_from_the_log_when_the_daemon_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, ports) = start(&folder);
    let frame = Packet::v4(UDP).frame();
    sluice(&daemon, &["add-flow", "--permanent", KEY, "p0"]);
    let jump = "recirc_id(0),in_port(host),eth(),eth_type(0x86dd),ipv6(frag=no)";
    sluice(
        &daemon,
        &["add-flow", "--permanent", "recirc_id(0x5),in_port(host),eth(),eth_type(0x86dd),ipv6(frag=no)", "vf0"],
    );
    sluice(&daemon, &["add-flow", "--permanent", jump, "recirc(0x5)"]);
    signal(&daemon, "KILL");
    assert!(!daemon.wait().success());
    drop((daemon, ports));
    let (daemon, ports) = start(&folder);
    let (wire, function) = (ports.out("wire"), ports.out("vport-1"));
    eventually("all flows are in the device", || {
        sluice(&daemon, &["dump-flows", "type=offloaded"]).lines().filter(|line| line.contains("actions:")).count() == 3
    });
    ports.send("vport-0", &frame);
    comes_out(&wire, &frame);
    let six = Packet::v6(UDP).frame();
    ports.send("vport-0", &six);
    comes_out(&function, &six);
}

#[test]
fn a_device_has_one_agent_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, _) = start(&folder);
    let places = format!("run_dir = \"{0}/other\"\nlock_dir = \"{0}/agent\"\n", folder.path().display());
    let file = folder.path().join("other.toml");
    let wires = folder.path().join("other wires");
    std::fs::create_dir(&wires).unwrap();
    let [first, rest @ ..] = &runner(PROFILE, &wires)[..] else { panic!("a program") };
    for name in ["mlx5_0", "0000:03:00.0"] {
        std::fs::write(&file, places.clone() + &CONFIG.replace("mlx5_0", name)).unwrap();
        let ran = run(Command::new(first).args(rest).arg(binary("sluiced")).arg("--config").arg(&file));
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("device 0000:03:00.0 is in use by pid "), "{name}: {}", ran.err);
    }
}
