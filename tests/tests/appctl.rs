//! The stock `ovs-appctl` of Debian's openvswitch-switch drives the agent.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::vswitchd::Vswitchd;

const KEY: &str = "in_port(client),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,frag=no)";

#[test]
fn flows_are_added_shown_changed_and_deleted_without_a_word() {
    let daemon = Daemon::start(CONFIG);
    let quiet = |args: &[&str]| {
        let ran = daemon.appctl(args);
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("", "", Some(0)), "{args:?}");
    };
    quiet(&["dpctl/add-flow", KEY, "2"]);
    let dump = daemon.appctl(&["dpctl/dump-flows"]).out;
    assert_eq!(
        dump,
        "recirc_id(0),in_port(1),eth(),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,frag=no), packets:0, bytes:0, used:never, actions:2\n"
    );
    quiet(&["dpctl/mod-flow", KEY, "3,2"]);
    let dump = daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    assert!(dump.starts_with("ufid:") && dump.contains("in_port(client)"), "{dump}");
    assert!(dump.ends_with("used:never, offloaded:yes, dp:soft, actions:uplink,server\n"), "{dump}");
    quiet(&["dpctl/del-flow", KEY]);
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out, "");
}

#[test]
fn get_flow_and_the_ufid_prefix_name_a_flow() {
    let daemon = Daemon::start(CONFIG);
    let ufid = "ufid:01234567-89ab-4def-8123-456789abcdef";
    assert_eq!(daemon.appctl(&["dpctl/add-flow", &format!("{ufid},{KEY}"), "2"]).code, Some(0));
    assert!(daemon.appctl(&["dpctl/get-flow", "-m", ufid]).out.starts_with(ufid));
    assert_eq!(daemon.appctl(&["dpctl/mod-flow", KEY, "3"]).err, "", "the key alone names it, too");
    let modified = daemon.appctl(&["dpctl/get-flow", "-m", ufid]).out;
    assert!(modified.starts_with(ufid) && modified.ends_with("actions:uplink\n"), "{modified}");
    assert_eq!(daemon.appctl(&["dpctl/del-flow", ufid]).code, Some(0));
    let gone = daemon.appctl(&["dpctl/get-flow", ufid]);
    assert_eq!(gone.code, Some(2));
    assert!(gone.err.contains("(No such file or directory)\n"), "{}", gone.err);
    assert!(gone.err.starts_with("sluiced: getting flow: there is no flow ufid:"), "{}", gone.err);
}

#[test]
fn refusals_and_mistakes_exit_with_two_and_the_reason() {
    let daemon = Daemon::start(CONFIG);
    let fails = |args: &[&str], reason: &str| {
        let ran = daemon.appctl(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.err.starts_with(reason), "{args:?}: {}", ran.err);
    };
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    fails(&["dpctl/add-flow", KEY, "3"], "sluiced: updating flow table: ufid:");
    fails(
        &["dpctl/add-flow", "in_port(client),eth_type(0x0800),ipv4(proto=47)", "lb_output(1),2"],
        "sluiced: updating flow table: refused, action lb_output:",
    );
    fails(&["dpctl/add-flow", "in_port(nobody)", "2"], "sluiced: parsing flow key (Invalid argument)\n");
    fails(&["dpctl/add-flow", "eth_type(0x0800)", "2"], "sluiced: parsing flow key: in_port() is missing");
    fails(&["dpctl/add-flow", KEY, "2,bad"], "sluiced: parsing actions (Invalid argument)\n");
    fails(&["dpctl/add-flow", KEY, "99"], "sluiced: updating flow table: ");
    let none = "sluiced: deleting flow: there is no such flow (No such file or directory)";
    fails(&["dpctl/del-flow", "in_port(server)"], none);
    fails(&["dpctl/dump-flows", "type=hw"], "sluiced: Failed to parse type (hw) (Invalid argument)");
    fails(&["dpctl/dump-flows", "type=bogus"], "sluiced: Failed to parse type (bogus) (Invalid argument)");
    fails(&["dpctl/dump-flows", "filter=bogus"], "sluiced: Failed to parse filter (bogus: unknown field bogus)");
    fails(&["dpctl/show", "--bogus"], "Unrecognized option --bogus");
    fails(&["dpctl/show", "netdev@other"], "sluiced: opening datapath netdev@other (No such device)");
    fails(&["nope"], "\"nope\" is not a valid command (use \"list-commands\" to see a list of valid commands)");
    fails(&["dpctl/add-flow", "x"], "\"dpctl/add-flow\" command requires at least 2 arguments");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out.lines().count(), 2, "the refused flow is listed, nothing else");
}

