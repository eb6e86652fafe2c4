//! Any list of actions that the grammar can say, but for `set`, which is a match of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sluice_flow::action::{
    Action, Commit, Conntrack, EthernetAddresses, FlowSample, GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE, GeneveOption,
    HashAlgorithm, MplsEntry, Nat, NatSide, NshHeader, NshMetadata, OuterHeaders, OuterNetwork, OuterTunnel, OuterUdp,
    PortPick, SampleDirection, ToController, Translation, TunnelPush, UserData, Userspace, VlanTag,
};
use sluice_flow::chain::ChainId;
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;

/// A list with lists in it, up to five deep.
pub(crate) fn any_actions() -> impl Strategy<Value = Vec<Action>> {
    let action = any_plain_action().prop_recursive(5, 40, 4, |inner| {
        let list = || vec(inner.clone(), 0..4).prop_map(|actions| actions.into());
        prop_oneof![
            list().prop_map(Action::Clone),
            list().prop_map(Action::DecTtl),
            (any_probability(), list()).prop_map(|(probability, actions)| Action::Sample { probability, actions }),
            (any::<u16>(), list(), list()).prop_map(|(length, greater, less_or_equal)| Action::CheckPacketLength {
                length,
                greater,
                less_or_equal,
            }),
        ]
    });
    vec(action, 0..6)
}

fn any_plain_action() -> impl Strategy<Value = Action> {
    let algorithm = select(vec![HashAlgorithm::L4, HashAlgorithm::SymmetricL4]);
    let numbers = prop_oneof![
        any::<u32>().prop_map(Action::LbOutput),
        any::<u32>().prop_map(|meter| Action::Meter(MeterId(meter))),
        any_port().prop_map(Action::Output),
        any::<u16>().prop_map(Action::PopMpls),
        any::<u32>().prop_map(|chain| Action::Recirc(ChainId(chain))),
        any_port().prop_map(Action::TunnelPop),
        any::<u32>().prop_map(Action::Trunc),
        (algorithm, any::<u32>()).prop_map(|(algorithm, basis)| Action::Hash { algorithm, basis }),
    ];
    let headers = prop_oneof![
        select(vec![Action::ConntrackClear, Action::PopEth, Action::PopNsh, Action::PopVlan]),
        any_mpls().prop_map(Action::AddMpls),
        any_mpls().prop_map(Action::PushMpls),
        any_nsh().prop_map(|header| Action::PushNsh(header.into())),
        any_tag().prop_map(Action::PushVlan),
        (any_mac(), any_mac())
            .prop_map(|(source, destination)| Action::PushEth(EthernetAddresses { source, destination })),
    ];
    prop_oneof![
        2 => numbers,
        2 => headers,
        2 => any_conntrack().prop_map(|conntrack| Action::Conntrack(conntrack.into())),
        1 => (any::<u32>(), vec(any::<u8>(), 0..=16))
            .prop_map(|(group, cookie)| Action::Psample { group, cookie: cookie.into() }),
        2 => any_tunnel_push().prop_map(|push| Action::TunnelPush(push.into())),
        2 => any_userspace().prop_map(|userspace| Action::Userspace(userspace.into())),
    ]
}

/// The highest number says "none" in some places.
fn any_port() -> impl Strategy<Value = PortNumber> {
    (0..u32::MAX).prop_map(PortNumber)
}

/// Any, or whole tenths of a percent.
fn any_probability() -> impl Strategy<Value = u32> {
    let tenth = |tenths: u64| u32::try_from((u64::from(u32::MAX) * tenths + 500) / 1000).unwrap_or(u32::MAX);
    prop_oneof![any::<u32>(), (0..=1000u64).prop_map(tenth), select(vec![0, 1, u32::MAX - 1, u32::MAX])]
}

fn any_mac() -> impl Strategy<Value = u64> {
    0..1u64 << 48
}

fn any_mpls() -> impl Strategy<Value = MplsEntry> {
    (0..1u32 << 20, 0..8u8, any::<u8>(), any::<bool>(), select(vec![0x8847, 0x8848]))
        .prop_map(|(label, tc, ttl, bos, eth_type)| MplsEntry { label, tc, ttl, bos, eth_type })
}

