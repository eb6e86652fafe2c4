//! Match definers: entries that match 32 bytes at once, which libmlx5 prefers where all fields are in one of them, and tables of
//! them whose size a program sets.

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_6_DX, CONNECTX_7, Profile};
use sluice_connectx::steering::{Port, Step};
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::dv::{Action, Domain, Kind, Layout, Match, Object};

use crate::actions::set;
use crate::fields::{Case, V4, V6, case, check_those, inner, layer_2, layer_3, layer_4, tunnel, tunnels};
use crate::packet::{Packet, TCP, UDP};
use crate::rig::field::{self as f, Field};
use crate::rig::{agreeing, comes_out, datagram, device, exactly, five_tuple, open, play_in_switch, value, walk};
use crate::samples::{carried, gtpu, headers, mpls};

fn all_cases() -> Vec<Case> {
    [layer_2(), layer_3(), layer_4(), tunnels(), mpls(), gtpu(), headers(), carried()].into_iter().flatten().collect()
}

fn formats(plugged: &Plugged) -> Vec<u16> {
    plugged.device().with(|hca| hca.steering().formats_of_definers())
}

/// Fields that only definers have with those beside them.
fn more_cases() -> Vec<Case> {
    let inside = Packet { tags: vec![(0x8100, 0xb064)], ..Packet::v4(TCP) }.frame();
    let carried = tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &inside);
    let two = [(0x88a8, 0x2007), (0x8100, 0xd009)];
    let (v4, v6) = (Packet::v4(TCP).frame(), Packet { tags: two.to_vec(), ..Packet::v6(TCP) }.frame());
    let geneve = [0x02, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef];
    let geneve = tunnel(6081, &geneve, &inside);
    let source = [V6, (f::SOURCE_V6, 0xfd00_u128 << 112 | 1)];
    let and = |fields: &[(Field, u128)]| [&source[..], fields].concat();
    let tags = and(&[(f::SVLAN_TAG, 1), (f::SECOND_CVLAN_TAG, 1)]);
    let flags = (f::TCP_FLAGS.0 + 1, 8);
    vec![
        case("TCP flags but NS", &[V4, (f::ETHERTYPE, 0x0800)], flags, 0x12_u8, &v4),
        case("tag inside", &[], inner(f::CVLAN_TAG), 1_u8, &carried),
        case("addresses inside IPv4", &[V4, (inner(f::IP_VERSION), 4)], inner(f::SOURCE_V4), 0x0a00_0001_u32, &carried),
        case("source MAC of IPv6", &source, f::SOURCE_MAC, 0x0200_0000_0001_u64, &v6),
        case("next header behind IPv6 source", &source, f::PROTOCOL, TCP, &v6),
        case("TCP flags but NS over IPv6", &source, flags, 0x12_u8, &v6),
        case("VLAN id over IPv6", &tags, f::VLAN, 7_u8, &v6),
        case("second VLAN id over IPv6", &tags, f::SECOND_VLAN, 9_u8, &v6),
        case("second VLAN priority over IPv6", &tags, f::SECOND_PRIORITY, 6_u8, &v6),
        case("second VLAN CFI over IPv6", &tags, f::SECOND_CFI, 1_u8, &v6),
        case("TCP ports over both IPv6 addresses", &both_v6(), f::TCP_SOURCE, 1000_u16, &v6),
        case("TCP flags over both IPv6 addresses", &both_v6(), f::TCP_FLAGS, 0x12_u8, &v6),
        case("first word of a tunnel", &[V4], f::TUNNEL_HEADER_0, 0x0200_6558_u32, &geneve),
        case("second word of a tunnel", &[V4], f::TUNNEL_HEADER_1, 42_u32 << 8, &geneve),
        case("third word of a tunnel", &[V4], f::TUNNEL_HEADER_2, 0x0102_0301_u32, &geneve),
        case("fourth word of a tunnel", &[V4], f::TUNNEL_HEADER_3, 0xdead_beef_u32, &geneve),
    ]
}

