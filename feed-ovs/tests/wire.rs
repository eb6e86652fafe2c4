//! Messages of the kernel's module, byte by byte: what the generated flows of `sluice-tests` do not have.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use sluice_feed_ovs::wire::{Datapath, FlowMessage, Vport, read_actions, read_match, read_user_data};
use sluice_flow::action::{Action, FlowSample, SampleDirection, ToController, UserData};
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::text::{Style, parse_actions, parse_key, write_actions};
use sluice_netdev::netlink::attribute::Writer;

fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = Vec::new();
    let mut writer = Writer::new(&mut buffer);
    write(&mut writer);
    writer.finish().unwrap();
    buffer
}

fn u32(writer: &mut Writer<'_>, kind: u16, number: u32) {
    writer.put(kind, &number.to_ne_bytes());
}

const RECIRC_ID: u16 = 20;
const IN_PORT: u16 = 3;
const ETHERNET: u16 = 4;
const ETHERTYPE: u16 = 6;
const IPV4: u16 = 7;

/// The start of a key: chain 0, port 2, any Ethernet addresses.
fn begin(writer: &mut Writer<'_>, mask: u32) {
    u32(writer, RECIRC_ID, mask);
    u32(writer, IN_PORT, if mask == 0 { 2 } else { mask });
    writer.put(ETHERNET, &[0; 12]);
}

#[test]
fn a_key_without_a_mask_is_matched_on_all_of_its_bits() {
    let key = bytes(|writer| {
        begin(writer, 0);
        writer.put(ETHERTYPE, &[0x08, 0x00]);
        writer.put(IPV4, &[10, 0, 0, 1, 10, 0, 0, 2, 47, 0, 64, 0]);
    });
    let text = "recirc_id(0),in_port(2),eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),eth_type(0x0800),\
                ipv4(src=10.0.0.1,dst=10.0.0.2,proto=47,tos=0,ttl=64,frag=no)";
    assert_eq!(read_match(&key, None).unwrap(), parse_key(text, &()).unwrap().matching);
}

#[test]
fn of_a_frame_of_ieee_802_3_the_mask_alone_has_the_type() {
    let key = bytes(|writer| begin(writer, 0));
    let mask = bytes(|writer| {
        begin(writer, u32::MAX);
        writer.put(ETHERTYPE, &[0xff, 0xff]);
    });
    let read = read_match(&key, Some(&mask)).unwrap();
    assert_eq!(read, parse_key("recirc_id(0),in_port(2),eth(),eth_type(0/0xffff)", &()).unwrap().matching);
}

#[test]
fn zeros_of_an_outer_header_count_where_the_mask_says_so() {
    const TUNNEL: u16 = 16;
    let key = bytes(|writer| {
        writer.nest(TUNNEL, |writer| {
            writer.put(0, &7u64.to_be_bytes());
            writer.put(2, &[172, 18, 0, 2]);
        });
        begin(writer, 0);
    });
    let mask = bytes(|writer| {
        writer.nest(TUNNEL, |writer| {
            writer.put(0, &[0xff; 8]);
            writer.put(2, &[0xff; 4]);
            writer.put(3, &[0xff]);
        });
        begin(writer, u32::MAX);
    });
    let read = read_match(&key, Some(&mask)).unwrap();
    assert!(read.is_exactly(Field::TunnelId, 7) && read.is_exactly(Field::TunnelTos, 0));
    assert_eq!(read.mask.get(Field::TunnelTtl), 0);
}

#[test]
fn options_of_geneve_that_do_not_count_are_one_of_any_kind() {
    const TUNNEL: u16 = 16;
    const GENEVE_OPTS: u16 = 8;
    let read = |length: usize| {
        let zeros = bytes(|writer| {
            writer.nest(TUNNEL, |writer| writer.put(GENEVE_OPTS, &vec![0; length]));
            begin(writer, 0);
        });
        read_match(&zeros, Some(&zeros)).unwrap()
    };
    // As long as that of OVN.
    let one = read(8);
    assert!(one.is_exactly(Field::GenevePresent, 1) && one.is_exactly(Field::GeneveLength, 8));
    assert_eq!([one.key, one.mask].map(|of| of.get(Field::GeneveOptions0)), [1 << 96, 0x1f << 96]);
    // A header alone, which tc cannot match, and more than one option has room for.
    for length in [4, 132] {
        let several = read(length);
        assert!(several.is_exactly(Field::GenevePresent, 1));
        assert_eq!(several.mask.get(Field::GeneveLength), 0);
    }
}