#[test]
fn a_file_of_flows_is_taken_line_by_line() {
    let daemon = Daemon::start(CONFIG);
    let file = daemon.folder().join("flows");
    let path = file.to_str().unwrap();
    fs::write(&file, "# a comment\n\nin_port(1),eth_type(0x0800),ipv4(frag=no) 2\nadd in_port(2),eth_type(0x0806) 1\n")
        .unwrap();
    assert_eq!(daemon.appctl(&["dpctl/add-flows", path]).err, "");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out.lines().count(), 2);

    fs::write(
        &file,
        "modify in_port(2),eth_type(0x0806) 3\nnonsense\ndelete in_port(1),eth_type(0x0800),ipv4(frag=no)\n",
    )
    .unwrap();
    let ran = daemon.appctl(&["dpctl/mod-flows", path]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("sluiced: line 2: "), "{}", ran.err);
    let left = daemon.appctl(&["dpctl/dump-flows"]).out;
    assert!(left.lines().count() == 1 && left.ends_with("actions:3\n"), "the other lines were done: {left}");

    let all = daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    fs::write(&file, &all).unwrap();
    daemon.appctl(&["dpctl/del-flows"]);
    assert_eq!(daemon.appctl(&["dpctl/add-flows", path]).err, "", "a dump is taken as it is");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows", "-m"]).out, all);
    assert_eq!(daemon.appctl(&["dpctl/del-flows", path]).err, "");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out, "");
}

#[test]
fn types_and_filters_select_flows() {
    let daemon = Daemon::start(CONFIG);
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    daemon.appctl(&[
        "dpctl/add-flow",
        "in_port(server),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)",
        "lb_output(1),1",
    ]);
    let count = |args: &[&str]| daemon.appctl(&[&["dpctl/dump-flows"], args].concat()).out.lines().count();
    assert_eq!(count(&[]), 2);
    assert_eq!(count(&["type=offloaded"]), 1);
    assert_eq!(count(&["type=non-offloaded"]), 1);
    assert_eq!(count(&["type=partially-offloaded"]), 0);
    assert_eq!(count(&["type=soft"]), 1);
    assert_eq!(count(&["type=tc,dpdk"]), 0);
    assert_eq!(count(&["filter=in_port=server"]), 1);
    assert_eq!(count(&["filter=tcp,tp_dst=80"]), 2, "the other flow does not look at ports");
    assert_eq!(count(&["filter=udp,tp_dst=80"]), 1);
    assert_eq!(count(&["soft@nowhere"]), 0);
}

#[test]
fn show_and_statistics_have_the_layout_of_ovs() {
    let daemon = Daemon::start(CONFIG);
    let name = daemon.folder().file_name().unwrap().to_str().unwrap().to_owned();
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    assert_eq!(daemon.appctl(&["dpctl/dump-dps"]).out, format!("soft@{name}\n"));
    let show = daemon.appctl(&["dpctl/show", "-s"]).out;
    let expected = format!(
        "soft@{name}:\n  lookups: hit:0 missed:0 lost:0\n  flows: 1\n  port 1: client (physical)\n    RX packets:0 errors:? dropped:? overruns:? frame:?\n    TX packets:0 errors:? dropped:? aborted:? carrier:?\n    collisions:?\n    RX bytes:0  TX bytes:0\n"
    );
    assert!(show.starts_with(&expected), "{show}");
    let upcall = daemon.appctl(&["upcall/show"]).out;
    assert!(upcall.contains("  flows         : (current 1) (avg "), "{upcall}");
    assert!(
        upcall.contains("  offloaded flows : 1\n  dump duration : 0ms\n  ufid enabled : true\n\n  0: (keys 1)\n"),
        "{upcall}"
    );
    let offload = daemon.appctl(&["dpctl/offload-stats-show"]).out;
    assert!(offload.contains("     Total                 Enqueued offloads:      0\n"), "{offload}");
    assert!(offload.contains("     Total                 Inserted offloads:      1\n"), "{offload}");
    assert!(offload.contains("     [  1]   Cumulative Average latency (us):"), "{offload}");
    assert_eq!(daemon.appctl(&["dpctl/del-flow", KEY]).code, Some(0));
    let offload = daemon.appctl(&["dpctl/offload-stats-show"]).out;
    assert!(offload.contains("     Total                 Inserted offloads:      0\n"), "what is there now: {offload}");
}

