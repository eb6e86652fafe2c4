//! What a rule costs that libmlx5 writes into the device: processor time of the thread that installs it, and of all threads, of which
//! one is the device's.
//!
//! `cargo bench -p sluice-connectx-preload --bench rules [-- RULES]` in `tests/connectx`. A rule is for an IPv4 5-tuple, counts and
//! forwards. The numbers are of the emulated device: nothing is said of a NIC.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::{read_dir, read_to_string};
use std::time::Instant;

use sluice_connectx::profile::{BLUEFIELD_2, BLUEFIELD_3, Profile};
use sluice_connectx::steering::Port;
use sluice_connectx_preload::plug;
use sluice_connectx_uverbs::Privileges;
use sluice_libmlx5::dv::{Action, Domain, Kind, Layout, Match, Object};
use sluice_libmlx5::verbs::Context;

const VPORT: u16 = 1;

fn main() {
    let number = |word: String| word.parse().ok();
    let rules = std::env::args().skip(1).find_map(number).unwrap_or(100_000);
    println!("{rules} rules; microseconds a rule: elapsed, of the installing thread, of all threads");
    measure(BLUEFIELD_2, rules, None, "grows");
    measure(BLUEFIELD_3, rules, None, "grows");
    let log_rules = Some(rules.next_power_of_two().ilog2());
    measure(BLUEFIELD_3, rules, Some(Layout { resizable: false, log_rules }), "fixed");
}

fn measure(profile: Profile, rules: u32, layout: Option<Layout>, words: &str) {
    let plugged = plug(profile, Privileges::ALL).unwrap();
    let context = Context::open(&plugged.name()).unwrap();
    let domain = Domain::create(&context, Kind::Fdb).unwrap();
    let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
    let all = root.matcher(0, &Match::default()).unwrap();
    let to_table = Action::to_table(&table).unwrap();
    let _jump = all.rule(&Match::default(), &[&to_table]).unwrap();
    let matcher = table.matcher(0, &five_tuple([u8::MAX; 4], u128::MAX)).unwrap();
    layout.into_iter().for_each(|layout| matcher.set_layout(layout).unwrap());
    let (block, _) = counters(&context, rules.next_power_of_two().ilog2());
    let to = domain.to_vport(VPORT).unwrap();
    let counts: Vec<_> = (0..rules).map(|number| Action::count(&block, number).unwrap()).collect();

    let before = (Instant::now(), of_this_thread(), of_all_threads());
    let rule = |(count, number)| matcher.rule(&five_tuple(address(number), 17), &[count, &to]).unwrap();
    let installed: Vec<_> = counts.iter().zip(0..rules).map(rule).collect();
    domain.sync().unwrap();
    let each = |nanoseconds: u128| nanoseconds as f64 / 1e3 / f64::from(rules);
    println!(
        "{:12} {words}  {:6.2} {:6.2} {:6.2}",
        profile.name,
        each(before.0.elapsed().as_nanos()),
        each(of_this_thread() - before.1),
        each(of_all_threads() - before.2),
    );

    for number in (0..rules).step_by(97).chain([rules - 1]) {
        let walk = plugged.device().receive(Port::Wire, &datagram(address(number)));
        assert_eq!(walk.sent.first().map(|(port, _)| *port), Some(Port::Vport(VPORT)), "{walk}");
    }
    let before = (Instant::now(), of_this_thread(), of_all_threads());
    drop(installed);
    domain.sync().unwrap();
    println!(
        "{:12} gone   {:6.2} {:6.2} {:6.2}",
        "",
        each(before.0.elapsed().as_nanos()),
        each(of_this_thread() - before.1),
        each(of_all_threads() - before.2),
    );
}

fn address(number: u32) -> [u8; 4] {
    (11 << 24 | number).to_be_bytes()
}

/// From 10.0.0.1:1111 to port 2222; the mask of all is where the protocol is all ones.
fn five_tuple(to: [u8; 4], protocol: u128) -> Match {
    let all = |value: u128| if protocol == u128::MAX { u128::MAX } else { value };
    // By the PRM's `fte_match_param`; libmlx5 wants the version itself as its mask.
    Match::default()
        .with(0x093, 4, 4)
        .with(0x080, 8, protocol)
        .with(0x160, 32, all(0x0a00_0001))
        .with(0x1e0, 32, u32::from_be_bytes(to).into())
        .with(0x0e0, 16, all(1111))
        .with(0x0f0, 16, all(2222))
}

fn datagram([a, b, c, d]: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, a, b, c, d]);
    frame.extend([1111_u16, 2222, 8, 0].map(u16::to_be_bytes).concat());
    frame.resize(60, 0);
    frame
}

/// So many flow counters, as a power of two, and the id of the first.
fn counters(context: &Context, log: u32) -> (Object<'_>, u32) {
    const ALLOC_FLOW_COUNTER: u16 = 0x939;
    const LOG_BULK: usize = 14;
    let mut input = [0; 16];
    input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER.to_be_bytes());
    input[LOG_BULK] = u8::try_from(log).unwrap();
    let (object, output) = Object::create(context, &input, 16).unwrap();
    (object, u32::from_be_bytes(output[8..12].try_into().unwrap()))
}

/// Nanoseconds on a processor, which the kernel tells first of all.
fn on_processor(file: &str) -> u128 {
    read_to_string(file).unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn of_this_thread() -> u128 {
    on_processor("/proc/thread-self/schedstat")
}

fn of_all_threads() -> u128 {
    let threads = read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    threads.map(|thread| on_processor(&thread.join("schedstat").display().to_string())).sum()
}
