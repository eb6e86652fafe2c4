//! Frames made by hand, without any code of the software NIC.

pub(crate) const SOURCE_MAC: [u8; 6] = [0x02, 0xaa, 0, 0, 0, 1];
pub(crate) const TARGET_MAC: [u8; 6] = [0x02, 0xbb, 0, 0, 0, 2];

pub(crate) fn ethernet(eth_type: u16, payload: &[u8]) -> Vec<u8> {
    [&TARGET_MAC[..], &SOURCE_MAC, &eth_type.to_be_bytes(), payload].concat()
}

/// The frame with one more tag in front of its others.
pub(crate) fn tagged(tpid: u16, control: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &control.to_be_bytes(), &frame[12..]].concat()
}

#[derive(Clone)]
pub(crate) struct Ipv4 {
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) source: [u8; 4],
    pub(crate) target: [u8; 4],
}

impl Default for Ipv4 {
    fn default() -> Self {
        Self { tos: 0x28, ttl: 64, fragment: 0, options: vec![], source: [10, 0, 0, 1], target: [10, 0, 0, 2] }
    }
}

impl Ipv4 {
    /// The packet, with right checksums.
    pub(crate) fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let pseudo = [&self.source[..], &self.target].concat();
        let is_later = self.fragment & 0x1fff != 0;
        let payload = if is_later { payload.to_vec() } else { with_checksum(payload, protocol, &pseudo) };
        let length = 20 + self.options.len();
        let mut header = vec![0x40 | u8::try_from(length / 4).unwrap(), self.tos];
        header.extend(u16::try_from(length + payload.len()).unwrap().to_be_bytes());
        header.extend([0x12, 0x34]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend([&self.source[..], &self.target, &self.options].concat());
        let checksum = internet_checksum(&[&header]);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        [header, payload].concat()
    }

    pub(crate) fn frame(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        ethernet(0x0800, &self.packet(protocol, payload))
    }
}

#[derive(Clone)]
pub(crate) struct Ipv6 {
    pub(crate) class: u8,
    pub(crate) label: u32,
    pub(crate) hops: u8,
    pub(crate) source: u128,
    pub(crate) target: u128,
    /// Extension headers: the type of the first and all of their bytes, whose last names what is behind them.
    pub(crate) extensions: Option<(u8, Vec<u8>)>,
}

pub(crate) const SOURCE_V6: u128 = 0xfd00_0000_0000_0000_0000_0000_0000_0001;
pub(crate) const TARGET_V6: u128 = 0xfd00_0000_0000_0000_0000_0000_0000_0002;

impl Default for Ipv6 {
    fn default() -> Self {
        let (source, target) = (SOURCE_V6, TARGET_V6);
        Self { class: 0x28, label: 0x12345, hops: 64, source, target, extensions: None }
    }
}

impl Ipv6 {
    pub(crate) fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let pseudo = [self.source.to_be_bytes(), self.target.to_be_bytes()].concat();
        let payload = with_checksum(payload, protocol, &pseudo);
        let (next, extensions) = self.extensions.clone().unwrap_or((protocol, vec![]));
        let mut header = (6 << 28 | u32::from(self.class) << 20 | self.label).to_be_bytes().to_vec();
        header.extend(u16::try_from(extensions.len() + payload.len()).unwrap().to_be_bytes());
        header.extend([next, self.hops]);
        header.extend(pseudo);
        [header, extensions, payload].concat()
    }

    pub(crate) fn frame(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        ethernet(0x86dd, &self.packet(protocol, payload))
    }
}

pub(crate) fn tcp(source: u16, target: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    tcp_at(source, target, flags, (0x0100_0001, 0x0200_0002), payload)
}

/// With sequence and acknowledgement number.
pub(crate) fn tcp_at(source: u16, target: u16, flags: u16, (seq, ack): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), target.to_be_bytes()].concat();
    bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    bytes.extend((0x5000 | flags).to_be_bytes());
    bytes.extend([0x20, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

pub(crate) fn udp(source: u16, target: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut bytes = [source, target, length, 0].map(u16::to_be_bytes).concat();
    bytes.extend(payload);
    bytes
}

pub(crate) fn sctp(source: u16, target: u16, chunks: &[u8]) -> Vec<u8> {
    sctp_tagged(source, target, 0xdead_beef, chunks)
}

/// With a verification tag.
pub(crate) fn sctp_tagged(source: u16, target: u16, tag: u32, chunks: &[u8]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), target.to_be_bytes()].concat();
    bytes.extend([tag.to_be_bytes(), [0; 4]].concat());
    bytes.extend(chunks);
    bytes
}

/// ICMP or ICMPv6.
pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], rest].concat()
}

/// A neighbour solicitation (135) or advertisement (136) with the link-layer address of its sender or target.
pub(crate) fn neighbour(kind: u8) -> Vec<u8> {
    let (option, mac) = if kind == 135 { (1, SOURCE_MAC) } else { (2, TARGET_MAC) };
    let rest = [&[0; 4], &TARGET_V6.to_be_bytes()[..], &[option, 1], &mac].concat();
    icmp(kind, 0, &rest)
}

pub(crate) fn arp(eth_type: u16, operation: u16) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4];
    bytes.extend(operation.to_be_bytes());
    bytes.extend([&SOURCE_MAC[..], &[10, 0, 0, 1], &TARGET_MAC, &[10, 0, 0, 2]].concat());
    ethernet(eth_type, &bytes)
}

/// A label stack of these entries, as (label, traffic class, time to live), in front of an IPv4 packet.
pub(crate) fn labelled(entries: &[(u32, u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![];
    for (number, (label, class, ttl)) in entries.iter().enumerate() {
        let bottom = u32::from(number + 1 == entries.len());
        bytes.extend((label << 12 | class << 9 | bottom << 8 | ttl).to_be_bytes());
    }
    bytes.extend(Ipv4::default().packet(17, &udp(1000, 2000, b"labelled")));
    ethernet(0x8847, &bytes)
}

/// An NSH header of type 1 in front of an Ethernet frame.
pub(crate) fn service(path: u32, index: u8, contexts: [u32; 4]) -> Vec<u8> {
    let (ttl, length) = (63u16, 6u16);
    let mut bytes = (ttl << 6 | length).to_be_bytes().to_vec();
    bytes.extend([1, 3]);
    bytes.extend((path << 8 | u32::from(index)).to_be_bytes());
    bytes.extend(contexts.map(u32::to_be_bytes).concat());
    bytes.extend(Ipv4::default().frame(17, &udp(1000, 2000, b"service")));
    ethernet(0x894f, &bytes)
}

/// The payload with its checksum in the place where the protocol has it.
fn with_checksum(payload: &[u8], protocol: u8, pseudo: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    let pseudo = [pseudo, &length, &[0, 0, 0, protocol]].concat();
    let (at, checksum) = match protocol {
        1 => (2, internet_checksum(&[&bytes])),
        6 => (16, internet_checksum(&[&pseudo, &bytes])),
        17 => (6, internet_checksum(&[&pseudo, &bytes])),
        58 => (2, internet_checksum(&[&pseudo, &bytes])),
        33 | 136 => (6, internet_checksum(&[&pseudo, &bytes])),
        132 => {
            let checksum = crc32c(&bytes).to_le_bytes();
            bytes[8..12].copy_from_slice(&checksum);
            return bytes;
        }
        _ => return bytes,
    };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// RFC 1071; each part has an even length but the last.
pub(crate) fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// RFC 9260, appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}
