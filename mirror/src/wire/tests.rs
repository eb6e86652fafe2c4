//! What was written is read, and any other bytes are refused or are what they would be written as.

use proptest::prelude::*;
use sluice_control::mirror::Class;

use super::frames::{Frame, frames};
use super::*;

fn drops() -> impl Strategy<Value = Drops> {
    prop::collection::vec(any::<u64>(), CAUSES).prop_map(|counts| {
        let mut drops = Drops::default();
        Cause::ALL.into_iter().zip(counts).for_each(|(cause, count)| drops[cause] = count);
        drops
    })
}

fn header() -> impl Strategy<Value = Header> {
    let batch = (0..CLASSES, any::<bool>(), 1_u32.., 0..u64::MAX >> 1, any::<u64>(), any::<u32>(), drops());
    let batch = batch.prop_map(|(class, is_ring, frames, sequence, captured, given_up, drops)| Kind::Batch {
        class: Class::ALL[class],
        layout: if is_ring { Layout::Ring } else { Layout::Frames },
        frames,
        sequence,
        captured,
        given_up,
        drops,
    });
    let kind = prop_oneof![Just(Kind::Hello), batch];
    (any::<u64>(), kind).prop_map(|(sender, kind)| Header { sender, length: 0, kind })
}

fn written(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaa; HEADER];
    Header { length: u32::try_from(payload.len()).unwrap(), ..header }.write(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn frame() -> impl Strategy<Value = (Option<u32>, Option<u128>, u64, u32, Vec<u8>)> {
    let port = prop::option::of(0..u32::MAX);
    (port, any::<Option<u128>>(), any::<u64>(), 0_u32..100, prop::collection::vec(any::<u8>(), 0..100))
}

proptest! {
    #[test]
    fn a_message_that_was_written_is_read(header in header(), payload in prop::collection::vec(any::<u8>(), 0..50)) {
        let bytes = written(header, &payload);
        let message = Message::parse(&bytes).unwrap();
        prop_assert_eq!((message.header.sender, message.header.kind), (header.sender, header.kind));
        prop_assert_eq!(message.payload, &payload[..]);
    }

    /// Close enough to a right one to come past the first check.
    #[test]
    fn a_message_with_a_wrong_byte_is_another_message_or_refused(
        header in header(), at in 0..HEADER, value: u8, cut: prop::sample::Index,
    ) {
        let mut bytes = written(header, b"payload");
        bytes[at] = value;
        if let Ok(message) = Message::parse(&bytes) {
            let again = written(message.header, message.payload);
            // Of a message without frames, nothing is said of them.
            let is_batch = matches!(message.header.kind, Kind::Batch { .. });
            prop_assert!(again == bytes || !is_batch);
        }
        prop_assert!(Message::parse(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Message::parse(&bytes).is_err() || bytes.starts_with(b"SLMM"));
        prop_assert!(Grant::parse(&bytes).is_err() || bytes.starts_with(b"SLMG"));
        let begun: Vec<u8> = b"SLMM\0\x01".iter().copied().chain(bytes).collect();
        let _ = Message::parse(&begun);
    }

    #[test]
    fn the_drops_of_a_heartbeat_are_read_by_class(all in prop::collection::vec(drops(), CLASSES)) {
        let mut payload = vec![0; HEARTBEAT];
        write_heartbeat(all.iter().copied(), &mut payload);
        let bytes = written(Header { sender: 1, length: 0, kind: Kind::Heartbeat }, &payload);
        let read: Vec<_> = Message::parse(&bytes).unwrap().class_drops().collect();
        prop_assert_eq!(read, Class::ALL.into_iter().zip(all).collect::<Vec<_>>());
    }

    #[test]
    fn a_grant_that_was_written_is_read(longest: u32, controls: u64, numbers in prop::collection::vec(any::<[u64; 3]>(), CLASSES)) {
        let mut grant = Grant { longest, controls, ..Grant::default() };
        for (class, [messages, bytes, acknowledged]) in grant.classes.iter_mut().zip(numbers) {
            *class = ClassGrant { messages, bytes, acknowledged };
        }
        prop_assert_eq!(Grant::parse(&grant.bytes()), Ok(grant));
        prop_assert!(Grant::parse(&grant.bytes()[..GRANT - 1]).is_err());
        prop_assert!(Grant::parse(&[&grant.bytes()[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_hello_that_was_written_is_read_as_far_as_there_was_room(
        grants: u32, name in ".{0,300}", ports in prop::collection::vec((prop::option::of(0..u32::MAX), any::<u32>(), ".{0,80}"), 0..20),
        room in 1_000_usize..4_000, cut: prop::sample::Index,
    ) {
        let ports: Vec<_> = ports.into_iter().map(|(number, ifindex, name)| Port { number, ifindex, name }).collect();
        let hello = Hello { grants, name, ports };
        let bytes = hello.bytes(room);
        prop_assert!(bytes.len() <= room);
        let read = Hello::parse(&bytes).unwrap();
        prop_assert_eq!(read.grants, grants);
        prop_assert!(hello.name.starts_with(&read.name) && (read.name.len() > 250 || read.name == hello.name));
        for (read, written) in read.ports.iter().zip(&hello.ports) {
            prop_assert!(read.number == written.number && read.ifindex == written.ifindex && written.name.starts_with(&read.name));
        }
        prop_assert!(Hello::parse(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_a_hello_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), small: bool) {
        // Small numbers are lengths and counts more often.
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| if small { byte % 3 } else { byte }).collect();
        if let Ok(hello) = Hello::parse(&bytes) {
            prop_assert_eq!(hello.bytes(usize::MAX), bytes);
        }
    }

    #[test]
    fn frames_that_were_written_are_read_in_their_order(all in prop::collection::vec(frame(), 1..10)) {
        let mut buffer = vec![0xaa; 4096];
        let mut used = 0;
        for (in_port, ufid, captured, more, bytes) in &all {
            let length = u32::try_from(bytes.len()).unwrap() + more;
            let frame = Frame { in_port: *in_port, ufid: *ufid, captured: *captured, length, bytes };
            used += frame.write(&mut buffer[used..]).unwrap();
        }
        let read: Vec<_> = frames(&buffer[..used]).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), all.len());
        for (read, (in_port, ufid, captured, more, bytes)) in read.iter().zip(&all) {
            prop_assert_eq!((read.in_port, read.ufid, read.captured, read.bytes), (*in_port, *ufid, *captured, &bytes[..]));
            prop_assert_eq!(read.length as usize, bytes.len() + *more as usize);
        }
        // What is cut off in a frame is refused, behind those before it.
        let cut: Vec<_> = frames(&buffer[..used - 1]).collect();
        prop_assert!(cut.last().unwrap().is_err() && cut[..cut.len() - 1].iter().all(Result::is_ok));
    }

    #[test]
    fn any_payload_is_read_to_its_end_or_to_the_first_error(bytes in prop::collection::vec(any::<u8>(), 0..400), small: bool) {
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| if small { byte % 2 * (byte % 40) } else { byte }).collect();
        for frame in frames(&bytes) {
            prop_assert!(frame.is_err() || frame.unwrap().bytes.len() <= bytes.len());
        }
        if let Ok(all) = ring::frames(&bytes) {
            prop_assert!(all.take(1000).count() < 1000);
        }
        let block: Vec<u8> = [2, 0, 0, 0].into_iter().chain(bytes).collect();
        if let Ok(all) = ring::frames(&block) {
            for frame in all.take(1000).flatten() {
                frame.restore(&mut Vec::new());
            }
        }
    }
}

/// A block of one frame, as the kernel lays it out (`linux/if_packet.h`).
fn block(frame: &[u8], virtio: [u8; 10], status: u32, (tag, protocol): (u16, u16)) -> Vec<u8> {
    const AT: usize = 48;
    const MAC: usize = 96;
    let mut block = vec![0; AT + MAC + frame.len()];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
    put(0, &2_u32.to_le_bytes());
    put(12, &1_u32.to_le_bytes());
    put(16, &48_u32.to_le_bytes());
    put(AT + 4, &1_700_000_000_u32.to_le_bytes());
    put(AT + 8, &5_u32.to_le_bytes());
    put(AT + 12, &length);
    put(AT + 16, &length);
    put(AT + 20, &status.to_le_bytes());
    put(AT + 24, &96_u16.to_le_bytes());
    put(AT + 32, &u32::from(tag).to_le_bytes());
    put(AT + 36, &protocol.to_le_bytes());
    put(AT + 52, &7_u32.to_le_bytes());
    put(AT + MAC - 10, &virtio);
    put(AT + MAC, frame);
    block
}

/// DHCP's first request, as a kernel sends it that leaves the checksum to hardware: that of the pseudo header is there.
fn udp() -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x08, 0x00]);
    frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 68, 0, 67, 0, 12]);
    // 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 12.
    frame.extend(0x1420_u16.to_be_bytes());
    frame.extend(*b"dhcp");
    frame
}

