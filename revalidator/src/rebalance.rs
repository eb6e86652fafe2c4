//! Gives a full device to the heaviest flows.
//!
//! A [`Rebalancer`] decides from counters, placements and time, all handed in. It is asked for a [pass](Rebalancer::pass) only
//! while the device is full, which is when rules are in software because they found no room:
//!
//! - The rate of a flow is what it has counted since the last pass, in packets a second. A flow without two fresh readings at
//!   both passes is no candidate: nothing is known of it.
//! - First the heaviest in software go up into the room that is free. Then the lightest in hardware make room for the heaviest
//!   in software, pair by pair, as long as the gain is worth it: 5 parts in 4 of what the other carries, and
//!   [`LEAST_GAIN`] on top. So rates that differ by noise move nothing.
//! - A flow that has just been moved stays for [`Config::hold`].
//! - The order is strict: by rate, and by identity between equal rates, so that equal traffic gives equal moves.
//! - At most [`Config::moves`] flows are moved in a pass.
//!
//! Permanent flows are weighed like any other: permanence keeps a flow in the table, not in hardware. OVS (`udpif_flow_rebalance`)
//! knows no privilege either.

use std::cmp::Reverse;
use std::time::Duration;

use sluice_flow::backend::Placement;
use sluice_flow::table::AgeView;
use sluice_flow::{FlowId, Timestamp};

/// What a flow must carry more than the one whose place it takes, in packets a second, beside its being heavier by a quarter.
pub const LEAST_GAIN: u64 = 5;

/// How much is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a flow stays where it was moved.
    pub hold: Duration,
    /// How many flows may be moved in a pass.
    pub moves: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { hold: Duration::from_secs(10), moves: 1_024 }
    }
}

/// What a pass found, and what is to be moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Flows whose rate is known.
    pub candidates: usize,
    /// What those in hardware carry, in packets a second.
    pub hardware_rate: u64,
    /// What those in software carry, in packets a second.
    pub software_rate: u64,
    /// Flows that make room, the lightest first.
    pub down: Vec<FlowId>,
    /// Flows for the room that is free and for what is made, the heaviest first.
    pub up: Vec<FlowId>,
}

/// A flow as it is weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// In packets a second.
    rate: u64,
    id: FlowId,
}

/// Remembers the last pass.
#[derive(Default)]
pub struct Rebalancer {
    config: Config,
    /// By slot.
    seen: Vec<Seen>,
}

/// A flow as the last pass saw it.
#[derive(Clone, Copy, Default)]
struct Seen {
    packets: u64,
    read: Timestamp,
    /// Until when it stays where it is.
    held: Timestamp,
    /// The life that this is of; 0 for none.
    incarnation: u32,
    /// Whether the pass had enough readings of it.
    is_known: bool,
}

impl Rebalancer {
    /// Has seen nothing.
    pub fn new(config: Config) -> Self {
        Self { config, seen: Vec::new() }
    }

    /// Forgets what it has seen, and gives the memory back: the device has room.
    pub fn forget(&mut self) {
        self.seen = Vec::new();
    }

    /// Weighs flows and decides, with room for so many more rules in hardware. `flows` hands each flow that has a rule to what
    /// it is given, at most once.
    pub fn pass(
        &mut self,
        now: Timestamp,
        free: usize,
        flows: impl FnOnce(&mut dyn FnMut(&AgeView, Placement)),
    ) -> Pass {
        let mut pass = Pass::default();
        let (mut light, mut heavy) = (Vec::new(), Vec::new());
        flows(&mut |view, placement| {
            let (rate, is_held) = self.weigh(view, now);
            let Some(rate) = rate else { return };
            pass.candidates += 1;
            let (sum, side) = match placement {
                Placement::Hardware | Placement::Both => (&mut pass.hardware_rate, &mut light),
                Placement::Software => (&mut pass.software_rate, &mut heavy),
                Placement::Unknown => return,
            };
            *sum += rate;
            if !is_held {
                side.push(Candidate { rate, id: view.id });
            }
        });
        let light = first(light, self.config.moves, |candidate| *candidate);
        let heavy = first(heavy, self.config.moves, |candidate| Reverse(*candidate));
        let (fitting, rest) = heavy.split_at(heavy.len().min(free));
        let pairs = (self.config.moves - fitting.len()) / 2;
        let swaps = light.iter().zip(rest).take(pairs).take_while(|(victim, winner)| is_worth_it(victim, winner));
        pass.up.extend(fitting.iter().map(|candidate| candidate.id));
        for (victim, winner) in swaps {
            pass.down.push(victim.id);
            pass.up.push(winner.id);
        }
        let held = now.after(self.config.hold);
        for id in pass.down.iter().chain(&pass.up) {
            if let Some(seen) = self.seen.get_mut(id.slot as usize) {
                seen.held = held;
            }
        }
        pass
    }

