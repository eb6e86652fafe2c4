//! Frames of control traffic, and frames that resemble them, each with the class that it is of by the standards.

use sluice_control::mirror::Class;

/// A frame, and what it is.
pub struct Sample {
    /// What it is, in a word or two.
    pub name: &'static str,
    /// The class; `None` if it is no control traffic that is mirrored.
    pub class: Option<Class>,
    /// The frame, without FCS.
    pub frame: Vec<u8>,
}

const DOT1Q: [u8; 4] = [0x81, 0x00, 0x00, 0x07];
const DOT1AD: [u8; 4] = [0x88, 0xa8, 0x60, 0x09];

/// Returns the frames. The first is an ARP request without a tag.
pub fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |name, class, frame| samples.push(Sample { name, class, frame });
    let arp = payload(0x0806, &[&[0, 1, 8, 0, 6, 4, 0, 1][..], &[2; 20]].concat());
    add("arp", Some(Class::Arp), arp.clone());
    add("arp reply", Some(Class::Arp), payload(0x0806, &[&[0, 1, 8, 0, 6, 4, 0, 2][..], &[3; 20]].concat()));
    add("rarp", None, payload(0x8035, &[0; 28]));
    for kind in 133..=137 {
        add("nd", Some(Class::Nd), ipv6(58, &[], &[&[kind, 0, 0, 0][..], &[0; 20]].concat()));
    }
    for kind in [128, 129, 132, 138, 143] {
        add("other icmpv6", None, ipv6(58, &[], &[&[kind, 0, 0, 0][..], &[0; 20]].concat()));
    }
    add("nd over ipv4", None, ipv4(58, 0, &[&[135, 0, 0, 0][..], &[0; 20]].concat()));
    add("nd behind options", Some(Class::Nd), ipv6(58, &[0, 60, 43], &[&[135, 0, 0, 0][..], &[0; 20]].concat()));
    add("lldp", Some(Class::Lldp), payload(0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 1, 4, 2, 5, 49, 6, 2, 0, 120, 0, 0]));
    add("lacp", Some(Class::Lacp), payload(0x8809, &[&[1, 1, 1, 20][..], &[0; 106]].concat()));
    add("eapol", None, payload(0x888e, &[1, 1, 0, 0]));
    for (name, from, to, class) in [
        ("dhcp request", 68, 67, Some(Class::Dhcp)),
        ("dhcp answer", 67, 68, Some(Class::Dhcp)),
        ("from a dhcp port", 67, 4000, None),
        ("beside dhcp", 4000, 66, None),
        ("bfd", 49_152, 3784, Some(Class::Bfd)),
        ("bfd echo", 49_152, 3785, Some(Class::Bfd)),
        ("bfd multihop", 49_152, 4784, Some(Class::Bfd)),
        ("beside bfd", 49_152, 3786, None),
        ("beside multihop bfd", 49_152, 4785, None),
        ("udp port of bgp", 179, 179, None),
        ("dns", 40_000, 53, None),
    ] {
        add(name, class, ipv4(17, 0, &ports(from, to, 40)));
    }
    for (name, from, to, class) in [
        ("dhcpv6 answer", 547, 546, Some(Class::Dhcp)),
        ("dhcpv6 request", 546, 547, Some(Class::Dhcp)),
        ("beside dhcpv6", 546, 548, None),
        ("dhcp port over ipv6", 68, 67, None),
        ("bfd over ipv6", 49_152, 3784, Some(Class::Bfd)),
        ("bfd multihop over ipv6", 49_152, 4784, Some(Class::Bfd)),
    ] {
        add(name, class, ipv6(17, &[], &ports(from, to, 40)));
    }
    for (name, from, to, class) in [
        ("to bgp", 40_000, 179, Some(Class::Bgp)),
        ("from bgp", 179, 40_000, Some(Class::Bgp)),
        ("both bgp", 179, 179, Some(Class::Bgp)),
        ("http", 40_000, 80, None),
        ("tcp port of bfd", 40_000, 3784, None),
    ] {
        add(name, class, ipv4(6, 0, &ports(from, to, 20)));
        add(name, class, ipv6(6, &[], &ports(from, to, 20)));
    }
    add("ospf", Some(Class::Ospf), ipv4(89, 0, &[2; 44]));
    add("ospfv3", Some(Class::Ospf), ipv6(89, &[], &[3; 36]));
    add("later fragment of ospf", Some(Class::Ospf), ipv4(89, 8, &[3; 44]));
    add("later fragment of bfd", None, ipv4(17, 8, &ports(49_152, 3784, 40)));
    add("first fragment of bfd", None, ipv4(17, 0x2000, &ports(49_152, 3784, 40)));
    add("later fragment of nd", None, ipv6(58, &[44], &[&[135, 0, 0, 0][..], &[0; 20]].concat()));
    add("eigrp", None, ipv4(88, 0, &[2; 44]));
    add("bfd behind options of ipv4", Some(Class::Bfd), with_options(&ipv4(17, 0, &ports(49_152, 3784, 40))));
    let untagged: Vec<_> = samples.iter().map(|sample| (sample.name, sample.class, sample.frame.clone())).collect();
    let wanted = ["arp", "lldp", "lacp", "bfd", "from bgp", "ospfv3", "dhcp request", "nd", "dns", "bfd over ipv6"];
    for (name, class, frame) in untagged.into_iter().filter(|(name, ..)| wanted.contains(name)) {
        for tags in [&[DOT1Q][..], &[DOT1AD], &[DOT1Q, DOT1Q], &[DOT1AD, DOT1Q]] {
            let tagged = [&frame[..12], &tags.concat(), &frame[12..]].concat();
            samples.push(Sample { name: "tagged", class, frame: tagged });
        }
        if name == "arp" {
            let jumbo = [&frame[..], &vec![0; 9000]].concat();
            samples.push(Sample { name: "jumbo", class, frame: jumbo });
        }
    }
    samples
}

