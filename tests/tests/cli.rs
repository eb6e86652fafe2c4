//! `sluice` on a real agent: what it prints, and how it exits.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use serde_json::Value;
use sluice_tests::daemon::{Daemon, repository};
use sluice_tests::world::eventually;

/// The demo's agent, with its ports.
const CONFIG: &str = include_str!("../demo/sluiced.toml");
const KEY: &str = "in_port(client),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,frag=no)";

#[test]
fn exit_codes_tell_done_from_usage_from_refusal() {
    let daemon = Daemon::start(CONFIG);
    let code = |args: &[&str]| daemon.sluice(args).code;
    assert_eq!(code(&["add-flow", KEY, "server"]), Some(0));
    assert_eq!(code(&["add-flow", KEY, "server"]), Some(2), "it exists");
    assert_eq!(code(&["add-flow", "in_port(client),eth_type(0x86dd)", "lb_output(1)"]), Some(2), "refused");
    assert_eq!(code(&["add-flow", KEY]), Some(1), "usage");
    assert_eq!(code(&["no-such-command"]), Some(1));
    assert_eq!(code(&["add-flows", "/no/such/file"]), Some(1));
    assert_eq!(code(&["del-flow", KEY]), Some(0));
    assert_eq!(code(&["del-flow", KEY]), Some(2), "it is gone");
}

#[test]
fn a_flow_is_shown_as_text_as_json_and_explained() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "--priority", "4", "--idle-timeout", "90s", KEY, "push_vlan(vid=7,pcp=0),vlan-host"]);
    let text = daemon.sluice(&["dump-flows", "-m"]).out;
    assert_eq!(text, daemon.appctl(&["dpctl/dump-flows", "-m"]).out, "the same as ovs-appctl shows");
    let json: Value = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
    let flow = &json[0];
    assert_eq!(flow["state"], "offloaded");
    assert_eq!(flow["priority"], 4);
    assert_eq!(flow["idle_timeout_seconds"], 90.0);
    assert_eq!(flow["actions"], "push_vlan(vid=7,pcp=0),vlan-host");
    let ufid = flow["ufid"].as_str().unwrap();
    let explained = daemon.sluice(&["explain", ufid]).out;
    assert!(explained.contains("state     offloaded, a rule in hardware\n"), "{explained}");
    assert!(explained.contains("device    subtable in_port,eth_type,ipv4.dst/8"), "{explained}");
    assert!(explained.contains("expiry    idle 90 s, hard never"), "{explained}");
    let would = daemon.sluice(&["explain", "in_port(client),eth_type(0x0800),ipv4(proto=6)", "lb_output(1)"]).out;
    let reason = "the members of the bond are known to ovs-vswitchd alone";
    assert_eq!(would, format!("would be refused: action lb_output: {reason}\n"));
    let unknown = daemon.sluice(&["explain", "01234567-89ab-4def-8123-456789abcdef"]);
    assert_eq!(unknown.err, "sluiced: getting flow: there is no such flow (No such file or directory)\n");
}

#[test]
fn a_dump_of_another_machine_is_judged_with_a_summary_by_reason() {
    let daemon = Daemon::start(CONFIG);
    let rules = repository("tests/capture/rules.txt");
    let ran = daemon.sluice(&["explain", "--file", rules.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0));
    let summary: Vec<_> = ran.out.lines().skip_while(|line| line.starts_with("line ")).collect();
    assert_eq!(
        summary,
        [
            "76 flows: 72 would be taken, 4 not",
            "       4  action userspace: there is no process behind the software NIC that takes packets",
        ]
    );
}

