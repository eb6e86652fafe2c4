//! Any program on any frame: nothing panics, and what the device accepts it can also take away again.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use sluice_flow::action::{
    Action, ActionList, EthernetAddresses, HashAlgorithm, MplsEntry, NshHeader, NshMetadata, VlanTag,
};
use sluice_flow::backend::{Backend, LookupCounters, Meters};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{FIELDS, Field};
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};

use crate::frames::{Ip4, SRC_V6, arp, eth, icmp, ipv6, sctp, tagged, tcp, udp, v6_frame};
use crate::harness::{Device, flow, output, recirc, set, set_masked};

const CHAINS: u32 = 4;

fn sets() -> impl Strategy<Value = Action> {
    (select(FIELDS), any::<u128>(), any::<u128>()).prop_map(|(spec, value, mask)| {
        let mask = mask & spec.field.full_mask();
        if mask == 0 {
            return set(&[(spec.field, value & spec.field.full_mask())]);
        }
        Action::Set(set_masked(&[(spec.field, value & mask, mask)]))
    })
}

fn nsh() -> impl Strategy<Value = Action> {
    let metadata = prop_oneof![
        any::<[u32; 4]>().prop_map(NshMetadata::Contexts),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(|tlvs| NshMetadata::Tlvs(tlvs.into())),
    ];
    (0u8..4, 0u8..64, metadata).prop_map(|(flags, ttl, metadata)| {
        Action::PushNsh(Box::new(NshHeader { flags, ttl, next_protocol: 1, path: 5, index: 6, metadata }))
    })
}

fn types() -> impl Strategy<Value = u16> {
    select(&[0x0800u16, 0x86dd, 0x0806, 0x8847, 0x8848, 0x894f, 0x6558, 0x8100, 0x88cc, 0][..])
}

fn entry() -> impl Strategy<Value = MplsEntry> {
    (0u32..1 << 20, 0u8..8, any::<u8>(), any::<bool>(), select(&[0x8847u16, 0x8848][..]))
        .prop_map(|(label, tc, ttl, bos, eth_type)| MplsEntry { label, tc, ttl, bos, eth_type })
}

fn single(chain: u32) -> impl Strategy<Value = Action> {
    prop_oneof![
        (1u32..5).prop_map(output),
        sets(),
        sets(),
        (chain + 1..CHAINS + 1).prop_map(recirc),
        nsh(),
        Just(Action::PopNsh),
        Just(Action::PopVlan),
        Just(Action::PopEth),
        Just(Action::PushEth(EthernetAddresses { source: 1, destination: 2 })),
        types().prop_map(Action::PopMpls),
        entry().prop_map(Action::PushMpls),
        entry().prop_map(Action::AddMpls),
        Just(Action::PushVlan(VlanTag { tpid: 0x88a8, vid: 7, pcp: 1, cfi: true })),
        (14u32..200).prop_map(Action::Trunc),
        Just(Action::Meter(MeterId(1))),
        any::<bool>().prop_map(|symmetric| Action::Hash {
            algorithm: if symmetric { HashAlgorithm::SymmetricL4 } else { HashAlgorithm::L4 },
            basis: 3,
        }),
        Just(Action::Psample { group: 1, cookie: Box::from([1]) }),
    ]
}

fn list(chain: u32) -> impl Strategy<Value = ActionList> {
    let leaf = proptest::collection::vec(single(chain), 0..6).prop_map(ActionList::from);
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let nested = prop_oneof![
            3 => single(chain),
            1 => inner.clone().prop_map(Action::Clone),
            1 => inner.clone().prop_map(Action::DecTtl),
            1 => (any::<u32>(), inner.clone())
                .prop_map(|(probability, actions)| Action::Sample { probability, actions }),
            1 => (any::<u16>(), inner.clone(), inner).prop_map(|(length, greater, less_or_equal)| {
                Action::CheckPacketLength { length: length % 200, greater, less_or_equal }
            }),
        ];
        proptest::collection::vec(nested, 0..6).prop_map(ActionList::from)
    })
}

/// What makes headers be there for the checks.
fn matching(chain: u32) -> impl Strategy<Value = Match> {
    let protocol = select(&[1u8, 6, 17, 58, 132][..]);
    (types(), protocol, any::<[bool; 4]>(), 0u16..2).prop_map(move |(ethernet_type, protocol, exact, namespace)| {
        let mut full = Match::default();
        full.set_exact(Field::RecircId, chain.into());
        if exact[0] {
            full.set_exact(Field::EthType, ethernet_type.into());
        }
        if exact[0] && exact[1] && matches!(ethernet_type, 0x0800 | 0x86dd) {
            full.set_exact(Field::Ipv4Proto, protocol.into());
        }
        if exact[2] {
            full.set_exact(Field::PacketTypeNs, namespace.into());
        }
        if exact[3] && exact[1] && (ethernet_type, protocol) == (0x86dd, 58) {
            full.set_exact(Field::Icmpv6Type, 135);
            full.set_exact(Field::Icmpv6Code, 0);
        }
        full
    })
}

