//! The agent on devices that stall, block, refuse and answer out of order.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_agent::commands;
use sluice_agent::config::Config;
use sluice_agent::observe::metrics::Metrics;
use sluice_flow::backend::DeviceEvent;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::text;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Action, Cause, EndReason, Event, Field, FlowState, PortNumber, Refusal, Timestamp, Ufid};
use sluice_offload::Batch;
use sluice_tests::fault::{Faults, FaultyDevice, Plan};
use sluice_tests::frames;
use sluice_tests::world::{World, eventually, quick_config, soft_nic};
use sluice_unixctl::{Peer, Registry, Request};

fn faulty(config: Config) -> (World, Arc<Faults>) {
    let clock = Arc::new(MonotonicClock::new());
    let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
    (World::on(device, config, clock), faults)
}

#[test]
fn a_stalled_device_holds_nobody_up_but_those_who_wait_for_it() {
    let (world, faults) = faulty(Config { dirty_limit: 1_000, ..quick_config() });
    faults.set(Plan { stalled: true, ..Plan::default() });
    let began = Instant::now();
    for port in 0..1_000 {
        world.agent.queue.add(world.udp_flow(port, "2"), None).expect("accepted");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "accepting does not wait for the device");
    let busy = world.agent.queue.add(world.udp_flow(1_000, "2"), None).expect_err("one too many");
    assert!(busy.to_string().starts_with("busy: 1000 flows wait"), "{busy}");
    let first = world.agent.table.find(world.udp_flow(0, "2").ufid).expect("the first flow");
    world.agent.queue.delete(first, EndReason::Deleted, None).expect("a deletion is never busy");

    faults.set(Plan::default());
    world.settle();
    assert_eq!(world.installed().len(), 999);
    assert_eq!(world.agent.table.census().in_state(FlowState::Offloaded), 999);
}

#[test]
fn a_device_that_blocks_the_hand_over_blocks_its_worker_only() {
    let (world, faults) = faulty(quick_config());
    faults.set(Plan { blocked: true, ..Plan::default() });
    for port in 0..500 {
        world.agent.queue.add(world.udp_flow(port, "2"), None).expect("accepted");
    }
    for port in 0..500 {
        let id = world.agent.table.find(world.udp_flow(port, "2").ufid).expect("the flow");
        world.agent.queue.modify(world.udp_flow(port, "3"), false, None).expect("accepted");
        if port % 2 == 0 {
            world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
        }
    }
    faults.set(Plan::default());
    world.settle();
    let rules = world.installed();
    assert_eq!(rules.len(), 250);
    assert!(rules.iter().all(|rule| *rule.flow.actions == [Action::Output(PortNumber(3))]));
}

#[test]
fn a_device_that_answers_out_of_order_changes_nothing() {
    let (world, faults) = faulty(quick_config());
    faults.set(Plan { reorders: true, delay: Duration::from_micros(20), ..Plan::default() });
    for round in 0..5 {
        for port in 0..200 {
            let flow = world.udp_flow(port, ["2", "3", "4"][usize::from(port) % 3]);
            match world.agent.table.find(flow.ufid) {
                None => drop(world.agent.queue.add(flow, None)),
                Some(id) if (port + round) % 3 == 0 => {
                    world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
                    world.agent.queue.add(flow, None).expect("a new life is accepted at once");
                }
                Some(_) => drop(world.agent.queue.modify(flow, false, None)),
            }
        }
    }
    world.settle();
    let rules = world.installed();
    assert_eq!(rules.len(), 200, "each flow is there once");
    for rule in rules {
        let id = world.agent.table.find(rule.flow.ufid).expect("the device has nothing that is not wanted");
        assert_eq!(world.agent.table.view(id).expect("the flow").flow.actions, rule.flow.actions);
    }
}

#[test]
fn refused_flows_say_why_and_are_taken_when_the_device_can() {
    let (world, faults) = faulty(quick_config());
    faults.set(Plan { refuses_every: Some(1), ..Plan::default() });
    let batch = Arc::new(Batch::default());
    batch.expect_one();
    let id = world.agent.queue.add(world.udp_flow(1, "2"), Some(batch.clone().into())).expect("accepted");
    let tally = batch.wait(Duration::from_secs(10));
    assert_eq!(tally.refusals[0].1.to_string(), "device: as the test demands");
    // It may be tried again just now, for ports came at the start.
    eventually("it stays listed", || world.agent.table.view(id).expect("the flow").state == FlowState::Refused);

    faults.set(Plan::default());
    world.agent.queue.retry([Cause::Time]);
    eventually("it is taken", || world.agent.table.view(id).expect("the flow").state == FlowState::Offloaded);
}

