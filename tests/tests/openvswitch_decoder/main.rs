//! What our encoder writes for the kernel's Open vSwitch module, read by somebody else: `netlink-bindings`, whose code is
//! generated from the kernel's own description of the family (`Documentation/netlink/specs/ovs_flow.yaml`).
//!
//! What that description gets wrong or leaves open is read here from `include/uapi/linux/openvswitch.h` instead: it has no
//! more than one label stack entry in a key, no masks in `OVS_ACTION_ATTR_SET_MASKED`, the Ethernet type of
//! `ovs_action_push_mpls` and `ovs_action_add_mpls` in 32 bits where there are 16, and only bytes for what is a structure
//! in `OVS_KEY_ATTR_CT_ORIG_TUPLE_IPV6`, NSH, ERSPAN, marks and labels.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod actions;
mod feed;
mod key;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netlink_bindings::ovs_flow::{ActionAttrs, KeyAttrs};
use sluice_flow::action::{ActionKind, visit};
use sluice_flow::field::{FIELDS, Field};
use sluice_tests::generate::{Profile, collect};
use sluice_tests::openvswitch::{encode_actions, encode_match};
use sluice_tests::scenario::flow_text;

const FLOWS: u64 = 10_000;

#[test]
fn keys_masks_and_actions_mean_to_others_what_they_mean_to_us() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), FLOWS);
    let (mut fields, mut kinds, mut unsayable) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    let (mut matches, mut lists) = (0, 0);
    for flow in sets.iter().flatten() {
        match encode_match(&flow.matching) {
            Ok((key, mask)) => {
                let (key, mask) = (key::fields(KeyAttrs::new(&key)), key::fields(KeyAttrs::new(&mask)));
                key::check(&flow.matching, &key, &mask)
                    .unwrap_or_else(|error| panic!("{error}\n{}", flow_text(&flow.matching, &flow.actions)));
                matches += 1;
                fields.extend(mask.into_iter().filter(|(_, bits)| *bits != 0).map(|(field, _)| field));
            }
            Err(reason) => *unsayable.entry(reason.to_string()).or_insert(0) += 1,
        }
        match encode_actions(&flow.actions) {
            Ok(bytes) => {
                assert_eq!(actions::list(ActionAttrs::new(&bytes)), actions::as_said(&flow.actions));
                lists += 1;
                visit(&flow.actions, &mut |action| {
                    kinds.insert(action.kind());
                });
            }
            Err(reason) => *unsayable.entry(reason.to_string()).or_insert(0) += 1,
        }
    }
    println!("{matches} matches and {lists} lists of actions are read back; not sayable: {unsayable:#?}");
    let is_unread = |field: &Field| !fields.contains(field) && !key::is_shape(*field);
    let unread: Vec<_> =
        FIELDS.iter().map(|spec| spec.field).filter(is_unread).map(|field| field.to_string()).collect();
    assert_eq!(unread, NOT_IN_THE_MODULE, "fields that were not compared");
    let unsaid: Vec<_> = ActionKind::ALL.iter().filter(|kind| !kinds.contains(kind)).copied().collect();
    assert_eq!(unsaid, USERSPACE_ONLY, "actions that were not compared");
}

/// Fields that OVS's userspace has alone, and those that OVS does not have.
const NOT_IN_THE_MODULE: [&str; 11] = [
    "tunnel.gtpu.flags",
    "tunnel.gtpu.msgtype",
    "nd_ext.nd_reserved",
    "nd_ext.nd_options_type",
    "num_of_vlans",
    "pppoe.sid",
    "pppoe.proto",
    "cfm.level",
    "cfm.opcode",
    "l2tpv3.sid",
    "ipsec.spi",
];
/// Actions that have no number, or none that the module of Linux 6.1 knows.
const USERSPACE_ONLY: [ActionKind; 5] =
    [ActionKind::Drop, ActionKind::LbOutput, ActionKind::Psample, ActionKind::TnlPop, ActionKind::TnlPush];