fn both_v6() -> Vec<(Field, u128)> {
    vec![V6, (f::SOURCE_V6, 0xfd00_u128 << 112 | 1), (f::DESTINATION_V6, 0xfd09_u128 << 112 | 9)]
}

/// Formats of definers, one by one, and the cases that a device with no others finds by them. Those of IPv6 go together.
const BY_FORMAT: [(u64, &[&str]); 9] = [
    (
        1 << 0,
        &[
            "destination MAC",
            "source MAC",
            "source MAC with destination",
            "EtherType",
            "VLAN id",
            "VLAN priority",
            "VLAN CFI",
            "service VLAN id",
            "source port",
            "fragment",
            "TCP flags but NS",
        ],
    ),
    (
        1 << 2,
        &[
            "source port",
            "protocol",
            "DSCP",
            "ECN",
            "TTL",
            "header length",
            "fragment",
            "next header",
            "class",
            "hop limit",
            "TCP source",
            "TCP destination",
            "TCP flags",
            "UDP source",
            "UDP destination",
            "TCP over IPv6, source",
            "TCP over IPv6, flags",
            "UDP over IPv6, destination",
        ],
    ),
    (
        1 << 6 | 1 << 26,
        &[
            "IPv6 source",
            "IPv6 source with destination",
            "source MAC of IPv6",
            "next header behind IPv6 source",
            "TCP flags but NS over IPv6",
            "VLAN id over IPv6",
            "second VLAN id over IPv6",
            "second VLAN priority over IPv6",
            "second VLAN CFI over IPv6",
            "TCP ports over both IPv6 addresses",
            "TCP flags over both IPv6 addresses",
        ],
    ),
    (
        1 << 16,
        &[
            "source port",
            "send queue",
            "fragment",
            "first word of a tunnel",
            "second word of a tunnel",
            "third word of a tunnel",
            "fourth word of a tunnel",
        ],
    ),
    (
        1 << 22,
        &[
            "destination MAC",
            "source MAC",
            "source MAC with destination",
            "VLAN id",
            "VLAN priority",
            "VLAN CFI",
            "service VLAN id",
            "source port",
            "fragment",
            "IPv4 source",
            "IPv4 destination",
            "TCP source",
            "TCP destination",
            "UDP source",
            "UDP destination",
            "TCP over IPv6, source",
            "UDP over IPv6, destination",
        ],
    ),
    (
        1 << 24,
        &[
            "source port",
            "protocol",
            "fragment",
            "IPv4 source",
            "IPv4 destination",
            "next header",
            "TCP source",
            "TCP destination",
            "UDP source",
            "UDP destination",
            "TCP over IPv6, source",
            "UDP over IPv6, destination",
            "inner protocol",
            "inner fragment",
            "tag inside",
        ],
    ),
    (
        1 << 25,
        &[
            "source port",
            "TCP destination",
            "UDP destination",
            "UDP over IPv6, destination",
            "inner TCP port",
            "IP in GTP-U",
            "first word of a tunnel header",
            "second word of a tunnel header",
            "inner TCP source",
            "inner UDP source",
            "inner UDP destination",
            "tag inside",
            "addresses inside IPv4",
            "first word of a tunnel",
            "second word of a tunnel",
        ],
    ),
    (
        1 << 28,
        &[
            "source port",
            "protocol",
            "fragment",
            "IPv4 source",
            "IPv4 destination",
            "next header",
            "TCP source",
            "TCP destination",
            "UDP source",
            "UDP destination",
            "TCP over IPv6, source",
            "UDP over IPv6, destination",
            "inner IPv4 source",
            "inner IPv4 destination",
            "inner protocol",
            "inner TCP port",
            "GTP-U endpoint",
            "IP in GTP-U",
            "inner fragment",
            "inner TCP source",
            "inner UDP source",
            "inner UDP destination",
            "tag inside",
            "addresses inside IPv4",
        ],
    ),
    (
        1 << 33,
        &[
            "VLAN id",
            "VLAN priority",
            "VLAN CFI",
            "service VLAN id",
            "source port",
            "protocol",
            "TTL",
            "header length",
            "fragment",
            "IPv4 source",
            "IPv4 destination",
            "next header",
            "hop limit",
            "TCP source",
            "TCP destination",
            "UDP source",
            "UDP destination",
            "TCP over IPv6, source",
            "UDP over IPv6, destination",
        ],
    ),
];