#[test]
fn what_is_tried_again_waits_for_its_cause_and_leaves_room_for_what_is_new() {
    let (world, faults) = faulty(Config { dirty_limit: 100, retry_interval: None, ..quick_config() });
    let (queue, census) = (&world.agent.queue, world.agent.table.census());
    let add = |port| queue.add(world.udp_flow(port, "2"), None);
    let refuse = |refusal| faults.set(Plan { refuses_every: Some(1), refusal: Some(refusal), ..Plan::default() });
    refuse(Refusal::Field { field: Field::CtState, reason: "never".into() });
    for port in 0..90 {
        add(port).expect("accepted");
    }
    world.settle();
    for thousands in 1..4 {
        refuse(Refusal::no_port(PortNumber(7)));
        for port in 0..90 {
            add(thousands * 1_000 + port).expect("accepted");
        }
        world.settle();
    }
    eventually("all are refused", || census.in_state(FlowState::Refused) == 360);

    faults.set(Plan { stalled: true, ..Plan::default() });
    let came = |port| DeviceEvent::Changed { cause: Cause::Port(Some(PortNumber(port))) };
    (0..1_000).for_each(|_| faults.tell(&came(8)));
    faults.tell(&came(7));
    eventually("some are tried again", || census.retries() > 0);
    for port in 0..100 {
        add(4_000 + port).expect("retries take no room from what is new");
    }
    assert!(add(4_100).expect_err("one too many").to_string().starts_with("busy: 100 flows wait"));
    assert_eq!(faults.refused(), 360, "what waits for something else was not tried");

    faults.set(Plan::default());
    eventually("all that waited are taken", || census.in_state(FlowState::Offloaded) == 370);
    assert_eq!((census.in_state(FlowState::Refused), census.unsettled(), census.retries()), (90, 0, 0));
}

#[test]
fn another_retry_interval_is_heard_of_while_the_old_one_runs() {
    let (world, faults) = faulty(Config { retry_interval: Some(Duration::from_secs(3_600)), ..quick_config() });
    let refusal = Some(Refusal::no_port(PortNumber(7)));
    faults.set(Plan { refuses_every: Some(1), refusal, ..Plan::default() });
    let id = world.agent.queue.add(world.udp_flow(1, "2"), None).expect("accepted");
    eventually("it is refused", || world.agent.table.view(id).expect("the flow").state == FlowState::Refused);
    faults.set(Plan::default());
    let changed = Config { retry_interval: Some(Duration::from_millis(1)), ..Config::clone(&world.agent.config()) };
    assert_eq!(world.agent.reload(&changed).expect("it is taken over").applicable, ["retry_interval"]);
    eventually("it is taken", || world.agent.table.view(id).expect("the flow").state == FlowState::Offloaded);
}

