//! `sluice ovs observe`: without a daemon, without a NIC, of a dump and of a running ovs-vswitchd.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use sluice_flow::action::{Action, ActionList, visit};
use sluice_flow::backend::{BackendConfig, Checker};
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::{Port, PortKind};
use sluice_offload_dv::ConnectionsOf;
use sluice_tests::daemon::{Daemon, Ran, binary, new_folder, run};
use sluice_tests::documented::compare;
use sluice_tests::generate::{self, Profile, collect};
use sluice_tests::language::{self, Backend};
use sluice_tests::scenario::flow_text;
use sluice_tests::vswitchd::Vswitchd;

/// Two chains of a switch with connection tracking, a load balancer by dp_hash, a logged rule and a tunnel, as ovs-vswitchd prints them.
const DUMP: &str = "\
flow-dump from the main thread:
recirc_id(0),in_port(veth1),ct_state(-trk),eth(),eth_type(0x0800),ipv4(frag=no), packets:700, bytes:70000, used:0.5s, flags:P., actions:ct(zone=7),recirc(0x11)
recirc_id(0x11),in_port(veth1),ct_state(-new+est+trk),ct_zone(0x7),eth(),eth_type(0x0800),ipv4(frag=no), packets:690, bytes:69000, used:0.5s, offloaded:yes, dp:tc, actions:set(tunnel(tun_id=0x2,dst=172.18.0.3,ttl=64,tp_dst=6081,geneve({class=0x102,type=0x80,len=4,0x20001}),flags(df|csum|key))),genev_sys_6081
recirc_id(0x11),in_port(veth1),ct_state(+new+trk),ct_zone(0x7),eth(),eth_type(0x0800),ipv4(frag=no), packets:10, bytes:1000, used:0.5s, actions:ct(commit,zone=7),hash(l4(0)),recirc(0x12)
recirc_id(0x12),dp_hash(0x1/0xf),in_port(veth1),eth(),eth_type(0x0800),ipv4(frag=no), packets:6, bytes:600, used:0.5s, actions:veth2
recirc_id(0x12),in_port(veth1),eth(),eth_type(0x0800),ipv4(frag=no), packets:4, bytes:400, used:0.5s, actions:veth3
tunnel(tun_id=0x2,src=172.18.0.3,dst=172.18.0.2,geneve({class=0x102,type=0x80,len=4,0x20001}),flags(-df+csum+key)),recirc_id(0),in_port(genev_sys_6081),eth(),eth_type(0x0800),ipv4(frag=no), packets:500, bytes:50000, used:0.1s, actions:veth1
recirc_id(0),in_port(veth2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=67), packets:3, bytes:900, used:9s, actions:userspace(pid=4294967295,controller(reason=1,dont_send=0,continuation=0,recirc_id=5,rule_cookie=0x1,controller_id=0,max_len=65535))
recirc_id(0),in_port(veth3),eth(),eth_type(0x88cc), packets:2, bytes:120, used:never, actions:userspace(pid=7,slow_path(lldp))
";

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = new_folder();
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn observe(arguments: &[&str]) -> Ran {
    run(Command::new(binary("sluice")).args(["ovs", "observe"]).args(arguments).env("OVS_RUNDIR", "/nowhere"))
}

fn json(arguments: &[&str]) -> Value {
    let ran = observe(&[&["--json"], arguments].concat());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    serde_json::from_str(&ran.out).unwrap()
}

fn of<'a>(report: &'a Value, backend: &str) -> &'a Value {
    report["backends"].as_array().unwrap().iter().find(|found| found["name"] == backend).unwrap()
}