#[test]
fn every_format_of_definers_finds_what_is_in_it_to_the_bit() {
    for (match_definers, names) in BY_FORMAT {
        for profile in [CONNECTX_6_DX, CONNECTX_7] {
            let profile = Profile { match_definers, ..profile };
            let cases = all_cases().into_iter().chain(more_cases()).collect();
            // The library takes a definer if all that is matched is in it.
            let found = check_those(profile, cases, |plugged| !formats(plugged).is_empty());
            assert_eq!(found, names, "definers {match_definers:#x}");
        }
    }
}

#[test]
fn a_device_without_definers_is_asked_for_none() {
    for profile in [CONNECTX_5, BLUEFIELD_2] {
        play_in_switch(profile, |plugged, _, _, table| {
            let _matcher = table.matcher(0, &exactly(&five_tuple([10, 0, 0, 2])).0).unwrap();
            assert_eq!(formats(plugged), [0; 0]);
        });
    }
}

/// The matcher's way of a packet: what its entries looked at, anchors left out.
fn lookups(plugged: &Plugged, frame: &[u8]) -> Vec<u16> {
    const ANYTHING: [u16; 2] = [0x000f, 0x040f];
    let walk = walk(plugged, Port::Vport(0), frame);
    let lookups = walk.steps.iter().filter_map(|step| match step {
        Step::Entry(entry) => Some(entry.lookup),
        _ => None,
    });
    lookups.filter(|lookup| !ANYTHING.contains(lookup)).collect()
}

#[test]
fn matchers_with_and_without_definers_follow_each_other_in_a_table() {
    let to = |number: u8| datagram([10, 0, 0, number]);
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        play_in_switch(profile, |plugged, _, domain, table| {
            let actions = [0xffff, 0].map(|vport| domain.to_vport(vport).unwrap());
            let five = |number: u8| five_tuple([10, 0, 0, number]);
            // No definer has the DSCP beside addresses.
            let other = |number: u8| [&five(number)[..], &[(f::DSCP, 0)]].concat();
            let first = table.matcher(0, &exactly(&five(0)).0).unwrap();
            let second = table.matcher(1, &exactly(&other(0)).0).unwrap();
            let third = table.matcher(2, &exactly(&five(0)[..4]).0).unwrap();
            let _first: Vec<_> =
                (1..40).map(|number| first.rule(&value(&five(number)), &[&actions[0]]).unwrap()).collect();
            let _second: Vec<_> =
                (40..80).map(|number| second.rule(&value(&other(number)), &[&actions[1]]).unwrap()).collect();
            let _third: Vec<_> =
                (80..120).map(|number| third.rule(&value(&five(number)[..4]), &[&actions[0]]).unwrap()).collect();
            domain.sync().unwrap();
            assert_eq!(formats(plugged).len(), 4, "two for each side of the switch");
            for number in 1..120 {
                let port = if (40..80).contains(&number) { Port::Vport(0) } else { Port::Wire };
                for from in [Port::Wire, Port::Vport(1)] {
                    assert_eq!(comes_out(plugged, from, &to(number)), Some(port), "10.0.0.{number}");
                }
            }
            assert!(agreeing(plugged, profile, domain) > 2 * 119);
            let seen = lookups(plugged, &to(50));
            assert!(
                seen.iter().any(|lookup| *lookup > 0x400) && seen.iter().any(|lookup| *lookup < 0x400),
                "{seen:x?}"
            );
        });
    }
}

