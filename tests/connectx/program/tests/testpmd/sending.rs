//! What testpmd leaves to the device when it sends: checksums, the cutting of large segments, and several frames in one request.

use super::{Testpmd, WIRE};

/// Ethernet, IPv4 and TCP headers, and so much data.
fn segment(bytes: usize) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 9, 10, 0, 0, 3];
    ip[2..4].copy_from_slice(&u16::try_from(40 + bytes).unwrap().to_be_bytes());
    let tcp = [0x0f, 0xa0, 0, 80, 0xff, 0xff, 0xff, 0, 0, 0, 0, 7, 0x50, 0x19, 0x20, 0, 0, 0, 0, 0];
    let data = (0..bytes).map(|place| u8::try_from(place % 251).unwrap());
    [2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 2, 8, 0].into_iter().chain(ip).chain(tcp).chain(data).collect()
}

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// The frame with the right checksums of IPv4 and of what it carries.
fn right(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let ip = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    let sum_at = if frame[23] == 6 { 50 } else { 40 };
    frame[sum_at..sum_at + 2].fill(0);
    let length = u16::try_from(frame.len() - 34).unwrap().to_be_bytes();
    let sum = checksum(&[&frame[26..34], &[0, frame[23]], &length, &frame[34..]].concat());
    frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A datagram with so much data.
fn datagram(bytes: usize) -> Vec<u8> {
    let mut frame = segment(bytes);
    frame.splice(34..54, [0x0f, 0xa0, 0, 80, 0, 0, 0, 0]);
    frame[23] = 17;
    let [ip, udp] = [28, 8].map(|headers| u16::try_from(headers + bytes).unwrap().to_be_bytes());
    frame[16..18].copy_from_slice(&ip);
    frame[38..40].copy_from_slice(&udp);
    frame
}

/// The frame with wrong ones. (A datagram's sum of zero is none, and testpmd has none filled in.)
fn wrong(frame: Vec<u8>) -> Vec<u8> {
    let mut frame = right(frame);
    let sum_at = if frame[23] == 6 { 50 } else { 40 };
    [25, sum_at + 1].into_iter().for_each(|at| frame[at] ^= 0x55);
    frame
}

/// As testpmd sends it on when it looks at checksums: from its own port to the first of the ports that it takes for others.
fn sent_on(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0]);
    frame
}

/// The frames that a large segment is cut into.
fn cut(whole: &[u8], most: usize) -> Vec<Vec<u8>> {
    let last = whole[54..].len().div_ceil(most) - 1;
    let frames = whole[54..].chunks(most).enumerate().map(|(number, data)| {
        let mut frame = [&whole[..54], data].concat();
        frame[16..18].copy_from_slice(&u16::try_from(40 + data.len()).unwrap().to_be_bytes());
        frame[19] += u8::try_from(number).unwrap();
        let sequence = 0xffff_ff00_u32.wrapping_add(u32::try_from(number * most).unwrap());
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        // The last one pushes, and is the end.
        frame[47] = if number == last { 0x19 } else { 0x10 };
        right(frame)
    });
    frames.collect()
}

fn start(profile: &str, devargs: &str, settings: &[&str]) -> Testpmd {
    let mut testpmd = Testpmd::launch(profile, &[], &["-a", &format!("0000:03:00.0,{devargs}")], &[]);
    testpmd.command("port stop 0");
    for setting in settings {
        let said = testpmd.command(setting);
        assert!(!said.to_lowercase().contains("error"), "{said}");
    }
    testpmd.command("port start 0");
    testpmd.command("start");
    testpmd
}

const CHECKSUMS: [&str; 4] = ["csum set ip hw 0", "csum set tcp hw 0", "csum set udp hw 0", "set fwd csum"];

#[test]
fn checksums_that_testpmd_leaves_to_the_device_are_right_on_the_wire() {
    for (profile, several) in [("connectx-5", 0), ("connectx-5", 1), ("bluefield-3", 1)] {
        let testpmd = start(profile, &format!("txq_mpw_en={several}"), &CHECKSUMS);
        for frame in [segment(100), datagram(31), segment(1400), datagram(1)] {
            // It leaves alone what it has got.
            testpmd.send(WIRE, &wrong(frame.clone()));
            assert_eq!(testpmd.receive(WIRE), sent_on(right(frame)), "{profile}");
        }
        testpmd.quit();
    }
}

#[test]
fn a_large_segment_leaves_in_frames_of_the_size_that_testpmd_wants() {
    const MOST: usize = 600;
    let settings = [&CHECKSUMS[..], &["tso set 600 0"]].concat();
    let testpmd = start("bluefield-2", "txq_mpw_en=0", &settings);
    let whole = segment(1400);
    testpmd.send(WIRE, &wrong(whole.clone()));
    for (number, frame) in cut(&whole, MOST).into_iter().enumerate() {
        assert_eq!(testpmd.receive(WIRE), sent_on(frame), "frame {number}");
    }
    // One that fits goes as it is.
    testpmd.send(WIRE, &wrong(segment(MOST)));
    assert_eq!(testpmd.receive(WIRE), sent_on(right(segment(MOST))));
    testpmd.quit();
}

#[test]
fn frames_leave_in_their_order_with_several_in_a_request() {
    for several in [0, 1] {
        let testpmd = start("connectx-7", &format!("txq_mpw_en={several}"), &["set fwd io"]);
        // Small ones go into requests, and large ones stay where they are.
        let frames: Vec<_> = [10, 1400, 20, 30, 40, 1300, 50, 1200].into_iter().cycle().take(64).map(segment).collect();
        for frame in &frames {
            testpmd.send(WIRE, frame);
        }
        for frame in &frames {
            assert_eq!(testpmd.receive(WIRE), *frame);
        }
        testpmd.quit();
    }
}

/// The frame in a VXLAN tunnel, without a checksum of the datagram.
fn tunnelled(inner: &[u8]) -> Vec<u8> {
    let mut frame = datagram(0);
    frame.extend([8, 0, 0, 0, 0, 0, 77, 0]);
    frame.extend(inner);
    frame[36..38].copy_from_slice(&4789_u16.to_be_bytes());
    let length = frame.len();
    for (at, from) in [(16, 14), (38, 34)] {
        frame[at..at + 2].copy_from_slice(&u16::try_from(length - from).unwrap().to_be_bytes());
    }
    let ip = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    frame
}

#[test]
fn what_is_in_a_tunnel_gets_its_checksums_and_is_cut_too() {
    const MOST: usize = 600;
    let settings =
        [&CHECKSUMS[..], &["csum set outer-ip hw 0", "csum parse-tunnel on 0", "tunnel_tso set 600 0"]].concat();
    let testpmd = start("bluefield-2", "txq_mpw_en=0", &settings);
    let inner = segment(1000);
    let mut frame = tunnelled(&wrong(inner.clone()));
    frame[25] ^= 0x55;
    testpmd.send(WIRE, &frame);
    for (number, piece) in cut(&inner, MOST).iter().enumerate() {
        let mut wanted = tunnelled(piece);
        wanted[19] += u8::try_from(number).unwrap();
        wanted[24..26].fill(0);
        let ip = checksum(&wanted[14..34]);
        wanted[24..26].copy_from_slice(&ip.to_be_bytes());
        assert_eq!(testpmd.receive(WIRE), sent_on(wanted), "frame {number}");
    }
    testpmd.quit();
}
