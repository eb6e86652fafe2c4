//! Fields of tunnel headers and of MPLS, found by the flexible parser for the most part, of what tunnels carry, and of registers.

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_7};
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match, Object};
use sluice_libmlx5::verbs::Context;

use crate::actions::set;
use crate::fields::{Case, V4, case, check, inner, tunnel};
use crate::frames::{ethernet, ipv4};
use crate::packet::{Packet, TCP, UDP};
use crate::rig::field::{self as f, Field};
use crate::rig::{
    FORMATS, comes_out, counters, device, exactly, open, play, play_in_switch, read_counter, value, walk,
};

const GRE: u8 = 47;
const MPLS_PORT: u16 = 6635;
const GTPU_PORT: u16 = 2152;

fn over(port: u16) -> [(Field, u128); 3] {
    [V4, (f::PROTOCOL, UDP.into()), (f::UDP_DESTINATION, port.into())]
}

fn in_gre(header: &[u8], inside: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], GRE, &[header, inside].concat()))
}

/// A label of 0x12345 with traffic class 5, at the bottom of the stack, TTL 77.
const LABEL: u32 = 0x12345 << 12 | 5 << 9 | 1 << 8 | 77;

pub(crate) fn mpls() -> Vec<Case> {
    let inside = Packet::v4(TCP).frame();
    let packet = &inside[14..];
    let label = LABEL.to_be_bytes();
    let plain = ethernet(0x8847, &[&label, packet].concat());
    let gre = in_gre(&[&[0, 0, 0x88, 0x47], &label[..]].concat(), packet);
    let udp = tunnel(MPLS_PORT, &label, packet);
    let carried = tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &plain);
    let vni = [&over(4789)[..], &[(f::VXLAN_VNI, 42)]].concat();
    vec![
        case("MPLS", &[(f::ETHERTYPE, 0x8847)], f::MPLS, LABEL, &plain),
        case("MPLS over GRE", &[V4, (f::PROTOCOL, GRE.into())], f::MPLS_OVER_GRE, LABEL, &gre),
        case("MPLS over UDP", &over(MPLS_PORT), f::MPLS_OVER_UDP, LABEL, &udp),
        case("MPLS in VXLAN", &vni, f::INNER_MPLS, LABEL, &carried),
    ]
}

#[test]
fn labels_of_mpls_are_matched_to_the_bit_wherever_they_are() {
    for profile in FORMATS {
        check(profile, mpls());
    }
}

pub(crate) fn gtpu() -> Vec<Case> {
    let inside = Packet::v4(TCP).frame();
    let packet = &inside[14..];
    // Version 1 with an extension header: sequence number, N-PDU, type of the extension; one of a PDU session.
    let header = [0x34, 0xff, 0, 56, 0xde, 0xad, 0xbe, 0xef, 0x12, 0x34, 0, 0x85, 1, 0x10, 9, 0];
    let frame = tunnel(GTPU_PORT, &header, packet);
    let within = [&over(GTPU_PORT)[..], &[(inner(f::IP_VERSION), 4)]].concat();
    const ENDPOINT: (Field, u128) = (f::SAMPLE_ID, 4);
    vec![
        case("GTP-U flags", &over(GTPU_PORT), f::GTPU_FLAGS, 0x34_u8, &frame),
        case("GTP-U message type", &over(GTPU_PORT), f::GTPU_TYPE, 0xff_u8, &frame),
        case("GTP-U endpoint", &over(GTPU_PORT), f::GTPU_TEID, 0xdead_beef_u32, &frame),
        case("GTP-U first word", &over(GTPU_PORT), f::GTPU_FIRST_WORD, 0x34ff_0038_u32, &frame),
        case("GTP-U third word", &over(GTPU_PORT), f::GTPU_THIRD_WORD, 0x1234_0085_u32, &frame),
        case("GTP-U extension", &over(GTPU_PORT), f::GTPU_FIRST_EXTENSION, 0x0110_0900_u32, &frame),
        case("IP in GTP-U", &within, inner(f::DESTINATION_V4), 0x0a09_0909_u32, &frame),
        case(
            "a sample by its number",
            &[&over(GTPU_PORT)[..], &[ENDPOINT]].concat(),
            f::SAMPLE_VALUE,
            0xdead_beef_u32,
            &frame,
        ),
    ]
}

