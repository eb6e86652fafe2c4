//! What is generated is what it claims to be: valid, disjoint, complete, shrinking; and packets hit or miss as they should.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use sluice_flow::Key;
use sluice_flow::action::{Action, ActionKind, jumps, visit};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, FIELDS, Field, Form, GENEVE_CHUNKS};
use sluice_flow::key::MaskedKey;
use sluice_flow::port::PortNumber;
use sluice_offload_soft::conntrack::{ConnectionKey, Tuple};
use sluice_offload_soft::packet::tunnel::GeneveOptions;
use sluice_offload_soft::packet::{Metadata, TunnelAddresses, TunnelMetadata, TunnelOptions, parse};
use sluice_tests::generate::{Feature, GeneratedFlow, Profile, check, collect, flows, packet, scenarios};

const FLOWS: u64 = 10_000;

fn runner() -> TestRunner {
    let config = Config { failure_persistence: None, max_shrink_iters: 200_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn flows_are_valid_and_disjoint_and_have_every_feature() {
    let profile = Arc::new(Profile::everything());
    let (sets, hits) = collect(&profile, FLOWS);
    for set in &sets {
        for flow in set {
            check::matching(&flow.matching).unwrap_or_else(|error| panic!("{error}: {:?}", flow.matching));
            check::actions(&flow.matching, &flow.actions).unwrap_or_else(|error| panic!("{error}: {flow:?}"));
        }
        for (index, a) in set.iter().enumerate() {
            for b in &set[index + 1..] {
                assert!(!check::overlap(&a.matching, &b.matching), "{a:?} overlaps {b:?}");
            }
        }
        check_chains(set);
    }
    println!("{hits}");
    hits.assert_complete(&profile);
}

/// Jumps lead to chains with flows, and never back.
fn check_chains(set: &[GeneratedFlow]) {
    let order = [ChainId(0), ChainId(1), ChainId(2), ChainId(0x2a), ChainId(u32::MAX)];
    let place = |chain: ChainId| order.iter().position(|known| *known == chain).expect("a chain");
    let chain = |flow: &GeneratedFlow| ChainId(u32::try_from(flow.matching.key.get(Field::RecircId)).unwrap());
    for flow in set {
        for target in jumps(&flow.actions) {
            assert!(set.iter().any(|other| chain(other) == target), "nothing is in {target}");
            assert!(place(target) > place(chain(flow)), "{target} is no later chain");
        }
    }
}

#[test]
fn a_profile_keeps_out_what_it_names() {
    let tunnels = || Attribute::Tunnel.fields().map(|spec| Feature::Field(spec.field));
    let profile = Profile::everything().without("tunnels", "a test", tunnels()).without(
        "clones",
        "a test",
        [Feature::Action(ActionKind::Clone)],
    );
    let profile = Arc::new(profile);
    let (sets, hits) = collect(&profile, FLOWS / 2);
    hits.assert_complete(&profile);
    assert!(hits.left_out(&profile).all(|(.., count)| count > 0));
    for flow in sets.iter().flatten() {
        check::matching(&flow.matching).unwrap();
        check::actions(&flow.matching, &flow.actions).unwrap();
        visit(&flow.actions, &mut |action| assert_ne!(action.kind(), ActionKind::Clone));
        assert_eq!(flow.matching.mask.get(Field::TunnelPresent), 0);
    }
}

#[test]
fn a_planted_failure_shrinks_to_one_small_flow() {
    let is_planted = |flow: &GeneratedFlow| {
        let mut pushes = false;
        visit(&flow.actions, &mut |action| pushes |= matches!(action, Action::PushVlan(tag) if tag.vid >= 5));
        pushes && flow.matching.mask.get(Field::SkbMark) != 0
    };
    let found = runner().run(&flows(&Arc::new(Profile::everything())), |set| {
        if set.iter().any(is_planted) { Err(TestCaseError::fail("planted")) } else { Ok(()) }
    });
    let Err(TestError::Fail(_, minimal)) = found else { panic!("the failure is not found: {found:?}") };
    let [flow] = &minimal[..] else { panic!("more than one flow is left: {minimal:?}") };
    assert!(is_planted(flow));
    // Nothing but the push, perhaps within other actions.
    let mut seen = Vec::new();
    visit(&flow.actions, &mut |action| seen.push(action.clone()));
    let depth = seen.iter().filter(|action| action.lists().next().is_some()).count();
    assert!(seen.len() == depth + 1 && depth <= 3, "{:?}", flow.actions);
    assert!(matches!(seen.last(), Some(Action::PushVlan(tag)) if tag.vid == 5), "{seen:?}");
    let constrained: Vec<_> = FIELDS.iter().filter(|spec| flow.matching.mask.get(spec.field) != 0).collect();
    assert!(constrained.len() <= 5, "recirc_id, skb_mark and hardly more: {:?}", flow.matching);
}

fn same_bits(a: Field, b: Field) -> bool {
    let bits = |field: Field| {
        let mut key = Key::ZERO;
        key.set(field, u128::MAX);
        key
    };
    a != b && bits(a).words.iter().zip(bits(b).words).any(|(a, b)| a & b != 0)
}

fn parsed(packet: &packet::Packet) -> Key {
    let number = |field| u32::try_from(packet.key.get(field)).unwrap();
    let metadata = Metadata {
        chain: ChainId(number(Field::RecircId)),
        mark: number(Field::SkbMark),
        priority: number(Field::SkbPriority),
        hash: number(Field::DpHash),
        layer3: (packet.key.get(Field::PacketTypeNs) == 1).then(|| narrow(packet.key.get(Field::PacketTypeId))),
        tag: None,
        tunnel: (packet.key.get(Field::TunnelPresent) == 1).then(|| tunnel(&packet.key)),
        connection: ConnectionKey {
            state: narrow(packet.key.get(Field::CtState)),
            zone: narrow(packet.key.get(Field::CtZone)),
            mark: number(Field::CtMark),
            label: packet.key.get(Field::CtLabel),
            original: tuple(&packet.key),
        },
        is_whole: false,
    };
    parse(&packet.frame, PortNumber(number(Field::InPort)), &metadata).key
}

fn narrow<T: TryFrom<u128, Error: std::fmt::Debug>>(value: u128) -> T {
    value.try_into().unwrap()
}

fn tunnel(key: &Key) -> TunnelMetadata {
    let is = |field| key.get(field) == 1;
    let options = if is(Field::VxlanGbpPresent) {
        TunnelOptions::VxlanGbp { id: narrow(key.get(Field::VxlanGbpId)), flags: narrow(key.get(Field::VxlanGbpFlags)) }
    } else if is(Field::ErspanPresent) && is(Field::ErspanVersion) {
        TunnelOptions::Erspan1 { index: narrow(key.get(Field::ErspanIndex)) }
    } else if is(Field::ErspanPresent) {
        TunnelOptions::Erspan2 {
            direction: narrow(key.get(Field::ErspanDirection)),
            hardware_id: narrow(key.get(Field::ErspanHardwareId)),
        }
    } else if is(Field::GtpuPresent) {
        TunnelOptions::Gtpu {
            flags: narrow(key.get(Field::GtpuFlags)),
            message_type: narrow(key.get(Field::GtpuMessageType)),
        }
    } else if is(Field::GenevePresent) {
        let bytes: Vec<u8> = GENEVE_CHUNKS.iter().flat_map(|chunk| key.get(*chunk).to_be_bytes()).collect();
        let length: usize = narrow(key.get(Field::GeneveLength));
        TunnelOptions::Geneve(GeneveOptions::new(&bytes[..length]).unwrap())
    } else {
        TunnelOptions::None
    };
    let addresses = if key.get(Field::TunnelIpv6Dst) == 0 {
        TunnelAddresses::V4 {
            source: narrow(key.get(Field::TunnelIpv4Src)),
            destination: narrow(key.get(Field::TunnelIpv4Dst)),
        }
    } else {
        TunnelAddresses::V6 { source: key.get(Field::TunnelIpv6Src), destination: key.get(Field::TunnelIpv6Dst) }
    };
    TunnelMetadata {
        id: narrow(key.get(Field::TunnelId)),
        addresses,
        tos: narrow(key.get(Field::TunnelTos)),
        ttl: narrow(key.get(Field::TunnelTtl)),
        source_port: narrow(key.get(Field::TunnelTpSrc)),
        destination_port: narrow(key.get(Field::TunnelTpDst)),
        flags: narrow(key.get(Field::TunnelFlags)),
        options,
    }
}

/// The number of ICMP of both families, and the fields of a tuple in which ICMP shows itself in another way.
const TUPLES: [(u128, [Field; 3]); 2] = [
    (1, [Field::CtTuple4Proto, Field::CtTuple4TpSrc, Field::CtTuple4TpDst]),
    (58, [Field::CtTuple6Proto, Field::CtTuple6TpSrc, Field::CtTuple6TpDst]),
];

/// The tuple that shows itself as these fields.
fn tuple(key: &Key) -> Option<Tuple> {
    let [source, destination]: [IpAddr; 2] = match key.get(Field::EthType) {
        0x0800 => {
            [Field::CtTuple4Src, Field::CtTuple4Dst].map(|field| Ipv4Addr::from_bits(narrow(key.get(field))).into())
        }
        0x86dd => [Field::CtTuple6Src, Field::CtTuple6Dst].map(|field| Ipv6Addr::from_bits(key.get(field)).into()),
        _ => return None,
    };
    let (icmp, [protocol, first, second]) = TUPLES[usize::from(source.is_ipv6())];
    let protocol: u8 = narrow(key.get(protocol));
    let (first, second): (u16, u16) = (narrow(key.get(first)), narrow(key.get(second)));
    // Type and code of ICMP stand where others have ports.
    let destination_port = if u128::from(protocol) == icmp { first << 8 | second & 0xff } else { second };
    Some(Tuple { source, destination, protocol, source_port: first, destination_port })
}

/// Whether the tuple of a connection is one that no connection has: a type or a code of ICMP above 255.
fn is_no_tuple(key: &Key) -> bool {
    TUPLES.iter().any(|(icmp, fields)| {
        let [protocol, first, second] = fields.map(|field| key.get(field));
        protocol == *icmp && (first > 0xff || second > 0xff)
    })
}

#[test]
fn packets_hit_what_they_are_made_for_and_near_misses_do_not() {
    let (sets, _) = collect(&Arc::new(Profile::everything()), FLOWS);
    let (mut hits, mut impossible) = (0, 0);
    let mut missed = std::collections::BTreeMap::<Field, u64>::new();
    for (number, flow) in (0u64..).zip(sets.iter().flatten()) {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let full = &flow.matching;
        let masked = MaskedKey::new(full);
        match packet::hit(full, number).filter(|packet| !is_no_tuple(&packet.key)) {
            Some(packet) => {
                let key = parsed(&packet);
                assert!(masked.matches(&key), "{full:?}\n{packet:02x?}\n{key:?}");
                hits += 1;
            }
            None => impossible += 1,
        }
        for turn in 0..6 {
            let miss = packet::near_miss(full, number.rotate_left(17 * turn));
            if let Some((packet, field)) = miss.filter(|(packet, _)| !is_no_tuple(&packet.key)) {
                let key = parsed(&packet);
                assert!(!masked.matches(&key), "{field}: {full:?}\n{packet:02x?}\n{key:?}");
                *missed.entry(field).or_default() += 1;
            }
        }
    }
    println!("{hits} hits, {impossible} matches that no packet has, near misses by field: {missed:#?}");
    assert!(hits > FLOWS * 95 / 100 && impossible < FLOWS / 50);
    let never = FIELDS.iter().filter(|spec| {
        !matches!(spec.form, Form::Presence)
            && !missed.keys().any(|field| *field == spec.field || same_bits(*field, spec.field))
    });
    // They say which headers there are, and have no other value in a packet with the same headers.
    let fixed = ["num_of_vlans", "packet_type.ns", "packet_type.id", "tunnel.erspan.ver", "tunnel.geneve.length"];
    let tags = ["vlan.tpid", "vlan.cfi", "cvlan.tpid", "cvlan.cfi"];
    let bottoms = ["mpls.bos", "mpls.bos[2]", "mpls.bos[3]"];
    let never: BTreeSet<_> = never.map(|spec| spec.field.to_string()).collect();
    let expected: BTreeSet<_> = [&fixed[..], &tags, &bottoms].concat().into_iter().map(str::to_owned).collect();
    assert_eq!(never, expected, "near misses are missing, or there are some that were not expected");
}

#[test]
fn scenarios_carry_packets_for_the_ports_that_they_have() {
    let mut runner = runner();
    let strategy = scenarios(&Arc::new(Profile::everything()));
    let mut packets = 0;
    for _ in 0..200 {
        let scenario = strategy.new_tree(&mut runner).unwrap().current();
        for (port, _) in &scenario.packets {
            assert!(scenario.ports.iter().any(|known| known.number == *port), "{}: {port}", scenario.name);
        }
        packets += scenario.packets.len();
    }
    assert!(packets > 1_000, "{packets}");
}