#[test]
fn what_is_not_known_is_an_error_and_not_left_out() {
    let key = bytes(|writer| {
        begin(writer, 0);
        u32(writer, 60, 1);
    });
    assert_eq!(read_match(&key, None).unwrap_err().to_string(), "OVS_FLOW_ATTR_KEY: attribute 60 is unknown");
    // Of which nothing counts.
    let mask = |bits| {
        bytes(|writer| {
            begin(writer, u32::MAX);
            u32(writer, 60, bits);
        })
    };
    assert!(read_match(&key, Some(&mask(0))).is_ok());
    assert!(read_match(&key, Some(&mask(1))).is_err());
    let actions = bytes(|writer| u32(writer, 60, 1));
    assert_eq!(read_actions(&actions).unwrap_err().to_string(), "OVS_FLOW_ATTR_ACTIONS: attribute 60 is unknown");
    let key = bytes(|writer| {
        begin(writer, 0);
        writer.put(IPV4, &[0; 12]);
    });
    let error = read_match(&key, None).unwrap_err().to_string();
    assert!(error.contains("a match on ipv4 without what is in front of it"), "{error}");
    // Lists in lists, deeper than the module takes them.
    let mut nested = Vec::new();
    for _ in 0..40 {
        nested = bytes(|writer| writer.nest(20, |writer| writer.raw(&nested)));
    }
    assert!(read_actions(&nested).unwrap_err().to_string().contains("too deep"));
}

#[test]
fn actions_that_are_newer_or_that_the_kernel_writes_in_another_way_are_read() {
    let actions = bytes(|writer| {
        // psample(group=7,cookie=0x0102), set(udp(…)) without masks, sample(…) with the mark of the module.
        writer.nest(25, |writer| {
            u32(writer, 1, 7);
            writer.put(2, &[1, 2]);
        });
        writer.nest(3, |writer| writer.put(10, &[0, 53, 1, 0]));
        writer.nest(6, |writer| {
            u32(writer, 1, u32::MAX);
            writer.nest(2, |writer| u32(writer, 1, 3));
            writer.put(3, &[]);
        });
        u32(writer, 1, 4);
    });
    let expected = parse_actions(
        "psample(group=7,cookie=0x0102),set(udp(src=53,dst=256)),sample(sample=100.0%,actions(3)),4",
        &(),
    );
    assert_eq!(read_actions(&actions).unwrap(), expected.unwrap());
    // An explicit drop, which says why, is no action.
    let dropped = bytes(|writer| u32(writer, 24, 0));
    assert!(read_actions(&dropped).unwrap().is_empty());
}