#[test]
fn every_word_of_gtpu_is_matched_to_the_bit() {
    for profile in FORMATS {
        check(profile, gtpu());
    }
}

pub(crate) fn headers() -> Vec<Case> {
    let inside = Packet::v4(TCP).frame();
    let gpe = tunnel(4790, &[0x0c, 0, 0, 3, 0x12, 0x34, 0x56, 0], &inside);
    let geneve = tunnel(6081, &[0x02, 0x80, 0x65, 0x58, 0x65, 0x43, 0x21, 0, 1, 2, 3, 1, 0, 0, 0, 7], &inside);
    let gre = in_gre(&[0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &inside);
    let of_gre = [V4, (f::PROTOCOL, GRE.into())];
    vec![
        case("VXLAN-GPE identifier", &over(4790), f::VXLAN_GPE_VNI, 0x12_3456_u32, &gpe),
        case("VXLAN-GPE next protocol", &over(4790), f::VXLAN_GPE_NEXT, 3_u8, &gpe),
        case("VXLAN-GPE flags", &over(4790), f::VXLAN_GPE_FLAGS, 0x0c_u8, &gpe),
        case("Geneve options", &over(6081), f::GENEVE_OPTIONS, 2_u8, &geneve),
        case("Geneve OAM", &over(6081), f::GENEVE_OAM, 1_u8, &geneve),
        case("first word of a tunnel header", &over(6081), f::TUNNEL_HEADER_0, 0x0280_6558_u32, &geneve),
        case("second word of a tunnel header", &over(6081), f::TUNNEL_HEADER_1, 0x6543_2100_u32, &geneve),
        case("checksum in GRE", &of_gre, f::GRE_HAS_CHECKSUM, 1_u8, &gre),
        case("key in GRE", &of_gre, f::GRE_HAS_KEY, 1_u8, &gre),
        case("sequence number in GRE", &of_gre, f::GRE_HAS_SEQUENCE, 1_u8, &gre),
    ]
}

#[test]
fn flags_and_words_of_tunnel_headers_are_matched_to_the_bit() {
    for profile in FORMATS {
        check(profile, headers());
    }
}

/// In a tunnel.
pub(crate) fn carried() -> Vec<Case> {
    let header = [0x08, 0, 0, 0, 0, 0, 42, 0];
    let inside = Packet { tos: 0x2a << 2 | 1, ttl: 77, ..Packet::v4(TCP) };
    let tagged = Packet { tags: vec![(0x8100, 0xb064)], ..inside.clone() };
    let twice = Packet { tags: vec![(0x88a8, 0x2007), (0x8100, 0x1009)], ..inside.clone() };
    let v6 = Packet { tos: 0x15 << 2 | 2, ttl: 99, ..Packet::v6(UDP) };
    let part = Packet { fragment: 0x2000, ..Packet::v4(UDP) };
    let labelled = {
        let mut frame = v6.frame();
        frame[15] |= 0x3;
        frame[16..18].copy_from_slice(&[0x45, 0x67]);
        frame
    };
    let [v4, tagged, twice, part, v6, udp] =
        [inside.frame(), tagged.frame(), twice.frame(), part.frame(), labelled, Packet::v4(UDP).frame()]
            .map(|inside| tunnel(4789, &header, &inside));
    let four = (inner(f::IP_VERSION), 4);
    let six = (inner(f::IP_VERSION), 6);
    let of = |version, protocol: u8| [version, (inner(f::PROTOCOL), protocol.into())];
    let tag = [(inner(f::CVLAN_TAG), 1)];
    let tags = [(inner(f::SVLAN_TAG), 1), (f::INNER_SECOND_CVLAN_TAG, 1)];
    vec![
        case("inner EtherType", &[], inner(f::ETHERTYPE), 0x0800_u16, &v4),
        case("inner VLAN id", &tag, inner(f::VLAN), 0x64_u8, &tagged),
        case("inner VLAN priority", &tag, inner(f::PRIORITY), 5_u8, &tagged),
        case("inner VLAN CFI", &tag, inner(f::CFI), 1_u8, &tagged),
        case("inner second VLAN id", &tags, f::INNER_SECOND_VLAN, 9_u8, &twice),
        case("inner DSCP", &[four], inner(f::DSCP), 0x2a_u8, &v4),
        case("inner ECN", &[four], inner(f::ECN), 1_u8, &v4),
        case("inner TTL", &[four], inner(f::TTL), 77_u8, &v4),
        case("inner header length", &[four], inner(f::IHL), 5_u8, &v4),
        case("inner fragment", &[four], inner(f::FRAGMENT), 1_u8, &part),
        case("inner TCP flags", &of(four, TCP), inner(f::TCP_FLAGS), 0x12_u8, &v4),
        case("inner TCP source", &of(four, TCP), inner(f::TCP_SOURCE), 1000_u16, &v4),
        case("inner UDP source", &of(four, UDP), inner(f::UDP_SOURCE), 1000_u16, &udp),
        case("inner UDP destination", &of(four, UDP), inner(f::UDP_DESTINATION), 80_u16, &udp),
        case("inner IPv6 source", &[six], inner(f::SOURCE_V6), 0xfd00_u128 << 112 | 1, &v6),
        case("inner class", &[six], inner(f::DSCP), 0x15_u8, &v6),
        case("inner hop limit", &[six], inner(f::TTL), 99_u8, &v6),
        case("inner flow label", &[six], f::INNER_FLOW_LABEL, 0x3_4567_u32, &v6),
    ]
}

#[test]
fn every_field_of_what_a_tunnel_carries_is_matched_to_the_bit() {
    for profile in FORMATS {
        check(profile, carried());
    }
}

#[test]
fn numbers_of_tcp_in_a_tunnel_are_matched_by_format_0_and_taken_from_the_outer_headers_by_the_others() {
    let inside = Packet::v4(TCP).frame();
    let carried = tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &inside);
    let numbers = [(f::INNER_TCP_SEQUENCE, 0x0102_0304_u32), (f::INNER_TCP_ACKNOWLEDGEMENT, 0x0506_0708)];
    check(CONNECTX_5, numbers.map(|(field, of)| case("inner TCP number", &[], field, of, &carried)).into());
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        // libmlx5 44 has the outer lookup for both.
        check(profile, numbers.map(|(field, of)| case("TCP number that is not inner", &[], field, of, &inside)).into());
        play_in_switch(profile, |plugged, _, domain, table| {
            let to = domain.to_vport(0xffff).unwrap();
            let (mask, wanted) = exactly(&[(f::INNER_TCP_SEQUENCE, 0x0102_0304)]);
            let matcher = table.matcher(0, &mask).unwrap();
            let _rule = matcher.rule(&wanted, &[&to]).unwrap();
            domain.sync().unwrap();
            assert_ne!(comes_out(plugged, Port::Vport(0), &carried), Some(Port::Wire));
        });
    }
}

