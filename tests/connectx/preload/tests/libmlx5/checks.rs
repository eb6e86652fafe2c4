//! Whether headers and checksums of a packet are right, as rules match it, and all of a tunnel header.

use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_6_DX, CONNECTX_7, Profile};
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind};

use crate::fields::{Case, V6, case, check, inner, tunnel};
use crate::packet::{Packet, TCP};
use crate::rig::field::{self as f, Field};
use crate::rig::{comes_out, device, exactly, open, play, play_in_switch, value, walk};
use crate::samples::look_for_option;

/// Of a frame with Ethernet, IPv4 without options, and TCP.
const CHECKSUM_OF_IP: usize = 24;
const OPTIONS_OF_TCP: usize = 46;
const CHECKSUM_OF_TCP: usize = 50;

/// A frame that is right, and those with one mistake each: what is wrong then, and what else with it.
fn frames() -> (Vec<u8>, [(Field, Vec<u8>); 4]) {
    let right = Packet::v4(TCP).frame();
    let with = |at: usize, bits: u8| {
        let mut frame = right.clone();
        frame[at] ^= bits;
        frame
    };
    let cut = right[..right.len() - 1].to_vec();
    let wrong = [
        (f::L3_OK, cut),
        (f::L4_OK, with(OPTIONS_OF_TCP, 0xa0)),
        (f::IPV4_CHECKSUM_OK, with(CHECKSUM_OF_IP, 1)),
        (f::L4_CHECKSUM_OK, with(CHECKSUM_OF_TCP, 1)),
    ];
    (right, wrong)
}

fn cases() -> Vec<Case> {
    let header = [8, 0, 0, 0, 0, 0, 42, 0];
    let (right, wrong) = frames();
    let carried = tunnel(4789, &header, &right);
    let of_one = |(field, frame): (Field, Vec<u8>)| {
        let cut = frame.len() < right.len();
        // Of a frame that is cut in a tunnel, the outer packet is as long as it says.
        let carried_wrong = tunnel(4789, &header, &frame);
        let mut cases = vec![
            case("right", &[], field, 1_u8, &right),
            case("wrong", &[], field, 0_u8, &frame),
            case("right inside", &[], inner(field), 1_u8, &carried),
            case("wrong inside", &[], inner(field), 0_u8, &carried_wrong),
            case("right outside of what is wrong", &[(inner(field), 0)], f::L3_OK, 1_u8, &carried_wrong),
        ];
        let others = [f::L3_OK, f::L4_OK, f::IPV4_CHECKSUM_OK, f::L4_CHECKSUM_OK].into_iter();
        let alone = others.filter(|other| *other != field && !cut && *other != f::L4_CHECKSUM_OK);
        cases.extend(alone.map(|other| case("right beside what is wrong", &[(field, 0)], other, 1_u8, &frame)));
        cases
    };
    wrong.into_iter().flat_map(of_one).collect()
}

#[test]
fn headers_and_checksums_that_are_right_are_told_from_those_that_are_not() {
    for match_definers in [1 << 0, 1 << 2, 1 << 33] {
        for profile in [CONNECTX_6_DX, CONNECTX_7] {
            check(Profile { match_definers, ..profile }, cases());
        }
    }
}

#[test]
fn headers_of_ipv6_that_are_right_are_told_from_those_that_are_not() {
    const BOTH_ADDRESSES: [(Field, u128); 2] =
        [(f::SOURCE_V6, 0xfd00_u128 << 112 | 1), (f::DESTINATION_V6, 0xfd09_u128 << 112 | 9)];
    let right = Packet::v6(TCP).frame();
    let cut = &right[..right.len() - 1];
    let mut options = right.clone();
    options[66] = 0xf0;
    let profile = Profile { match_definers: 1 << 6 | 1 << 26, ..CONNECTX_7 };
    // Of the two definers the first takes both bits where there is only a source.
    for besides in [&[V6, BOTH_ADDRESSES[0]][..], &[V6, BOTH_ADDRESSES[0], BOTH_ADDRESSES[1]]] {
        check(
            profile,
            vec![
                case("right length", besides, f::L3_OK, 1_u8, &right),
                case("wrong length", besides, f::L3_OK, 0_u8, cut),
                case("right options", besides, f::L4_OK, 1_u8, &right),
                case("wrong options", besides, f::L4_OK, 0_u8, &options),
            ],
        );
    }
}

#[test]
fn where_the_device_does_not_tell_what_is_right_the_library_matches_none_of_it() {
    let checks = [f::L3_OK, f::L4_OK, f::IPV4_CHECKSUM_OK, f::L4_CHECKSUM_OK];
    // The library takes the word of these two formats only if the capabilities have checksums.
    let silent = Profile { match_definers: 1 << 0 | 1 << 2, finds_more: false, ..CONNECTX_7 };
    for profile in [CONNECTX_5, BLUEFIELD_2, silent] {
        play_in_switch(profile, |_, _, _, table| {
            for field in checks.into_iter().chain(checks.map(inner)) {
                assert!(table.matcher(0, &exactly(&[(field, 1)]).0).is_err(), "{field:?}");
            }
        });
    }
}

#[test]
fn format_33_tells_what_is_right_whether_the_capabilities_say_so_or_not() {
    check(Profile { match_definers: 1 << 33, finds_more: false, ..CONNECTX_7 }, cases());
}

