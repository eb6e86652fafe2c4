//! Frames made by hand, and checksums computed in full, without any code of the crate under test.

pub(crate) const SRC_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
pub(crate) const DST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];
pub(crate) const SRC_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
pub(crate) const DST_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;

pub(crate) fn eth(ethernet_type: u16, payload: &[u8]) -> Vec<u8> {
    [&DST_MAC[..], &SRC_MAC, &ethernet_type.to_be_bytes(), payload].concat()
}

pub(crate) fn tagged(tpid: u16, tci: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &tci.to_be_bytes(), &frame[12..]].concat()
}

pub(crate) struct Ip4 {
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
}

impl Default for Ip4 {
    fn default() -> Self {
        Self { tos: 0, ttl: 64, fragment: 0, options: vec![], source: [10, 0, 0, 1], destination: [10, 0, 0, 2] }
    }
}

impl Ip4 {
    pub(crate) fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut bytes = vec![0x40 | u8::try_from(header / 4).unwrap(), self.tos];
        bytes.extend(u16::try_from(header + payload.len()).unwrap().to_be_bytes());
        bytes.extend([0x12, 0x34]);
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.ttl, protocol, 0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.options);
        bytes.extend(payload);
        bytes
    }

    pub(crate) fn frame(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        fill(eth(0x0800, &self.packet(protocol, payload)))
    }
}

pub(crate) fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x6a, 0xb1, 0x23, 0x45];
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([next_header, 63]);
    bytes.extend(SRC_V6.to_be_bytes());
    bytes.extend(DST_V6.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn v6_frame(next_header: u8, payload: &[u8]) -> Vec<u8> {
    fill(eth(0x86dd, &ipv6(next_header, payload)))
}

pub(crate) fn tcp(source: u16, destination: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    bytes.extend((0x5000 | flags).to_be_bytes());
    bytes.extend([0x20, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut bytes = [source, destination, length, 0].map(u16::to_be_bytes).concat();
    bytes.extend(payload);
    bytes
}

pub(crate) fn sctp(source: u16, destination: u16, chunks: &[u8]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0]);
    bytes.extend(chunks);
    bytes
}

pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], rest].concat()
}

pub(crate) fn arp(operation: u16) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4];
    bytes.extend(operation.to_be_bytes());
    bytes.extend(SRC_MAC);
    bytes.extend([10, 0, 0, 1]);
    bytes.extend([0; 6]);
    bytes.extend([10, 0, 0, 2]);
    eth(0x0806, &bytes)
}

/// Puts all checksums in.
pub(crate) fn fill(mut frame: Vec<u8>) -> Vec<u8> {
    for (at, value) in checksums(&frame) {
        frame[at..at + value.len()].copy_from_slice(&value);
    }
    frame
}

/// Insists that all checksums are right; a UDP checksum of zero is none.
pub(crate) fn verify(frame: &[u8]) {
    for (at, value) in checksums(frame) {
        let is_none = value.len() == 2 && frame[at..at + 2] == [0, 0];
        assert!(
            is_none || frame[at..at + value.len()] == value,
            "checksum at {at}: {:02x?}",
            &frame[at..at + value.len()]
        );
    }
}

/// Where checksums stand, and what they must be, computed in full.
fn checksums(frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut at = 12;
    while matches!(word(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let mut found = vec![];
    let (protocol, transport, end, pseudo) = match word(at) {
        0x0800 => {
            let header = usize::from(frame[ip] & 15) * 4;
            let mut bytes = frame[ip..ip + header].to_vec();
            bytes[10..12].fill(0);
            found.push((ip + 10, internet(&[&bytes]).to_be_bytes().to_vec()));
            if word(ip + 6) & 0x3fff != 0 {
                return found;
            }
            (frame[ip + 9], ip + header, ip + usize::from(word(ip + 2)), frame[ip + 12..ip + 20].to_vec())
        }
        0x86dd => {
            let (mut next, mut transport) = (frame[ip + 6], ip + 40);
            while matches!(next, 0 | 43 | 44 | 60) {
                if next == 44 && word(transport + 2) & 0xfff9 != 0 {
                    return found;
                }
                let length = if next == 44 { 8 } else { (usize::from(frame[transport + 1]) + 1) * 8 };
                next = frame[transport];
                transport += length;
            }
            (next, transport, ip + 40 + usize::from(word(ip + 4)), frame[ip + 8..ip + 40].to_vec())
        }
        _ => return found,
    };
    let mut body = frame[transport..end].to_vec();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let trailer = [&length[..], &[0, protocol]].concat();
    let (offset, with_pseudo) = match protocol {
        1 => (2, false),
        6 => (16, true),
        17 => (6, true),
        58 => (2, true),
        132 => {
            body[8..12].fill(0);
            found.push((transport + 8, castagnoli(&body).to_le_bytes().to_vec()));
            return found;
        }
        _ => return found,
    };
    body[offset..offset + 2].fill(0);
    let parts: &[&[u8]] = if with_pseudo { &[&pseudo, &trailer, &body] } else { &[&body] };
    let mut sum = internet(parts);
    if protocol == 17 && sum == 0 {
        sum = 0xffff;
    }
    found.push((transport + offset, sum.to_be_bytes().to_vec()));
    found
}

/// RFC 1071, the slow way: all parts but the last are of even length.
fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for word in parts.concat().chunks(2) {
        sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// CRC32c, bit by bit.
fn castagnoli(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for bit in bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
        let feedback = crc & 1 ^ u32::from(bit);
        crc = crc >> 1 ^ (0x82f6_3b78 * feedback);
    }
    !crc
}