#[test]
fn a_capture_is_replayed_and_counted_to_the_packet() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    let capture = repository("tests/capture/client.pcap");
    let ran = daemon.sluice(&["replay", capture.to_str().unwrap(), "--in-port", "client", "--speed", "flat"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("frames:147 "), "{}", ran.out);
    let number = |name: &str| -> u64 {
        let words = ran.out.split_whitespace().find_map(|word| word.strip_prefix(name));
        words.unwrap().parse().unwrap()
    };
    assert_eq!(number("hit:") + number("missed:"), 147);
    assert_eq!(number("missed_later:"), 0);
    let packets = || {
        let json: Value = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
        json[0]["packets"].as_u64().unwrap()
    };
    eventually("the counters are polled", || packets() == number("hit:"));
    // A flow that sends all of them to a chain in which nothing is: they are no misses, as in the metrics.
    daemon.sluice(&["mod-flow", "in_port(client),eth_type(0x0800)", "recirc(7)"]);
    let lookups = || {
        assert_eq!(daemon.appctl(&["revalidator/wait"]).code, Some(0));
        [hits(&daemon), misses(&daemon)]
    };
    let before = lookups();
    let ran = daemon.sluice(&["replay", capture.to_str().unwrap(), "--in-port", "client", "--speed", "flat"]);
    let number = |name: &str| -> u64 {
        let words = ran.out.split_whitespace().find_map(|word| word.strip_prefix(name));
        words.unwrap().parse().unwrap()
    };
    assert_eq!(number("hit:") + number("missed:"), 147, "{}", ran.out);
    assert_eq!(number("missed_later:"), number("hit:"), "{}", ran.out);
    let after = lookups();
    let counted = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(counted, [number("hit:"), number("missed:")], "{}", ran.out);
    let missing = daemon.sluice(&["replay", capture.to_str().unwrap(), "--in-port", "nobody"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("there is no port nobody"), "{}", missing.err);
}

fn lookups(daemon: &Daemon, result: &str) -> u64 {
    let shown: Value = serde_json::from_str(&daemon.sluice(&["show", "--json"]).out).unwrap();
    shown["lookups"][result].as_u64().unwrap()
}

fn hits(daemon: &Daemon) -> u64 {
    lookups(daemon, "hits")
}

fn misses(daemon: &Daemon) -> u64 {
    lookups(daemon, "misses")
}

#[test]
fn a_flow_that_is_there_already_or_under_another_priority_is_named() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", KEY, "lb_output(1)"]);
    let exists = daemon.sluice(&["add-flow", KEY, "server"]);
    assert_eq!(exists.code, Some(2));
    assert!(
        exists.err.contains(" has this match or UFID (File exists)\nThe flow is kept, refused: action lb_output: ")
    );
    assert!(exists.err.ends_with("\nUse mod-flow to change its actions.\n"), "{}", exists.err);
    assert_eq!(daemon.sluice(&["mod-flow", KEY, "server"]).err, "");
    assert_eq!(daemon.sluice(&["del-flow", KEY]).err, "");

    daemon.sluice(&["add-flow", "--priority", "3", KEY, "server"]);
    let dump = daemon.sluice(&["dump-flows"]).out;
    assert!(dump.ends_with(", dp-extra-info:priority[3]\n"), "{dump}");
    let other = daemon.sluice(&["del-flow", KEY]);
    let said = "sluiced: deleting flow: there is no such flow (No such file or directory)\n\
                There is none with priority 0, but with priority 3; --priority=N says which is meant.\n";
    assert_eq!((other.err.as_str(), other.code), (said, Some(2)));
    let file = daemon.folder().join("short");
    std::fs::write(&file, dump).unwrap();
    assert_eq!(daemon.sluice(&["del-flows", file.to_str().unwrap()]).err, "", "the short dump says which flow it is");
    assert_eq!(daemon.sluice(&["dump-flows"]).out, "");
}

#[test]
fn empty_actions_are_no_drop() {
    let daemon = Daemon::start(CONFIG);
    for actions in ["", " "] {
        let ran = daemon.sluice(&["add-flow", KEY, actions]);
        let said = "sluiced: parsing actions: they are empty; use \"drop\" to drop packets (Invalid argument)\n";
        assert_eq!((ran.err.as_str(), ran.code), (said, Some(2)));
        assert_eq!(daemon.sluice(&["explain", KEY, actions]).code, Some(2));
    }
    assert_eq!(daemon.sluice(&["dump-flows"]).out, "");
    assert_eq!(daemon.sluice(&["add-flow", KEY, "drop"]).err, "");
}

#[test]
fn a_file_is_explained_line_by_line_and_fails_if_a_line_is_no_flow_or_none_would_be_taken() {
    let daemon = Daemon::start(CONFIG);
    let explain = |text: &str| {
        let file = daemon.folder().join("flows");
        std::fs::write(&file, text).unwrap();
        let ran = daemon.sluice(&["explain", "--file", file.to_str().unwrap()]);
        assert_eq!(ran.err, "");
        (ran.out, ran.code)
    };
    let (refused, taken) = (format!("{KEY} lb_output(1)\n"), format!("{KEY} server\n"));
    let (out, code) = explain(&format!("add {taken}modify {refused}delete {KEY}\n{taken}"));
    assert!(out.starts_with("line 2: action lb_output: ") && out.contains("3 flows: 2 would be taken, 1 not"), "{out}");
    assert_eq!(code, Some(0));
    let (out, code) = explain(&format!("{taken}nonsense\n"));
    assert!(out.starts_with("line 2: not understood: ") && out.contains("2 flows: 1 would be taken, 1 not"), "{out}");
    assert_eq!(code, Some(2));
    assert_eq!(explain(&refused).1, Some(2), "none would be taken");
    assert_eq!(explain(&format!("# nothing\ndelete {KEY}\n")).1, Some(0));
}

#[test]
fn an_agent_that_is_stopped_is_given_up_in_time() {
    let daemon = Daemon::start(CONFIG);
    daemon.signal("STOP");
    for command in [&["show"][..], &["dump-flows"], &["watch"], &["add-flow", KEY, "server"]] {
        let ran = daemon.sluice(&[&["--timeout", "400ms"], command].concat());
        let said = "sluice: no sign of life of the agent for 400ms; is it stopped? (--timeout says how long to wait)\n";
        assert_eq!((ran.err.as_str(), ran.code), (said, Some(1)), "{command:?}");
    }
    daemon.signal("CONT");
    assert_eq!(daemon.sluice(&["flush"]).err, "");
}

