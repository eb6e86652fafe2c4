//! A full device and skewed traffic: hardware is given to the heaviest flows, and nobody goes to and fro.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_agent::config::Config;
use sluice_agent::observe::metrics::Metrics;
use sluice_flow::backend::{Placement, Room};
use sluice_flow::time::{ManualClock, MonotonicClock};
use sluice_flow::{EndReason, Event, Expiry, Flow, FlowId, FlowState, Priority};
use sluice_tests::frames;
use sluice_tests::instant::InstantDevice;
use sluice_tests::simulation::random::Random;
use sluice_tests::world::{SEED, World, eventually, quick_config, soft_nic_with_room};

/// Flows, of which hardware takes a tenth.
const FLOWS: u16 = 300;
const HARDWARE: usize = 30;
/// Packets a second of the heaviest flow; the next has half of it, the one after a third.
const HEAVIEST: u64 = 1_500;
/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(3);
/// What part of all packets hardware may carry less than if somebody had chosen who knows the rates: what the hysteresis leaves
/// where it is.
const MARGIN: f64 = 0.02;

/// Traffic at warped time through the NIC in software.
struct Trace {
    world: World,
    clock: Arc<ManualClock>,
    ids: Vec<FlowId>,
    /// In packets a second, by port.
    rates: Vec<u64>,
}

impl Trace {
    /// The lightest flows come first, so that they have all of the hardware.
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let world = World::on(soft_nic_with_room(HARDWARE, clock.clone()), quick_config(), clock.clone());
        let ids = (0..FLOWS).map(|port| world.agent.queue.add(world.udp_flow(port, "2"), None).unwrap()).collect();
        world.settle();
        let rates = (0..FLOWS).map(|port| HEAVIEST / u64::from(FLOWS - port)).collect();
        Self { world, clock, ids, rates }
    }

    /// Three seconds of traffic, each flow's off by up to so many hundredths, and a pass.
    fn pass(&self, noise: u64, random: &mut Random) {
        for (port, rate) in (0..).zip(&self.rates) {
            let frame = frames::udp(port);
            for _ in 0..rate * INTERVAL.as_secs() * (100 - noise + random.below(2 * noise + 1)) / 100 {
                self.world.inject(1, &frame);
            }
        }
        self.world.agent.revalidation.wait(&|| false);
        let passes = || self.world.agent.revalidation.published().rebalancing.passes;
        let before = passes();
        self.clock.advance(INTERVAL);
        eventually("there was a pass", || passes() > before);
        eventually("all that was to be moved is", || {
            self.world.agent.revalidation.wait(&|| false);
            self.world.agent.backend.capacity().unwrap().room()
                == Room { free: 0, waiting: usize::from(FLOWS) - HARDWARE }
        });
    }

    /// What part of the packets hardware carries at the true rates.
    fn share(&self) -> f64 {
        let is_in = |id: &FlowId| self.world.agent.table.placement(*id) == Some(Placement::Hardware);
        let carried: u64 = self.ids.iter().zip(&self.rates).filter(|(id, _)| is_in(id)).map(|(_, rate)| rate).sum();
        carried as f64 / self.rates.iter().sum::<u64>() as f64
    }

    /// The same if the heaviest were there.
    fn best_share(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_unstable();
        rates.iter().rev().take(HARDWARE).sum::<u64>() as f64 / rates.iter().sum::<u64>() as f64
    }
}

#[test]
fn hardware_comes_to_the_heaviest_flows_and_follows_when_the_traffic_turns() {
    let mut trace = Trace::new();
    let random = &mut Random::new(7);
    let census = trace.world.agent.table.census();
    let states = |state| census.in_state(state);
    assert_eq!((states(FlowState::Offloaded), states(FlowState::Partial)), (HARDWARE, usize::from(FLOWS) - HARDWARE));
    assert!(trace.share() < 0.1, "{}: the lightest came first", trace.share());
    for _ in 0..3 {
        trace.pass(0, random);
    }
    assert!(trace.share() >= trace.best_share() - MARGIN, "{} of {}", trace.share(), trace.best_share());
    let told = trace.world.agent.revalidation.published().rebalancing.last.hardware_share().unwrap();
    assert!((told - trace.share()).abs() < 0.01, "{told} is told, {} is so", trace.share());
    assert_eq!((states(FlowState::Offloaded), states(FlowState::Partial)), (HARDWARE, usize::from(FLOWS) - HARDWARE));

    trace.rates.reverse();
    // Who has just come stays for ten seconds.
    for _ in 0..6 {
        trace.pass(0, random);
    }
    assert!(trace.share() >= trace.best_share() - MARGIN, "{} of {}", trace.share(), trace.best_share());
}

