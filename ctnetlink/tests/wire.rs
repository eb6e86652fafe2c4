//! Messages of ctnetlink, byte by byte.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use sluice_ctnetlink::Mark;
use sluice_ctnetlink::wire::{Name, Told, put_all, put_change, put_name, put_this, status};
use sluice_flow::connection::{Direction, State, TcpState};
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

fn name() -> Name {
    Name { zone: 0, original: original() }
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
    let Told { connection, has_timeout, has_zone } = Told::read(UPDATE).unwrap();
    assert_eq!(connection.original, original());
    assert_eq!(connection.reply, direction(([10, 2, 0, 2], 5000), ([10, 2, 0, 1], 0x0401), 6));
    assert!(connection.status & status::ASSURED != 0 && connection.status & status::DYING == 0);
    assert_eq!((connection.id, connection.timeout), (0x1234_5678, Duration::from_secs(431_999)));
    let state = State::Tcp { state: TcpState::Established, scales: [7; 2], flags: [0x23; 2] };
    assert_eq!(connection.state, state);
    assert_eq!((connection.mark, connection.label, connection.helper, connection.parent), (0, 0, None, None));
    assert!(has_timeout && !has_zone);
}

#[test]
fn a_message_that_is_cut_short_anywhere_is_an_error_with_its_place() {
    for length in 0..UPDATE.len() {
        match Told::read(&UPDATE[..length]) {
            // Between two attributes nothing shows that some are missing, unless they must be there.
            Ok(_) => assert!(length >= 124, "{length}"),
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
            let _ = Told::read(&changed);
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    // An answer of another protocol, a port of four bytes, and addresses of two families.
    let mut other_protocol = UPDATE.to_vec();
    other_protocol[88] = 17;
    let error = Told::read(&other_protocol).unwrap_err();
    assert!(error.to_string().contains("another family or protocol"), "{error}");
    let mut long_port = UPDATE.to_vec();
    long_port[40] = 8;
    assert!(matches!(Told::read(&long_port), Err(Malformed::Length { kind: 2, length: 4, .. })));
    let families = bytes(|writer| {
        writer.raw(&[2, 0, 0, 0]);
        writer.nest(1, |writer| {
            writer.nest(1, |writer| {
                writer.put(1, &[10, 1, 0, 2]);
                writer.put(4, &[0; 16]);
            });
        });
    });
    let error = Told::read(&families).unwrap_err();
    assert!(error.to_string().contains("two families"), "{error}");
}

/// The same message with other ports, as attributes of CTA_TUPLE_PROTO, in both directions.
fn with_ports(ports: &[u8]) -> Vec<u8> {
    let tuple = |kind: u16, addresses: &[u8]| {
        bytes(|writer| {
            writer.nest(kind, |writer| {
                writer.raw(addresses);
                writer.nest(2, |writer| writer.raw(ports));
            });
        })
    };
    let directions = [tuple(1, &UPDATE[8..28]), tuple(2, &UPDATE[60..80])];
    [&UPDATE[..4], &directions.concat(), &UPDATE[108..]].concat()
}

#[test]
fn protocols_without_ports_have_what_names_their_connections_in_their_place() {
    let read = |ports: &[u8]| Told::read(&with_ports(ports)).map(|told| told.connection.original);
    // Identifier, type and code, which are others for ICMPv6.
    for (protocol, first) in [(1, 4), (58, 7)] {
        let ports = bytes(|writer| {
            writer.put(1, &[protocol]);
            writer.put(first, &[0x12, 0x34]);
            writer.put(first + 1, &[8]);
            writer.put(first + 2, &[1]);
        });
        let found = read(&ports).unwrap();
        assert_eq!((found.protocol, found.source_port, found.destination_port), (protocol, 0x1234, 0x0801));
        let name = bytes(|writer| put_name(writer, &Name { zone: 0, original: found }));
        assert_eq!(name, with_ports(&ports)[..name.len()]);
    }
    // SCTP has ports, and a protocol that the kernel knows nothing of has none.
    let sctp = [5, 0, 1, 0, 132, 0, 0, 0, 6, 0, 2, 0, 0, 9, 0, 0, 6, 0, 3, 0, 0, 7, 0, 0];
    let other = [5, 0, 1, 0, 89, 0, 0, 0];
    for (ports, expected) in [(&sctp[..], (9, 7)), (&other[..], (0, 0))] {
        let found = read(ports).unwrap();
        assert_eq!((found.source_port, found.destination_port), expected);
        let name = bytes(|writer| put_name(writer, &Name { zone: 0, original: found }));
        assert_eq!(name, with_ports(ports)[..name.len()]);
    }
    // But TCP and ICMP are not without what is theirs.
    for number in [1, 6] {
        let error = read(&[5, 0, 1, 0, number, 0, 0, 0]).unwrap_err();
        assert!(matches!(error, Malformed::Missing { .. }), "{error}");
    }
}

fn with(kind: u16, payload: &[u8]) -> Told {
    let mut message = UPDATE.to_vec();
    message.extend(bytes(|writer| writer.put(kind, payload)));
    Told::read(&message).unwrap()
}

#[test]
fn zones_helpers_marks_and_labels_are_seen_wherever_they_are_told() {
    let in_zone = with(18, &7u16.to_be_bytes());
    assert_eq!((in_zone.connection.zone, in_zone.has_zone), (7, true));
    assert!(!with(18, &[0, 0]).has_zone);
    let mut zone_of_a_direction = UPDATE.to_vec();
    zone_of_a_direction.splice(56..56, [0x06, 0x00, 0x03, 0x00, 0, 7, 0, 0]);
    zone_of_a_direction[4] = 0x3c;
    let told = Told::read(&zone_of_a_direction).unwrap();
    assert_eq!((told.connection.zone, told.has_zone), (0, true));

    let helper = |name: &[u8]| with(5, &bytes(|writer| writer.put(1, name))).connection.helper;
    assert_eq!(
        [helper(b"ftp\0"), helper(b"of somebody\0"), helper(&[0xff])],
        [Some("ftp"), Some("other"), Some("other")]
    );
    assert_eq!(with(5, &[]).connection.helper, Some("other"));
    assert_eq!(with(8, &[1, 2, 3, 4]).connection.mark, 0x0102_0304);
    // As OVS reads them: the first byte is the lowest.
    let label = 0xffee_u128.to_le_bytes();
    assert_eq!(with(22, &label).connection.label, 0xffee);
    // What is in a direction, without the header of its attribute.
    assert_eq!(with(14, &UPDATE[8..56]).connection.parent, Some(original()));
}

#[test]
fn the_state_of_sctp_has_its_name_and_tags() {
    let state = bytes(|writer| {
        writer.nest(3, |writer| {
            writer.put(1, &[4]);
            writer.put(2, &[1, 2, 3, 4]);
            writer.put(3, &[5, 6, 7, 8]);
        });
    });
    let expected = State::Sctp { state: "ESTABLISHED", tags: [0x0102_0304, 0x0506_0708] };
    assert_eq!(with(4, &state).connection.state, expected);
    assert_eq!(with(4, &[]).connection.state, State::Other);
}

#[test]
fn requests_name_a_connection_by_its_zone_and_original_direction() {
    assert_eq!(bytes(|writer| put_name(writer, &name())), UPDATE[..56]);
    let in_zone = bytes(|writer| put_name(writer, &Name { zone: 7, ..name() }));
    assert_eq!(in_zone[56..], [6, 0, 18, 0, 0, 7, 0, 0]);
    let connection = Told::read(UPDATE).unwrap().connection;
    assert_eq!(bytes(|writer| put_this(writer, &connection))[56..], [8, 0, 12, 0, 0x12, 0x34, 0x56, 0x78]);
    assert_eq!(bytes(|writer| put_all(writer, Mark::default())), [0; 4]);
    // CTA_MARK and CTA_MARK_MASK.
    let marked = bytes(|writer| put_all(writer, "0x10/0x30".parse().unwrap()));
    assert_eq!(marked, [0, 0, 0, 0, 8, 0, 8, 0, 0, 0, 0, 0x10, 8, 0, 21, 0, 0, 0, 0, 0x30]);
    let udp = Name { original: Direction { protocol: 17, ..original() }, ..name() };
    let kept = bytes(|writer| put_change(writer, &udp, Some(Duration::from_secs(120))));
    assert_eq!(kept[56..], [8, 0, 7, 0, 0, 0, 0, 120]);
    let liberal = bytes(|writer| put_change(writer, &name(), None));
    // CTA_PROTOINFO, CTA_PROTOINFO_TCP, and flags with their mask in each direction.
    let expected = [0x18, 0, 4, 0x80, 0x14, 0, 1, 0x80, 6, 0, 4, 0, 0x08, 0x28, 0, 0, 6, 0, 5, 0, 0x08, 0x28, 0, 0];
    assert_eq!(liberal[56..], expected);
}