#[test]
fn all_four_words_of_a_tunnel_header_are_matched_to_the_bit_without_definers() {
    let inside = Packet::v4(TCP).frame();
    let options = [1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef];
    let frame = tunnel(6081, &[&[0x02, 0x80, 0x65, 0x58, 0x65, 0x43, 0x21, 0], &options[..]].concat(), &inside);
    let short = tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &inside);
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        check(
            Profile { match_definers: 0, ..profile },
            vec![
                case("first", &[], f::TUNNEL_HEADER_0, 0x0280_6558_u32, &frame),
                case("second", &[], f::TUNNEL_HEADER_1, 0x6543_2100_u32, &frame),
                case("third", &[], f::TUNNEL_HEADER_2, 0x0102_0301_u32, &frame),
                case("fourth", &[], f::TUNNEL_HEADER_3, 0xdead_beef_u32, &frame),
                case("what is behind the header", &[(f::TUNNEL_HEADER_1, 42 << 8)], f::TUNNEL_HEADER_2, 0_u8, &short),
            ],
        );
    }
}

#[test]
fn packets_with_the_option_of_geneve_that_is_looked_for_are_told_from_those_without() {
    let inside = Packet::v4(TCP).frame();
    let geneve = |options: &[u8]| {
        let words = u8::try_from(options.len() / 4).unwrap();
        tunnel(6081, &[&[words, 0, 0x65, 0x58, 0, 0, 42, 0], options].concat(), &inside)
    };
    let (with, other) = (geneve(&[1, 2, 3, 1, 0, 0, 0, 0]), geneve(&[1, 2, 4, 1, 0, 0, 0, 7]));
    let frames = [with, other, geneve(&[])];
    let fields = |is_there| [(f::GENEVE_VNI, 42), (f::HAS_GENEVE_OPTION, is_there)];
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        play_in_switch(profile, |plugged, context, domain, table| {
            let to = domain.to_vport(0xffff).unwrap();
            let matcher = table.matcher(0, &exactly(&fields(1)).0).unwrap();
            let found = |is_there| {
                let _rule = matcher.rule(&value(&fields(is_there)), &[&to]).unwrap();
                domain.sync().unwrap();
                frames.each_ref().map(|frame| comes_out(plugged, Port::Vport(0), frame) == Some(Port::Wire))
            };
            assert_eq!(found(1), [false; 3], "nobody has said which option it is");
            let _option = look_for_option(context, 0x0102, 3).unwrap();
            assert_eq!(found(1), [true, false, false]);
            assert_eq!(found(0), [false, true, true]);
        });
    }
    // Without the capability the library has no lookup for it, or the format has none.
    for profile in [CONNECTX_5, BLUEFIELD_2, Profile { steering_format: CONNECTX_5.steering_format, ..CONNECTX_7 }] {
        play_in_switch(profile, |_, _, _, table| assert!(table.matcher(0, &exactly(&fields(1)).0).is_err()));
    }
}

#[test]
fn the_kernels_own_tables_match_them_too_where_the_capabilities_say_so() {
    let (right, wrong) = frames();
    let options = [1, 2, 3, 1, 0xde, 0xad, 0xbe, 0xef];
    let geneve = tunnel(6081, &[&[0x02, 0, 0x65, 0x58, 0, 0, 42, 0], &options[..]].concat(), &right);
    let mut cases: Vec<(Field, u128, Vec<u8>)> =
        wrong.iter().flat_map(|(field, frame)| [(*field, 1, right.clone()), (*field, 0, frame.clone())]).collect();
    cases.extend(wrong.map(|(field, frame)| (inner(field), 0, tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &frame))));
    cases.push((f::HAS_GENEVE_OPTION, 1, geneve.clone()));
    cases.push((f::TUNNEL_HEADER_3, 0xdead_beef, geneve));
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        play(profile, |plugged, context| {
            let _option = look_for_option(context, 0x0102, 3).unwrap();
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
            let onward = Action::to_table(&table).unwrap();
            for (field, wanted, frame) in &cases {
                let matcher = root.matcher(0, &exactly(&[(*field, *wanted)]).0).unwrap();
                let found = |of| {
                    let _rule = matcher.rule(&value(&[(*field, of)]), &[&onward]).unwrap();
                    walk(plugged, Port::Vport(0), frame).to_string().contains("into steering memory")
                };
                assert!(found(*wanted), "{field:?} of {wanted:#x}");
                assert!(!found(*wanted ^ 1), "{field:?} of another than {wanted:#x}");
            }
        });
    }
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let domain = Domain::create(&context, Kind::Fdb).unwrap();
        let (root, drop_all) = (domain.table(0).unwrap(), Action::drop_packets().unwrap());
        for (field, wanted, _) in &cases {
            let refused = root
                .matcher(0, &exactly(&[(*field, *wanted)]).0)
                .and_then(|matcher| matcher.rule(&value(&[(*field, *wanted)]), &[&drop_all]).map(|_| ()));
            assert!(refused.is_err(), "{field:?}");
        }
    }
    drop(context);
    assert!(plugged.device().refusals().iter().any(|line| line.contains("mask")), "{:?}", plugged.device().refusals());
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
