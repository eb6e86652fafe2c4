use super::*;
use crate::conntrack::frames::{self, piece_v4, piece_v6};
use std::ops::Range;

const NOW: Timestamp = Timestamp(5);

fn add(reassembly: &Reassembly, family: Family, packet: &[u8]) -> Outcome {
    add_at(reassembly, 1, family, packet)
}

fn add_at(reassembly: &Reassembly, port: u32, family: Family, packet: &[u8]) -> Outcome {
    let frame = [&[0xee; 14], packet].concat();
    reassembly.add(0, PortNumber(port), family, &frame, 14, NOW)
}

fn whole(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Whole(frame, _) => frame[14..].to_vec(),
        other => panic!("{other:?}"),
    }
}

fn payload() -> Vec<u8> {
    (0..40).collect()
}

fn piece(family: Family, payload: &[u8], bytes: Range<usize>, identification: u16) -> Vec<u8> {
    match family {
        Family::V4 => piece_v4(payload, bytes, identification),
        Family::V6 => piece_v6(payload, bytes, identification),
    }
}

fn memory(reassembly: &Reassembly, family: Family) -> usize {
    reassembly.waiting(family).memory.load(Ordering::Relaxed)
}

#[test]
fn fragments_of_both_versions_come_together_in_any_order() {
    let payload = payload();
    let cuts = [0..16, 16..24, 24..40];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let reassembly = Reassembly::new();
        let mut done = (None, None);
        for (place, index) in order.into_iter().enumerate() {
            let v4 = add(&reassembly, Family::V4, &piece_v4(&payload, cuts[index].clone(), 9));
            let v6 = add(&reassembly, Family::V6, &piece_v6(&payload, cuts[index].clone(), 9));
            if place < 2 {
                assert!(matches!((v4, v6), (Outcome::Waits, Outcome::Waits)), "{order:?}");
            } else {
                done = (Some(whole(v4)), Some(whole(v6)));
            }
        }
        let (Some(v4), Some(v6)) = done else { panic!() };
        assert_eq!(v4[20..], payload);
        assert_eq!(v4[6..8], [0, 0]);
        assert_eq!(Sum::default().bytes(&v4[..20]).finish(), 0);
        assert_eq!(v6[40..], payload);
        assert_eq!((v6[6], u16::from_be_bytes([v6[4], v6[5]])), (17, 40));
        assert_eq!([Family::V4, Family::V6].map(|family| memory(&reassembly, family)), [0, 0], "nothing is left");
    }
}

#[test]
fn the_largest_piece_and_where_each_ends_are_remembered() {
    let reassembly = Reassembly::new();
    let payload = payload();
    add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
    match add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 9)) {
        Outcome::Whole(_, pieces) => {
            assert_eq!((pieces.largest, &*pieces.ends), (44, &[44, 60][..]));
            assert_eq!(pieces.ends_in(60), [44, 60]);
            assert_eq!(pieces.ends_in(61), [], "another packet than it was");
            let [few, more] = [28, 48].map(|read| pieces.clone().of_which_is_read(read));
            assert_eq!((few.ends_in(60), more.ends_in(60)), (&[44, 60][..], &[48, 60][..]), "headers that were read");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mark_of_congestion_on_a_later_fragment_is_the_packets() {
    let payload = payload();
    for (family, shift) in [(Family::V4, 0), (Family::V6, 4)] {
        let marked = |bytes, mark: u8| {
            let mut packet = piece(family, &payload, bytes, 9);
            packet[1] |= mark << shift;
            packet
        };
        let reassembly = Reassembly::new();
        add(&reassembly, family, &marked(0..24, 2));
        let packet = whole(add(&reassembly, family, &marked(24..40, 3)));
        assert_eq!(packet[1] >> shift, 3);
        if family == Family::V4 {
            assert_eq!(Sum::default().bytes(&packet[..20]).finish(), 0);
        }
        add(&reassembly, family, &marked(0..24, 0));
        assert!(matches!(add(&reassembly, family, &marked(24..40, 3)), Outcome::Dropped), "{family:?}");
    }
}

#[test]
fn a_fragment_that_is_cut_off_is_as_long_as_it_is_in_ipv4_only() {
    let payload = payload();
    for (family, header) in [(Family::V4, 20), (Family::V6, 40)] {
        let reassembly = Reassembly::new();
        add(&reassembly, family, &piece(family, &payload, 0..24, 9));
        let mut last = piece(family, &payload, 24..40, 9);
        last.pop();
        match (add(&reassembly, family, &last), family) {
            (Outcome::Whole(frame, _), Family::V4) => assert_eq!(frame[14 + header..], payload[..39]),
            (Outcome::Dropped, Family::V6) => {}
            (outcome, _) => panic!("{family:?}: {outcome:?}"),
        }
    }
}

#[test]
fn a_duplicate_is_dropped_and_harms_nothing() {
    let reassembly = Reassembly::new();
    let payload = payload();
    add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
    let again = add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
    assert!(matches!(again, Outcome::Dropped));
    assert_eq!(whole(add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 9)))[20..], payload);
}