#[test]
fn a_dump_is_judged_with_the_reason_an_example_and_a_cure_of_each_refusal() {
    let folder = Folder::new();
    let file = folder.file("flows.txt", DUMP);
    let ran = observe(&["--backend", "tc", &file]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let expected = format!(
        "\
{file}: 8 flows
8 flows with 1915 packets and 192020 bytes
  offloaded by OVS now: 1 flow (12.5 %) with 36.0 % of the packets
  recirculating: 5 flows (62.5 %) with 73.6 % of the packets

tc: 3 flows (37.5 %) with 98.6 % of the packets would be offloaded
  5 flows (62.5 %) with 1.3 % of the packets would not, the reason with the most packets first:
"
    );
    assert!(ran.out.starts_with(&expected), "{}", ran.out);
    for part in [
        // What is behind a refused flow is of no use.
        "  1 flow (12.5 %) with 0.2 % of the packets: no packet would come to the chain: the flows that lead there are refused\n    \
         example: recirc_id(0x12),in_port(veth1),eth(),",
        "  1 flow (12.5 %) with 0.3 % of the packets: field dp_hash: ",
        "selection_fields=",
        "  1 flow (12.5 %) with 0.5 % of the packets: action hash: ",
        "DHCP, ARP, DNS",
        "ovs-vswitchd itself speaks this protocol",
    ] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
}

#[test]
fn what_is_printed_as_json_is_what_is_documented_and_metrics_are_fit_for_prometheus() {
    let folder = Folder::new();
    let file = folder.file("flows.txt", DUMP);
    let metrics = folder.0.join("sluice_ovs.prom");
    let report = json(&["--metrics-file", metrics.to_str().unwrap(), &file]);
    compare("ovs observe", std::slice::from_ref(&report), &[]);
    let names: Vec<_> = report["backends"].as_array().unwrap().iter().map(|backend| &backend["name"]).collect();
    assert_eq!(names, ["tc", "dv"], "the NIC in software is asked only by name");
    assert_eq!((&of(&report, "tc")["taken"]["flows"], &report["all"]["packets"]), (&3.into(), &1915.into()));

    let text = std::fs::read_to_string(&metrics).unwrap();
    for line in [
        "sluice_ovs_flows 8",
        "sluice_ovs_offloaded_flows 1",
        "sluice_ovs_taken_flows{backend=\"tc\"} 3",
        "sluice_ovs_taken_flow_packets{backend=\"tc\"} 1890",
        "sluice_ovs_refused_flows{about=\"dp_hash\",backend=\"tc\",reason=\"field\"} 1",
        "sluice_ovs_refused_flow_packets{about=\"userspace\",backend=\"tc\",reason=\"action\"} 5",
        "sluice_ovs_refused_flows{about=\"recirc_id\",backend=\"tc\",reason=\"chain\"} 1",
        "sluice_ovs_not_understood_flows 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of Debian's prometheus");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{text}");
    let beside: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside.len(), 2, "nothing else is left: {beside:?}");
}

#[test]
fn a_configuration_decides_what_its_backend_takes() {
    let folder = Folder::new();
    let file = folder.file("flows.txt", DUMP);
    let without = json(&["--backend", "dv", &file]);
    let (without, refusals) = (of(&without, "dv"), of(&without, "dv")["refusals"].to_string());
    assert!(
        refusals.contains("there is no source of connections") && refusals.contains("connections = "),
        "{refusals}"
    );
    let config = folder.file("sluiced.toml", "backend = \"dv\"\n[dv]\ntakeover = true\nconnections = \"kernel\"\n");
    let with = json(&["--config", &config, &file]);
    let with = of(&with, "dv");
    assert!(with["taken"]["packets"].as_u64() > without["taken"]["packets"].as_u64(), "{with} {without}");
}

#[test]
fn kinds_of_ports_that_were_shown_count() {
    let folder = Folder::new();
    let flow = "recirc_id(0),in_port(1),eth(),eth_type(0x0806), packets:1, bytes:60, used:1s, actions:2\n";
    let show = "system@ovs-system:\n  lookups: hit:1 missed:2 lost:0\n  flows: 1\n  masks: hit:3 total:1 hit/pkt:1.50\n  caches:\n    \
                masks-cache: size:256\n  port 0: ovs-system (internal)\n  port 1: br-int (internal)\n  port 2: p0\n";
    let (plain, shown) = (folder.file("plain", flow), folder.file("shown", &format!("{show}{flow}")));
    let taken = |file: &str| of(&json(&["--backend", "dv", file]), "dv")["taken"]["flows"].clone();
    assert_eq!((taken(&plain), taken(&shown)), (1.into(), 0.into()), "dv has no internal ports");
    let report = json(&["--backend", "dv", &shown]);
    let refusal = &of(&report, "dv")["refusals"][0];
    assert_eq!(refusal["label"], "port");
    assert!(refusal["example"].as_str().unwrap().contains("in_port(br-int)"), "{refusal}");
}

