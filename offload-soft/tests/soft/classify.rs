//! The classifier against a list of rules that is searched one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_flow::field::Field;
use sluice_flow::key::{Key, MaskedKey, Match};
use sluice_flow::priority::Priority;
use sluice_offload_soft::classifier::{BATCH, Classifier, Occupied};
use sluice_offload_soft::quiescence::Quiescence;

const FIELDS: [Field; 5] = [Field::InPort, Field::EthDst, Field::Ipv4Dst, Field::Ipv6Src, Field::TcpDst];

/// Few values and masks, so that rules overlap, and packets hit.
fn matches() -> impl Strategy<Value = (u8, Match)> {
    let one = prop_oneof![3 => Just(0u128), 1 => Just(0b110), 1 => Just(0b11), 1 => Just(u128::MAX)];
    (0u8..3, proptest::collection::vec((one, 0u128..4), FIELDS.len())).prop_map(|(priority, parts)| {
        let mut full = Match::default();
        for (field, (mask, value)) in FIELDS.iter().zip(parts) {
            full.set(*field, value, mask & field.full_mask());
        }
        (priority, full)
    })
}

fn packets() -> impl Strategy<Value = Key> {
    proptest::collection::vec(0u128..4, FIELDS.len()).prop_map(|values| {
        let mut key = Key::ZERO;
        FIELDS.iter().zip(values).for_each(|(field, value)| key.set(*field, value));
        key
    })
}

proptest! {
    #[test]
    fn it_agrees_with_a_list(
        changes in proptest::collection::vec((any::<bool>(), matches()), 1..100),
        packets in proptest::collection::vec(packets(), 1..20),
    ) {
        let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
        let mut list: BTreeMap<u32, (u8, Match)> = BTreeMap::new();
        for (rule, (is_removal, (priority, matching))) in (0u32..).zip(changes) {
            let same = list.iter().find(|(_, other)| **other == (priority, matching)).map(|(rule, _)| *rule);
            let level = Priority::new(priority).unwrap();
            match (is_removal, same) {
                (true, Some(old)) => {
                    let unlinked = classifier.remove(&matching, level, old).expect("it is linked");
                    quiescence.wait();
                    unlinked.give_back();
                    list.remove(&old);
                }
                (true, None) => prop_assert!(classifier.remove(&matching, level, rule).is_none()),
                (false, Some(old)) => {
                    prop_assert_eq!(classifier.insert(&matching, level, rule), Err(Occupied { rule: old }));
                }
                (false, None) => {
                    classifier.insert(&matching, level, rule).unwrap();
                    list.insert(rule, (priority, matching));
                }
            }
            if rule % 16 == 0 {
                classifier.sort();
            }
            let pin = quiescence.pin();
            let view = classifier.view(&pin);
            // One by one, again now that something is remembered of each, and all together.
            let single: Vec<_> = packets.iter().map(|packet| view.lookup(packet)).collect();
            let again: Vec<_> = packets.iter().map(|packet| view.lookup(packet)).collect();
            let mut together = vec![Some(u32::MAX); packets.len()];
            view.lookup_batch(&packets, &mut together);
            for (packet, found) in packets.iter().cycle().zip(single.into_iter().chain(again).chain(together)) {
                let matching = |rule: &u32| MaskedKey::new(&list[rule].1).matches(packet);
                let best = list.keys().filter(|rule| matching(rule)).map(|rule| list[rule].0).max();
                match found {
                    // Which of several rules with the highest priority is the caller's affair.
                    Some(found) => prop_assert!(list.contains_key(&found) && matching(&found) && Some(list[&found].0) == best),
                    None => prop_assert_eq!(best, None),
                }
            }
        }
        prop_assert_eq!(classifier.is_empty(), list.is_empty());
        let masks: std::collections::HashSet<_> = list.values().map(|(priority, full)| (*priority, full.mask)).collect();
        prop_assert_eq!(classifier.subtables(), masks.len(), "empty subtables go");
    }
}

#[test]
fn many_rules_in_one_subtable_are_all_found() {
    let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
    let exact = |value: u32| {
        let mut full = Match::default();
        full.set_exact(Field::Ipv4Dst, value.into());
        full
    };
    for rule in 0..20_000 {
        classifier.insert(&exact(rule), Priority::default(), rule).unwrap();
    }
    for rule in (0..20_000).step_by(3) {
        let unlinked = classifier.remove(&exact(rule), Priority::default(), rule).unwrap();
        unlinked.give_back();
    }
    let pin = quiescence.pin();
    let view = classifier.view(&pin);
    for rule in 0..20_001 {
        assert_eq!(view.lookup(&exact(rule).key), (rule % 3 != 0 && rule < 20_000).then_some(rule));
    }
}

