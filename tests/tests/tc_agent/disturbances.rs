//! Others that write at the same time, and more that happens than the agent can hear.

use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_tests::lab::switch::{SERVER, Switch, deletion, eventually, key, run, sluice};

use crate::stream::{PORT, Stream};

const POLICY: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"\nflow_limit = 100000\ndirty_limit = 100000";
/// More than the kernel keeps notifications for one that does not listen.
const MANY: usize = 3_000;
/// Rules that somebody else adds and deletes all the time, and flows that are added meanwhile at a time.
const BESIDES: usize = 500;
const ROUNDS: usize = 4;

/// A file of ours in memory, with a line for each of some flows.
fn file(switch: &Switch, name: &str, lines: impl Iterator<Item = String>) -> String {
    let path = switch.folder().join(name);
    let text = lines.fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").unwrap();
        text
    });
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", number >> 16, number >> 8 & 0xff, number & 0xff)
}

/// Flows to so many addresses.
fn flows(switch: &Switch, addresses: Range<usize>) -> String {
    file(switch, "flows", addresses.map(|number| format!("{},actions:server", key(&address(number), PORT))))
}

pub(crate) fn what_is_lost_unheard_is_found_and_put_back() {
    let switch = Switch::set_up();
    let daemon = switch.start(POLICY);
    sluice(&daemon, &["add-flows", &flows(&switch, 0..MANY)]);
    let filters = switch.filters("client");
    assert_eq!(filters.len(), MANY);
    daemon.signal("STOP");
    let deletions = filters.iter().map(|filter| deletion(filter));
    run(&format!("tc -batch {}", file(&switch, "deletions", deletions)));
    assert_eq!(switch.filters("client").len(), 0);
    assert!(is_overrun(), "every notification would have been heard");
    daemon.signal("CONT");
    eventually("the rules are back", || switch.filters("client").len() == MANY);
    eventually("all are as wanted", || {
        daemon.sluice(&["audit"]).out == format!("{MANY} rules, all as wanted (listed by the device)\n")
    });
}

/// Whether the kernel has thrown away what a netlink socket of this namespace was to hear: the column of drops in
/// `netlink_native_seq_show` of net/netlink.
fn is_overrun() -> bool {
    let sockets = run("cat /proc/thread-self/net/netlink");
    sockets.lines().skip(1).any(|line| line.split_whitespace().nth(8).is_some_and(|drops| drops != "0"))
}

pub(crate) fn flows_stay_while_rules_around_them_come_and_go() {
    let switch = Switch::set_up();
    let daemon = switch.start(POLICY);
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    let stream = Stream::start();
    let others = |verb: &'static str, actions: &'static str| {
        let rule = |number: usize| {
            let handle = number + 1;
            let address = address(number);
            format!(
                "filter {verb} dev client ingress pref 49000 handle {handle} protocol ip flower dst_ip {address} {actions}"
            )
        };
        file(&switch, verb, (0..BESIDES).map(rule))
    };
    let (add, delete) = (others("add", "action drop"), others("delete", ""));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let besides = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                run(&format!("tc -batch {add}"));
                run(&format!("tc -batch {delete}"));
                rounds += 1;
            }
            rounds
        });
        for round in 0..ROUNDS {
            sluice(&daemon, &["add-flows", &flows(&switch, round * BESIDES..(round + 1) * BESIDES)]);
            let expected = 1 + (round + 1) * BESIDES;
            assert_eq!(daemon.metric("sluice_flows{state=\"partial\"}"), Some(expected as f64));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(besides.join().unwrap() > 0, "nobody else wrote anything");
    });
    let audit = sluice(&daemon, &["audit"]);
    assert_eq!(audit, format!("{} rules, all as wanted (listed by the device)\n", 1 + ROUNDS * BESIDES));
    let ended = daemon.http("/metrics").1;
    let ended = ended.lines().filter(|line| line.starts_with("sluice_flows_ended_total{") && !line.ends_with(" 0"));
    assert_eq!(ended.collect::<Vec<_>>(), Vec::<&str>::new(), "no flow was taken for lost");
    stream.end_without_loss();
}