#[test]
fn coverage_memory_and_commands_are_shown_as_by_ovs_vswitchd() {
    let daemon = Daemon::start(CONFIG);
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    daemon.appctl(&["dpctl/add-flow", "in_port(1),eth_type(0x86dd)", "lb_output(1)"]);
    let coverage = daemon.appctl(&["coverage/show"]).out;
    let lines: Vec<_> = coverage.lines().collect();
    let head = "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=";
    assert!(lines[0].starts_with(head) && lines[0].ends_with(':'), "{coverage}");
    let total = |name: &str| {
        let line = lines.iter().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!([total("flow_accepted"), total("flow_installed")], [Some(2), Some(1)], "{coverage}");
    assert_eq!([total("flow_refused_action"), total("flow_refused_port")], [Some(1), None], "{coverage}");
    assert!(lines[lines.len() - 1].ends_with(" events never hit"), "{coverage}");
    // A line of ovs-vswitchd 3.1, whose events are others.
    let theirs = "cmap_expand                0.0/sec     0.000/sec        0.0000/sec   total: 46";
    let layout =
        |line: &str| [line.find("0.0/sec"), line.find("0.000/sec"), line.find("0.0000/sec"), line.find("total: ")];
    assert_eq!(layout(lines[1]), layout(theirs), "{coverage}");

    let vswitchd = Vswitchd::start();
    let memory = daemon.appctl(&["memory/show"]).out;
    assert!(memory.starts_with("action lists:2 connections:0 flows:2 masks:2 meters:0 mirrors:0 ports:4 resident kB:"));
    assert!(memory.ends_with(" unsettled flows:0\n"), "{memory}");

    let theirs = vswitchd.appctl(&["dpctl/list-commands"]).out;
    let commands = daemon.appctl(&["dpctl/list-commands"]).out;
    assert_eq!(commands, daemon.appctl(&["dpctl/help"]).out);
    for both in ["dpctl/ct-bkts", "dpctl/ct-get-nconns", "dpctl/ct-set-maxconns", "dpctl/ct-get-maxconns"] {
        let line = |text: &str| text.lines().find(|line| line.contains(both)).map(str::to_owned);
        assert_eq!(line(&commands), line(&theirs), "{both}");
    }
    assert!(commands.lines().skip(1).all(|line| line.starts_with("  dpctl/")), "{commands}");
}

#[test]
fn the_revalidator_is_paused_waited_for_and_resumed() {
    let daemon = Daemon::start(&CONFIG.replace("idle_timeout = \"none\"", "idle_timeout = \"100ms\""));
    assert_eq!(daemon.appctl(&["revalidator/pause"]).code, Some(0));
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out.lines().count(), 1, "nothing ages in a pause");
    assert_eq!(daemon.appctl(&["revalidator/resume"]).code, Some(0));
    sluice_tests::world::eventually("the flow has aged out", || daemon.appctl(&["dpctl/dump-flows"]).out.is_empty());
    assert_eq!(daemon.appctl(&["revalidator/wait"]).code, Some(0));
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    assert_eq!(daemon.appctl(&["revalidator/purge"]).code, Some(0));
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out, "");
}

#[test]
fn priorities_and_timeouts_are_shown_and_read_back() {
    let daemon = Daemon::start(CONFIG);
    let add = ["dpctl/add-flow", "--priority=7", "--idle-timeout=2500ms", "--permanent", KEY, "2"];
    assert_eq!(daemon.appctl(&add).err, "");
    assert_eq!(daemon.appctl(&["dpctl/add-flow", KEY, "3"]).err, "", "another priority is another flow");
    let dump = daemon.appctl(&["dpctl/dump-flows", "-m"]).out;
    assert!(dump.contains("dp-extra-info:priority[7],idle_timeout[2.5],permanent\n"), "{dump}");
    assert_eq!(daemon.appctl(&["dpctl/del-flow", "--priority=7", KEY]).err, "");
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out.lines().count(), 1);
}

#[test]
fn exit_ends_the_agent_in_order() {
    let mut daemon = Daemon::start(CONFIG);
    daemon.appctl(&["dpctl/add-flow", KEY, "2"]);
    assert_eq!(daemon.appctl(&["exit", "--cleanup"]).code, Some(0));
    assert!(daemon.wait().success());
    assert!(daemon.log().contains("1 flows removed"), "{}", daemon.log());
    assert!(!daemon.socket().exists(), "the socket is gone");
    assert!(!daemon.run_dir().join("sluiced.pid").exists(), "the pidfile is gone");
}

#[test]
fn exit_is_answered_once_all_is_done() {
    let daemon = Daemon::start(CONFIG);
    let flow = |port: u32| format!("add in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={port}),actions:2");
    let flows: Vec<_> = (1..=20_000).map(flow).collect();
    let request = |method: &str, params: &[String]| json!({ "id": 1, "method": method, "params": params }).to_string();
    let added = daemon.raw(request("sluice/add-flows", &[flows.join("\n")]).as_bytes());
    assert!(added.contains("accepted"), "{added}");
    // The agent waits for some seconds for who does not read what was asked for.
    let mut slow = UnixStream::connect(daemon.socket()).unwrap();
    slow.write_all(request("dpctl/dump-flows", &[]).as_bytes()).unwrap();
    slow.read_exact(&mut [0; 16]).unwrap();
    assert_eq!(daemon.http("/readyz").0, 200);
    assert_eq!(daemon.appctl(&["exit", "--cleanup"]).code, Some(0));
    assert_eq!(daemon.http("/readyz").0, 0, "it answers before its end");
}