fn any_tag() -> impl Strategy<Value = VlanTag> {
    (any::<u16>(), 0..4096u16, 0..8u8, any::<bool>()).prop_map(|(tpid, vid, pcp, cfi)| VlanTag { tpid, vid, pcp, cfi })
}

fn any_nsh() -> impl Strategy<Value = NshHeader> {
    let tlvs = vec(any::<[u8; 4]>(), 0..=61).prop_map(|words| NshMetadata::Tlvs(words.concat().into()));
    let metadata = prop_oneof![any::<[u32; 4]>().prop_map(NshMetadata::Contexts), tlvs];
    (0..4u8, 0..64u8, any::<u8>(), 0..1u32 << 24, any::<u8>(), metadata).prop_map(
        |(flags, ttl, next_protocol, path, index, metadata)| NshHeader {
            flags,
            ttl,
            next_protocol,
            path,
            index,
            metadata,
        },
    )
}

fn any_conntrack() -> impl Strategy<Value = Conntrack> {
    let commit = select(vec![Commit::No, Commit::Yes, Commit::Force]);
    let nat = prop_oneof![Just(Nat::Existing), any_translation().prop_map(Nat::New)];
    (
        commit,
        prop_oneof![Just(0), any::<u16>()],
        option::of((any::<u32>(), 1..=u32::MAX)),
        option::of((any::<u128>(), prop_oneof![Just(u128::MAX), 1..=u128::MAX])),
        option::of("[a-z0-9_-]{1,15}"),
        option::of("[a-z0-9_-]{1,31}"),
        option::of(nat),
    )
        .prop_map(|(commit, zone, mark, label, helper, timeout, nat)| Conntrack {
            commit,
            zone,
            mark,
            label,
            helper: helper.map(String::into),
            timeout: timeout.map(String::into),
            nat,
        })
}

fn any_translation() -> impl Strategy<Value = Translation> {
    let v4 = any::<[u32; 2]>().prop_map(|pair| pair.map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))));
    let v6 = any::<[u128; 2]>().prop_map(|pair| pair.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))));
    let addresses = prop_oneof![v4, v6].prop_map(|[a, b]| (a.min(b), a.max(b)));
    let ports = [1..=u16::MAX, 1..=u16::MAX].prop_map(|[a, b]| (a.min(b), a.max(b)));
    let sides = select(vec![NatSide::Source, NatSide::Destination]);
    let picks = select(vec![PortPick::Default, PortPick::Hash, PortPick::Random]);
    (sides, option::of((addresses, option::of(ports))), any::<bool>(), picks).prop_map(
        |(side, range, persistent, pick)| Translation {
            side,
            addresses: range.map(|(addresses, _)| addresses),
            ports: range.and_then(|(_, ports)| ports),
            persistent,
            pick,
        },
    )
}

fn any_userspace() -> impl Strategy<Value = Userspace> {
    let data = prop_oneof![
        (0..4096u16, 0..8u8, any::<u32>()).prop_map(|(vid, pcp, output)| UserData::SFlow { vid, pcp, output }),
        prop_oneof![0..128u32, any::<u32>()].prop_map(UserData::SlowPath),
        any_flow_sample().prop_map(UserData::FlowSample),
        any_port().prop_map(|output_port| UserData::Ipfix { output_port }),
        any_controller().prop_map(UserData::Controller),
        vec(any::<u8>(), 0..64).prop_map(|bytes| UserData::Bytes(bytes.into())),
    ];
    (any::<u32>(), option::of(data), any::<bool>(), option::of(any_port()))
        .prop_map(|(pid, data, actions, tunnel_port)| Userspace { pid, data, actions, tunnel_port })
}

fn any_flow_sample() -> impl Strategy<Value = FlowSample> {
    let direction = option::of(select(vec![SampleDirection::Ingress, SampleDirection::Egress]));
    (any::<u16>(), any::<[u32; 3]>(), any_port(), direction).prop_map(
        |(probability, [collector_set_id, obs_domain_id, obs_point_id], output_port, direction)| FlowSample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            output_port,
            direction,
        },
    )
}