#[test]
fn children_go_in_before_parents_and_out_after_them() {
    const CHAINS: u32 = 40;
    let (world, faults) = faulty(quick_config());
    let watch = world.agent.events.watch();
    let slow = Plan { reorders: true, delay: Duration::from_micros(500), ..Plan::default() };
    faults.set(slow.clone());
    let child = |chain| format!("recirc_id({chain}),in_port(1),eth_type(0x0800),ipv4(frag=no)");
    let parent = |chain| format!("in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={chain})");
    let mut pairs = Vec::new();
    for chain in 1..=CHAINS {
        let child = world.agent.queue.add(world.flow(&child(chain), "2"), None).expect("accepted");
        let parent = world.flow(&parent(chain), &format!("recirc({chain})"));
        pairs.push((world.agent.queue.add(parent, None).expect("accepted"), child));
    }
    // Never does a packet find a parent without its child, on the way in ...
    let whole_or_nothing = || {
        for (number, (parent, child)) in (1..).zip(&pairs) {
            let hits = world.inject(1, &frames::udp(number)).hits;
            assert!(hits.is_empty() || hits == [*parent, *child], "chain {number}: {hits:?}");
        }
    };
    while world.agent.table.census().unsettled() > 0 {
        whole_or_nothing();
    }
    // ... or on the way out.
    for (parent, child) in &pairs {
        world.agent.queue.delete(*parent, EndReason::Deleted, None).expect("accepted");
        world.agent.queue.delete(*child, EndReason::Deleted, None).expect("accepted");
    }
    while world.agent.table.census().live() > 0 {
        whole_or_nothing();
    }

    let (mut installed, mut deleted) = (HashSet::new(), HashSet::new());
    for seen in watch.events.try_iter() {
        let (event, flow) = (&seen.event, seen.event.flow());
        match (event, flow.jumps().first().copied()) {
            (Event::Installed { .. }, None) => drop(installed.insert(flow.chain())),
            (Event::Installed { .. }, Some(chain)) => assert!(installed.contains(&chain), "{chain} has no child yet"),
            (Event::Deleted { .. }, Some(chain)) => drop(deleted.insert(chain)),
            (Event::Deleted { .. }, None) => assert!(deleted.contains(&flow.chain()), "{} has a parent", flow.chain()),
            _ => {}
        }
    }
    assert_eq!((installed.len(), deleted.len()), (CHAINS as usize, CHAINS as usize));
}

#[test]
fn cycles_and_too_deep_chains_are_refused_when_offered() {
    let (world, _) = faulty(Config { chain_depth: 3, ..quick_config() });
    let add = |from: u32, to: u32| {
        let flow = world
            .flow(&format!("recirc_id({from}),in_port(1),eth_type(0x0800),ipv4(frag=no)"), &format!("recirc({to})"));
        world.agent.queue.add(flow, None).map_err(|error| error.to_string())
    };
    add(0, 1).expect("two chains");
    add(1, 2).expect("three chains");
    assert_eq!(add(2, 1).expect_err("a cycle"), "action recirc: recirc(0x1) from chain 0x2 would close a cycle");
    assert_eq!(add(3, 3).expect_err("a cycle"), "action recirc: recirc(0x3) from chain 0x3 would close a cycle");
    let deep = add(2, 3).expect_err("four chains");
    assert_eq!(deep, "limit: recirc(0x3) from chain 0x2 makes packets pass too many chains (at most 3)");
}

#[test]
fn a_modification_that_is_turned_away_leaves_the_chains_as_they_were() {
    let (world, _) = faulty(quick_config());
    let named = |ufid: u128, id: u32, to: u32| {
        let key = format!("ufid:{}, recirc_id({id}),in_port(1),eth_type(0x0800),ipv4(frag=no)", Ufid(ufid));
        world.flow(&key, &format!("recirc({to})"))
    };
    let chain = |id: u32, to: u32| named(id.into(), id, to);
    let id = world.agent.queue.add(chain(1, 2), None).expect("accepted");
    // Many times over, and once under the name of the flow with another match.
    for _ in 0..1_000 {
        world.agent.queue.modify(chain(1, 2), false, None).expect("accepted");
    }
    let error = world.agent.queue.modify(named(1, 7, 8), false, None).expect_err("another match");
    assert!(error.to_string().contains("has another match"), "{error}");
    world.settle();
    world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
    world.settle();
    // Nothing of the jumps 1 -> 2 and 7 -> 8 is left: the other way round is no cycle.
    world.agent.queue.add(chain(2, 1), None).expect("no cycle");
    world.agent.queue.add(chain(8, 7), None).expect("no cycle");
}

