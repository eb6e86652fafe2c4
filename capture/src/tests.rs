use super::*;
use proptest::prelude::*;

fn classic(link: u32, records: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 96, link] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (seconds, microseconds, original_length, data) in records {
        for word in [*seconds, *microseconds, u32::try_from(data.len()).unwrap(), *original_length] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(data);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = u32::try_from(body.len() + 12).unwrap().to_be_bytes();
    [&kind.to_be_bytes()[..], &length, &body, &length].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]))
}

/// An Ethernet interface whose times are in units of 10^-9 s.
fn interface(link: u32) -> Vec<u8> {
    block(1, &words(&[link << 16, 60, 0x0009_0001, 0x0900_0000, 0]))
}

fn frames(file: &[u8]) -> (Vec<Frame>, Option<String>) {
    let mut capture = match Capture::open(file) {
        Ok(capture) => capture,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let mut frames = Vec::new();
    loop {
        match capture.next() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error.to_string())),
        }
    }
}

#[test]
fn a_classic_capture_gives_its_frames_also_when_cut_to_a_snap_length() {
    let file = classic(1, &[(10, 500_000, 4, b"abcd"), (11, 0, 1500, b"cut short")]);
    let (frames, error) = frames(&file);
    assert_eq!(error, None);
    let first = Frame { time: Some(Duration::from_millis(10_500)), data: b"abcd".to_vec(), is_cut: false };
    let second = Frame { time: Some(Duration::from_secs(11)), data: b"cut short".to_vec(), is_cut: true };
    assert_eq!(frames, [first, second]);
}

#[test]
fn a_second_and_more_behind_the_point_is_added() {
    let (frames, error) = frames(&classic(1, &[(10, 1_000_000, 4, b"abcd"), (11, u32::MAX, 4, b"efgh")]));
    assert_eq!(error, None);
    let times: Vec<_> = frames.iter().map(|frame| frame.time.unwrap()).collect();
    assert_eq!(times, [Duration::from_secs(11), Duration::from_micros(11_000_000 + u64::from(u32::MAX))]);
}

#[test]
fn a_pcapng_capture_gives_packets_of_every_kind_with_their_time() {
    let enhanced = [words(&[0, 2, 0x1234_5678, 5, 5]), b"first".to_vec()].concat();
    let simple = [words(&[6]), b"second".to_vec()].concat();
    let old = [words(&[7, 0, 3_000_000_000, 5, 9]), b"third".to_vec()].concat();
    let unknown = block(0xbad, b"to be passed over");
    let file = [section(), interface(1), block(6, &enhanced), unknown, block(3, &simple), block(2, &old)].concat();
    let (frames, error) = frames(&file);
    assert_eq!(error, None);
    let first = Duration::from_nanos((2 << 32) | 0x1234_5678);
    assert_eq!(frames[0], Frame { time: Some(first), data: b"first".to_vec(), is_cut: false });
    assert_eq!(frames[1], Frame { time: None, data: b"second".to_vec(), is_cut: false });
    assert_eq!(frames[2], Frame { time: Some(Duration::from_secs(3)), data: b"third".to_vec(), is_cut: true });
}

#[test]
fn what_does_not_matter_to_frames_is_passed_over_in_sections_and_interfaces() {
    let comment = [&[0, 1, 0, 3][..], b"\xe9t\xe9\0"].concat();
    let packet = block(6, &[words(&[0, 0, 3_000_000, 5, 5]), b"first".to_vec()].concat());
    let section = |options: &[u8]| {
        let fixed = words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]);
        block(0x0a0d_0d0a, &[&fixed[..], options].concat())
    };
    let interface = |options: &[u8]| block(1, &[&words(&[1 << 16, 60])[..], options].concat());
    let (time_zone, end) = (words(&[0x000a_0004, 3600]), words(&[0]));
    let reserved = block(1, &words(&[1 << 16 | 7, 60]));
    for (what, section, interface) in [
        ("no option", section(&[]), interface(&[])),
        ("no end of the options", section(&comment), interface(&time_zone)),
        ("a comment in Latin-1", section(&[&comment[..], &end].concat()), interface(&[&comment[..], &end].concat())),
        ("a time zone", section(&end), interface(&[&time_zone[..], &end].concat())),
        ("something behind the end", section(&[&end[..], b"what"].concat()), interface(&[&end[..], b"what"].concat())),
        ("a reserved number", section(&[]), reserved),
    ] {
        let (frames, error) = frames(&[section, interface, packet.clone()].concat());
        assert_eq!(error, None, "{what}");
        let wanted = Frame { time: Some(Duration::from_secs(3)), data: b"first".to_vec(), is_cut: false };
        assert_eq!(frames, [wanted], "{what}");
    }
}

