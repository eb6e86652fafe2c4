//! The unmodified mlx5_core of Debian's kernel on the device, in the virtual machine of `tests/lab/connectx`; and packets at
//! the wire and at the host's functions, which are in this process. The stories are told one after the other in one boot,
//! by the stock devlink and tc, and by Sluice. With another kernel (`LAB_KERNEL`), whose driver tracks connections, there is one more.
//!
//! It proves that the kernel's driver accepts the device, and that packets go where was said. It says nothing of hardware.
//!
//! Arguments that are no options pick the stories whose names contain one of them; the first and the last are always told. With
//! `--with-agent` only those are told in which Sluice's agent works with the device, which is the part of `make test`. `--rules=N`
//! says how many rules the device gets (default 1,000), `--every=N` that every N-th of the tc backend's scenarios is played (default
//! 64), `--generated=N` how many generated ones are played besides (default 8), and `--seed=N` what they are made of. `--ovs=FOLDER` names one
//! with an Open vSwitch 4.0 that is built with our provider, which is played with, too. With `--ovn` an OVN is above Open vSwitch as well; it must
//! be installed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod actions;
mod agent;
mod beside;
mod calamities;
mod direct;
mod driver;
mod faults;
mod frames;
mod going_on;
mod guest;
mod keys;
mod limits;
mod ovn;
mod packet;
mod plain;
mod police;
mod profiles;
mod router;
mod rows;
mod sample;
mod scenarios;
mod sessions;
mod slow_path;
mod tunnels;
mod vswitchd;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest::Guest;
use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::profile::{BLUEFIELD_2, Profile, VPORT_ECPF};
use sluice_connectx::steering::{Port, Walk};
use sluice_connectx_pci::Ports;

/// The device of most stories: a BlueField-2 whose driver does not wait for long.
const DEVICE: Profile =
    Profile { command_timeout: Duration::from_secs(12), health_poll: Duration::from_millis(500), ..BLUEFIELD_2 };

/// The driver's own function, which gets what no rule takes.
pub(crate) const MANAGER: Port = Port::Vport(VPORT_ECPF);
pub(crate) const HOST_PF: Port = Port::Vport(0);
pub(crate) const VF0: Port = Port::Vport(1);
pub(crate) const VF1: Port = Port::Vport(2);

/// The device, held from both sides: its commands by the guest's driver, its ports by this process.
pub(crate) struct World {
    pub(crate) hca: Arc<Mutex<Hca>>,
    pub(crate) ports: Ports,
    pub(crate) guest: Guest,
    /// The configuration of Sluice's agent, if one runs.
    pub(crate) agent: Mutex<Option<String>>,
    /// Where an Open vSwitch is that hands its flows over, if there is one.
    pub(crate) native: Option<String>,
    /// Whether there is an OVN above Open vSwitch, too.
    pub(crate) ovn: bool,
    /// How many rules are many.
    pub(crate) many: usize,
    /// Every n-th of the tc backend's scenarios is played.
    pub(crate) every: usize,
    /// How many generated scenarios are played after them.
    pub(crate) generated: u64,
    /// The seed of the generated scenarios.
    pub(crate) seed: u64,
}