#[test]
fn a_first_fragment_of_ipv6_without_all_headers_goes_on_by_itself() {
    let payload = payload();
    let reassembly = Reassembly::new();
    for (protocol, length) in [(6, 24), (17, 8), (58, 8), (47, 8)] {
        for (length, is_alone) in [(length - 8, true), (length, false)] {
            let mut first = piece_v6(&payload, 0..length, protocol.into());
            first[40] = protocol;
            let outcome = add(&reassembly, Family::V6, &first);
            assert_eq!(matches!(outcome, Outcome::Alone), is_alone, "{protocol} in {length} bytes");
        }
    }
    let later = add(&reassembly, Family::V6, &piece_v6(&payload, 8..16, 99));
    assert!(matches!(later, Outcome::Waits));
    let v4 = add(&reassembly, Family::V4, &piece_v4(&payload, 0..8, 9));
    assert!(matches!(v4, Outcome::Waits));
}

#[test]
fn an_overlap_drops_the_packet_as_a_whole() {
    let reassembly = Reassembly::new();
    let payload = payload();
    for (family, piece) in [(Family::V4, piece_v4 as fn(&[u8], _, _) -> _), (Family::V6, piece_v6)] {
        add(&reassembly, family, &piece(&payload, 0..24, 9));
        let overlap = add(&reassembly, family, &piece(&payload, 16..40, 9));
        assert!(matches!(overlap, Outcome::Dropped));
        let rest = add(&reassembly, family, &piece(&payload, 24..40, 9));
        assert!(matches!(rest, Outcome::Waits), "its beginning is gone");
    }
}

#[test]
fn a_fragment_that_contradicts_the_others_takes_them_with_it_in_ipv4_only() {
    let payload = payload();
    for (family, is_lost) in [(Family::V4, true), (Family::V6, false)] {
        // One that ends before the last does, one behind the end, and one of no bytes.
        for contradiction in [
            piece(family, &payload[..32], 24..32, 9),
            piece(family, &[0; 64], 48..56, 9),
            piece(family, &payload, 24..24, 9),
        ] {
            let reassembly = Reassembly::new();
            add(&reassembly, family, &piece(family, &payload, 0..16, 9));
            add(&reassembly, family, &piece(family, &payload, 32..40, 9));
            assert!(matches!(add(&reassembly, family, &contradiction), Outcome::Dropped));
            let missing = add(&reassembly, family, &piece(family, &payload, 16..32, 9));
            assert_eq!(matches!(missing, Outcome::Waits), is_lost, "{family:?}");
            assert_eq!(reassembly.lost(), if is_lost { 2 } else { 0 });
        }
        let reassembly = Reassembly::new();
        add(&reassembly, family, &piece(family, &payload, 24..24, 9));
        let shards = &reassembly.waiting(family).shards;
        assert!(shards.iter().all(|shard| shard.lock().queues.is_empty()), "nothing waits for nothing");
    }
}

#[test]
fn fragments_of_other_packets_and_zones_do_not_mix() {
    let reassembly = Reassembly::new();
    let payload = payload();
    add(&reassembly, Family::V4, &piece_v4(&payload, 0..24, 9));
    assert!(matches!(add(&reassembly, Family::V4, &piece_v4(&payload, 24..40, 10)), Outcome::Waits));
    let frame = [&[0xee; 14][..], &piece_v4(&payload, 24..40, 9)].concat();
    assert!(matches!(reassembly.add(1, PortNumber(1), Family::V4, &frame, 14, NOW), Outcome::Waits));
}

