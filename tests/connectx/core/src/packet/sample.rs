//! Frames for tests, built header by header from the inside out.

use super::edit::checksum;

pub(crate) const HOST: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
pub(crate) const GUEST: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// An Ethernet frame from [`GUEST`] to [`HOST`].
pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&HOST[..], &GUEST, &ethertype.to_be_bytes(), payload].concat()
}

/// A VLAN tag and what follows: the payload of a frame whose EtherType is the tag's.
pub(crate) fn tagged(tci: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&tci.to_be_bytes()[..], &ethertype.to_be_bytes(), payload].concat()
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

/// A UDP datagram without a checksum.
pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut datagram: Vec<u8> = [source, destination, length, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    datagram.extend(payload);
    datagram
}

/// A TCP segment without a checksum; see [`with_checksum`].
pub(crate) fn tcp(source: u16, destination: u16, flags: u16) -> Vec<u8> {
    let mut segment: Vec<u8> = [source, destination].iter().flat_map(|word| word.to_be_bytes()).collect();
    segment.extend(0x0102_0304_u32.to_be_bytes());
    segment.extend(0x0506_0708_u32.to_be_bytes());
    segment.extend((0x5000 | flags).to_be_bytes());
    segment.extend([0x10, 0, 0, 0, 0, 0]);
    segment
}

/// Fills in the transport checksum, at `field` in `segment`, for IPv4 addresses.
pub(crate) fn with_checksum(
    mut segment: Vec<u8>,
    field: usize,
    (source, destination): ([u8; 4], [u8; 4]),
    protocol: u8,
) -> Vec<u8> {
    let sum = transport_checksum(&segment, source, destination, protocol);
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// Zero over a segment whose checksum is right.
pub(crate) fn transport_checksum(segment: &[u8], source: [u8; 4], destination: [u8; 4], protocol: u8) -> u16 {
    let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
    checksum(&[&source[..], &destination, &[0, protocol], &length, segment].concat())
}

/// A VXLAN header and the frame in it: the payload of UDP to port 4789.
pub(crate) fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), frame].concat()
}

/// TCP from 10.0.0.1:1000 to 10.0.0.2:80 with right checksums.
pub(crate) fn tcp_frame() -> Vec<u8> {
    let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let segment = with_checksum(tcp(1000, 80, 0x12), 16, (source, destination), 6);
    ethernet(0x0800, &ipv4(source, destination, 6, &segment))
}

/// [`tcp_frame`] in VXLAN 42, from 192.0.2.1 to 192.0.2.2.
pub(crate) fn vxlan_frame() -> Vec<u8> {
    let datagram = udp(0xc123, 4789, &vxlan(42, &tcp_frame()));
    ethernet(0x0800, &ipv4([192, 0, 2, 1], [192, 0, 2, 2], 17, &datagram))
}
