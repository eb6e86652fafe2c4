//! Changes to a frame: fields, tags, headers put in front and taken away. Checksums that were right stay right, and wrong ones
//! stay wrong, since they are updated by the difference (RFC 1624).

use std::ops::Range;

use super::{Headers, Ip, Layer, Transport, TunnelPorts};

/// Overwrites `new.len()` bytes at `at`, and updates the checksums that cover them. False if the frame ends before.
pub fn overwrite(frame: &mut [u8], headers: &Headers, at: usize, new: &[u8]) -> bool {
    if frame.get(at..at + new.len()).is_none() {
        return false;
    }
    let mut covers = Vec::new();
    for layer in std::iter::once(&headers.outer).chain(&headers.inner) {
        covers.extend(Cover::of(layer, frame));
    }
    overwrite_covered(frame, &covers, at, new);
    true
}

/// Puts a tag right behind the addresses of the Ethernet header at `ethernet`.
pub fn push_vlan(frame: &mut Vec<u8>, ethernet: usize, ethertype: u16, tci: u16) -> bool {
    let [a, b] = ethertype.to_be_bytes();
    let [c, d] = tci.to_be_bytes();
    insert(frame, ethernet + 12, &[a, b, c, d])
}

/// Puts bytes into the frame. False if it ends before `at`.
pub fn insert(frame: &mut Vec<u8>, at: usize, bytes: &[u8]) -> bool {
    if at > frame.len() {
        return false;
    }
    frame.splice(at..at, bytes.iter().copied());
    true
}

/// Takes bytes out of the frame. False if it ends before the last of them.
pub fn remove(frame: &mut Vec<u8>, range: Range<usize>) -> bool {
    if range.end > frame.len() || range.start > range.end {
        return false;
    }
    frame.drain(range);
    true
}

/// Puts tunnel headers in place of the first `strip` bytes. Lengths of the outer IP and UDP headers and the IPv4 checksum become
/// those of the whole; a UDP checksum is left as given; a UDP source port of 0 becomes one that stands for the flow inside, from
/// 0xc000 up, as a device does that computes entropy.
pub fn encapsulate(frame: &mut Vec<u8>, header: &[u8], strip: usize, ports: &TunnelPorts) -> bool {
    let entropy = entropy(&Headers::parse(frame, ports).outer);
    if strip > frame.len() {
        return false;
    }
    frame.splice(..strip, header.iter().copied());
    let length = frame.len();
    let outer = Headers::parse(frame, ports).outer;
    let Some(ip) = outer.ip else { return true };
    if let Some(Transport::Udp { at, source, .. }) = outer.transport {
        write_u16(frame, at + 4, length - at);
        if source == 0 {
            write_u16(frame, at, usize::from(entropy));
        }
    }
    complete_ip(frame, &ip);
    true
}

/// The Internet checksum of some bytes: the ones' complement of their ones' complement sum.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// What one checksum covers.
struct Cover {
    /// Offset of the checksum.
    at: usize,
    /// Bytes from here to there, and addresses of a pseudo header.
    bytes: Range<usize>,
    addresses: Range<usize>,
    /// What stands for a sum of zero: of UDP, that would be no checksum at all (RFC 768).
    zero: u16,
}

impl Cover {
    fn of(layer: &Layer, frame: &[u8]) -> Vec<Self> {
        let mut covers = Vec::new();
        let Some(ip) = &layer.ip else { return covers };
        if ip.version == 4 {
            covers.push(Self { at: ip.at + 10, bytes: ip.at..ip.payload, addresses: 0..0, zero: 0 });
        }
        let Some(transport) = &layer.transport else { return covers };
        let Some(at) = transport.checksum_at() else { return covers };
        let is_udp = matches!(transport, Transport::Udp { .. });
        let is_absent = is_udp && frame.get(at..at + 2) == Some(&[0, 0]);
        if !is_absent {
            let addresses = match (transport, ip.version) {
                (Transport::Icmp { .. }, _) => 0..0,
                (_, 4) => ip.at + 12..ip.at + 20,
                _ => ip.at + 8..ip.at + 40,
            };
            let zero = if is_udp { 0xffff } else { 0 };
            covers.push(Self { at, bytes: transport.at()..frame.len(), addresses, zero });
        }
        covers
    }

    fn covers(&self, at: usize) -> bool {
        at != self.at && (self.bytes.contains(&at) || self.addresses.contains(&at))
    }
}

/// Every header begins at an even offset, so that 16-bit words of the frame are those of the checksums.
fn overwrite_covered(frame: &mut [u8], covers: &[Cover], at: usize, new: &[u8]) {
    let words = at & !1..(at + new.len()).next_multiple_of(2).min(frame.len());
    let old = frame[words.clone()].to_vec();
    frame[at..at + new.len()].copy_from_slice(new);
    for cover in covers {
        let mut difference = 0;
        for (word, old) in words.clone().step_by(2).zip(old.chunks(2)) {
            if cover.covers(word) {
                difference += u32::from(!fold(sum(old))) + sum(&frame[word..(word + 2).min(frame.len())]);
            }
        }
        let Some(&[high, low]) = frame.get(cover.at..cover.at + 2) else { continue };
        if difference != 0 {
            let updated = !fold(u32::from(!u16::from_be_bytes([high, low])) + difference);
            let updated = if updated == 0 { cover.zero } else { updated };
            overwrite_covered(frame, covers, cover.at, &updated.to_be_bytes());
        }
    }
}

fn complete_ip(frame: &mut [u8], ip: &Ip) {
    let length = frame.len() - ip.at;
    if ip.version == 6 {
        write_u16(frame, ip.at + 4, length - 40);
        return;
    }
    write_u16(frame, ip.at + 2, length);
    write_u16(frame, ip.at + 10, 0);
    let sum = checksum(&frame[ip.at..ip.payload]);
    write_u16(frame, ip.at + 10, usize::from(sum));
}

/// Writes the low 16 bits of a number, as a length field does.
fn write_u16(frame: &mut [u8], at: usize, value: usize) {
    if let [.., high, low] = value.to_be_bytes()
        && let Some(field) = frame.get_mut(at..at + 2)
    {
        field.copy_from_slice(&[high, low]);
    }
}

fn entropy(layer: &Layer) -> u16 {
    const DYNAMIC_PORTS: u16 = 0xc000;
    let mut hash = 0x811c_9dc5_u32;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    match &layer.ip {
        Some(ip) => {
            mix(&ip.source.to_be_bytes());
            mix(&ip.destination.to_be_bytes());
            mix(&[ip.protocol]);
        }
        None => {
            if let Some(ethernet) = &layer.ethernet {
                mix(&ethernet.source);
                mix(&ethernet.destination);
            }
        }
    }
    if let Some(Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination, .. }) =
        layer.transport
    {
        mix(&source.to_be_bytes());
        mix(&destination.to_be_bytes());
    }
    let [a, b, c, d] = hash.to_be_bytes();
    DYNAMIC_PORTS | (u16::from_be_bytes([a, b]) ^ u16::from_be_bytes([c, d])) & 0x3fff
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}