#[test]
fn tables_of_definers_grow_in_both_halves_of_ipv6() {
    const RULES: u16 = 600;
    play_in_switch(CONNECTX_7, |plugged, _, domain, table| {
        let to = domain.to_vport(0xffff).unwrap();
        let rule = |number: u16| {
            let (source, destination) =
                (0xfd00_u128 << 112 | u128::from(number % 20), 0xfd09_u128 << 112 | u128::from(number));
            [V6, (f::SOURCE_V6, source), (f::DESTINATION_V6, destination)]
        };
        let matcher = table.matcher(0, &exactly(&rule(1)).0).unwrap();
        assert_eq!(formats(plugged).len(), 4);
        let _rules: Vec<_> = (0..RULES).map(|number| matcher.rule(&value(&rule(number)), &[&to]).unwrap()).collect();
        domain.sync().unwrap();
        for number in 0..RULES {
            let mut frame = Packet::v6(UDP).frame();
            frame[22..38].copy_from_slice(&rule(number)[1].1.to_be_bytes());
            frame[38..54].copy_from_slice(&rule(number)[2].1.to_be_bytes());
            assert_eq!(comes_out(plugged, Port::Vport(0), &frame), Some(Port::Wire), "{number}");
            frame[37] = u8::try_from((number + 1) % 20).unwrap();
            assert_ne!(comes_out(plugged, Port::Vport(0), &frame), Some(Port::Wire), "{number} with another source");
        }
        assert!(agreeing(plugged, CONNECTX_7, domain) > 2 * usize::from(RULES));
    });
}

#[test]
fn without_definers_left_the_library_does_with_other_lookups() {
    let plugged = device(CONNECTX_7);
    let context = open(&plugged);
    {
        let mut input = [0; 0x10 + 0x80];
        input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
        (input[7], input[0x23]) = (0x18, 22);
        let all: Vec<_> = std::iter::from_fn(|| Object::create(&context, &input, 16).ok()).collect();
        assert_eq!(all.len(), 240);
        let domain = Domain::create(&context, Kind::Fdb).unwrap();
        let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
        let everything = root.matcher(0, &Match::default()).unwrap();
        let to_table = Action::to_table(&table).unwrap();
        let _jump = everything.rule(&Match::default(), &[&to_table]).unwrap();
        let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
        let matcher = table.matcher(0, &mask).unwrap();
        let to = domain.to_vport(0xffff).unwrap();
        let _rule = matcher.rule(&wanted, &[&to]).unwrap();
        domain.sync().unwrap();
        assert_eq!(comes_out(&plugged, Port::Vport(0), &datagram([10, 0, 0, 2])), Some(Port::Wire));
        assert!(lookups(&plugged, &datagram([10, 0, 0, 2])).iter().all(|lookup| *lookup < 0x400));
    }
    drop(context);
    let refusals = plugged.device().refusals().join("\n");
    assert!(refusals.contains("no match definers are left"), "{refusals}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

/// libmlx5 44 fills entries that are not used so that nothing should match them: 0xdc, and zeros. With a definer there is no mask in
/// the entry that would not let it match, and so a packet does whose fields are that.
#[test]
fn what_the_library_fills_empty_entries_with_is_a_match_for_packets_that_look_so() {
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        play_in_switch(profile, |plugged, _, domain, first| {
            let second = domain.table(2).unwrap();
            let (onward, to) = (Action::to_table(&second).unwrap(), domain.to_vport(0xffff).unwrap());
            let (mask, wanted) = exactly(&[V4]);
            let matcher = first.matcher(0, &mask).unwrap();
            let behind = second.matcher(0, &exactly(&[(f::REGISTER_C_0, 0)]).0).unwrap();
            // So many entries that the packet's is empty.
            behind.set_layout(Layout { resizable: true, log_rules: Some(8) }).unwrap();
            let _rule = behind.rule(&value(&[(f::REGISTER_C_0, 1)]), &[&to]).unwrap();
            let end = |register: u64| {
                let write = domain.modify_header(&[set(0x51, 0, 32, register)]).unwrap();
                let _writing = matcher.rule(&wanted, &[&write, &onward]).unwrap();
                domain.sync().unwrap();
                walk(plugged, Port::Vport(0), &Packet::v4(UDP).frame()).to_string()
            };
            assert!(end(1).contains("to wire"));
            assert!(end(0xdb00_0000).contains("to vport"));
            assert!(end(0xdc00_0000).contains("ended: address 0xffffffffc0 (None) is nowhere"));
        });
    }
}
