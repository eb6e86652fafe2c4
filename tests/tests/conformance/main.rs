//! The backends that need no kernel of their own, and the decorators, play the stories that every backend conforms to. tc plays them in
//! the virtual machine (`tests/tests/tc_backend/conforming.rs`).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod broken;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::Facet;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, PortNumber};
use sluice_tests::conformance::{Opened, STORIES, Subject, UDP, flow, play};
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::frames;
use sluice_tests::lasting::LastingDevice;
use sluice_tests::world::{soft_nic, soft_nic_with_room};

use broken::{Breach, Broken};

const OF_SOFT: &[Facet] = &[Facet::Meters, Facet::Mirrors, Facet::Connections, Facet::Capacity, Facet::Injector];

fn soft() -> Arc<dyn Backend> {
    soft_nic(Arc::new(MonotonicClock::new()))
}

/// The same, with so much room.
fn soft_with_room(rules: usize) -> Arc<dyn Backend> {
    soft_nic_with_room(rules, Arc::new(MonotonicClock::new()))
}

/// Puts packets in by hand.
fn inject(backend: &dyn Backend, packets: u32) {
    let injector = backend.injector().expect("a NIC in software");
    for _ in 0..packets {
        injector.inject(PortNumber(1), &frames::udp(53)).expect("the frame is let in");
    }
}

/// The NIC in software, as it comes or behind something.
fn around_soft(around: impl Fn(Arc<dyn Backend>) -> Opened + Clone + 'static) -> Subject<'static> {
    let around_limited = around.clone();
    Subject {
        open: Box::new(move || around(soft())),
        open_with_room: Some(Box::new(move |rules| around_limited(soft_with_room(rules)))),
        send: Box::new(inject),
        facets: OF_SOFT,
    }
}

/// A device with faults around another one.
fn faulty(plan: &Plan, under: Arc<dyn Backend>) -> Opened {
    let (backend, faults) = FaultyDevice::new(under.clone());
    faults.set(plan.clone());
    let plan = plan.clone();
    let stall = move |stalled| faults.set(Plan { stalled, ..plan.clone() });
    Opened { backend, under: Some(under), stall: Some(Box::new(stall)) }
}

#[test]
fn the_nic_in_software_conforms() {
    assert_eq!(play(|| around_soft(Opened::plain)), [""; 0]);
}

#[test]
fn a_device_with_faults_conforms_as_long_as_it_has_none() {
    assert_eq!(play(|| around_soft(|under| faulty(&Plan::default(), under))), [""; 0]);
}

#[test]
fn a_device_that_answers_late_and_out_of_order_conforms() {
    let plan = Plan { reorders: true, delay: Duration::from_micros(100), ..Plan::default() };
    assert_eq!(
        play(|| around_soft({
            let plan = plan.clone();
            move |under| faulty(&plan, under)
        })),
        [""; 0]
    );
}

/// A device that keeps its rules, as it comes or behind something.
fn lasting(around: impl Fn(Arc<dyn Backend>) -> Opened + 'static) -> Subject<'static> {
    let device = LastingDevice::new(Arc::new(MonotonicClock::new()));
    let hit = device.clone();
    let open = move || {
        device.restart();
        around(device.clone())
    };
    let send = move |_: &dyn Backend, packets: u32| hit.pass(&flow(UDP, "2"), packets.into());
    let facets = &[Facet::Mirrors, Facet::Adoption, Facet::Audit];
    Subject { open: Box::new(open), open_with_room: None, send: Box::new(send), facets }
}

#[test]
fn a_device_that_keeps_its_rules_conforms() {
    assert_eq!(play(|| lasting(Opened::plain)), [""; 0]);
}

/// A story that notices each breach.
const NOTICED: &[(Breach, &[&str])] = &[
    (
        Breach::ForgetsGenerations,
        &[
            "every_change_of_a_batch_is_completed_once_with_its_flow_and_generation",
            "two_workers_at_a_time_get_their_own_completions",
        ],
    ),
    (Breach::CompletesTwice, &["every_change_of_a_batch_is_completed_once_with_its_flow_and_generation"]),
    (Breach::WakesNobody, &["what_is_in_flight_is_completed_once_the_device_gets_to_it"]),
    (
        Breach::IgnoresModifications,
        &["a_batch_that_installs_modifies_and_removes_leaves_what_it_says", "changes_to_a_flow_follow_each_other"],
    ),
    (
        Breach::ModifiesAnew,
        &["counters_go_on_across_a_modification", "a_refused_modification_leaves_the_old_rule_which_counts_on"],
    ),
    (Breach::ForgetsLastCounters, &["the_last_counters_hold_what_came_after_the_last_reading"]),
    (Breach::RefusesToRemoveNothing, &["a_removal_of_a_rule_that_is_gone_is_done"]),
    (Breach::InstallsTheRefused, &["a_refused_install_leaves_nothing_and_may_be_tried_again"]),
    (Breach::RefusesWholeBatches, &["a_refusal_in_a_batch_is_its_own_flows_alone"]),
    (Breach::OpensChainsItself, &["a_chain_that_is_not_open_is_not_jumped_to"]),
    (Breach::DiesWithAWorker, &["a_worker_that_goes_with_work_in_flight_leaves_a_device_that_works"]),
    (
        Breach::CountsTwice,
        &[
            "a_rule_counts_the_packets_that_it_takes_and_no_others",
            "a_packet_goes_on_in_the_chain_and_is_counted_in_both",
        ],
    ),
    (Breach::ReadsAsAnother, &["a_reading_names_the_flow_and_the_generation_that_installed_it"]),
    (Breach::ReadsTheRemoved, &["a_rule_that_was_removed_is_read_no_more_and_its_successor_begins_at_zero"]),
    (Breach::ExplainsEverything, &["what_is_explained_is_not_put_in"]),
    (Breach::KeepsPorts, &["a_flow_of_a_port_that_is_gone_is_refused_until_the_port_is_back"]),
    (Breach::ExpectsNothing, &["a_port_that_is_expected_and_is_there_is_as_one_that_was_attached"]),
    (Breach::ClosesNoChain, &["a_chain_that_was_closed_is_as_if_it_had_never_been_open"]),
    (Breach::CompletesChainsTwice, &["a_change_to_a_chain_is_completed_once_with_what_was_asked"]),
    (Breach::OpensForOneWorker, &["a_chain_that_one_worker_has_opened_is_jumped_to_by_rules_of_another"]),
    (Breach::ClosesChainsWithRules, &["a_chain_that_is_opened_again_has_the_rules_that_are_in_it"]),
    (
        Breach::HidesMeters,
        &["a_backend_has_the_facets_that_it_is_known_for", "a_decorator_has_every_facet_of_what_is_under_it"],
    ),
    (
        Breach::SetsNoMeters,
        &[
            "a_meter_counts_and_stays_as_long_as_a_rule_uses_it",
            "what_flows_were_refused_for_want_of_is_told_when_it_is_there",
        ],
    ),
    (Breach::SetsNoMirrors, &["a_mirror_copies_and_goes"]),
    (Breach::ForgetsLimits, &["limits_of_connections_are_what_they_were_set_to"]),
    (Breach::HasAlwaysRoom, &["rules_beyond_the_limit_of_hardware_wait_for_room"]),
    (Breach::SwallowsPackets, &["a_packet_that_is_put_in_by_hand_is_handled_as_any_other"]),
    (Breach::TellsNothing, &["what_flows_were_refused_for_want_of_is_told_when_it_is_there"]),
    (Breach::LosesRules, &["a_device_that_nothing_has_happened_to_has_lost_nothing"]),
    (Breach::FlushesNothing, &["a_flush_takes_every_rule_out_and_what_is_released_leaves_nothing"]),
];

/// The same of rules that outlive the agent.
const NOTICED_WHERE_RULES_LAST: &[(Breach, &[&str])] = &[
    (
        Breach::AdoptsNothing,
        &["rules_of_an_earlier_run_are_taken_over_and_count_on", "rules_that_nobody_claims_are_taken_out"],
    ),
    (Breach::ReadsNothingBack, &["a_rule_is_read_back_as_it_was_put_in"]),
    (Breach::RemovesAnyRule, &["a_rule_that_no_flow_has_can_be_taken_out_and_one_that_a_flow_has_cannot"]),
];

/// Plays one story, which is to fail, on a thread whose name says so: what it complains of is printed.
fn is_noticed<'a>(name: &str, subject: impl FnOnce() -> Subject<'a> + Send) -> bool {
    let stories = STORIES.iter().copied().flatten();
    let (_, story) = stories.into_iter().find(|(known, _)| *known == name).expect("there is such a story");
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(format!("meant to fail: {name}"));
        thread.spawn_scoped(scope, || story(&subject())).unwrap().join().is_err()
    })
}

