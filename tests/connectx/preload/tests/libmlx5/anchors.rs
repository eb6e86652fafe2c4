//! The kernel's tables: one for each priority, and the ways back into them.

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_connectx_preload::plug;
use sluice_connectx_uverbs::Privileges;
use sluice_libmlx5::dv::{Action, Anchor, Domain, Kind, Match, Object};
use sluice_libmlx5::verbs::Context;

use crate::rig::field as f;
use crate::rig::{
    FORMATS, comes_out, counters, datagram, device, exactly, object, open, play, read_counter, try_object, walk,
};

/// A match on an IPv4 destination: mask and value.
fn destination(last: u8) -> (Match, Match) {
    exactly(&[(f::IP_VERSION, 4), (f::DESTINATION_V4, u32::from_be_bytes([10, 0, 0, last]).into())])
}

fn frame(last: u8) -> Vec<u8> {
    datagram([10, 0, 0, last])
}

/// What counters of a block stand at.
fn packets<const COUNTERS: usize>(block: &Object<'_>, first: u32) -> [u64; COUNTERS] {
    std::array::from_fn(|place| read_counter(block, first + u32::try_from(place).unwrap()).packets)
}

#[test]
fn packets_go_from_one_priority_to_the_next_whatever_comes_and_goes_between() {
    play(BLUEFIELD_2, |plugged, context| {
        let domain = Domain::create(context, Kind::Fdb).unwrap();
        let root = domain.table(0).unwrap();
        let (block, first) = counters(context, 2);
        let end = Action::drop_packets().unwrap();
        let counts = [0, 1, 2].map(|offset| Action::count(&block, offset).unwrap());
        let all = Match::default();
        let after_a_packet = || {
            walk(plugged, Port::Wire, &frame(1));
            packets(&block, first)
        };
        let last = root.matcher(15, &all).unwrap();
        let _last = last.rule(&all, &[&counts[2], &end]).unwrap();
        assert_eq!(after_a_packet(), [0, 0, 1]);
        let one = root.matcher(0, &all).unwrap();
        let of_one = one.rule(&all, &[&counts[0], &end]).unwrap();
        assert_eq!(after_a_packet(), [1, 0, 1]);
        let middle = root.matcher(7, &all).unwrap();
        let of_middle = middle.rule(&all, &[&counts[1], &end]).unwrap();
        assert_eq!(after_a_packet(), [2, 0, 1]);
        drop(of_one);
        drop(one);
        assert_eq!(after_a_packet(), [2, 1, 1]);
        drop(of_middle);
        drop(middle);
        assert_eq!(after_a_packet(), [2, 1, 2]);
    });
}

#[test]
fn packets_go_back_from_tables_of_software_to_a_later_priority_of_the_switch() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            plugged.device().open_slow_path().unwrap();
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let (root, table, behind) = (domain.table(0).unwrap(), domain.table(1).unwrap(), domain.table(2).unwrap());
            let (block, first) = counters(context, 2);
            let counts = [0, 1, 2].map(|offset| Action::count(&block, offset).unwrap());
            let (onward, last) = (Action::to_table(&table).unwrap(), Action::to_table(&behind).unwrap());
            let (back, to_wire) = (Action::to_root(&root, 1).unwrap(), domain.to_vport(0xffff).unwrap());
            let (end, all) = (Action::drop_packets().unwrap(), Match::default());
            let every = root.matcher(0, &all).unwrap();
            let _every = every.rule(&all, &[&onward]).unwrap();
            let (mask, _) = destination(0);
            let (own, after) = (table.matcher(0, &mask).unwrap(), behind.matcher(0, &mask).unwrap());
            let _own: Vec<_> =
                [2, 3, 4].map(|number| own.rule(&destination(number).1, &[&counts[0], &back]).unwrap()).into();
            let later = root.matcher(1, &mask).unwrap();
            let _forwarding = later.rule(&destination(2).1, &[&counts[1], &last]).unwrap();
            let _dropping = later.rule(&destination(3).1, &[&counts[2], &end]).unwrap();
            let _after = after.rule(&destination(2).1, &[&to_wire]).unwrap();
            domain.sync().unwrap();
            let manager = Port::Vport(profile.own_vport());
            for (from, times) in [(Port::Wire, 1), (Port::Vport(0), 2)] {
                assert_eq!(comes_out(plugged, from, &frame(2)), Some(Port::Wire));
                assert_eq!(comes_out(plugged, from, &frame(3)), None);
                // No rule of the later priority takes it, so that the slow path has it.
                let slow = if from == manager { Port::Wire } else { manager };
                assert_eq!(comes_out(plugged, from, &frame(4)), Some(slow));
                assert_eq!(comes_out(plugged, from, &frame(5)), Some(manager), "it does not go back");
                assert_eq!(packets(&block, first), [3 * times, times, times]);
            }
        });
    }
}