#[test]
fn an_agent_that_is_told_to_exit_has_ended_and_left_no_rule() {
    let mut daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", KEY, "server"]);
    let exit = daemon.sluice(&["exit", "--cleanup"]);
    assert_eq!((exit.code, exit.out.as_str(), exit.err.as_str()), (Some(0), "", ""));
    assert!(!daemon.socket().exists(), "it has ended");
    assert!(daemon.wait().success());
    assert!(daemon.log().contains("1 flows removed, and the device has no rule of ours"), "{}", daemon.log());
    assert_eq!(daemon.sluice(&["exit"]).code, Some(1), "there is no agent any more");
}

#[test]
fn ports_and_meters_come_and_go_at_run_time() {
    let daemon = Daemon::start(CONFIG);
    let fails = |args: &[&str], reason: &str| {
        let ran = daemon.sluice(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
    };
    let works = |args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    fails(&["add-flow", KEY, "meter(1),77"], "there is no meter 1");
    works(&["add-meter", "1", "--pps", "10", "--band", "1:7"]);
    let meters = daemon.sluice(&["show-meters"]).out;
    let shown = "meter:1, unit:pps, packets:0, bytes:0, dropped:0\n  band:0, rate:10, burst:10, dropped:0\n  band:1, rate:1, burst:7, dropped:0\n";
    assert_eq!(meters, shown);
    works(&["add-port", "77", "late"]);
    eventually("the refused flow is taken once the device can", || {
        daemon.sluice(&["dump-flows", "type=offloaded"]).out.contains("actions:meter(1),77")
    });
    fails(&["add-port", "78", "late"], "number 77 is late already");
    fails(&["del-meter", "1"], "used by");
    works(&["del-flow", KEY]);
    works(&["del-meter", "1"]);
    works(&["del-port", "late"]);
    fails(&["add-flow", KEY, "77"], "there is no such port");
}

#[test]
fn a_flow_waits_for_its_timeout_policy_and_holds_it() {
    let daemon = Daemon::start(CONFIG);
    let fails = |args: &[&str], reason: &str| {
        let ran = daemon.sluice(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
    };
    let works = |args: &[&str]| assert_eq!(daemon.sluice(args).err, "", "{args:?}");
    fails(&["add-flow", KEY, "ct(commit,timeout=short),2"], "timeout=short: there is no such timeout policy");
    fails(&["add-ct-timeout", "short", "tcp_slow=3"], "tcp_slow: not a timeout, expected one of tcp_syn_sent,");
    fails(&["add-ct-timeout", "short", "tcp_unack=soon"], "tcp_unack needs a number of seconds");
    fails(&["add-ct-timeout", "a,b"], "one word without brackets");
    works(&["add-ct-timeout", "short", "udp_single=5", "tcp_syn_sent=3"]);
    assert_eq!(daemon.sluice(&["show-ct-timeouts"]).out, "name:short, tcp_syn_sent=3, udp_single=5\n");
    eventually("the refused flow is taken once its policy is there", || {
        daemon.sluice(&["dump-flows", "type=offloaded"]).out.contains("actions:ct(commit,timeout=short),2")
    });
    fails(&["del-ct-timeout", "short"], "timeout=short is used by 1");
    works(&["del-flow", KEY]);
    works(&["del-ct-timeout", "short"]);
    fails(&["del-ct-timeout", "short"], "there is no timeout policy short");
}

#[test]
fn an_audit_of_a_device_that_is_as_wanted_says_so() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", KEY, "server"]);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x86dd)", "lb_output(1)"]);
    let ran = daemon.sluice(&["audit"]);
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str(), ran.code),
        ("1 rules, all as wanted (listed by the device)\n", "", Some(0))
    );
}

#[test]
fn the_busiest_flow_is_on_top() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x86dd)", "server"]);
    let capture = repository("tests/capture/client.pcap");
    let top = std::thread::scope(|scope| {
        let top = scope.spawn(|| daemon.sluice(&["top", "--count", "1", "--interval", "2s"]));
        // Traffic for as long as it looks, however late it begins.
        while !top.is_finished() {
            daemon.sluice(&["replay", capture.to_str().unwrap(), "--in-port", "client", "--speed", "flat"]);
        }
        top.join().unwrap()
    });
    let lines: Vec<_> = top.out.lines().collect();
    assert!(lines[0].starts_with("2 flows, 2 of them with packets, "), "{}", lines[0]);
    assert!(lines[1].contains("trend") && lines[2].contains(" hardware "), "{}", top.out);
    assert!(lines[2].contains("eth_type(0x0800)") && lines[3].contains("eth_type(0x86dd)"), "{}", top.out);
}

#[test]
fn without_an_agent_it_says_so() {
    let mut daemon = Daemon::start(CONFIG);
    daemon.signal("TERM");
    daemon.wait();
    let ran = daemon.sluice(&["show"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("no agent at") && ran.err.contains("is sluiced running?"), "{}", ran.err);
}