    /// The rate of a flow since the last pass, if it is known, and whether it is to stay where it is.
    fn weigh(&mut self, view: &AgeView, now: Timestamp) -> (Option<u64>, bool) {
        let slot = view.id.slot as usize;
        if self.seen.len() <= slot {
            self.seen.resize(slot + 1, Seen::default());
        }
        let seen = &mut self.seen[slot];
        if seen.incarnation != view.id.incarnation {
            *seen = Seen { incarnation: view.id.incarnation, ..Seen::default() };
        }
        let is_known = view.fresh >= AgeView::ENOUGH;
        let span = view.read.since(seen.read).as_nanos();
        let packets = u128::from(view.packets.saturating_sub(seen.packets));
        let rate = (packets * 1_000_000_000).checked_div(span).filter(|_| is_known && seen.is_known);
        let is_held = seen.held > now;
        *seen = Seen { packets: view.packets, read: view.read, is_known, ..*seen };
        (rate.map(|rate| u64::try_from(rate).unwrap_or(u64::MAX / 1_024)), is_held)
    }
}

/// Whether one is heavier than the other by more than noise.
fn is_worth_it(victim: &Candidate, winner: &Candidate) -> bool {
    winner.rate >= victim.rate.saturating_add(victim.rate / 4).saturating_add(LEAST_GAIN)
}