/// Has the parser look for an option of Geneve with one word of data.
pub(crate) fn look_for_option(context: &Context, class: u16, kind: u8) -> std::io::Result<Object<'_>> {
    let mut input = [0; 0x10 + 0x40];
    input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
    input[7] = 0x0b;
    input[0x1c..0x1e].copy_from_slice(&class.to_be_bytes());
    (input[0x1e], input[0x1f]) = (kind, 1);
    Object::create(context, &input, 16).map(|(object, _)| object)
}

#[test]
fn data_of_the_option_of_geneve_that_is_looked_for_is_matched_to_the_bit() {
    let inside = Packet::v4(TCP).frame();
    // Another option of two words in front of it.
    let options = [0, 1, 3, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef];
    let frame = tunnel(6081, &[&[0x05, 0, 0x65, 0x58, 0, 0, 42, 0], &options[..]].concat(), &inside);
    for profile in FORMATS {
        play_in_switch(profile, |plugged, context, domain, table| {
            let to = domain.to_vport(0xffff).unwrap();
            let fields = |of| [&over(6081)[..], &[(f::GENEVE_VNI, 42), (f::GENEVE_OPTION_DATA, of)]].concat();
            let (mask, wanted) = exactly(&fields(0xdead_beef));
            let matcher = table.matcher(0, &mask).unwrap();
            let arrives = |wanted: &Match| {
                let _rule = matcher.rule(wanted, &[&to]).unwrap();
                domain.sync().unwrap();
                comes_out(plugged, Port::Vport(0), &frame) == Some(Port::Wire)
            };
            assert!(!arrives(&wanted), "nobody has said which option it is");
            let _option = look_for_option(context, 0x0102, 3).unwrap();
            assert!(arrives(&wanted));
            for bit in [0, 31] {
                assert!(!arrives(&value(&fields(0xdead_beef ^ 1 << bit))));
            }
        });
    }
}