fn any_controller() -> impl Strategy<Value = ToController> {
    (any::<[u16; 3]>(), any::<[bool; 2]>(), any::<u32>(), any::<u64>()).prop_map(
        |([reason, controller_id, max_len], [dont_send, continuation], recirc_id, rule_cookie)| ToController {
            reason,
            dont_send,
            continuation,
            recirc_id,
            rule_cookie,
            controller_id,
            max_len,
        },
    )
}

/// Headers that the text has words for, and bytes for which it has none.
fn any_tunnel_push() -> impl Strategy<Value = TunnelPush> {
    let said = (any_mac(), any_mac(), any_network(), any_tunnel())
        .prop_map(|(destination, source, network, tunnel)| OuterHeaders { destination, source, network, tunnel })
        .prop_map(|headers| (headers.tunnel_type(), headers.bytes()));
    let other = (any::<u32>(), vec(any::<u8>(), 0..100));
    (any_port(), any_port(), prop_oneof![9 => said, 1 => other]).prop_map(|(tunnel_port, out_port, (kind, header))| {
        TunnelPush { tunnel_port, out_port, tunnel_type: kind, header: header.into() }
    })
}

fn any_network() -> impl Strategy<Value = OuterNetwork> {
    let v4 = (any::<[u32; 2]>(), any::<[u8; 3]>(), any::<u16>()).prop_map(
        |([source, destination], [protocol, tos, ttl], fragment)| OuterNetwork::Ipv4 {
            source: source.into(),
            destination: destination.into(),
            protocol,
            tos,
            ttl,
            fragment,
        },
    );
    let v6 = (any::<[u128; 2]>(), any::<[u8; 3]>(), 0..1u32 << 20).prop_map(
        |([source, destination], [next_header, traffic_class, hop_limit], label)| OuterNetwork::Ipv6 {
            source: source.into(),
            destination: destination.into(),
            label,
            next_header,
            traffic_class,
            hop_limit,
        },
    );
    prop_oneof![v4, v6]
}

fn any_tunnel() -> impl Strategy<Value = OuterTunnel> {
    let udp =
        || any::<[u16; 3]>().prop_map(|[source, destination, checksum]| OuterUdp { source, destination, checksum });
    let vni = || 0..1u32 << 24;
    let words = prop_oneof![Just(vec![]), vec(prop_oneof![Just([0; 4]), any::<[u8; 4]>()], 0..=14)];
    let geneve_option = (any::<u16>(), any::<u8>(), words).prop_map(|(class, kind, words)| GeneveOption {
        class,
        kind,
        data: words.concat(),
    });
    let geneve = (udp(), any::<[bool; 2]>(), vni(), vec(geneve_option, 0..=4))
        .prop_map(|(udp, [oam, critical], vni, options)| OuterTunnel::Geneve { udp, oam, critical, vni, options });
    let gre = (any::<[u16; 2]>(), option::of(any::<u16>()), option::of(any::<u32>()), option::of(any::<u32>()))
        .prop_map(|([flags, protocol], checksum, key, sequence)| {
            let bit = |there: bool, bit| if there { bit } else { 0 };
            let flags = flags & !(GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE)
                | bit(checksum.is_some(), GRE_CHECKSUM)
                | bit(key.is_some(), GRE_KEY)
                | bit(sequence.is_some(), GRE_SEQUENCE);
            OuterTunnel::Gre { flags, protocol, checksum, key, sequence }
        });
    prop_oneof![
        (udp(), any::<u32>(), vni()).prop_map(|(udp, flags, vni)| OuterTunnel::Vxlan { udp, flags, vni }),
        geneve,
        (udp(), any::<[u8; 2]>(), any::<u32>()).prop_map(|(udp, [flags, message_type], endpoint)| {
            OuterTunnel::Gtpu { udp, flags, message_type, endpoint }
        }),
        gre,
        (0..1024u16, any::<u32>()).prop_map(|(session, index)| OuterTunnel::Erspan1 { session, index }),
        (0..1024u16, any::<bool>(), 0..64u8)
            .prop_map(|(session, direction, hardware_id)| { OuterTunnel::Erspan2 { session, direction, hardware_id } }),
        vec(any::<u128>().prop_map(Ipv6Addr::from_bits), 1..=6).prop_map(OuterTunnel::Srv6),
    ]
}