#[test]
fn fragments_to_an_address_that_each_link_has_come_together_at_one_port_only() {
    let payload = payload();
    let to = |destination: &str, bytes| {
        let mut packet = piece_v6(&payload, bytes, 9);
        packet[24..40].copy_from_slice(&destination.parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet
    };
    for (destination, is_of_port) in [("fd00::2", false), ("fe80::2", true), ("ff02::1", true), ("ff0e::1", true)] {
        let reassembly = Reassembly::new();
        add_at(&reassembly, 1, Family::V6, &to(destination, 0..24));
        let at_another = add_at(&reassembly, 2, Family::V6, &to(destination, 24..40));
        assert_eq!(matches!(at_another, Outcome::Waits), is_of_port, "{destination}");
        if is_of_port {
            whole(add_at(&reassembly, 1, Family::V6, &to(destination, 24..40)));
        }
    }
    let reassembly = Reassembly::new();
    add_at(&reassembly, 1, Family::V4, &piece_v4(&payload, 0..24, 9));
    whole(add_at(&reassembly, 2, Family::V4, &piece_v4(&payload, 24..40, 9)));
}

#[test]
fn nothing_waits_longer_than_its_time() {
    let payload = payload();
    for (family, piece, seconds) in [(Family::V4, piece_v4 as fn(&[u8], _, _) -> _, 30), (Family::V6, piece_v6, 60)] {
        for (late, comes_together) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
            let reassembly = Reassembly::new();
            add(&reassembly, family, &piece(&payload, 0..24, 9));
            let then = NOW.after(Duration::from_secs(seconds) - late);
            let frame = [&[0xee; 14][..], &piece(&payload, 24..40, 9)].concat();
            let outcome = reassembly.add(0, PortNumber(1), family, &frame, 14, then);
            assert_eq!(matches!(outcome, Outcome::Whole(..)), comes_together);
            assert_eq!(reassembly.lost(), u64::from(!comes_together));
        }
    }
}

#[test]
fn a_flood_of_first_fragments_is_bounded() {
    let reassembly = Reassembly::new();
    let payload = vec![0; 1480];
    let mut dropped = 0;
    for identification in 0..4000 {
        let packet = piece_v4(&payload, 0..1472, identification);
        dropped += u32::from(matches!(add(&reassembly, Family::V4, &packet), Outcome::Dropped));
    }
    assert!(dropped > 0);
    assert!(memory(&reassembly, Family::V4) <= MEMORY + 2 * 1500 + OVERHEAD);
}

#[test]
fn long_headers_of_first_fragments_count() {
    let reassembly = Reassembly::new();
    // Destination options of 2048 bytes in front of each fragment header.
    let options = [&[44, 255, 1, 254], &[0; 2044][..]].concat();
    let packet = |identification: u16| {
        let fragment = piece_v6(&[0; 16], 0..8, identification);
        frames::v6("fd00::1", "fd00::2", 60, &[&options[..], &fragment[40..]].concat())
    };
    let is_taken = |packet: &Vec<u8>| matches!(add(&reassembly, Family::V6, packet), Outcome::Waits);
    let waiting = (0..20_000).map(packet).take_while(is_taken).count();
    assert!(waiting * packet(0).len() <= MEMORY + packet(0).len(), "{waiting}");
}

#[test]
fn a_flood_of_one_version_leaves_room_for_the_other() {
    let (flood, payload) = (vec![0; 1480], payload());
    for (flooded, other) in [(Family::V6, Family::V4), (Family::V4, Family::V6)] {
        let reassembly = Reassembly::new();
        let mut identifications = 0..4000;
        assert!(identifications.any(|identification| {
            let first = piece(flooded, &flood, 0..1472, identification);
            matches!(add(&reassembly, flooded, &first), Outcome::Dropped)
        }));
        let first = add(&reassembly, other, &piece(other, &payload, 0..24, 9));
        assert!(matches!(first, Outcome::Waits), "{other:?}");
        whole(add(&reassembly, other, &piece(other, &payload, 24..40, 9)));
    }
}

#[test]
fn a_fragment_of_ipv6_that_ends_too_late_harms_nothing() {
    let reassembly = Reassembly::new();
    let payload = payload();
    add(&reassembly, Family::V6, &piece_v6(&payload, 0..24, 9));
    let mut late = piece_v6(&payload, 24..40, 9);
    late[42..44].copy_from_slice(&0xfff8u16.to_be_bytes());
    assert!(matches!(add(&reassembly, Family::V6, &late), Outcome::Dropped));
    assert_eq!(whole(add(&reassembly, Family::V6, &piece_v6(&payload, 24..40, 9)))[40..], payload);
}

#[test]
fn a_packet_that_would_be_too_long_is_dropped() {
    let reassembly = Reassembly::new();
    let mut last = frames::v4("10.0.0.1", "10.0.0.2", 17, &[0; 64]);
    last[6..8].copy_from_slice(&0x1fffu16.to_be_bytes());
    let mut offset = 0u16;
    add(&reassembly, Family::V4, &last);
    while offset < 0x1fff {
        let length = usize::from(0x1fff - offset).min(1024) * 8;
        let mut packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &vec![0; length]);
        packet[6..8].copy_from_slice(&(0x2000 | offset).to_be_bytes());
        offset += u16::try_from(length / 8).unwrap();
        let outcome = add(&reassembly, Family::V4, &packet);
        assert_eq!(matches!(outcome, Outcome::Dropped), offset == 0x1fff);
    }
}
