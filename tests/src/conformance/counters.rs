//! What a rule counts: over its changes, up to its end, and for nobody else.

use sluice_flow::backend::LastCounters;

use super::device::other;
use super::{Device, Subject, UDP, stories};

stories![
    a_rule_counts_the_packets_that_it_takes_and_no_others,
    counters_go_on_across_a_modification,
    a_reading_names_the_flow_and_the_generation_that_installed_it,
    the_last_counters_hold_what_came_after_the_last_reading,
    a_rule_that_was_removed_is_read_no_more_and_its_successor_begins_at_zero,
];

/// Beside other rules.
pub fn a_rule_counts_the_packets_that_it_takes_and_no_others(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rule = device.install(UDP, "2").expect("it is taken");
    let idle = device.install(&other(0), "2").expect("it is taken");
    assert_eq!(device.packets(rule), Some(0));
    device.send(5);
    assert_eq!((device.packets(rule), device.packets(idle)), (Some(5), Some(0)));
    let bytes = device.read()[&rule.flow].counters.bytes;
    assert!(bytes >= 5 * 42, "{bytes} bytes, Ethernet headers included");
}

/// The device may make another rule of it; the flow does not notice.
pub fn counters_go_on_across_a_modification(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let mut rule = device.install(UDP, "2").expect("it is taken");
    for (round, actions) in (1..).zip(["drop", "2", "drop"]) {
        device.send(3);
        rule = device.modify(rule, UDP, actions).expect("it is taken");
        assert_eq!(device.packets(rule), Some(3 * round), "after {actions}");
    }
    device.send(2);
    assert_eq!(device.packets(rule), Some(11));
}

/// A reading of an earlier rule of the same flow can be told apart.
pub fn a_reading_names_the_flow_and_the_generation_that_installed_it(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let first = device.install(&other(0), "2").expect("it is taken");
    let rule = device.install(UDP, "2").expect("it is taken");
    let modified = device.modify(rule, UDP, "drop").expect("it is taken");
    let read = device.read();
    assert_eq!(read.keys().copied().collect::<Vec<_>>(), [first.flow, rule.flow]);
    assert_eq!(read[&rule.flow].installed_as, rule.generation, "and not that of the modification");
    assert_eq!(read[&first.flow].installed_as, first.generation);
    device.remove(modified);
}

/// No packet of a rule is lost between the last poll and the removal.
pub fn the_last_counters_hold_what_came_after_the_last_reading(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rule = device.install(UDP, "2").expect("it is taken");
    device.send(4);
    assert_eq!(device.packets(rule), Some(4));
    let rule = device.modify(rule, UDP, "drop").expect("it is taken");
    device.send(3);
    let last = device.remove(rule).expect("last counters");
    // Nothing was in flight meanwhile, so that a bound is as good as exact.
    let promised = device.backend().capabilities().last_counters;
    assert!(matches!(promised, LastCounters::Exact | LastCounters::Bounded));
    assert_eq!(last.packets, 7);
}

/// Readings are of the rules that there are.
pub fn a_rule_that_was_removed_is_read_no_more_and_its_successor_begins_at_zero(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rule = device.install(UDP, "2").expect("it is taken");
    device.send(2);
    assert_eq!(device.packets(rule), Some(2));
    device.remove(rule);
    assert_eq!(device.packets(rule), None);
    let next = device.install(UDP, "2").expect("it is taken");
    assert_eq!(device.packets(next), Some(0));
    device.send(1);
    assert_eq!((device.packets(next), device.packets(rule)), (Some(1), None));
}
