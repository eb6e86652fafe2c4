//! An agent that is killed while it installs rules, and the next one.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use sluice_tests::daemon::{Daemon, binary};
use sluice_tests::lab::switch::{SERVER, Switch, eventually, key, run, sluice};

use crate::stream::{PORT, Stream};

const POLICY: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"\nflow_limit = 1000000\ndirty_limit = 1000000";
const FOREIGN: &str = "tc filter add dev client ingress pref 49000 protocol ip flower dst_ip 9.9.9.9 action drop";

pub(crate) fn a_kill_in_the_middle_of_installations_loses_nothing(rules: usize) {
    let switch = Switch::set_up();
    let mut first = switch.start(POLICY);
    run(FOREIGN);
    sluice(&first, &["add-flow", &key(SERVER, PORT), "server"]);
    let stream = Stream::start();
    let adding = add(&first, rules);
    // Counted by the agent, so that all of these are acknowledged by the kernel.
    let mut acknowledged = 0;
    eventually("a third of the rules are in the kernel", || {
        acknowledged = installed(&first);
        acknowledged > rules / 3
    });
    first.signal("KILL");
    first.wait();
    drop(adding);
    let kept = rules_of_ours(&switch);
    assert!(kept.len() >= acknowledged, "{} rules are there, {acknowledged} were acknowledged", kept.len());
    assert!(kept.len() <= rules, "the kill came too late to show anything");

    let at = Instant::now();
    let second = switch.start(POLICY);
    let started = at.elapsed();
    let metric = |name: &str| second.metric(name).unwrap_or_else(|| panic!("no metric {name}"));
    let fate = |fate: &str| count(metric(&format!("sluice_start_rules{{fate=\"{fate}\"}}")));
    assert_eq!((fate("adopted"), fate("removed")), (kept.len(), 0), "all that was left is taken over");
    // What was accepted is what the log of flows has; the kill may have cut the last request short.
    let accepted = count(metric("sluice_journal_restored_flows"));
    assert!(accepted >= kept.len(), "{accepted} flows were accepted");
    assert_eq!(fate("to_install"), accepted - kept.len());
    eventually("every accepted flow has its rule", || count(metric("sluice_flows{state=\"partial\"}")) == accepted);
    let steady = at.elapsed();
    let audit = sluice(&second, &["audit"]);
    assert!(audit.ends_with(&format!("\n{accepted} rules, all as wanted (listed by the device)\n")), "{audit}");
    assert!(audit.starts_with("foreign: ") && audit.lines().count() == 2, "{audit}");
    let now = rules_of_ours(&switch);
    assert_eq!(now.len(), accepted);
    assert!(kept.is_subset(&now), "no rule was taken out and put in again");
    let sent = stream.end_without_loss();
    println!(
        "  killed with {} of {accepted} accepted rules in the kernel; ready again after {:.2} s, all there after {:.2} s; \
         {sent} datagrams, none lost",
        kept.len(),
        started.as_secs_f64(),
        steady.as_secs_f64()
    );
}

/// Rules that the agent says are in the kernel.
fn installed(daemon: &Daemon) -> usize {
    daemon.metric("sluice_flows{state=\"partial\"}").map_or(0, count)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of rules")]
fn count(metric: f64) -> usize {
    metric as usize
}

/// The names of the agent's rules. Another's filter is there as it was made.
fn rules_of_ours(switch: &Switch) -> BTreeSet<String> {
    let (foreign, ours): (Vec<_>, Vec<_>) =
        switch.filters("client").into_iter().partition(|name| name.contains(" pref 49000 "));
    assert_eq!(foreign.len(), 1, "{foreign:?}");
    let names: BTreeSet<_> = ours.iter().cloned().collect();
    assert_eq!(names.len(), ours.len(), "each is there once");
    names
}

/// Has the agent add flows of a file, without waiting for it.
fn add(daemon: &Daemon, rules: usize) -> Ended {
    let mut text = String::new();
    for number in 0..rules {
        let address = format!("10.{}.{}.{}", number >> 16, number >> 8 & 0xff, number & 0xff);
        writeln!(text, "{},actions:server", key(&address, PORT)).unwrap();
    }
    let file = daemon.folder().join("flows.txt");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(binary("sluice"));
    command.arg("--run-dir").arg(daemon.run_dir()).arg("add-flows").arg(file);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Ended(process)
}

/// A program that is waited for in the end.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}
