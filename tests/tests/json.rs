//! `--json`: every key that a running agent prints is in `docs/json.md`, and every key that is there is printed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::documented::compare;
use sluice_tests::frames::udp;
use sluice_tests::world::eventually;

const KEY: &str = "in_port(client),eth_type(0x0800),ipv4(proto=17,frag=no)";
const REFUSED: &str = "in_port(client),eth_type(0x86dd)";

fn json(daemon: &Daemon, args: &[&str]) -> Value {
    let ran = daemon.sluice(args);
    assert_eq!(ran.err, "", "{args:?}");
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", ran.out))
}

#[test]
fn what_is_printed_is_what_is_documented() {
    let daemon = Daemon::start(&CONFIG.replacen("[[port]]", "[source.ovs]\n[mirror]\n[[port]]", 1));
    let mut watch = daemon.spawn_sluice(&["watch", "--json"]);
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut events = Vec::new();
    eventually("the agent tells what happens", || {
        daemon.sluice(&["add-flow", "in_port(uplink),eth_type(0x0806)", "drop"]);
        daemon.sluice(&["del-flow", "in_port(uplink),eth_type(0x0806)"]);
        events.extend(told.try_iter());
        !events.is_empty()
    });
    let capture = daemon.folder().join("one.pcap");
    let mut bytes = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    bytes.extend([0u32, 0, 60, 60].map(u32::to_be_bytes).concat());
    bytes.extend(udp(53));
    std::fs::write(&capture, bytes).unwrap();

    daemon.sluice(&["add-meter", "1", "--kbps", "8000"]);
    daemon.sluice(&["add-flow", "--idle-timeout", "90s", KEY, "meter(1),server"]);
    daemon.sluice(&["add-flow", REFUSED, "lb_output(1)"]);
    daemon.sluice(&["replay", capture.to_str().unwrap(), "--in-port", "client", "--speed", "flat"]);
    eventually("the counters are polled", || {
        json(&daemon, &["dump-flows", "--json", "type=offloaded"])[0]["packets"] == 1
    });

    let flows = json(&daemon, &["dump-flows", "--json", "-m"]);
    let offloaded = flows.as_array().unwrap().iter().find(|flow| flow["state"] == "offloaded").unwrap();
    let ufid = offloaded["ufid"].as_str().unwrap().to_owned();
    // The NIC in software does not count apart.
    compare("dump-flows, get-flow", &[json(&daemon, &["get-flow", "--json", &ufid]), flows], &["hardware", "software"]);

    let explained = json(&daemon, &["explain", "--json", &ufid]);
    assert_eq!((&explained["taken"], &explained["expiry"]["idle_seconds"]), (&true.into(), &90.0.into()));
    let refused = json(&daemon, &["explain", "--json", REFUSED, "lb_output(2)"]);
    assert_eq!((&refused["taken"], &refused["flow"]), (&false.into(), &Value::Null));
    compare("explain", &[explained, refused], &["flow"]);

    let file = daemon.folder().join("flows");
    std::fs::write(&file, format!("{KEY} 2\nmodify {REFUSED} lb_output(1)\ndelete {KEY}\n")).unwrap();
    let file = json(&daemon, &["explain", "--json", "--file", file.to_str().unwrap()]);
    assert_eq!((&file["flows"], &file["taken"], &file["lines"][0]["line"]), (&2.into(), &1.into(), &2.into()));
    compare("explain --file", &[file], &[]);

    compare("show-meters", &[json(&daemon, &["show-meters", "--json"])], &[]);
    let show = json(&daemon, &["show", "--json"]);
    assert_eq!(show["lookups"]["hits"], 1);
    assert_eq!(show["ports"][3]["underlay"], 3);
    compare("show, stats", &[show, json(&daemon, &["stats", "--json"])], &[]);

    daemon.sluice(&["del-flow", KEY]);
    daemon.sluice(&["del-flow", REFUSED]);
    eventually("the last flow is told of", || {
        events.extend(told.try_iter());
        events.last().is_some_and(|event| event.contains("deleted") && event.contains("0x86dd"))
    });
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    compare("watch", &events, &[]);
}
