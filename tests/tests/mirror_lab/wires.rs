//! Where mirrored frames come from in these stories, and frames of all kinds.

use std::net::UdpSocket;

use sluice_control::mirror::{Class, Plan, Tap};
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::batch;

/// A network device that says nothing by itself, and into which frames are let in.
pub(crate) fn wire(name: &str) -> Wire {
    let wire = Wire::new(name);
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
    batch(&[format!("link set {name} mtu 9000 arp off up")]);
    wire
}

/// A plan that copies these classes at one device.
pub(crate) fn plan(netdev: &str, classes: &[Class]) -> Plan {
    let classes: sluice_control::mirror::ClassSet = classes.iter().copied().collect();
    let tap = Tap { in_port: Some(1), name: netdev.to_owned(), netdev: Some(netdev.to_owned()), classes };
    Plan { collector: String::new(), classes, taps: vec![tap] }
}

/// Frames of many kinds and lengths, each with a number of its own.
pub(crate) fn frames(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(frame).collect()
}

fn frame(number: u32) -> Vec<u8> {
    const TAGS: [&[u8]; 4] = [&[], &[0x81, 0x00, 0x20, 0x07], &[0x88, 0xa8, 0x00, 0x64, 0x81, 0x00, 0xe0, 0x01], &[]];
    const TYPES: [[u8; 2]; 4] = [[0x88, 0xcc], [0x88, 0x09], [0x08, 0x06], [0x88, 0xb5]];
    let at = number as usize;
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1];
    frame.extend(TAGS[at % TAGS.len()]);
    frame.extend(TYPES[at / 3 % TYPES.len()]);
    frame.extend(number.to_be_bytes());
    let length = if number.is_multiple_of(50) { 9000 } else { 60 + at * 37 % 1440 };
    frame.extend((0..=250).cycle().take(length));
    frame
}

/// Whether a frame is of ARP, in whatever VLAN.
pub(crate) fn is_arp(frame: &[u8]) -> bool {
    let words = frame[12..].chunks_exact(4).map(|words| [words[0], words[1]]);
    let mut words = words;
    words.find(|word| !matches!(word, [0x81, 0x00] | [0x88, 0xa8])) == Some([8, 6])
}

/// Two ends of a cable, by which the host's own UDP goes out, with checksums that nobody has filled in.
pub(crate) fn host_cable() -> UdpSocket {
    batch(&[
        "link add u0 type veth peer name u1".into(),
        "link set u0 arp off up".into(),
        "link set u1 arp off up".into(),
        "address add 10.8.0.1/24 dev u0".into(),
        "neigh add 10.8.0.2 lladdr 02:00:00:00:00:02 dev u0 nud permanent".into(),
    ]);
    UdpSocket::bind("10.8.0.1:4000").unwrap()
}