/// The first so many in an order, sorted.
fn first<K: Ord>(mut all: Vec<Candidate>, count: usize, key: impl Fn(&Candidate) -> K) -> Vec<Candidate> {
    if all.len() > count {
        all.select_nth_unstable_by_key(count, &key);
        all.truncate(count);
    }
    all.sort_unstable_by_key(key);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::table::ExpiryClass;

    /// Flows with rates, on a device that does at once what it is told.
    struct World {
        rebalancer: Rebalancer,
        now: Timestamp,
        flows: Vec<(u64, Placement, u64)>,
        free: usize,
        fresh: u8,
    }

    impl World {
        /// The first so many are in hardware, which is full.
        fn new(config: Config, hardware: usize, rates: impl IntoIterator<Item = u64>) -> Self {
            let place = |index| if index < hardware { Placement::Hardware } else { Placement::Software };
            let flows = rates.into_iter().enumerate().map(|(index, rate)| (rate, place(index), 0)).collect();
            let rebalancer = Rebalancer::new(config);
            Self { rebalancer, now: Timestamp(0), flows, free: 0, fresh: AgeView::ENOUGH }
        }

        /// Three seconds of traffic and a pass.
        fn pass(&mut self) -> Pass {
            self.now = self.now.after(Duration::from_secs(3));
            for (rate, _, packets) in &mut self.flows {
                *packets += *rate * 3;
            }
            let (now, fresh) = (self.now, self.fresh);
            let flows = &self.flows;
            let pass = self.rebalancer.pass(now, self.free, |visit| {
                for (slot, (_, placement, packets)) in (0..).zip(flows) {
                    let id = FlowId { slot, incarnation: 1 };
                    let class = ExpiryClass::default();
                    visit(&AgeView { id, class, fresh, grown: now, read: now, packets: *packets }, *placement);
                }
            });
            for id in &pass.down {
                self.flows[id.slot as usize].1 = Placement::Software;
            }
            for id in &pass.up {
                self.flows[id.slot as usize].1 = Placement::Hardware;
            }
            self.free = (self.free + pass.down.len()).saturating_sub(pass.up.len());
            pass
        }

        fn hardware(&self) -> Vec<usize> {
            let in_hardware = |(index, (_, place, _)): (usize, &(u64, Placement, u64))| {
                (*place == Placement::Hardware).then_some(index)
            };
            self.flows.iter().enumerate().filter_map(in_hardware).collect()
        }
    }

    fn slots(ids: &[FlowId]) -> Vec<u32> {
        ids.iter().map(|id| id.slot).collect()
    }

    #[test]
    fn nothing_is_moved_before_rates_are_known() {
        let mut world = World::new(Config::default(), 1, [0, 1_000]);
        assert_eq!(world.pass(), Pass::default(), "one look tells no rate");
        world.fresh = 1;
        assert_eq!(world.pass(), Pass::default(), "one fresh reading tells none");
        world.fresh = 2;
        assert_eq!(world.pass(), Pass::default(), "nor does one at the end of the time only");
        assert_eq!(slots(&world.pass().up), [1]);
    }

    #[test]
    fn free_room_goes_to_the_heaviest_before_anybody_is_put_out() {
        let mut world = World::new(Config::default(), 2, [10, 20, 30, 50, 40]);
        world.free = 2;
        world.pass();
        let pass = world.pass();
        assert_eq!(
            (slots(&pass.up), slots(&pass.down)),
            (vec![3, 4, 2], vec![0]),
            "50 and 40 fit, 30 is worth 10's place"
        );
        assert_eq!((pass.hardware_rate, pass.software_rate, pass.candidates), (30, 120, 5));
        assert_eq!(world.hardware(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_place_changes_hands_only_for_a_quarter_and_a_little_more() {
        for (winner, moves) in [(1_254, 0), (1_255, 2), (5_000, 2)] {
            let mut world = World::new(Config::default(), 1, [1_000, winner]);
            world.pass();
            let pass = world.pass();
            assert_eq!(pass.up.len() + pass.down.len(), moves, "{winner} against 1000");
        }
        let mut idle = World::new(Config::default(), 1, [0, LEAST_GAIN - 1]);
        idle.pass();
        assert_eq!(idle.pass().up, [], "hardly more than nothing");
    }

    #[test]
    fn equal_rates_are_told_apart_by_identity_and_equal_traffic_gives_equal_moves() {
        let run = || {
            let mut world = World::new(Config { moves: 6, ..Config::default() }, 10, (0..20).map(|n| n / 10 * 100));
            world.pass();
            world.pass()
        };
        let pass = run();
        assert_eq!((slots(&pass.down), slots(&pass.up)), (vec![0, 1, 2], vec![19, 18, 17]));
        assert_eq!(run(), pass);
    }

    #[test]
    fn a_pass_moves_no_more_than_it_may_and_the_next_one_goes_on() {
        let mut world =
            World::new(Config { moves: 4, ..Config::default() }, 6, [0, 0, 0, 0, 0, 0, 60, 50, 40, 30, 20, 10]);
        world.pass();
        for (up, down) in [([6, 7], [0, 1]), ([8, 9], [2, 3]), ([10, 11], [4, 5])] {
            let pass = world.pass();
            assert_eq!((slots(&pass.up), slots(&pass.down)), (up.to_vec(), down.to_vec()));
        }
        assert_eq!(world.pass().up, []);
    }

    #[test]
    fn who_was_moved_stays_for_a_while() {
        let mut world = World::new(Config { hold: Duration::from_secs(6), ..Config::default() }, 1, [10, 100]);
        world.pass();
        assert_eq!(slots(&world.pass().up), [1]);
        // The tables turn at once, but the two stay for six seconds.
        world.flows[0].0 = 1_000;
        assert_eq!(world.pass().up, []);
        assert_eq!(slots(&world.pass().up), [0]);
    }

    #[test]
    fn another_life_in_the_slot_is_another_flow() {
        let mut rebalancer = Rebalancer::default();
        let mut see = |incarnation, packets, second: u64| {
            let now = Timestamp(second * 1_000_000_000);
            let (class, id) = (ExpiryClass::default(), FlowId { slot: 0, incarnation });
            let view = AgeView { id, class, fresh: 2, grown: now, read: now, packets };
            rebalancer.pass(now, 0, |visit| visit(&view, Placement::Software)).candidates
        };
        assert_eq!((see(1, 100, 3), see(1, 200, 6), see(2, 300, 9), see(2, 300, 12)), (0, 1, 0, 1));
    }
}
