//! The daemon on the kernel's flower classifier, between network namespaces: its command line, real packets, restarts and
//! whatever else may happen to a machine.
//!
//! It needs to be root in a kernel with the classifier, so the test runs itself again in the virtual machine of
//! `tests/lab/run`. Arguments that are no options pick the stories whose names contain one of them; with `--rules=N` the
//! agent is killed in the middle of so many installations (default 5,000), with `--changes=N` a flow of Open vSwitch is
//! changed so many times under traffic (default 300); `--ovs=FOLDER` names the
//! programs of another Open vSwitch than Debian's, such as that of `tests/ovs-native/build`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod accidents;
mod configured;
mod connections;
mod disturbances;
mod feedback;
mod going_on;
mod handed_over;
mod ipsec;
mod kill;
mod life;
mod metered;
mod mirroring;
mod observe;
mod ownership;
mod refusals;
mod sessions;
mod simulated;
mod source;
mod stream;
mod tunnels;
mod upgrade;

use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Instant;

use sluice_tests::lab::{netdevsim, switch};

/// What `--rules` and `--changes` say.
#[derive(Clone, Copy)]
struct Many {
    rules: usize,
    changes: u16,
}

/// A story by its name, which is told how many are many.
type Story = (&'static str, fn(&Many));

/// Those that need a simulated NIC.
const SIMULATED: &[Story] = &[
    ("a_driver_that_takes_no_rules_leaves_them_in_software", |_| {
        simulated::a_driver_that_takes_no_rules_leaves_them_in_software();
    }),
    ("a_driver_that_takes_no_rules_has_them_refused_where_software_is_skipped", |_| {
        simulated::a_driver_that_takes_no_rules_has_them_refused_where_software_is_skipped();
    }),
    ("rules_come_back_with_a_nic_that_is_reloaded", |_| simulated::rules_come_back_with_a_nic_that_is_reloaded()),
];

/// Those that need a kernel as vendors of NICs have it, such as that of `tests/vendor-kernel/build`.
const OF_VENDORS: &[Story] =
    &[("translated_connections_have_rules_and_what_misses_goes_on_in_ovs_where_it_missed", |_| {
        going_on::translated_connections_have_rules_and_what_misses_goes_on_in_ovs_where_it_missed();
    })];

/// Those that need an Open vSwitch built with our provider, whose folder `--ovs=` names.
const NATIVE: &[Story] = &[
    ("flows_that_ovs_hands_over_are_forwarded_and_counted_and_the_refused_are_its_own", |_| {
        handed_over::flows_that_ovs_hands_over_are_forwarded_and_counted_and_the_refused_are_its_own();
    }),
    ("flows_that_ovs_hands_over_in_vain_are_handed_over_again", |_| {
        handed_over::flows_that_ovs_hands_over_in_vain_are_handed_over_again();
    }),
    ("flows_that_ovs_hands_over_in_vain_are_not_looked_for_one_by_one", |_| {
        handed_over::flows_that_ovs_hands_over_in_vain_are_not_looked_for_one_by_one();
    }),
    ("a_flow_that_ovs_hands_over_has_one_name_however_its_first_packets_differ", |_| {
        handed_over::a_flow_that_ovs_hands_over_has_one_name_however_its_first_packets_differ();
    }),
    ("a_flow_that_ovs_hands_over_again_is_counted_from_nothing", |_| {
        handed_over::a_flow_that_ovs_hands_over_again_is_counted_from_nothing();
    }),
    ("ovs_hands_over_and_outlives_an_agent_that_stalls_while_a_chain_is_taken_back", |_| {
        handed_over::ovs_hands_over_and_outlives_an_agent_that_stalls_while_a_chain_is_taken_back();
    }),
    ("connections_that_ovs_hands_over_are_whole_in_the_device_or_whole_in_the_datapath", |_| {
        handed_over::connections_that_ovs_hands_over_are_whole_in_the_device_or_whole_in_the_datapath();
    }),
    ("rules_of_flows_that_ovs_hands_over_outlive_it_until_the_next_one_is_at_work", |_| {
        handed_over::rules_of_flows_that_ovs_hands_over_outlive_it_until_the_next_one_is_at_work();
    }),
    ("meters_that_ovs_hands_over_limit_in_the_device_and_are_counted_in_openflow", |_| {
        metered::meters_that_ovs_hands_over_limit_in_the_device_and_are_counted_in_openflow();
    }),
    ("tunnels_that_ovs_hands_over_are_entered_and_left_by_rules", |_| {
        tunnels::tunnels_that_ovs_hands_over_are_entered_and_left_by_rules();
    }),
];

const STORIES: &[Story] = &[
    ("flows_are_added_counted_and_shown", |_| life::flows_are_added_counted_and_shown()),
    ("idle_flows_age_out_and_used_ones_stay", |_| life::idle_flows_age_out_and_used_ones_stay()),
    ("an_agent_that_cleans_up_leaves_nothing_of_its_own", |_| {
        life::an_agent_that_cleans_up_leaves_nothing_of_its_own();
    }),
    ("there_is_one_agent_in_a_namespace", |_| life::there_is_one_agent_in_a_namespace()),
    ("flows_in_tc_and_in_the_kernel_are_both_read_and_neither_twice", |_| {
        observe::flows_in_tc_and_in_the_kernel_are_both_read_and_neither_twice();
    }),
    ("flows_of_ovs_are_forwarded_before_it_and_go_with_them", |_| {
        source::flows_of_ovs_are_forwarded_before_it_and_go_with_them();
    }),
    ("ports_of_ovs_outlive_their_datapath_for_a_while_only", |_| {
        source::ports_of_ovs_outlive_their_datapath_for_a_while_only();
    }),
    ("what_ovs_polices_is_policed_before_rules", |_| source::what_ovs_polices_is_policed_before_rules()),
    ("ovs_counts_and_keeps_what_is_forwarded_before_it", |_| {
        source::ovs_counts_and_keeps_what_is_forwarded_before_it();
    }),
    ("meters_of_an_ovs_in_front_limit_in_the_device_and_are_counted_in_openflow", |_| {
        metered::meters_of_an_ovs_in_front_limit_in_the_device_and_are_counted_in_openflow();
    }),
    ("connections_go_on_in_later_chains_and_what_misses_there_begins_again_in_ovs", |_| {
        source::connections_go_on_in_later_chains_and_what_misses_there_begins_again_in_ovs();
    }),
    ("tunnels_of_ovs_are_entered_and_left_before_it", |_| tunnels::tunnels_of_ovs_are_entered_and_left_before_it()),
    ("a_flow_that_changes_under_traffic_is_stale_for_less_than_said", |many| {
        source::a_flow_that_changes_under_traffic_is_stale_for_less_than_said(many.changes);
    }),
    ("lost_messages_and_silent_flushes_end_in_the_flows_that_there_are", |_| {
        source::lost_messages_and_silent_flushes_end_in_the_flows_that_there_are();
    }),
    ("a_kill_of_either_leaves_no_rule_without_its_flow", |_| {
        source::a_kill_of_either_leaves_no_rule_without_its_flow();
    }),
    ("a_sweep_takes_out_what_ovs_wanted_of_a_killed_agent_and_leaves_what_was_typed", |_| {
        source::a_sweep_takes_out_what_ovs_wanted_of_a_killed_agent_and_leaves_what_was_typed();
    }),
    ("ovs_vswitchd_counts_and_keeps_what_is_forwarded_past_it", |_| {
        feedback::ovs_vswitchd_counts_and_keeps_what_is_forwarded_past_it();
    }),
    ("ovs_vswitchd_survives_an_agent_of_any_kind", |_| feedback::ovs_vswitchd_survives_an_agent_of_any_kind()),
    ("an_established_connection_is_forwarded_before_the_router_and_ends_with_it", |_| {
        connections::an_established_connection_is_forwarded_before_the_router_and_ends_with_it();
    }),
    ("a_next_hop_with_another_address_is_followed_and_streams_stay_alive", |_| {
        connections::a_next_hop_with_another_address_is_followed_and_streams_stay_alive();
    }),
    ("what_the_kernel_tells_nobody_is_found_by_a_comparison", |_| {
        connections::what_the_kernel_tells_nobody_is_found_by_a_comparison();
    }),
    ("a_connection_that_begins_has_flows_only_after_the_time_that_is_configured", |_| {
        connections::a_connection_that_begins_has_flows_only_after_the_time_that_is_configured();
    }),
    ("connections_have_flows_while_they_have_the_mark_that_is_configured", |_| {
        connections::connections_have_flows_while_they_have_the_mark_that_is_configured();
    }),
    ("the_timeout_of_a_policy_of_nftables_is_set_anew_and_not_what_the_kernel_is_set_to", |_| {
        connections::the_timeout_of_a_policy_of_nftables_is_set_anew_and_not_what_the_kernel_is_set_to();
    }),
    ("connections_take_the_way_that_rules_have_for_their_ports", |_| {
        connections::connections_take_the_way_that_rules_have_for_their_ports();
    }),
    ("connections_that_a_policy_of_ipsec_is_for_are_left_to_the_kernel", |_| {
        connections::connections_that_a_policy_of_ipsec_is_for_are_left_to_the_kernel();
    }),
    ("connections_between_vlans_of_two_ports_and_of_one_are_forwarded", |_| {
        connections::vlans::connections_between_vlans_of_two_ports_and_of_one_are_forwarded();
    }),
    ("connections_of_ipv6_are_forwarded_as_well_and_translations_only_where_that_is_right", |_| {
        connections::connections_of_ipv6_are_forwarded_as_well_and_translations_only_where_that_is_right();
    }),
    ("sessions_of_opi_carry_both_directions_and_end_with_exact_counts", |_| {
        sessions::sessions_of_opi_carry_both_directions_and_end_with_exact_counts();
    }),
    ("a_connection_begins_and_ends_at_the_firewall_and_the_rest_goes_by_its_session", |_| {
        sessions::a_connection_begins_and_ends_at_the_firewall_and_the_rest_goes_by_its_session();
    }),
    ("rules_that_somebody_changes_are_found_and_mended", |_| {
        accidents::rules_that_somebody_changes_are_found_and_mended();
    }),
    ("what_somebody_changes_in_rules_and_meters_is_changed_back_without_an_audit", |_| {
        accidents::what_somebody_changes_in_rules_and_meters_is_changed_back_without_an_audit();
    }),
    ("a_flow_of_two_rules_is_mended_whichever_of_them_somebody_deletes", |_| {
        accidents::a_flow_of_two_rules_is_mended_whichever_of_them_somebody_deletes();
    }),
    ("a_mirror_of_the_configuration_outlives_the_agent_and_whoever_takes_it_out", |_| {
        accidents::a_mirror_of_the_configuration_outlives_the_agent_and_whoever_takes_it_out();
    }),
    ("control_traffic_comes_to_the_tap_of_its_port_and_nothing_else_does", |_| {
        mirroring::control_traffic_comes_to_the_tap_of_its_port_and_nothing_else_does();
    }),
    ("a_mirror_goes_on_after_a_kill_and_ends_with_the_next_agent_that_wants_none", |_| {
        mirroring::a_mirror_goes_on_after_a_kill_and_ends_with_the_next_agent_that_wants_none();
    }),
    ("rules_come_back_after_somebody_takes_the_qdisc_away", |_| {
        accidents::rules_come_back_after_somebody_takes_the_qdisc_away();
    }),
    ("rules_come_back_with_their_link", |_| accidents::rules_come_back_with_their_link()),
    ("another_policy_is_that_of_rules_that_are_there_as_well", |_| {
        configured::another_policy_is_that_of_rules_that_are_there_as_well();
    }),
    ("rules_of_tunnels_leave_hardware_while_there_is_a_policy_of_ipsec_and_come_back", |_| {
        ipsec::rules_of_tunnels_leave_hardware_while_there_is_a_policy_of_ipsec_and_come_back();
    }),
    ("where_software_is_skipped_flows_that_a_policy_of_ipsec_is_for_are_refused", |_| {
        ipsec::where_software_is_skipped_flows_that_a_policy_of_ipsec_is_for_are_refused();
    }),
    ("tunnel_flows_that_the_kernel_cannot_tell_apart_are_held_apart", |_| {
        configured::tunnel_flows_that_the_kernel_cannot_tell_apart_are_held_apart();
    }),
    ("a_rule_forwards_again_when_the_device_that_it_sends_to_is_back", |_| {
        accidents::a_rule_forwards_again_when_the_device_that_it_sends_to_is_back();
    }),
    ("a_device_that_goes_is_nobodys_change_of_the_rules_that_send_to_it", |_| {
        accidents::a_device_that_goes_is_nobodys_change_of_the_rules_that_send_to_it();
    }),
    ("a_rule_forwards_again_when_its_tunnel_device_is_back", |_| {
        accidents::a_rule_forwards_again_when_its_tunnel_device_is_back();
    }),
    ("what_hardware_does_not_take_is_refused_in_the_words_of_the_kernel", |_| {
        refusals::what_hardware_does_not_take_is_refused_in_the_words_of_the_kernel();
    }),
    ("what_is_lost_unheard_is_found_and_put_back", |_| disturbances::what_is_lost_unheard_is_found_and_put_back()),
    ("flows_stay_while_rules_around_them_come_and_go", |_| {
        disturbances::flows_stay_while_rules_around_them_come_and_go();
    }),
    ("rules_of_an_earlier_format_are_taken_over_without_a_gap_and_those_of_a_later_one_left", |_| {
        upgrade::rules_of_an_earlier_format_are_taken_over_without_a_gap_and_those_of_a_later_one_left();
    }),
    ("rules_of_a_lost_state_are_said_and_taken_over_or_removed_as_asked_for", |_| {
        ownership::rules_of_a_lost_state_are_said_and_taken_over_or_removed_as_asked_for();
    }),
    ("a_kill_in_the_middle_of_installations_loses_nothing", |many| {
        kill::a_kill_in_the_middle_of_installations_loses_nothing(many.rules);
    }),
];

fn main() -> ExitCode {
    feedback::play_agent();
    // `tests/lab/run` says with this where to leave files.
    if std::env::var_os("LAB_OUT").is_some() { inside() } else { outside() }
}

fn outside() -> ExitCode {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/run");
    let myself = std::env::current_exe().expect("a program knows its name");
    let status = Command::new(script)
        .arg("--")
        .arg(myself)
        .arg(netdevsim::argument())
        .args(std::env::args_os().skip(1))
        .status();
    let code = status.expect("tests/lab/run can be run").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// What an option says, which begins so.
fn number<Number: FromStr>(option: &str, default: Number) -> Number {
    let said = std::env::args().find_map(|argument| argument.strip_prefix(option).map(str::to_owned));
    said.map_or(default, |said| said.parse().unwrap_or_else(|_| panic!("{option}{said} is no number that can be")))
}

fn inside() -> ExitCode {
    let begun = Instant::now();
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let many = Many { rules: number("--rules=", 5_000), changes: number("--changes=", 300) };
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    switch::load_modules();
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    let mut wanted: Vec<_> = STORIES.iter().filter(|(name, _)| is_wanted(name)).collect();
    let simulated = SIMULATED.iter().filter(|(name, _)| is_wanted(name));
    if netdevsim::load() {
        wanted.extend(simulated);
    } else {
        for (name, _) in simulated {
            println!("test {name} ... ignored, there is no netdevsim for this kernel");
            skipped += 1;
        }
    }
    // What a run was not asked for is no skip.
    for (stories, is_possible, left_to) in [
        (OF_VENDORS, going_on::is_possible(), "make test-vendor-kernel"),
        (NATIVE, source::programs().is_some(), "make test-ovs-native"),
    ] {
        let stories = stories.iter().filter(|(name, _)| is_wanted(name));
        if is_possible {
            wanted.extend(stories);
        } else {
            stories.for_each(|(name, _)| println!("test {name} ... left to {left_to}"));
        }
    }
    for (name, story) in wanted {
        let at = Instant::now();
        // The thread alone enters namespaces, and what it complains of comes under its name.
        let thread = std::thread::Builder::new().name((*name).into());
        let has_passed = thread.spawn(move || story(&many)).expect("a thread").join().is_ok();
        let seconds = at.elapsed().as_secs_f32();
        println!("test {name} ... {} ({seconds:.1} s)", if has_passed { "ok" } else { "FAILED" });
        if has_passed {
            passed += 1;
        } else {
            failed.push(name);
        }
    }
    failed.iter().for_each(|name| println!("failed: {name}"));
    let verdict = if failed.is_empty() && passed > 0 { "ok" } else { "FAILED" };
    let seconds = begun.elapsed().as_secs_f32();
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; {skipped} ignored; finished in {seconds:.1}s",
        failed.len()
    );
    if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
