//! Messages of ctnetlink, byte by byte.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use sluice_ctnetlink::Mark;
use sluice_ctnetlink::wire::{Entry, put_all, put_change, put_name, status};
use sluice_flow::connection::Direction;
use sluice_netdev::netlink::attribute::{Malformed, Writer};

/// What Linux 6.1 on a little-endian machine tells of a connection from 10.1.0.2 to 10.2.0.2 that it masquerades, behind the header of
/// netlink.
const UPDATE: &[u8] = &[
    0x02, 0x00, 0x00, 0x00, // struct nfgenmsg: AF_INET
    0x34, 0x00, 0x01, 0x80, // CTA_TUPLE_ORIG
    0x14, 0x00, 0x01, 0x80, 0x08, 0x00, 0x01, 0x00, 10, 1, 0, 2, 0x08, 0x00, 0x02, 0x00, 10, 2, 0, 2, //
    0x1c, 0x00, 0x02, 0x80, 0x05, 0x00, 0x01, 0x00, 6, 0, 0, 0, 0x06, 0x00, 0x02, 0x00, 0x9c, 0x40, 0, 0, //
    0x06, 0x00, 0x03, 0x00, 0x13, 0x88, 0, 0, //
    0x34, 0x00, 0x02, 0x80, // CTA_TUPLE_REPLY
    0x14, 0x00, 0x01, 0x80, 0x08, 0x00, 0x01, 0x00, 10, 2, 0, 2, 0x08, 0x00, 0x02, 0x00, 10, 2, 0, 1, //
    0x1c, 0x00, 0x02, 0x80, 0x05, 0x00, 0x01, 0x00, 6, 0, 0, 0, 0x06, 0x00, 0x02, 0x00, 0x13, 0x88, 0, 0, //
    0x06, 0x00, 0x03, 0x00, 0x04, 0x01, 0, 0, //
    0x08, 0x00, 0x0c, 0x00, 0x12, 0x34, 0x56, 0x78, // CTA_ID
    0x08, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01,
    0x9e, // CTA_STATUS: SEEN_REPLY, ASSURED, CONFIRMED, SRC_NAT, and both NAT done
    0x08, 0x00, 0x07, 0x00, 0x00, 0x06, 0x97, 0x7f, // CTA_TIMEOUT: 431999 s
    0x30, 0x00, 0x04, 0x80, // CTA_PROTOINFO
    0x2c, 0x00, 0x01, 0x80, // CTA_PROTOINFO_TCP
    0x05, 0x00, 0x01, 0x00, 3, 0, 0, 0, 0x05, 0x00, 0x02, 0x00, 7, 0, 0, 0, 0x05, 0x00, 0x03, 0x00, 7, 0, 0, 0, //
    0x06, 0x00, 0x04, 0x00, 0x23, 0x00, 0, 0, 0x06, 0x00, 0x05, 0x00, 0x23, 0x00, 0, 0,
];

fn direction(from: ([u8; 4], u16), to: ([u8; 4], u16), protocol: u8) -> Direction {
    let ((source, source_port), (destination, destination_port)) = (from, to);
    Direction { source: source.into(), destination: destination.into(), protocol, source_port, destination_port }
}

fn original() -> Direction {
    direction(([10, 1, 0, 2], 40_000), ([10, 2, 0, 2], 5000), 6)
}

fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = Vec::new();
    let mut writer = Writer::new(&mut buffer);
    write(&mut writer);
    writer.finish().unwrap();
    buffer
}

#[test]
fn an_update_tells_both_directions_with_what_the_kernel_translates() {
    let entry = Entry::read(UPDATE).unwrap().unwrap();
    assert_eq!(entry.original, original());
    assert_eq!(entry.reply, direction(([10, 2, 0, 2], 5000), ([10, 2, 0, 1], 0x0401), 6));
    assert!(entry.status & status::ASSURED != 0 && entry.status & status::DYING == 0);
    assert_eq!((entry.has_zone, entry.has_helper, entry.is_established), (false, false, Some(true)));
    assert_eq!(entry.timeout, Some(Duration::from_secs(431_999)));
}