#[test]
fn every_story_fails_where_its_promise_is_broken() {
    let mut unnoticed = Vec::new();
    for (breach, stories) in NOTICED {
        for story in *stories {
            let broken = || {
                around_soft(|under| {
                    let backend = Arc::new(Broken::new(under.clone(), *breach));
                    Opened { backend, under: Some(under), stall: None }
                })
            };
            if !is_noticed(story, broken) {
                unnoticed.push((*breach, *story));
            }
        }
    }
    for (breach, stories) in NOTICED_WHERE_RULES_LAST {
        for story in *stories {
            let broken = || lasting(|under| Opened::plain(Arc::new(Broken::new(under, *breach))));
            if !is_noticed(story, broken) {
                unnoticed.push((*breach, *story));
            }
        }
    }
    // Rules that outlive an agent which cannot take them over.
    let kept = soft();
    let name = "a_device_that_keeps_nothing_begins_with_nothing";
    let open = || Box::new(|| Opened::plain(kept.clone()));
    let keeps = || Subject { open: open(), open_with_room: None, send: Box::new(inject), facets: OF_SOFT };
    if !is_noticed(name, keeps) {
        unnoticed.push((Breach::AdoptsNothing, name));
    }
    assert_eq!(unnoticed, []);
    let noticed = NOTICED.iter().chain(NOTICED_WHERE_RULES_LAST).flat_map(|(_, stories)| *stories).chain([&name]);
    let noticed: BTreeSet<_> = noticed.copied().collect();
    let all: BTreeSet<_> = STORIES.iter().copied().flatten().map(|(name, _)| *name).collect();
    assert_eq!(noticed, all, "every story is shown to fail");
}
