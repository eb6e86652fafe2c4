//! Packets for the tests of this folder, from the IP header on, made by hand.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use super::tuple::{Family, Located, Tuple, locate};
use crate::packet::checksum::{Sum, crc32c, pseudo_header};

pub(super) fn tuple(protocol: u8, source: &str, destination: &str) -> Tuple {
    let [source, destination] = [source, destination].map(|end| end.parse::<SocketAddr>().unwrap());
    Tuple {
        source: source.ip(),
        destination: destination.ip(),
        protocol,
        source_port: source.port(),
        destination_port: destination.port(),
    }
}

pub(super) fn v4(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(source.parse::<Ipv4Addr>().unwrap().octets());
    bytes.extend(destination.parse::<Ipv4Addr>().unwrap().octets());
    bytes.extend(payload);
    bytes
}

pub(super) fn v6(source: &str, destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    bytes.extend(destination.parse::<Ipv6Addr>().unwrap().octets());
    bytes.extend(payload);
    bytes
}

/// A TCP segment; `payload` may also stand for options, with the length of the header changed afterwards.
pub(super) fn tcp(
    source: u16,
    destination: u16,
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([0x50, flags]);
    bytes.extend(window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

pub(super) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut bytes = [source, destination, length, 0].map(u16::to_be_bytes).concat();
    bytes.extend(payload);
    bytes
}

pub(super) fn sctp(source: u16, destination: u16, tag: u32, chunks: &[u8]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend(tag.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(chunks);
    bytes
}

/// An IPv4 fragment of a UDP payload.
pub(super) fn piece_v4(payload: &[u8], cut: Range<usize>, identification: u16) -> Vec<u8> {
    let more = if cut.end == payload.len() { 0 } else { 0x2000 };
    let offset = u16::try_from(cut.start / 8).unwrap();
    let mut packet = v4("10.0.0.1", "10.0.0.2", 17, &payload[cut]);
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    packet[6..8].copy_from_slice(&(more | offset).to_be_bytes());
    packet
}

/// An IPv6 fragment of a UDP payload.
pub(super) fn piece_v6(payload: &[u8], cut: Range<usize>, identification: u16) -> Vec<u8> {
    let more = u16::from(cut.end != payload.len());
    let offset = u16::try_from(cut.start).unwrap();
    let mut body = vec![17, 0];
    body.extend((offset | more).to_be_bytes());
    body.extend([0, 0]);
    body.extend(identification.to_be_bytes());
    body.extend(&payload[cut]);
    v6("fd00::1", "fd00::2", 44, &body)
}

fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        1 | 58 => Some(2),
        6 => Some(16),
        17 => Some(6),
        _ => None,
    }
}

fn transport_sum(packet: &[u8], located: &Located) -> u16 {
    let body = &packet[located.transport..];
    let (source, destination) =
        if located.source.is_ipv4() { (&packet[12..16], &packet[16..20]) } else { (&packet[8..24], &packet[24..40]) };
    match located.protocol {
        1 => Sum::default().bytes(body).finish(),
        protocol => pseudo_header(source, destination, protocol, body.len()).bytes(body).finish(),
    }
}

/// A packet with all of its checksums.
pub(super) fn summed(family: Family, mut packet: Vec<u8>) -> Vec<u8> {
    if family == Family::V4 {
        packet[10..12].fill(0);
        let sum = Sum::default().bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
            return packet;
        }
    }
    let located = locate(&packet, family).unwrap();
    let start = located.transport;
    if located.protocol == 132 {
        packet[start + 8..start + 12].fill(0);
        let crc = crc32c(&[&packet[start..]]);
        packet[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    } else if let Some(at) = checksum_at(located.protocol) {
        packet[start + at..start + at + 2].fill(0);
        let sum = transport_sum(&packet, &located);
        packet[start + at..start + at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Whether all checksums of a packet are what they are when computed in full.
pub(super) fn is_summed(packet: &[u8], family: Family) -> bool {
    summed(family, packet.to_vec()) == packet
}
