//! The decoder of `sluice-feed-ovs` reads what the encoder writes, which `netlink-bindings` has judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_feed_ovs::wire::{read_actions, read_match, read_user_data};
use sluice_flow::action::{Action, ActionKind, ActionList, UserData, visit};
use sluice_flow::field::{FIELDS, Field};
use sluice_flow::key::Match;
use sluice_tests::generate::{Profile, collect};
use sluice_tests::openvswitch::{encode_actions, encode_match};
use sluice_tests::scenario::flow_text;

use crate::actions::as_said;
use crate::key::{KEY_FLAG, is_shape};
use crate::{FLOWS, NOT_IN_THE_MODULE, USERSPACE_ONLY};

#[test]
fn ten_thousand_generated_flows_come_back_from_the_wire_as_they_were() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), FLOWS);
    let (mut fields, mut kinds, mut unsayable) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    let (mut matches, mut lists) = (0, 0);
    for flow in sets.iter().flatten() {
        let text = || flow_text(&flow.matching, &flow.actions);
        match encode_match(&flow.matching) {
            Ok((key, mask)) => {
                let read = read_match(&key, Some(&mask)).unwrap_or_else(|error| panic!("{error}\n{}", text()));
                let expected = comparable(&flow.matching, &read);
                assert_eq!((read.key, read.mask), (expected.key, expected.mask), "{}", text());
                matches += 1;
                let matched = FIELDS.iter().map(|spec| spec.field).filter(|field| read.mask.get(*field) != 0);
                fields.extend(matched.filter(|field| read.meets(field.spec().attribute.spec().requires)));
            }
            Err(reason) => *unsayable.entry(reason.to_string()).or_insert(0) += 1,
        }
        match encode_actions(&flow.actions) {
            Ok(bytes) => {
                let read = read_actions(&bytes).unwrap_or_else(|error| panic!("{error}\n{}", text()));
                let [read, expected] = [&read, &flow.actions].map(|list| as_said(&with_notes_read(list)));
                assert_eq!(read, expected, "{}", text());
                lists += 1;
                visit(&flow.actions, &mut |action| {
                    kinds.insert(action.kind());
                });
            }
            Err(reason) => *unsayable.entry(reason.to_string()).or_insert(0) += 1,
        }
    }
    println!("{matches} matches and {lists} lists of actions; not sayable: {unsayable:#?}");
    let is_unread = |field: &Field| !fields.contains(field) && !is_shape(*field);
    let unread: Vec<_> =
        FIELDS.iter().map(|spec| spec.field).filter(is_unread).map(|field| field.to_string()).collect();
    assert_eq!(unread, NOT_IN_THE_MODULE, "fields that were not compared");
    let unsaid: Vec<_> = ActionKind::ALL.iter().filter(|kind| !kinds.contains(kind)).copied().collect();
    assert_eq!(unsaid, USERSPACE_ONLY, "actions that were not compared");
}

#[test]
fn messages_cut_short_or_changed_anywhere_are_errors_and_never_panics() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), 300);
    let (mut refused, mut read) = (0, 0);
    let mut count = |is_read: bool| if is_read { read += 1 } else { refused += 1 };
    for flow in sets.iter().flatten() {
        let Ok((key, mask)) = encode_match(&flow.matching) else { continue };
        let actions = encode_actions(&flow.actions).unwrap_or_default();
        for at in 0..key.len() {
            count(read_match(&key[..at], Some(&mask)).is_ok());
            count(read_match(&key, Some(&mask[..at.min(mask.len())])).is_ok());
            for bits in [0x01, 0x80, 0xff] {
                let mut changed = key.clone();
                changed[at] ^= bits;
                count(read_match(&changed, Some(&mask)).is_ok());
                count(read_match(&changed, None).is_ok());
            }
        }
        for at in 0..actions.len() {
            count(read_actions(&actions[..at]).is_ok());
            let mut changed = actions.clone();
            changed[at] ^= 0xff;
            count(read_actions(&changed).is_ok());
        }
    }
    assert!(refused > 1_000 && read > 1_000, "{refused} refused, {read} read");
}

/// A match as far as the module can be told of it; what it cannot is as it was read.
fn comparable(full: &Match, read: &Match) -> Match {
    let mut expected = *full;
    let mut take = |field: Field| expected.set(field, read.key.get(field), read.mask.get(field));
    // The module takes the bit for the presence of the tag.
    [Field::VlanCfi, Field::CvlanCfi].into_iter().for_each(&mut take);
    if full.is_exactly(Field::PacketTypeNs, 1) {
        assert!(read.is_exactly(Field::PacketTypeNs, 1));
        take(Field::PacketTypeId);
    } else {
        // That there is an Ethernet header is what its attribute says.
        [Field::PacketTypeNs, Field::PacketTypeId].into_iter().for_each(&mut take);
    }
    // The header has one bit for the one and six for the other.
    for (field, bits) in [(Field::ErspanDirection, 1), (Field::ErspanHardwareId, 0x3f)] {
        let mask = full.mask.get(field) & bits;
        expected.set(field, full.key.get(field) & bits, if mask == bits { field.full_mask() } else { mask });
    }
    // That there is an identifier says so.
    let flags = |side: &sluice_flow::key::Key, other: &sluice_flow::key::Key| {
        side.get(Field::TunnelFlags) & !KEY_FLAG | other.get(Field::TunnelFlags) & KEY_FLAG
    };
    expected.set(Field::TunnelFlags, flags(&full.key, &read.key), flags(&full.mask, &read.mask));
    expected
}

/// Notes of 48 bytes are what ovs-vswitchd means by them.
fn with_notes_read(actions: &[Action]) -> ActionList {
    let read = |action: &Action| match action {
        Action::Userspace(userspace) => {
            let mut userspace = userspace.clone();
            if let Some(UserData::Bytes(bytes)) = &userspace.data {
                userspace.data = Some(read_user_data(bytes));
            }
            Action::Userspace(userspace)
        }
        Action::Clone(list) => Action::Clone(with_notes_read(list)),
        Action::DecTtl(list) => Action::DecTtl(with_notes_read(list)),
        Action::Sample { probability, actions } => {
            Action::Sample { probability: *probability, actions: with_notes_read(actions) }
        }
        Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
            length: *length,
            greater: with_notes_read(greater),
            less_or_equal: with_notes_read(less_or_equal),
        },
        other => other.clone(),
    };
    actions.iter().map(read).collect()
}
