//! An agent whose state is lost, and the rules that it put in.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use sluice_tests::lab::switch::{SERVER, Switch, eventually, key, run, sluice};

use crate::stream::{PORT, Stream};

const POLICY: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"";
const FOREIGN: &str = "tc filter add dev client ingress pref 49000 protocol ip flower dst_ip 9.9.9.9 action drop";

pub(crate) fn rules_of_a_lost_state_are_said_and_taken_over_or_removed_as_asked_for() {
    let switch = Switch::set_up();
    let lose = || std::fs::remove_dir_all(switch.folder().join("state")).unwrap();
    let mut first = switch.start(POLICY);
    run(FOREIGN);
    sluice(&first, &["add-flow", &key(SERVER, PORT), "server"]);
    sluice(&first, &["add-flow", &key("192.168.7.9", PORT), "recirc(5)"]);
    sluice(&first, &["add-flow", "--no-wait", &format!("recirc_id(5),{}", key("192.168.7.9", PORT)), "drop"]);
    let there = switch.filters("client");
    let stream = Stream::start();
    first.signal("KILL");
    first.wait();
    lose();

    // It says what it finds, and does nothing about it.
    let mut second = switch.start(POLICY);
    let log = second.log();
    assert!(log.contains("WARN") && log.contains("orphans: owner ") && log.contains("sluice flush --orphans"), "{log}");
    let shown = sluice(&second, &["show"]);
    assert!(shown.contains("ORPHANS   owner ") && shown.contains("3 rules, 1 ends of chains"), "{shown}");
    let refused = second.sluice(&["add-flow", &key(SERVER, PORT), "server"]);
    assert!(refused.code == Some(2) && refused.err.contains("errno 17"), "{refused:?}");
    let listed = sluice(&second, &["flush", "--orphans"]);
    assert!(listed.contains("nothing was removed"), "{listed}");
    assert_eq!(switch.filters("client"), there);
    second.signal("KILL");
    second.wait();

    // The one after that was told to take them over, and has a use for one of them already.
    let mut third = switch.start(&format!("{POLICY}\nadopt_orphans = true"));
    assert_eq!(third.metric("sluice_start_rules{fate=\"adopted\"}"), Some(3.0), "{}", third.log());
    eventually("all is as wanted", || {
        third.sluice(&["audit"]).out.ends_with("\n3 rules, all as wanted (listed by the device)\n")
    });
    assert_eq!(switch.filters("client"), there, "each is where it was");
    assert!(sluice(&third, &["dump-flows"]).contains("recirc_id(0x5)"));
    assert!(!sluice(&third, &["flush", "--orphans"]).contains("removed:"), "{}", third.log());
    stream.end_without_loss();
    third.signal("KILL");
    third.wait();
    lose();

    // And the last one is asked to remove them.
    let last = switch.start(POLICY);
    let refused = last.sluice(&["add-flow", &key(SERVER, PORT), "server"]);
    assert!(refused.err.contains("errno 17"), "{refused:?}");
    let listed = sluice(&last, &["flush", "--orphans"]);
    let owner = listed.strip_prefix("owner ").unwrap().split(':').next().unwrap().to_owned();
    let lock = File::open(switch.folder().join(format!("owner-{owner}.lock"))).unwrap();
    flock(&lock, FlockOperation::LockShared).unwrap();
    let kept = last.sluice(&["flush", "--orphans", "--owner", &owner]);
    assert!(kept.code != Some(0) && kept.err.contains("is running"), "{kept:?}");
    assert_eq!(switch.filters("client"), there, "what a living agent has is left to it");
    drop(lock);
    let removed = sluice(&last, &["flush", "--orphans", "--owner", &owner]);
    assert_eq!(removed, format!("owner {owner}: 4 rules and meters removed\n"));
    let left = || switch.filters("client");
    eventually("the flow that was refused has its rule", || left().len() == 2);
    assert!(left().iter().any(|name| name.contains(" pref 49000 ")), "nobody's rule is touched: {:?}", left());
    assert!(!sluice(&last, &["show"]).contains("ORPHANS"));
}