#[test]
fn vlan_tag_and_checksum_are_put_back_into_a_frame_of_a_ring() {
    // Needs a checksum, from byte 34 on, at byte 6 behind that.
    let virtio = [1, 0, 0, 0, 0, 0, 34, 0, 6, 0];
    let block = block(&udp(), virtio, 1 << 4 | 1 << 6, (7, 0x88a8));
    assert_eq!(ring::count(&block), Ok(1));
    let frames: Vec<_> = ring::frames(&block).unwrap().map(Result::unwrap).collect();
    let [frame] = frames[..] else { panic!("{frames:?}") };
    assert_eq!((frame.ifindex, frame.captured), (7, 1_700_000_000_000_000_005));
    let mut restored = Vec::new();
    assert_eq!(frame.restore(&mut restored), 50);
    assert_eq!(restored[12..18], [0x88, 0xa8, 0, 7, 0x08, 0x00]);
    // The sum over everything, pseudo header included, is now all ones (RFC 1071).
    let datagram = &restored[38..];
    let words = datagram.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum::<u32>() + 0x1420;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    assert_eq!(sum, 0xffff);
}

#[test]
fn the_checksum_of_sctp_is_put_back_which_is_no_sum() {
    // Of RFC 3720, appendix B.4: bytes with zeroes where SCTP has its checksum, and their CRC as it is sent.
    let read = [
        [0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18],
        [0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0],
    ];
    let examples = [(vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]), (read.concat(), [0x56, 0x3a, 0x96, 0xd9])];
    for (packet, crc) in examples {
        for (status, tag, start) in [(0, &[][..], 34), (1 << 4, &[0x81, 0x00, 0, 7][..], 38)] {
            let mut frame = vec![0xff; 34];
            frame.extend(&packet);
            // Needs a checksum, from byte 34 on, at byte 8 behind that.
            let block = block(&frame, [1, 0, 0, 0, 0, 0, 34, 0, 8, 0], status, (7, 0));
            let mut restored = Vec::new();
            ring::frames(&block).unwrap().next().unwrap().unwrap().restore(&mut restored);
            assert_eq!(restored[12..12 + tag.len()], *tag);
            assert_eq!(restored[start + 8..start + 12], crc);
            restored[start + 8..start + 12].fill(0);
            assert_eq!(restored[start..], packet);
        }
    }
    // One that was cut off in front of its end is left as it is.
    let short = block(&[0xff; 45], [1, 0, 0, 0, 0, 0, 34, 0, 8, 0], 0, (0, 0));
    let mut restored = Vec::new();
    ring::frames(&short).unwrap().next().unwrap().unwrap().restore(&mut restored);
    assert_eq!(restored, [0xff; 45]);
}