#[test]
fn the_parser_looks_for_one_option_of_geneve_at_a_time() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let _option = look_for_option(&context, 0x0102, 3).unwrap();
        assert!(look_for_option(&context, 0x0102, 4).is_err());
    }
    assert!(look_for_option(&context, 0x0102, 4).is_ok());
    drop(context);
    let refusals = plugged.device().refusals().join("\n");
    assert!(refusals.contains("the parser already looks for option 0x102:0x3"), "{refusals}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn what_the_device_does_not_say_that_it_finds_the_library_does_not_match() {
    for profile in [CONNECTX_5, BLUEFIELD_2] {
        play_in_switch(profile, |_, _, _, table| {
            for field in [f::ESP_SPI, f::L4_OK, f::TUNNEL_HEADER_2] {
                let (mask, _) = exactly(&[(field, 1)]);
                assert!(table.matcher(0, &mask).is_err(), "{field:?}");
            }
        });
    }
}

#[test]
fn every_register_that_one_table_writes_is_matched_by_the_next_to_the_bit() {
    // By number from register C 0 down, 32 bits each.
    let register = |number: usize| (f::REGISTER_C_0.0 - 32 * number, 32);
    for profile in FORMATS {
        play_in_switch(profile, |plugged, _, domain, first| {
            let second = domain.table(2).unwrap();
            let written = |number: usize| 0x1000_0001_u32 << number;
            let writes: Vec<u64> =
                (0..6).map(|number| set(0x51 + number as u64, 0, 32, written(number).into())).collect();
            let (write, onward, to) = (
                domain.modify_header(&writes).unwrap(),
                Action::to_table(&second).unwrap(),
                domain.to_vport(0xffff).unwrap(),
            );
            let (mask, wanted) = exactly(&[V4]);
            let matcher = first.matcher(0, &mask).unwrap();
            let _writing = matcher.rule(&wanted, &[&write, &onward]).unwrap();
            for number in 0..6 {
                let (mask, wanted) = exactly(&[(register(number), written(number).into())]);
                let matcher = second.matcher(0, &mask).unwrap();
                let arrives = |wanted: &Match| {
                    let _rule = matcher.rule(wanted, &[&to]).unwrap();
                    domain.sync().unwrap();
                    comes_out(plugged, Port::Vport(0), &Packet::v4(UDP).frame()) == Some(Port::Wire)
                };
                assert!(arrives(&wanted), "register C {number}");
                for bit in [0, 31] {
                    assert!(!arrives(&value(&[(register(number), (written(number) ^ 1 << bit).into())])));
                }
            }
        });
    }
}

#[test]
fn register_a_is_matched_where_a_function_sends() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::NicTransmit).unwrap();
            let (root, first, second) = (domain.table(0).unwrap(), domain.table(1).unwrap(), domain.table(2).unwrap());
            let all = root.matcher(0, &Match::default()).unwrap();
            let (to_first, to_second) = (Action::to_table(&first).unwrap(), Action::to_table(&second).unwrap());
            let _jump = all.rule(&Match::default(), &[&to_first]).unwrap();
            let (mask, wanted) = exactly(&[V4]);
            let matcher = first.matcher(0, &mask).unwrap();
            let write = domain.modify_header(&[set(0x49, 0, 32, 0xdead_beef)]).unwrap();
            let _writing = matcher.rule(&wanted, &[&write, &to_second]).unwrap();
            let (block, id) = counters(context, 0);
            let (count, end) = (Action::count(&block, 0).unwrap(), Action::drop_packets().unwrap());
            let (mask, wanted) = exactly(&[(f::REGISTER_A, 0xdead_beef)]);
            let matcher = second.matcher(0, &mask).unwrap();
            for (wanted, packets) in [(value(&[(f::REGISTER_A, 0xdead_beee)]), 0), (wanted, 1)] {
                let _rule = matcher.rule(&wanted, &[&count, &end]).unwrap();
                domain.sync().unwrap();
                walk(plugged, Port::Vport(profile.own_vport()), &Packet::v4(UDP).frame());
                assert_eq!(read_counter(&block, id).packets, packets);
            }
        });
    }
}
