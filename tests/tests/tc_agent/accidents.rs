//! What others do to the rules, and to the devices that they are on.

use sluice_tests::daemon::Daemon;

use crate::stream::{self, PORT};
use crate::switch::{SERVER, Switch, eventually, key, run, sluice};

/// An agent with the flow of the stream and nine others.
fn ten_flows(switch: &Switch) -> Daemon {
    let daemon = switch.start("policy = \"skip_hw\"\nidle_timeout = \"none\"");
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    for host in 11..20 {
        sluice(&daemon, &["add-flow", &key(&format!("192.168.7.{host}"), PORT), "server"]);
    }
    assert_eq!(switch.filters("client").len(), 10);
    daemon
}

/// Waits until every rule is there and as it should be.
fn mended(switch: &Switch, daemon: &Daemon) {
    eventually("the rules are back", || switch.filters("client").len() == 10);
    eventually("all are as wanted", || daemon.sluice(&["audit"]).out == "10 rules, all as wanted\n");
    assert_eq!(stream::send(20), 20);
}

pub(crate) fn rules_that_somebody_changes_are_found_and_mended() {
    let switch = Switch::new();
    let daemon = ten_flows(&switch);
    let filters = switch.filters("client");
    let name = |index: usize| {
        let words: Vec<_> = filters[index].split_whitespace().collect();
        let value = |name| words[words.iter().position(|word| *word == name).unwrap() + 1];
        format!("protocol ip pref {} handle {} flower", value("pref"), value("handle"))
    };
    run(&format!("tc filter del dev client ingress {}", name(3)));
    run("tc filter add dev client ingress pref 49000 protocol ip flower dst_ip 9.9.9.9 action drop");
    // By notification or by audit.
    eventually("what is missing is mended", || daemon.sluice(&["audit", "--fix"]).code == Some(0));
    let audit = sluice(&daemon, &["audit"]);
    assert_eq!(audit.lines().count(), 2, "{audit}");
    assert!(audit.starts_with("foreign: ") && audit.ends_with("\n10 rules, all as wanted\n"), "{audit}");
    assert_eq!(switch.filters("client").len(), 11, "the one of somebody else is left alone");
    assert_eq!(stream::send(20), 20);
}

pub(crate) fn rules_come_back_after_somebody_takes_the_qdisc_away() {
    let switch = Switch::new();
    let daemon = ten_flows(&switch);
    run("tc qdisc del dev client ingress");
    mended(&switch, &daemon);
}

pub(crate) fn rules_come_back_with_their_link() {
    let switch = Switch::new();
    let daemon = ten_flows(&switch);
    run("ip link del client");
    eventually("the flows are no longer said to be in the device", || {
        daemon.metric("sluice_flows{state=\"partial\"}") == Some(0.0)
    });
    let line = sluice(&daemon, &["dump-flows", "-m", "type=non-offloaded"]);
    assert_eq!(line.lines().count(), 10, "{line}");
    switch.plug("client");
    mended(&switch, &daemon);
}