#[test]
fn a_flush_takes_chains_out_in_the_order_of_the_jumps() {
    let (world, faults) = faulty(quick_config());
    // Packets go from high numbers to low ones, so that the order of the numbers is the wrong one.
    let add = |key: &str, actions: &str| world.agent.queue.add(world.flow(key, actions), None).expect("accepted");
    let later = |chain: u32| format!("recirc_id({chain}),in_port(1),eth_type(0x0800),ipv4(frag=no)");
    let last = add(&later(1), "2");
    let third = add(&later(2), "recirc(1)");
    let second = add(&later(3), "recirc(2)");
    let first = add("in_port(1),eth_type(0x0800),ipv4(frag=no)", "recirc(3)");
    world.settle();
    let whole = [first, second, third, last];
    assert_eq!(world.inject(1, &frames::udp(5)).hits, whole);

    let watch = world.agent.events.watch();
    faults.set(Plan { reorders: true, delay: Duration::from_millis(2), ..Plan::default() });
    let batch = Arc::new(Batch::default());
    world.agent.queue.delete_all(EndReason::Flushed, &batch);
    while world.agent.table.census().live() > 0 {
        let hits = world.inject(1, &frames::udp(5)).hits;
        assert!(hits.is_empty() || hits == whole, "a packet went part of the way: {hits:?}");
    }
    let gone: Vec<_> = watch.events.try_iter().map(|seen| seen.event.flow().chain().0).collect();
    assert_eq!(gone, [0, 3, 2, 1]);
}

#[test]
fn a_part_that_hangs_in_the_device_is_named() {
    let (world, faults) = faulty(quick_config());
    let liveness = world.liveness();
    let mut second = 0;
    // Each look is a second after the one before.
    let mut look = || {
        second += 1;
        liveness.look(Timestamp(second * 1_000_000_000))
    };
    eventually("all parts get on", || look().is_ok());

    for (number, plan, part) in [
        (1, Plan { hangs: true, ..Plan::default() }, "revalidator"),
        (2, Plan { blocked: true, ..Plan::default() }, "offload-"),
        (3, Plan { stalled: true, ..Plan::default() }, "offload-"),
    ] {
        faults.set(plan.clone());
        world.agent.queue.add(world.udp_flow(number, "2"), None).unwrap();
        let mut hang = String::new();
        eventually("the part is named", || {
            hang = look().err().map(|hang| hang.to_string()).unwrap_or_default();
            hang.starts_with(part)
        });
        assert!(hang.contains(" has made no progress for 3") && !hang.contains(';'), "{plan:?}: {hang}");
        faults.set(Plan::default());
        world.settle();
        eventually("all parts get on again", || look().is_ok());
    }
}

#[test]
fn a_device_that_hangs_hides_nothing_that_was_read_before() {
    let (world, faults) = faulty(quick_config());
    let meter = |rate| Meter { id: MeterId(1), unit: MeterUnit::Packets, bands: vec![MeterBand { rate, burst: 9 }] };
    let key = text::parse_key("in_port(1)", &*world.agent.ports()).unwrap();
    world.agent.object_store.put(Mirror::new("all", key.matching, vec![PortNumber(4)]).unwrap()).unwrap();
    world.agent.object_store.put(meter(7)).unwrap();
    world.agent.queue.add(world.udp_flow(1, "2"), None).unwrap();
    world.settle();
    world.inject(1, &frames::udp(1));
    assert!(world.agent.revalidation.wait(&|| false));

    let mut registry = Registry::new("test");
    commands::register(&mut registry, &world.agent);
    let metrics = Metrics::new(world.agent.clone(), None).unwrap();
    faults.set(Plan { hangs: true, ..Plan::default() });
    let changing = world.agent.clone();
    let change = std::thread::spawn(move || changing.object_store.put(meter(8)));
    eventually("poll and change hang", || faults.hanging() >= 2);

    // On a thread of its own, so that one that hangs fails the test.
    let (said, heard) = crossbeam_channel::unbounded();
    std::thread::spawn(move || {
        said.send(metrics.text().unwrap()).unwrap();
        for (name, args) in [
            ("dpctl/show", &["-s"][..]),
            ("sluice/show-meters", &[]),
            ("sluice/show-mirrors", &[]),
            ("sluice/stats", &[]),
        ] {
            let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let mut text = String::new();
            registry.run(name, &Request { args: &args, peer: Peer::own() }, &mut text).unwrap();
            said.send(text).unwrap();
        }
    });
    for part in [
        "sluice_mirror_packets_total{mirror=\"all\"} 1\n",
        "RX packets:1 ",
        "meter:1, unit:pps, packets:0, ",
        "mirror:all, key:recirc_id(0),in_port(p1),eth(), ports:p4, packets:1, ",
        "\"datapath\":",
    ] {
        let text = heard.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("no answer with {part}"));
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!change.is_finished());
    faults.set(Plan::default());
    change.join().unwrap().unwrap();
}