#[test]
fn notes_for_ovs_vswitchd_are_read_as_it_prints_them() {
    let note = |kind: u16, at: &[(usize, &[u8])]| {
        let mut note = [0; 48];
        note[..2].copy_from_slice(&kind.to_ne_bytes());
        at.iter().for_each(|(at, bytes)| note[*at..*at + bytes.len()].copy_from_slice(bytes));
        read_user_data(&note)
    };
    assert_eq!(
        note(1, &[(24, &[0xa0, 0x07]), (28, &9u32.to_ne_bytes())]),
        UserData::SFlow { vid: 7, pcp: 5, output: 9 }
    );
    assert_eq!(note(2, &[(28, &0x10u32.to_ne_bytes())]), UserData::SlowPath(0x10));
    let sample = [1u32, 2, 3, 4, 2].map(u32::to_ne_bytes).concat();
    assert_eq!(
        note(3, &[(24, &8u16.to_ne_bytes()), (28, &sample)]),
        UserData::FlowSample(FlowSample {
            probability: 8,
            collector_set_id: 1,
            obs_domain_id: 2,
            obs_point_id: 3,
            output_port: PortNumber(4),
            direction: Some(SampleDirection::Egress),
        })
    );
    assert_eq!(note(4, &[(24, &5u32.to_ne_bytes())]), UserData::Ipfix { output_port: PortNumber(5) });
    let controller = [
        &[1, 0][..],
        &3u16.to_ne_bytes(),
        &4u32.to_ne_bytes(),
        &5u64.to_be_bytes(),
        &6u16.to_ne_bytes(),
        &7u16.to_ne_bytes(),
    ];
    assert_eq!(
        note(5, &[(24, &controller.concat())]),
        UserData::Controller(ToController {
            reason: 3,
            dont_send: true,
            continuation: false,
            recirc_id: 4,
            rule_cookie: 5,
            controller_id: 6,
            max_len: 7,
        })
    );
    assert_eq!(note(9, &[]), UserData::Bytes([&9u16.to_ne_bytes()[..], &[0; 46]].concat().into()));
    assert_eq!(read_user_data(&[1, 2]), UserData::Bytes([1, 2].into()));
}

#[test]
fn messages_of_all_families_are_read_behind_their_headers() {
    let behind = |index: u32, attributes: &[u8]| [&[3, 1, 0, 0][..], &index.to_ne_bytes(), attributes].concat();
    let statistics: Vec<u8> = [4u64, 5, 6, 7].iter().flat_map(|counter| counter.to_ne_bytes()).collect();
    let datapath = behind(
        9,
        &bytes(|writer| {
            writer.put_text(1, "ovs-system");
            writer.put(3, &statistics);
            u32(writer, 5, 0b0110);
        }),
    );
    let expected = Datapath { index: 9, name: "ovs-system".to_owned(), flows: 7, features: Some(6) };
    assert!(expected.shares_recirculation());
    assert_eq!(Datapath::read(&datapath), Ok(expected));
    let vport = behind(
        9,
        &bytes(|writer| {
            u32(writer, 1, 2);
            u32(writer, 2, 1);
            writer.put_text(3, "eth0");
            writer.put(6, &[0; 64]);
        }),
    );
    assert_eq!(Vport::read(&vport), Ok(Vport { datapath: 9, number: 2, name: "eth0".to_owned(), kind: 1 }));
    let flow = behind(
        9,
        &bytes(|writer| {
            let ufid = [0x0123_4567u32, 0x89ab_cdef, 0x0011_2233, 0x4455_6677].map(u32::to_ne_bytes).concat();
            writer.put(9, &ufid);
            writer.fill(1, |writer| begin(writer, 0));
            writer.fill(7, |writer| begin(writer, u32::MAX));
            writer.put(3, &[7u64, 700].map(u64::to_ne_bytes).concat());
            writer.put(4, &[0x12]);
            writer.put(5, &1_500u64.to_ne_bytes());
            writer.fill(2, |writer| u32(writer, 1, 3));
        }),
    );
    let read = FlowMessage::read(&flow, Duration::from_secs(2)).unwrap();
    assert_eq!(read.ufid.unwrap().to_string(), "01234567-89ab-cdef-0011-223344556677");
    let counted = read.statistics;
    assert_eq!((counted.packets, counted.bytes, counted.tcp_flags), (7, 700, 0x12));
    assert_eq!(counted.used, Some(Duration::from_millis(500)));
    let actions = read.actions.unwrap();
    assert_eq!(&*actions, [Action::Output(PortNumber(3))]);
    let mut text = String::new();
    write_actions(&mut text, &actions, &Style::default()).unwrap();
    assert_eq!(text, "3");
    for length in 1..flow.len() {
        // Cut between two attributes it is a message, too.
        let _ = FlowMessage::read(&flow[..length], Duration::ZERO);
    }
    assert!(FlowMessage::read(&flow[..7], Duration::ZERO).is_err());
}