#[test]
fn what_cannot_be_read_is_said_and_what_is_no_flow_is_counted() {
    let folder = Folder::new();
    let ran = observe(&["/nowhere/flows.txt"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.starts_with("sluice ovs observe: /nowhere/flows.txt: No such file"), "{}", ran.err);
    for (arguments, words) in [
        (&[][..], "required"),
        (&["--live", "flows.txt"], "cannot be used with"),
        (&["--backend", "asic", "flows.txt"], "no backend asic in this build"),
    ] {
        let ran = observe(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    let file = folder.file("flows.txt", &format!("{DUMP}ofproto(3) nonsense\n"));
    let ran = observe(&[&file]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    let words = "  not understood and not counted: 1\n    first: ofproto(3) nonsense\n    reason: at byte 0: expected a key attribute";
    assert!(ran.out.contains(words), "{}", ran.out);
    let binary = folder.0.join("binary");
    std::fs::write(&binary, b"a\n\xff\n").unwrap();
    let ran = observe(&[binary.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("line 2 is no UTF-8 text"), "{}", ran.err);
    let help = observe(&["--help"]);
    assert!(help.code == Some(0) && help.out.contains("Usage: sluice ovs observe"), "{}", help.out);
}

/// Generated flows of the first chain that name the port that packets come in at, without meters, which an agent must have been told of, and without outer headers, which make
/// tunnels of the ports that have them.
fn plain_flows(count: u64) -> Vec<(Match, ActionList)> {
    let (sets, _) = collect(&Arc::new(Profile::everything()), count);
    let mut flows = Vec::new();
    for flow in sets.into_iter().flatten() {
        let is_matched = |field| flow.matching.mask.get(field) != 0;
        let mut is_plain = is_matched(Field::InPort) && !is_matched(Field::TunnelPresent);
        visit(&flow.actions, &mut |action| is_plain &= !matches!(action, Action::Meter(_) | Action::SetTunnel(_)));
        let mut matching = flow.matching;
        matching.set_exact(Field::RecircId, 0);
        if is_plain {
            flows.push((matching, flow.actions));
        }
    }
    flows
}

#[test]
fn the_nic_in_software_is_judged_here_as_the_running_agent_judges_it() {
    let folder = Folder::new();
    let mut text = String::new();
    for (matching, actions) in plain_flows(4_000) {
        writeln!(text, "{}", flow_text(&matching, &actions)).unwrap();
    }
    let file = folder.file("flows.txt", &text);
    let ports = (1..=4).map(|number| format!("[[port]]\nnumber = {number}\nname = \"p{number}\"\n"));
    let daemon = Daemon::start(&format!("idle_timeout = \"none\"\n{}", ports.collect::<String>()));
    let explained: Value =
        serde_json::from_str(&daemon.sluice(&["explain", "--json", "--file", &file]).out).expect("an object");
    let report = json(&["--backend", "soft", &file]);
    let soft = of(&report, "soft");
    assert_eq!(report["all"]["flows"], explained["flows"]);
    let reasons = |refusals: &Value| {
        let mut sums = BTreeMap::new();
        for refusal in refusals.as_array().unwrap() {
            *sums.entry(refusal["reason"].to_string()).or_insert(0) += refusal["flows"].as_u64().unwrap();
        }
        sums
    };
    assert_eq!(reasons(&soft["refusals"]), reasons(&explained["reasons"]));
    assert!(soft["taken"]["flows"].as_u64() > Some(300), "{soft}");
}

#[test]
fn checkers_refuse_what_the_translations_refuse() {
    let flows = plain_flows(3_000);
    let dv = sluice_offload_dv::Config { connections: Some(ConnectionsOf::Kernel), ..Default::default() };
    let checkers: [(Backend, Box<dyn Checker>); 3] = [
        (Backend::Soft, sluice_offload_soft::Config::default().checker()),
        (Backend::Tc, sluice_offload_tc::Config::default().checker()),
        (Backend::Dv, dv.checker()),
    ];
    for (backend, mut checker) in checkers {
        for Port { number, name, .. } in generate::ports() {
            let kind = if number.0 == 1 { PortKind::Physical } else { PortKind::Representor };
            checker.port(&Port { number, name, kind }).unwrap();
        }
        let (mut taken, mut refused) = (0, 0);
        for (matching, actions) in &flows {
            let ours = checker.flow(&language::flow(matching, actions)).err();
            assert_eq!(
                ours,
                backend.refusal(matching, actions),
                "{}: {}",
                backend.name(),
                flow_text(matching, actions)
            );
            if ours.is_none() { taken += 1 } else { refused += 1 }
        }
        println!("{}: {taken} taken, {refused} refused", backend.name());
        assert!(taken > 50 && refused > 100, "{}: {taken} taken, {refused} refused", backend.name());
    }
}

/// Bytes of the most memory that a process has had.
fn most_memory(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn memory_does_not_grow_with_the_number_of_flows() {
    let of = |flows: u32| {
        let mut child = Command::new(binary("sluice"))
            .args(["ovs", "observe", "--json", "--backend", "tc", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = std::io::BufWriter::new(child.stdin.take().unwrap());
        for number in 0..flows {
            let [_, a, b, c] = number.to_be_bytes();
            // A thousand chains, a UFID and addresses of its own for each flow, and one in ten that is refused.
            let (chain, last) = (number % 1_000, if number.is_multiple_of(10) { "lb_output(1)" } else { "3" });
            writeln!(
                stdin,
                "ufid:{number:08x}-0000-4000-8000-000000000000, recirc_id({chain:#x}),in_port({}),eth(src=02:00:00:{a:02x}:{b:02x}:{c:02x}),\
                 eth_type(0x0800),ipv4(src=10.{a}.{b}.{c},proto=6,frag=no),tcp(dst={}), packets:{number}, bytes:0, used:never, dp:ovs, \
                 actions:{last}",
                number % 64,
                number % 50_000,
            )
            .unwrap();
        }
        stdin.flush().unwrap();
        // All is read once the pipe is empty, but for the last part.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let memory = most_memory(child.id());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["all"]["flows"], flows, "{report}");
        memory
    };
    let (few, many) = (of(20_000), of(200_000));
    println!("{few} bytes for 20,000 flows, {many} for 200,000");
    assert!(many < few + (8 << 20), "{few} bytes for 20,000 flows, {many} for 200,000");
}

#[test]
fn a_running_vswitchd_is_read_by_its_control_socket() {
    let vswitchd = Vswitchd::start();
    for (key, actions) in [
        ("in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)", "2"),
        ("in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)", "1"),
        ("in_port(3),eth(),eth_type(0x0800),ipv4(frag=no)", "trunc(100),2"),
    ] {
        assert_eq!(vswitchd.appctl(&["dpctl/add-flow", key, actions]).err, "");
    }
    let socket = vswitchd.path("vswitchd.ctl");
    let report = json(&["--live", "--backend", "tc", "--vswitchd", &socket]);
    assert_eq!(report["datapaths"][0]["name"], "dummy@ovs-dummy");
    assert_eq!((&report["all"]["flows"], &of(&report, "tc")["taken"]["flows"]), (&3.into(), &2.into()), "{report}");
    let example = of(&report, "tc")["refusals"][0]["example"].as_str().unwrap();
    assert!(example.contains("in_port(p3)") && example.ends_with("actions:trunc(100),p2"), "{example}");

    let ran = observe(&["--live", "--vswitchd", "/nowhere/vswitchd.ctl"]);
    assert_eq!(ran.code, Some(1));
    let words = "no ovs-vswitchd: /nowhere/vswitchd.ctl (No such file or directory";
    assert!(
        ran.err.contains("no Open vSwitch on this host that can be read: ") && ran.err.contains(words),
        "{}",
        ran.err
    );
}