#[test]
fn a_message_that_is_cut_short_anywhere_is_an_error_with_its_place() {
    for length in 0..UPDATE.len() {
        match Entry::read(&UPDATE[..length]) {
            // Between two attributes nothing shows that some are missing, unless they must be there.
            Ok(found) => assert!(length >= 108 && found.is_some(), "{length}"),
            Err(error) => assert!(matches!(error, Malformed::Truncated { .. } | Malformed::Missing { .. }), "{error}"),
        }
    }
}

#[test]
fn whatever_a_byte_is_it_is_read_or_refused() {
    for at in 0..UPDATE.len() {
        for value in [0, 1, 2, 3, 4, 5, 7, 8, 0x7f, 0x80, 0xfe, 0xff] {
            let mut changed = UPDATE.to_vec();
            changed[at] = value;
            let _ = Entry::read(&changed);
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    // An answer of another protocol, a port of four bytes, and addresses of two families.
    let mut other_protocol = UPDATE.to_vec();
    other_protocol[88] = 17;
    let error = Entry::read(&other_protocol).unwrap_err();
    assert!(error.to_string().contains("another family or protocol"), "{error}");
    let mut long_port = UPDATE.to_vec();
    long_port[40] = 8;
    assert!(matches!(Entry::read(&long_port), Err(Malformed::Length { kind: 2, length: 4, .. })));
    let families = bytes(|writer| {
        writer.raw(&[2, 0, 0, 0]);
        writer.nest(1, |writer| {
            writer.nest(1, |writer| {
                writer.put(1, &[10, 1, 0, 2]);
                writer.put(4, &[0; 16]);
            });
        });
    });
    let error = Entry::read(&families).unwrap_err();
    assert!(error.to_string().contains("two families"), "{error}");
}

#[test]
fn another_protocol_is_no_error_and_no_connection() {
    let mut icmp = UPDATE.to_vec();
    (icmp[36], icmp[88]) = (1, 1);
    assert_eq!(Entry::read(&icmp), Ok(None));
}

#[test]
fn zones_helpers_and_marks_are_seen_wherever_they_are_told() {
    let with = |kind: u16, payload: &[u8]| {
        let mut message = UPDATE.to_vec();
        message.extend(bytes(|writer| writer.put(kind, payload)));
        Entry::read(&message).unwrap().unwrap()
    };
    assert!(with(18, &7u16.to_be_bytes()).has_zone);
    assert!(!with(18, &[0, 0]).has_zone);
    assert!(with(5, &[]).has_helper);
    assert_eq!([with(8, &[1, 2, 3, 4]).mark, with(18, &[0, 0]).mark], [0x0102_0304, 0]);
    let mut zone_of_a_direction = UPDATE.to_vec();
    zone_of_a_direction.splice(56..56, [0x06, 0x00, 0x03, 0x00, 0, 7, 0, 0]);
    zone_of_a_direction[4] = 0x3c;
    assert!(Entry::read(&zone_of_a_direction).unwrap().unwrap().has_zone);
}

#[test]
fn requests_name_a_connection_by_its_original_direction() {
    let name = bytes(|writer| put_name(writer, &original()));
    assert_eq!(name, UPDATE[..56]);
    assert_eq!(bytes(|writer| put_all(writer, Mark::default())), [0; 4]);
    // CTA_MARK and CTA_MARK_MASK.
    let marked = bytes(|writer| put_all(writer, "0x10/0x30".parse().unwrap()));
    assert_eq!(marked, [0, 0, 0, 0, 8, 0, 8, 0, 0, 0, 0, 0x10, 8, 0, 21, 0, 0, 0, 0, 0x30]);
    let udp = Direction { protocol: 17, ..original() };
    let kept = bytes(|writer| put_change(writer, &udp, Some(Duration::from_secs(120))));
    assert_eq!(kept[56..], [8, 0, 7, 0, 0, 0, 0, 120]);
    let liberal = bytes(|writer| put_change(writer, &original(), None));
    // CTA_PROTOINFO, CTA_PROTOINFO_TCP, and flags with their mask in each direction.
    let expected = [0x18, 0, 4, 0x80, 0x14, 0, 1, 0x80, 6, 0, 4, 0, 0x08, 0x28, 0, 0, 6, 0, 5, 0, 0x08, 0x28, 0, 0];
    assert_eq!(liberal[56..], expected);
}