type Story = (&'static str, fn(&World));

macro_rules! stories {
    ($($module:ident::$name:ident),+ $(,)?) => { &[$((stringify!($name), $module::$name)),+] };
}

const FIRST: &[Story] = stories![driver::the_driver_takes_the_device_and_goes_to_switchdev];
/// Stories without Sluice, whose qdiscs would be in the way.
const WITHOUT_AGENT: &[Story] = stories![
    driver::packets_go_where_tc_said_and_are_counted,
    keys::every_key_is_matched_to_the_bit,
    actions::every_action_is_done_to_the_byte,
    actions::what_the_driver_does_not_take_is_told,
    police::policers_let_pass_what_was_agreed_by_the_devices_clock,
    police::policers_work_in_chains_and_in_front_of_several_ports,
    police::a_policer_that_rules_share_counts_all_of_their_packets_and_can_be_changed,
    police::many_policers_are_in_the_device_and_leave_it_again,
    police::policers_that_the_driver_does_not_take_are_told,
    police::a_write_of_a_meter_that_fails_is_logged_and_the_rule_taken,
    sample::samples_are_taken_of_what_hardware_forwards,
    slow_path::what_no_rule_takes_reaches_the_representor_and_answers_go_back,
    tunnels::tunnels_begin_in_hardware,
    tunnels::tunnels_end_in_hardware,
    vswitchd::openvswitch_has_its_flows_in_hardware_and_packets_go_by_them,
    profiles::other_devices_do_what_they_say,
];
/// Stories with Sluice's agent; those that share one stand beside each other.
const WITH_AGENT: &[Story] = stories![
    tunnels::flows_into_and_out_of_tunnels_are_in_hardware,
    slow_path::a_namespace_talks_to_a_host_by_flows_that_hardware_cannot_take,
    agent::with_policy_none_flows_are_in_both,
    agent::flows_are_in_hardware_and_packets_go_where_they_say,
    agent::what_the_driver_refuses_is_refused_in_its_words,
    agent::an_agent_that_is_killed_finds_its_rules_again_and_no_packet_is_lost,
    police::meters_of_the_agent_police_in_hardware,
    sample::flows_of_the_agent_are_sampled_in_hardware,
    faults::a_command_that_is_late_holds_up_nobody_but_its_flow,
    faults::a_command_that_is_lost_is_given_up_and_its_flow_tried_again,
    faults::a_health_counter_that_stops_is_noticed_and_rules_stay,
    faults::many_rules_are_in_the_device_and_leave_it_again,
    limits::a_device_without_room_says_so_and_a_flow_gets_its_place_when_there_is_some,
    limits::counters_that_lag_or_jump_never_run_backwards,
    calamities::a_device_that_asks_for_a_reset_gets_it_and_flows_come_back,
    calamities::a_device_whose_link_is_lost_comes_back_with_it,
    calamities::a_device_is_unplugged_and_plugged_and_flows_come_back,
    calamities::functions_of_the_host_come_and_go_and_their_flows_with_them,
    direct::direct_rules_carry_packets_in_the_guest,
    scenarios::flows_of_all_kinds_are_in_hardware_or_refused_with_a_reason,
];
/// Stories with Sluice's agent and a driver that tracks connections, which Debian's does not.
const WITH_TRACKING: &[Story] = stories![going_on::connections_go_by_hardware_where_the_driver_tracks_them];
const LAST: &[Story] = stories![driver::the_driver_opens_its_devices, driver::the_driver_goes_and_leaves_nothing];

fn stories() -> impl Iterator<Item = &'static Story> {
    FIRST.iter().chain(WITHOUT_AGENT).chain(WITH_AGENT).chain(WITH_TRACKING).chain(LAST)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // As the harness of other tests is asked.
    if arguments.iter().any(|argument| argument == "--list") {
        stories().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |(name, _): &&Story| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let is_short = arguments.iter().any(|argument| argument == "--with-agent");
    let without_agent: &[Story] = if is_short { &[] } else { WITHOUT_AGENT };
    let start = Instant::now();
    let hca = Arc::new(Mutex::new(Hca::new(DEVICE)));
    let (guest, ports) = Guest::boot(&hca);
    let world = World {
        hca,
        ports,
        guest,
        agent: Mutex::default(),
        native: arguments.iter().find_map(|argument| argument.strip_prefix("--ovs=")).map(str::to_owned),
        ovn: arguments.iter().any(|argument| argument == "--ovn"),
        many: number(&arguments, "--rules=", 1_000),
        every: number(&arguments, "--every=", 64),
        generated: number(&arguments, "--generated=", 8),
        seed: number(&arguments, "--seed=", 1),
    };
    let with_tracking: &[Story] = if going_on::is_possible(&world.guest) { WITH_TRACKING } else { &[] };
    let (mut passed, mut failed) = (0, 0);
    let wanted = without_agent.iter().chain(WITH_AGENT).chain(with_tracking).filter(is_wanted);
    for (name, play) in FIRST.iter().chain(wanted).chain(LAST) {
        let at = Instant::now();
        let has_passed = std::panic::catch_unwind(AssertUnwindSafe(|| play(&world))).is_ok();
        let word = if has_passed { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1} s)", at.elapsed().as_secs_f32());
        if has_passed {
            passed += 1;
            continue;
        }
        failed += 1;
        if passed == 0 {
            break;
        }
        world.tidy();
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    if failed == 0 {
        world.guest.end();
    }
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        start.elapsed().as_secs_f32()
    );
    ExitCode::from(failed)
}

/// The number that an option gives.
fn number<T: FromStr>(arguments: &[String], option: &str, default: T) -> T {
    let value = arguments.iter().find_map(|argument| argument.strip_prefix(option));
    value.map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{option} takes a number")))
}

impl World {
    /// Removes what a failed story has left, so that the next one has a chance.
    fn tidy(&self) {
        *self.agent.lock() = None;
        self.guest.attempt(
            "[ ! -e /tmp/agent/pid ] || kill -9 $(cat /tmp/agent/pid) || true
             rm -rf /tmp/agent
             for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress || true; done
             tc actions flush action police || true
             rmmod mlx5_ib || true",
        );
    }

    /// A frame comes in at a port.
    pub(crate) fn receive(&self, from: Port, frame: &[u8]) -> Walk {
        self.ports.receive(from, frame)
    }

    /// A frame comes in at a port, and leaves by others exactly as expected.
    #[track_caller]
    pub(crate) fn pass(&self, from: Port, frame: &[u8], expected: &[(Port, &[u8])]) {
        let walk = self.receive(from, frame);
        let sent: BTreeSet<(Port, &[u8])> = walk.sent.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
        assert_eq!(sent, expected.iter().copied().collect(), "{walk}");
        assert_eq!(walk.sent.len(), expected.len(), "{walk}");
    }
}