#[test]
fn busy_subtables_come_first_but_never_before_a_higher_priority() {
    let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
    let matching = |field, value| {
        let mut full = Match::default();
        full.set_exact(field, value);
        full
    };
    let level = |priority| Priority::new(priority).unwrap();
    classifier.insert(&matching(Field::InPort, 1), level(0), 1).unwrap();
    classifier.insert(&matching(Field::SkbMark, 1), level(0), 2).unwrap();
    classifier.insert(&matching(Field::EthDst, 1), level(1), 3).unwrap();
    let mut both = matching(Field::InPort, 1).key;
    both.set(Field::SkbMark, 1);
    let look_up = |key: &Key| classifier.view(&quiescence.pin()).lookup(key);
    assert_eq!(look_up(&both), Some(1), "the older one");
    let marked = matching(Field::SkbMark, 1).key;
    (0..100).for_each(|_| assert_eq!(look_up(&marked), Some(2)));
    classifier.sort();
    assert_eq!(look_up(&both), Some(2), "the busier one");
    both.set(Field::EthDst, 1);
    assert_eq!(look_up(&both), Some(3));
}

/// Rules on one field each, all of which the packet matches.
fn overlapping() -> ([Match; 4], Key) {
    let mut packet = Key::ZERO;
    let rules = [Field::InPort, Field::SkbMark, Field::EthDst, Field::Ipv4Dst].map(|field| {
        let mut full = Match::default();
        full.set_exact(field, 1);
        packet.set(field, 1);
        full
    });
    (rules, packet)
}

#[test]
fn what_is_remembered_of_a_packet_never_outlives_the_rule() {
    let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
    let (rules, packet) = overlapping();
    let level = |priority| Priority::new(priority).unwrap();
    let look_up = || {
        let pin = quiescence.pin();
        let view = classifier.view(&pin);
        let mut found = [None; 3];
        view.lookup_batch(&[packet; 3], &mut found);
        assert_eq!(found, [view.lookup(&packet); 3]);
        found[0]
    };
    let remove = |matching: &Match, priority, rule| {
        let unlinked = classifier.remove(matching, level(priority), rule).unwrap();
        quiescence.wait();
        unlinked.give_back();
    };
    let other = |matching: &Match| {
        let mut other = *matching;
        other.key.words.iter_mut().zip(&matching.mask.words).for_each(|(value, mask)| *value = mask & !*value);
        other
    };
    // Two subtables that do not have the packet stand before the one that does.
    classifier.insert(&other(&rules[0]), level(1), 0).unwrap();
    classifier.insert(&other(&rules[1]), level(1), 1).unwrap();
    classifier.insert(&rules[2], level(1), 2).unwrap();
    assert_eq!((look_up(), look_up()), (Some(2), Some(2)));
    classifier.insert(&rules[3], level(2), 3).unwrap();
    assert_eq!(look_up(), Some(3), "a higher priority comes before what is remembered");
    remove(&rules[3], 2, 3);
    assert_eq!(look_up(), Some(2));
    remove(&rules[2], 1, 2);
    assert_eq!(look_up(), None);
    // Takes the number of the subtable that went.
    classifier.insert(&other(&rules[3]), level(1), 4).unwrap();
    assert_eq!(look_up(), None);
    classifier.insert(&rules[0], level(1), 5).unwrap();
    assert_eq!(look_up(), Some(5));
}

#[test]
fn a_flow_of_the_last_of_many_subtables_is_found_in_its_place_and_traced_in_order() {
    let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
    let matching = |length: u32| {
        let mut full = Match::default();
        full.set_exact(Field::TcpDst, length.into());
        full.set(Field::Ipv6Src, 0, u128::MAX << length);
        full
    };
    for rule in 0..120 {
        classifier.insert(&matching(rule), Priority::default(), rule).unwrap();
    }
    let keys: Vec<_> = (0..120).map(|rule| matching(rule).key).collect();
    let pin = quiescence.pin();
    let view = classifier.view(&pin);
    for _ in 0..2 {
        for (first, keys) in (0u32..).step_by(BATCH).zip(keys.chunks(BATCH)) {
            let mut found = [None; BATCH];
            view.lookup_batch(keys, &mut found);
            assert!((first..).zip(keys).zip(found).all(|((rule, _), found)| found == Some(rule)));
        }
    }
    let (tried, found) = view.trace(&keys[119]);
    assert_eq!((tried.len(), found), (120, Some(119)), "a trace does not depend on what came before");
}
