//! The classifier against a list of rules that is searched one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_flow::field::Field;
use sluice_flow::key::{Key, MaskedKey, Match};
use sluice_flow::priority::Priority;
use sluice_offload_soft::classifier::{Classifier, Occupied};
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
            for packet in &packets {
                let matching = |rule: &u32| MaskedKey::new(&list[rule].1).matches(packet);
                let best = list.keys().filter(|rule| matching(rule)).map(|rule| list[rule].0).max();
                match view.lookup(packet) {
                    // Which of several rules with the highest priority is the caller's affair.
                    Some(found) => prop_assert!(matching(&found) && Some(list[&found].0) == best),
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