#[test]
fn rates_that_differ_by_noise_move_nothing() {
    let trace = Trace::new();
    let random = &mut Random::new(11);
    let watch = trace.world.agent.events.watch();
    let mut moved = Vec::new();
    let mut ways: HashMap<_, Vec<Placement>> = HashMap::new();
    for _ in 0..14 {
        trace.pass(10, random);
        let mut moves = Vec::new();
        // They are told once the worker has heard what the device has done.
        eventually("who comes takes a place", || {
            moves.extend(watch.events.try_iter());
            moves.len() % 2 == 0
        });
        moved.push(moves.len());
        for seen in moves {
            let Event::Moved { flow, placement } = &seen.event else { panic!("{}", seen.event) };
            ways.entry(flow.ufid).or_default().push(*placement);
        }
    }
    assert_eq!(moved[0], 0, "no rate is known before the second look");
    // On a busy machine the worker may tell of them while the next round is looked at.
    assert!(moved[1] + moved[2] >= HARDWARE, "{moved:?}");
    assert!(moved[8..].iter().sum::<usize>() <= 2, "{moved:?}");
    let returned = ways.values().filter(|ways| ways.len() > 1).count();
    assert_eq!(returned, 0, "{returned} flows went to and fro");
    assert!(trace.share() >= trace.best_share() - MARGIN, "{} of {}", trace.share(), trace.best_share());
}

#[test]
fn permanent_flows_are_weighed_like_others() {
    let clock = Arc::new(ManualClock::default());
    let world = World::on(soft_nic_with_room(1, clock.clone()), quick_config(), clock.clone());
    let flow = world.udp_flow(1, "2");
    let actions = flow.actions.clone();
    let expiry = Expiry { permanent: true, ..Expiry::default() };
    let lasting = Flow::new(Some(flow.ufid), flow.matching(), actions, Priority::default(), expiry, &SEED);
    let lasting = world.agent.queue.add(lasting, None).unwrap();
    world.settle();
    let busy = world.agent.queue.add(world.udp_flow(2, "2"), None).unwrap();
    world.settle();
    assert_eq!(world.agent.table.placement(lasting), Some(Placement::Hardware));
    eventually("the busy one has its place", || {
        (0..100).for_each(|_| drop(world.inject(1, &frames::udp(2))));
        clock.advance(INTERVAL);
        world.agent.revalidation.wait(&|| false);
        world.agent.table.placement(busy) == Some(Placement::Hardware)
    });
    assert_eq!(world.agent.table.view(lasting).unwrap().state, FlowState::Partial, "it stays in the table");
}

#[test]
fn flows_that_change_and_go_while_they_are_moved_leave_no_place_behind() {
    let config = Config { rebalance_interval: Some(Duration::from_millis(1)), ..quick_config() };
    let clock = Arc::new(MonotonicClock::new());
    let world = World::on(soft_nic_with_room(10, clock.clone()), config, clock);
    let random = &mut Random::new(3);
    let add = |port: u16| world.agent.queue.add(world.udp_flow(port, "2"), None);
    for port in 0..40 {
        add(port).unwrap();
    }
    for _ in 0..3_000 {
        let port = u16::try_from(random.below(40)).unwrap();
        let Some(id) = world.agent.table.find(world.udp_flow(port, "2").ufid) else {
            add(port).unwrap();
            continue;
        };
        // As the rebalancing does, only far more often.
        let place = if random.one_in(2) { Placement::Hardware } else { Placement::Software };
        world.agent.queue.place(id, place);
        match random.below(8) {
            0 => drop(world.agent.queue.delete(id, EndReason::Deleted, None)),
            1 => drop(world.agent.queue.modify(world.udp_flow(port, "3"), false, None)),
            _ => drop(world.inject(1, &frames::udp(port))),
        }
    }
    world.settle();
    let agent = &world.agent;
    eventually("the table knows where each rule is, and no place is lost", || {
        let rules: HashMap<_, _> = world.installed().iter().map(|rule| (rule.flow.ufid, rule.placement)).collect();
        let room = agent.backend.capacity().unwrap().room();
        let in_hardware = rules.values().filter(|place| **place == Placement::Hardware).count();
        let agrees = |(ufid, place): (&_, &_)| {
            agent.table.find(*ufid).is_some_and(|id| agent.table.placement(id) == Some(*place))
        };
        rules.len() == agent.table.census().live()
            && (in_hardware + room.free, room.waiting) == (10, rules.len() - in_hardware)
            && rules.iter().all(agrees)
    });
    agent.flush();
    assert_eq!(agent.backend.capacity().unwrap().room(), Room { free: 10, waiting: 0 });
}

#[test]
fn where_rebalancing_cannot_be_or_is_not_wanted_that_is_said() {
    let off = |world: &World| {
        eventually("a round", || world.agent.revalidation.published().rounds > 0);
        let metrics = Metrics::new(world.agent.clone(), None).unwrap().text().unwrap();
        let state = world.agent.revalidation.published().rebalancing.state;
        let (label, why) = state.off().unwrap();
        assert!(metrics.contains(&format!("sluice_rebalance_off{{reason=\"{label}\"}} 1")), "{metrics}");
        assert!(!metrics.contains("sluice_rebalance_moves_total"), "what cannot be is not zero");
        why
    };
    let world = World::on(InstantDevice::new(), quick_config(), Arc::new(MonotonicClock::new()));
    assert_eq!(off(&world), "this backend keeps no rules in software that it counts");
    let world = World::soft(Config { rebalance_interval: None, ..quick_config() });
    assert_eq!(off(&world), "rebalance_interval is \"none\"");
    let world = World::soft(quick_config());
    eventually("a round", || world.agent.revalidation.published().rounds > 0);
    let metrics = Metrics::new(world.agent.clone(), None).unwrap().text().unwrap();
    assert!(metrics.contains("sluice_rebalance_off{reason=\"backend\"} 0"), "{metrics}");
    assert!(metrics.contains("sluice_rebalance_waiting_rules 0"), "{metrics}");
}