/// Returns a capture of frames (`pcap`, in microseconds).
pub fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    for frame in frames {
        let length = u32::try_from(frame.len()).expect("a frame is short");
        bytes.extend([0, 0, length, length].map(u32::to_be_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

/// An Ethernet frame, of 60 bytes at least.
fn payload(ethernet_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethernet_type.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ports(from: u16, to: u16, rest: usize) -> Vec<u8> {
    let length = u16::try_from(8 + rest).expect("a datagram is short");
    let mut header = [from, to, length, 0].map(u16::to_be_bytes).concat();
    // As TCP it has a header of five words.
    header.extend([0, 0, 0, 0, 0x50, 0x02]);
    header.resize(8 + rest, 0);
    header
}

fn ipv4(protocol: u8, fragment_offset: u16, transport: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + transport.len()).expect("a packet is short").to_be_bytes();
    let offset = fragment_offset.to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0, 1, offset[0], offset[1], 64, protocol, 0, 0];
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    fill_checksum(&mut header);
    payload(0x0800, &[&header, transport].concat())
}

/// The same packet with four bytes of options.
fn with_options(frame: &[u8]) -> Vec<u8> {
    let mut packet = [&frame[14..34], &[1, 1, 1, 0], &frame[34..]].concat();
    packet[0] = 0x46;
    let length = u16::from_be_bytes([packet[2], packet[3]]) + 4;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    fill_checksum(&mut packet[..24]);
    payload(0x0800, &packet)
}

fn fill_checksum(header: &mut [u8]) {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("sixteen bits");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// A packet with extension headers of 8 bytes before its protocol.
fn ipv6(protocol: u8, extensions: &[u8], transport: &[u8]) -> Vec<u8> {
    let next = |place: usize| extensions.get(place).copied().unwrap_or(protocol);
    let length = u16::try_from(8 * extensions.len() + transport.len()).expect("a packet is short").to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], next(0), 255];
    packet.extend([[0x20, 1, 0x0d, 0xb8], [0; 4], [0; 4], [0, 0, 0, 1]].concat());
    packet.extend([[0x20, 1, 0x0d, 0xb8], [0; 4], [0; 4], [0, 0, 0, 2]].concat());
    for place in 1..=extensions.len() {
        // Six bytes of padding (PadN).
        packet.extend([next(place), 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend(transport);
    payload(0x86dd, &packet)
}