#[test]
fn a_frame_of_a_ring_that_needs_nothing_is_left_as_it_is() {
    let block = block(&udp(), [0; 10], 0, (0, 0));
    let frame = ring::frames(&block).unwrap().next().unwrap().unwrap();
    let mut restored = Vec::new();
    assert_eq!((frame.restore(&mut restored), frame.segment), (46, None));
    assert_eq!(restored, udp());
}

#[test]
fn frames_of_a_ring_that_lead_nowhere_are_refused() {
    let good = block(&udp(), [0; 10], 0, (0, 0));
    let changed = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let read = |bytes: &[u8]| {
        ring::frames(bytes).and_then(|frames| frames.collect::<Result<Vec<_>, _>>().map(|all| all.len()))
    };
    assert_eq!(read(&good), Ok(1));
    // Version; two frames of which the second is nowhere; a first frame, a length and a start beyond the end.
    for (at, value) in [(0, 1), (12, 2), (16, 1 << 31), (16, 200), (48 + 12, 100_000), (48 + 24, 5), (48 + 24, 60_000)]
    {
        assert!(read(&changed(at, value)).is_err(), "{value} at {at}");
    }
    assert!(read(&good[..40]).is_err());
}

#[test]
fn frames_of_a_ring_that_lie_one_above_the_other_are_refused() {
    let frame = block(&udp(), [0; 10], 0, (0, 0))[48..].to_vec();
    let behind = frame.len().next_multiple_of(8);
    // Two headers, so many bytes apart, each with a frame behind it.
    let two = |distance: usize| {
        let mut block = block(&[], [0; 10], 0, (0, 0))[..48].to_vec();
        block[12..16].copy_from_slice(&2_u32.to_le_bytes());
        block.resize(48 + distance + frame.len(), 0);
        for at in [48 + distance, 48] {
            block[at..at + frame.len()].copy_from_slice(&frame);
        }
        block[48..52].copy_from_slice(&u32::try_from(distance).unwrap().to_le_bytes());
        block
    };
    let read = |block: &[u8]| ring::frames(block).and_then(|mut frames| frames.try_for_each(|frame| frame.map(drop)));
    assert_eq!(read(&two(behind)), Ok(()));
    // Further than a header, and not as far as the end of the frame.
    let field = "the distance between two frames of a ring";
    assert_eq!(read(&two(136)), Err(WireError::Field { field, value: 136 }));
}