#[test]
fn packets_of_a_function_go_back_to_a_later_priority_both_ways() {
    for (profile, kind) in
        FORMATS.into_iter().flat_map(|profile| [Kind::NicReceive, Kind::NicTransmit].map(|kind| (profile, kind)))
    {
        play(profile, |plugged, context| {
            plugged.device().open_slow_path().unwrap();
            let domain = Domain::create(context, kind).unwrap();
            let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
            let (block, first) = counters(context, 1);
            let counts = [0, 1].map(|offset| Action::count(&block, offset).unwrap());
            let (onward, back) = (Action::to_table(&table).unwrap(), Action::to_root(&root, 9).unwrap());
            let (end, all) = (Action::drop_packets().unwrap(), Match::default());
            let every = root.matcher(3, &all).unwrap();
            let _every = every.rule(&all, &[&onward]).unwrap();
            let (mask, wanted) = destination(2);
            let (own, later) = (table.matcher(0, &mask).unwrap(), root.matcher(9, &mask).unwrap());
            let _own: Vec<_> =
                [2, 3].map(|number| own.rule(&destination(number).1, &[&counts[0], &back]).unwrap()).into();
            let _later = later.rule(&wanted, &[&counts[1], &end]).unwrap();
            domain.sync().unwrap();
            let from = if kind == Kind::NicReceive { Port::Wire } else { Port::Vport(profile.own_vport()) };
            for last in [2, 3, 4] {
                walk(plugged, from, &frame(last));
            }
            assert_eq!(packets(&block, first), [2, 1]);
        });
    }
}

/// Flow tables' commands, and their type for what a function receives.
const CREATE_FLOW_TABLE: u16 = 0x930;
const CREATE_FLOW_GROUP: u16 = 0x933;
const SET_FLOW_TABLE_ENTRY: u16 = 0x936;

/// A table of a program's own by commands, with an entry that leads to another table, if it is let.
fn leading_to(context: &Context, table: u32) -> std::io::Result<[Object<'_>; 3]> {
    const FORWARD: u32 = 4;
    const TO_TABLE: u32 = 1 << 24;
    let (own, number) = object(context, CREATE_FLOW_TABLE, &[], 0x40);
    let (group, group_number) = object(context, CREATE_FLOW_GROUP, &[(0x14, number)], 0x400);
    let words = [(0x14, number), (0x44, group_number), (0x4c, FORWARD), (0x50, 1), (0x340, TO_TABLE | table)];
    let entry = try_object(context, SET_FLOW_TABLE_ENTRY, &words, 0x348)?.0;
    Ok([entry, group, own])
}

#[test]
fn an_anchor_is_for_every_program_and_drops_what_still_comes_when_it_is_gone() {
    let plugged = device(BLUEFIELD_2);
    let (context, other) = (open(&plugged), open(&plugged));
    {
        let anchors = [0, 1].map(|_| Anchor::create(&context, Kind::NicReceive, 4).unwrap());
        let [one, same] = anchors;
        assert_eq!(one.table(), same.table());
        let (_private, private) = object(&context, CREATE_FLOW_TABLE, &[(0x18, 9 << 16)], 0x40);
        let entry = leading_to(&other, one.table()).unwrap();
        assert!(leading_to(&other, private).is_err(), "it is another program's");
        let leads = || plugged.device().with(|hca| hca.steering().dump());
        let line = |words: &str| leads().lines().any(|line| line.contains(words));
        assert!(!line("drop"), "{}", leads());
        drop(one);
        assert!(!line("drop"), "the other one is still there: {}", leads());
        drop(same);
        assert!(line("drop"), "{}", leads());
        let again = Anchor::create(&other, Kind::NicReceive, 4).unwrap();
        assert!(!line("drop"), "{}", leads());
        drop(again);
        drop(entry);
    }
    drop((context, other));
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn anchors_need_a_privilege_and_a_priority_that_there_is_and_lead_from_their_own_domain_only() {
    let plugged = plug(BLUEFIELD_2, Privileges::NONE).unwrap();
    let context = open(&plugged);
    assert!(Anchor::create(&context, Kind::Fdb, 0).is_err());
    drop(context);
    assert!(plugged.device().refusals()[0].contains("flows need CAP_NET_RAW"), "{:?}", plugged.device().refusals());

    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let domains = [0, 1].map(|_| Domain::create(&context, Kind::Fdb).unwrap());
        let [one, other] = &domains;
        let (root, table, elsewhere) = (one.table(0).unwrap(), one.table(1).unwrap(), other.table(1).unwrap());
        assert!(Action::to_root(&table, 0).is_err(), "by libmlx5");
        assert!(Action::to_root(&root, 16).is_err());
        assert!(root.matcher(16, &Match::default()).is_err());
        let back = Action::to_root(&root, 15).unwrap();
        let (mask, wanted) = destination(1);
        let matcher = elsewhere.matcher(0, &mask).unwrap();
        assert!(matcher.rule(&wanted, &[&back]).is_err(), "by libmlx5");
    }
    drop(context);
    let refusals = plugged.device().refusals();
    let refusals: Vec<_> = refusals.iter().filter(|refusal| refusal.contains("ENOMEM")).collect();
    assert_eq!(refusals.len(), 2, "{refusals:#?}");
    assert!(refusals.iter().all(|refusal| refusal.contains("priority 16 is behind the last, 15")), "{refusals:#?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