/// A frame of some shape, with some bytes changed and cut off anywhere behind its Ethernet header.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let solicitation = icmp(135, 0, &[&[0; 4][..], &SRC_V6.to_be_bytes(), &[1, 1, 2, 0, 0, 0, 0, 9]].concat());
    let inner = Ip4::default().frame(17, &udp(5, 6, b"payload"));
    let head = [0x0f, 0xc6, 1, 3, 0, 0, 1, 255].into_iter().chain([0; 16]).collect::<Vec<_>>();
    let shapes = vec![
        inner.clone(),
        Ip4 { fragment: 2, ..Ip4::default() }.frame(6, &tcp(1, 2, 3, b"x")),
        Ip4 { options: vec![1; 8], ..Ip4::default() }.frame(132, &sctp(1, 2, b"chunks")),
        Ip4::default().frame(1, &icmp(8, 0, b"ping")),
        v6_frame(58, &solicitation),
        v6_frame(6, &tcp(1, 2, 3, b"x")),
        eth(0x86dd, &ipv6(43, &[&[17, 0, 0, 1, 0, 0, 0, 0][..], &udp(1, 2, b"x")].concat())),
        arp(1),
        eth(0x8847, &[&[0, 1, 0, 9, 0, 2, 1, 9][..], &inner[14..]].concat()),
        eth(0x894f, &[&head[..], &inner].concat()),
        tagged(0x8100, 5, &inner),
        tagged(0x88a8, 6, &tagged(0x8100, 5, &inner)),
    ];
    (select(shapes), proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3), any::<u16>(), any::<bool>())
        .prop_map(|(mut frame, changes, length, cut)| {
            for (at, value) in changes {
                let at = usize::from(at) % frame.len();
                frame[at] = value;
            }
            if cut {
                frame.truncate(14 + usize::from(length) % (frame.len() - 13));
            }
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn no_program_and_no_frame_make_it_panic(
        programs in (
            proptest::collection::vec((matching(0), list(0)), 1..3),
            proptest::collection::vec((matching(1), list(1)), 0..3),
            proptest::collection::vec((matching(2), list(2)), 0..3),
            proptest::collection::vec((matching(3), list(3)), 0..3),
        ),
        frames in proptest::collection::vec(frames(), 1..4),
    ) {
        let mut device = Device::new();
        (1..=CHAINS).for_each(|chain| device.open_chain(ChainId(chain)));
        device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 2, 2)).unwrap();
        let all = [programs.0, programs.1, programs.2, programs.3].concat();
        let accepted: Vec<_> = all
            .into_iter()
            .filter_map(|(full, actions)| device.add(flow(|matching| *matching = full, actions.to_vec())).ok())
            .collect();
        for frame in &frames {
            device.inject(1, frame);
        }
        let LookupCounters { hits, misses, .. } = device.nic.lookup_counters().unwrap();
        let malformed = device.nic.drops().malformed.load(Ordering::Relaxed);
        let counted: u64 = [hits, misses, Some(malformed)].into_iter().flatten().sum();
        prop_assert_eq!(counted, frames.len() as u64, "every frame is counted once");
        for handle in accepted {
            device.remove(handle);
        }
        // No list held on to it.
        device.nic.remove_meter(MeterId(1)).unwrap();
    }
}

/// The strategies reach what they are for: most of the actions are accepted now and then.
#[test]
fn what_is_tried_is_also_accepted() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut device = Device::new();
    (1..=CHAINS).for_each(|chain| device.open_chain(ChainId(chain)));
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 2, 2)).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    let mut accepted = 0;
    for _ in 0..2000 {
        let (full, actions) = (matching(0), list(0)).new_tree(&mut runner).unwrap().current();
        let flow = flow(|matching| *matching = full, actions.to_vec());
        if device.nic.explain(&flow).is_ok() {
            accepted += 1;
            sluice_flow::action::visit(&actions, &mut |action| {
                kinds.insert(action.kind().name());
            });
        }
    }
    let wanted = [
        "add_mpls",
        "check_pkt_len",
        "clone",
        "dec_ttl",
        "hash",
        "meter",
        "output",
        "pop_eth",
        "pop_mpls",
        "pop_nsh",
        "pop_vlan",
        "psample",
        "push_eth",
        "push_mpls",
        "push_nsh",
        "push_vlan",
        "recirc",
        "sample",
        "set",
        "trunc",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), wanted);
    assert!(accepted > 400, "{accepted} of 2000");
}