#[test]
fn each_section_has_its_own_byte_order_and_interfaces() {
    let little = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let words_le = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let little_section = little(0x0a0d_0d0a, &words_le(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    // In tenths of a second, and two seconds later than they say.
    let tenths = little(1, &words_le(&[1, 60, 0x0001_0009, 1, 0x0008_000e, 2, 0, 0]));
    let packet = little(6, &[&words_le(&[0, 0, 15, 4, 4])[..], b"tick"].concat());
    let big = block(6, &[words(&[0, 0, 1_000, 3, 3]), b"big".to_vec()].concat());
    let file = [section(), interface(1), big, little_section.clone(), tenths, packet.clone()].concat();
    let (both, error) = frames(&file);
    assert_eq!(error, None);
    let times: Vec<_> = both.iter().map(|frame| frame.time.unwrap()).collect();
    assert_eq!(times, [Duration::from_micros(1), Duration::from_millis(3_500)]);
    let without = frames(&[section(), interface(1), little_section, packet].concat()).1;
    let wanted = "corrupt record at byte 88: it is of an interface that is not described before it";
    assert_eq!(without.as_deref(), Some(wanted));
}

#[test]
fn a_frame_check_sequence_is_no_part_of_a_frame() {
    let captured = |data: &[u8], is_cut| Frame { time: Some(Duration::from_secs(1)), data: data.to_vec(), is_cut };
    let wanted = [captured(b"frame", false), captured(b"frame", false), captured(b"fra", true), captured(b"", false)];
    let records: [(&[u8], u32); 4] = [(b"frame_FCS", 9), (b"frame_F", 9), (b"fra", 9), (b"FC", 2)];
    let of_classic: Vec<_> = records.iter().map(|(data, length)| (1, 0, *length, *data)).collect();
    assert_eq!(frames(&classic(1 | 0x2400_0000, &of_classic)), (wanted.to_vec(), None));
    let interface = block(1, &words(&[1 << 16, 60, 0x000d_0001, 0x0400_0000, 0]));
    let packets = records.map(|(data, length)| {
        let captured = u32::try_from(data.len()).unwrap();
        block(6, &[&words(&[0, 0, 1_000_000, captured, length])[..], data].concat())
    });
    assert_eq!(frames(&[section(), interface, packets.concat()].concat()), (wanted.to_vec(), None));
}

#[test]
fn a_packet_may_say_itself_how_long_its_frame_check_sequence_is() {
    const COMMENT: u32 = 0x0001_0003;
    const FLAGS: u32 = 0x0002_0004;
    let four = 4 << 5 | 1;
    let interface = |check_sequence: u32| block(1, &words(&[1 << 16, 60, 0x000d_0001, check_sequence << 24, 0]));
    let packet = |kind, options: &[u32]| {
        block(kind, &[&words(&[0, 0, 1, 9, 9])[..], b"frame_FCS\0\0\0", &words(options)].concat())
    };
    for (what, of_interface, options, wanted) in [
        ("the packet", 0, &[FLAGS, four, 0][..], &b"frame"[..]),
        ("the packet, behind a comment and without an end", 0, &[COMMENT, 0x6869_2100, FLAGS, four], b"frame"),
        ("the packet, and the interface otherwise", 2, &[FLAGS, four, 0], b"frame"),
        ("the interface, as the flags say nothing of it", 4, &[FLAGS, 1, 0], b"frame"),
        ("nobody", 0, &[FLAGS, 1, 0], b"frame_FCS"),
        ("flags that are cut off", 0, &[FLAGS], b"frame_FCS"),
        ("flags behind the end", 0, &[0, FLAGS, four], b"frame_FCS"),
    ] {
        for kind in [6, 2] {
            let (frames, error) = frames(&[section(), interface(of_interface), packet(kind, options)].concat());
            assert_eq!(error, None, "{what}");
            assert_eq!(frames[0].data, wanted, "{what} says it in a block of kind {kind}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place_after_the_frames_before_it() {
    let good = classic(1, &[(10, 0, 4, b"abcd"), (11, 0, 4, b"efgh")]);
    let (before, error) = frames(&good[..good.len() - 1]);
    assert_eq!((before.len(), error.as_deref()), (1, Some("the file ends within the record that begins at byte 44")));

    let mut endless = good.clone();
    endless[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    endless.resize(RECORD_LIMIT + PIECE * 3, 0);
    assert_eq!(
        frames(&endless).1.as_deref(),
        Some("corrupt record at byte 24: it would be longer than 16777216 bytes")
    );

    let stray = [section(), block(6, &words(&[3, 0, 0, 0, 0]))].concat();
    assert_eq!(
        frames(&stray).1.as_deref(),
        Some("corrupt record at byte 28: it is of an interface that is not described before it")
    );
    let short = [section(), interface(1), block(6, &words(&[0, 0, 0, 99, 99]))].concat();
    assert_eq!(
        frames(&short).1.as_deref(),
        Some("corrupt record at byte 60: it is too short for what it says is in it")
    );
    let wrong = |bytes: Vec<u8>| frames(&bytes).1.unwrap();
    let endless_option = [section(), block(1, &words(&[1 << 16, 60, 0x0001_0009]))].concat();
    assert!(wrong(endless_option).contains("byte 28: Invalid field value: an interface that is too short"));
    let mut two_lengths = [section(), block(0xbad, &[])].concat();
    *two_lengths.last_mut().unwrap() += 4;
    assert!(wrong(two_lengths).contains("byte 28: Invalid field value: another length at the end of a block"));
    assert!(wrong(block(0x0a0d_0d0a, &words(&[1, 2, 3, 4]))).contains("byte 0: Invalid field value: a section in"));
    assert!(wrong(block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d]))).contains("byte 0: Invalid field value: a section that"));
}

#[test]
fn what_is_no_capture_of_ethernet_is_refused() {
    let cooked = frames(&classic(113, &[])).1;
    assert_eq!(cooked.as_deref(), Some("link type LINUX_SLL (113) at byte 20; only Ethernet can be replayed"));
    assert_eq!(frames(&classic(1 | 0x2400_0000, &[(1, 0, 5, b"a")])).0.len(), 1, "with a frame check sequence");
    let raw = [section(), interface(101), block(6, &words(&[0, 0, 0, 0, 0]))].concat();
    let error = frames(&raw).1;
    assert_eq!(error.as_deref(), Some("link type RAW (101) at byte 60; only Ethernet can be replayed"));
    let error = frames(b"\x1f\x8b\x08\0rest").1;
    assert_eq!(error.as_deref(), Some("neither pcap nor pcapng: it begins with [1f, 8b, 08, 00]"));
    assert_eq!(frames(b"").1.as_deref(), Some("neither pcap nor pcapng: it begins with []"));
    assert_eq!(
        frames(&classic(1, &[])[..20]).1.as_deref(),
        Some("the file ends within the record that begins at byte 0")
    );
}

#[test]
fn times_of_any_resolution_are_read_without_overflow() {
    let interface = |resolution, offset| Interface {
        link: DataLink::ETHERNET,
        snap_length: 0,
        resolution,
        offset,
        check_sequence: 0,
    };
    for resolution in 0..=255 {
        for offset in [i64::MIN, i64::MAX] {
            interface(resolution, offset).time(u64::MAX);
        }
    }
    assert_eq!(interface(0x80 | 4, 0).time(24), Duration::from_millis(1_500));
    assert_eq!(interface(6, -1).time(1_500_000), Duration::from_millis(500));
}

proptest! {
    #[test]
    fn damage_never_panics(is_classic: bool, place: prop::sample::Index, bytes: [u8; 4], cut: prop::sample::Index) {
        let packet = [words(&[0, 2, 3, 5, 5]), b"first".to_vec()].concat();
        let mut file = if is_classic {
            classic(1, &[(10, 0, 4, b"abcd"), (11, 0, 4, b"efgh")])
        } else {
            [section(), interface(1), block(6, &packet), block(3, &packet), block(2, &packet)].concat()
        };
        let place = place.index(file.len() - 4);
        file[place..place + 4].copy_from_slice(&bytes);
        file.truncate(cut.index(file.len()) + 1);
        frames(&file);
    }
}
