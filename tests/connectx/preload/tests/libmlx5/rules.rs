//! Tables, rules and packets, on every generation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match};

use crate::rig::{
    FORMATS, GENERATIONS, comes_out, counters, datagram, exactly, five_tuple, play, play_in_switch, read_counter,
    value, walk,
};

#[test]
fn a_rule_counts_and_forwards_what_it_matches_and_nothing_else() {
    for profile in GENERATIONS {
        play_in_switch(profile, |plugged, context, domain, table| {
            let (block, first) = counters(context, 3);
            let (count, to) = (Action::count(&block, 5).unwrap(), domain.to_vport(0xffff).unwrap());
            let end = Action::drop_packets().unwrap();
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(1, &mask).unwrap();
            let _forwarding = matcher.rule(&wanted, &[&count, &to]).unwrap();
            let _dropping = matcher.rule(&value(&five_tuple([10, 0, 0, 3])), &[&end]).unwrap();
            domain.sync().unwrap();

            let manager = Port::Vport(profile.own_vport());
            for (number, from) in [Port::Wire, Port::Vport(0)].into_iter().enumerate() {
                let frame = datagram([10, 0, 0, 2]);
                assert_eq!(comes_out(plugged, from, &frame), Some(Port::Wire));
                let read = read_counter(&block, first + 5);
                let packets = number as u64 + 1;
                assert_eq!((read.packets, read.bytes), (packets, packets * frame.len() as u64));
                assert_eq!(comes_out(plugged, from, &datagram([10, 0, 0, 3])), None);
                assert_eq!(comes_out(plugged, from, &datagram([10, 0, 0, 4])), Some(manager), "the default");
            }
            assert_eq!(read_counter(&block, first + 4).packets, 0);
        });
    }
}

#[test]
fn a_function_steers_what_it_sends() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::NicTransmit).unwrap();
            let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
            let all = root.matcher(0, &Match::default()).unwrap();
            let to_table = Action::to_table(&table).unwrap();
            let _jump = all.rule(&Match::default(), &[&to_table]).unwrap();
            let (block, first) = counters(context, 0);
            let (count, end) = (Action::count(&block, 0).unwrap(), Action::drop_packets().unwrap());
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(0, &mask).unwrap();
            let _rule = matcher.rule(&wanted, &[&count, &end]).unwrap();
            domain.sync().unwrap();
            let own = Port::Vport(profile.own_vport());
            let words = |to| walk(plugged, own, &datagram(to)).to_string();
            assert!(words([10, 0, 0, 2]).contains("out of steering memory at 0xe000000180: drop"));
            assert!(words([10, 0, 0, 3]).contains("out of steering memory at 0xe000000280: allow"));
            assert_eq!(read_counter(&block, first).packets, 1);
        });
    }
}

#[test]
fn a_function_steers_what_it_receives_behind_the_switch() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let (switch, own) =
                (Domain::create(context, Kind::Fdb).unwrap(), Domain::create(context, Kind::NicReceive).unwrap());
            let (switch_root, switch_table) = (switch.table(0).unwrap(), switch.table(1).unwrap());
            let (own_root, own_table) = (own.table(0).unwrap(), own.table(1).unwrap());
            let (switch_all, own_all) =
                (switch_root.matcher(0, &Match::default()).unwrap(), own_root.matcher(0, &Match::default()).unwrap());
            let (to_switch, to_own) = (Action::to_table(&switch_table).unwrap(), Action::to_table(&own_table).unwrap());
            // The switch's table is empty, so that packets go to the function that owns it.
            let _first = switch_all.rule(&Match::default(), &[&to_switch]).unwrap();
            let _second = own_all.rule(&Match::default(), &[&to_own]).unwrap();
            let (block, first) = counters(context, 0);
            let (count, end) = (Action::count(&block, 0).unwrap(), Action::drop_packets().unwrap());
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = own_table.matcher(0, &mask).unwrap();
            let _rule = matcher.rule(&wanted, &[&count, &end]).unwrap();
            own.sync().unwrap();
            for to in [2, 3] {
                let walk = walk(plugged, Port::Wire, &datagram([10, 0, 0, to]));
                assert!(walk.to_string().contains("out of steering memory at 0xe000000140: drop"), "{walk}");
            }
            assert_eq!(read_counter(&block, first).packets, 1);
        });
    }
}

#[test]
fn many_rules_are_found_while_their_table_grows_and_packets_walk() {
    const RULES: u32 = 20_000;
    let many = std::env::var("CONNECTX_RULES").ok().and_then(|rules| rules.parse().ok()).unwrap_or(RULES);
    play_in_switch(BLUEFIELD_2, |plugged, _, domain, table| {
        let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
        let matcher = table.matcher(0, &mask).unwrap();
        let to = domain.to_vport(1).unwrap();
        let first = matcher.rule(&wanted, &[&to]).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let walking = scope.spawn(|| {
                let mut packets = 0;
                while !done.load(Ordering::Acquire) || packets == 0 {
                    let walk = plugged.device().receive(Port::Vport(0), &datagram([10, 0, 0, 2]));
                    assert_eq!(walk.sent.first().map(|(port, _)| *port), Some(Port::Vport(1)), "{walk}");
                    packets += 1;
                    std::thread::sleep(Duration::from_micros(200));
                }
                packets
            });
            let address = |number: u32| (11 << 24 | number).to_be_bytes();
            let started = Instant::now();
            let rules: Vec<_> =
                (0..many).map(|number| matcher.rule(&value(&five_tuple(address(number))), &[&to]).unwrap()).collect();
            domain.sync().unwrap();
            let lasted = started.elapsed().as_secs_f64();
            done.store(true, Ordering::Release);
            let packets = walking.join().unwrap();
            println!("{many} rules in {lasted:.2} s, {packets} packets meanwhile");
            for number in (0..many).step_by(97).chain([many - 1]) {
                for from in [Port::Wire, Port::Vport(0)] {
                    let walk = plugged.device().receive(from, &datagram(address(number)));
                    assert_eq!(walk.sent.first().map(|(port, _)| *port), Some(Port::Vport(1)), "{walk}");
                }
            }
            let other = plugged.device().receive(Port::Wire, &datagram(address(many)));
            assert_eq!(other.sent.first().map(|(port, _)| *port), Some(Port::Vport(BLUEFIELD_2.own_vport())));
            drop(rules);
            domain.sync().unwrap();
            let gone = plugged.device().receive(Port::Wire, &datagram(address(0)));
            assert_eq!(gone.sent.first().map(|(port, _)| *port), Some(Port::Vport(BLUEFIELD_2.own_vport())));
        });
        drop(first);
    });
}
