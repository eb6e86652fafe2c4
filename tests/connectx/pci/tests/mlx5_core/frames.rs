//! Frames, built header by header from the inside out.

/// Where hosts' frames go: the address of no function of the device.
pub(crate) const ROUTER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
pub(crate) const HOST: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&ROUTER[..], &HOST, &ethertype.to_be_bytes(), payload].concat()
}

pub(crate) fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, length[0], length[1], 0, 1, 0, 0, 64, protocol, 0, 0];
    packet.extend(source);
    packet.extend(destination);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(crate) fn ipv6(source: u128, destination: u128, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend(payload);
    packet
}

/// A UDP datagram without a checksum, of 26 bytes in all.
pub(crate) fn datagram(source_port: u16, destination_port: u16) -> Vec<u8> {
    let words = [source_port, destination_port, 26, 0];
    let mut datagram: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    datagram.resize(26, 0x5a);
    datagram
}

/// A TCP segment without data or checksum.
pub(crate) fn segment(source_port: u16, destination_port: u16, flags: u8) -> Vec<u8> {
    let mut segment: Vec<u8> = [source_port, destination_port].iter().flat_map(|word| word.to_be_bytes()).collect();
    segment.extend([0; 8]);
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment
}

/// An end of a connection: address and port.
pub(crate) type End = ([u8; 4], u16);

/// A TCP segment without data, from one end to the other, with its sequence number, what it acknowledges, its flags and its checksum.
pub(crate) fn tcp(from: End, to: End, [sequence, acknowledged]: [u32; 2], flags: u8) -> Vec<u8> {
    let mut segment = segment(from.1, to.1, flags);
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
    let sum = checksum(&[&from.0[..], &to.0, &[0, 6], &length, &segment].concat());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x0800, &ipv4(from.0, to.0, 6, &segment))
}

/// Bytes of the frames of [`udp`].
pub(crate) const UDP: usize = 60;

pub(crate) fn udp(source: [u8; 4], destination: [u8; 4], source_port: u16, destination_port: u16) -> Vec<u8> {
    ethernet(0x0800, &ipv4(source, destination, 17, &datagram(source_port, destination_port)))
}

pub(crate) fn tcp_v6(source: u128, destination: u128) -> Vec<u8> {
    ethernet(0x86dd, &ipv6(source, destination, 6, &segment(1000, 80, 0x02)))
}

/// A frame of IPv4 as a router sends it on, between two Ethernet addresses.
pub(crate) fn routed(mut frame: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    frame[..6].copy_from_slice(to);
    frame[6..12].copy_from_slice(from);
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The frame with a VLAN tag in front of its Ethernet type.
pub(crate) fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// The internet checksum.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
