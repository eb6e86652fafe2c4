//! Frames out of full keys. Written from the protocols alone: it judges the product's packet code and shares none of it.

use sluice_flow::field::{FRAGMENT_FIRST, FRAGMENT_LATER, Field, MPLS_ENTRIES};
use sluice_flow::key::Key;

/// What a frame has besides what its key says.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// What follows the last header.
    pub payload: Vec<u8>,
    /// Words of four bytes of options of the IPv4 header, at most 10.
    pub ipv4_options: usize,
    /// Whether IPv6 has hop-by-hop and destination options, and an authentication header.
    pub ipv6_extensions: bool,
    /// Words of four bytes of options of the TCP header, at most 10.
    pub tcp_options: usize,
    /// A wrong checksum in the header of the network or of the transport.
    pub wrong_checksum: Option<WrongChecksum>,
    /// Bytes of padding behind the packet.
    pub padding: usize,
}

/// Which checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongChecksum {
    /// That of IPv4.
    Network,
    /// That of TCP, UDP, SCTP, ICMP or ICMPv6.
    Transport,
}

/// The frame that has this key, from the Ethernet header on, or from the network header on where
/// `packet_type(ns=1)` says so.
pub fn build(key: &Key, extras: &Extras) -> Vec<u8> {
    let get = |field| Number(key.get(field));
    let mut frame = Vec::new();
    if key.get(Field::PacketTypeNs) != 1 {
        frame.extend(get(Field::EthDst).bytes::<6>());
        frame.extend(get(Field::EthSrc).bytes::<6>());
        let levels = [
            (Field::VlanPresent, Field::VlanTpid, Field::VlanPcp, Field::VlanCfi, Field::VlanVid),
            (Field::CvlanPresent, Field::CvlanTpid, Field::CvlanPcp, Field::CvlanCfi, Field::CvlanVid),
        ];
        for (_, tpid, pcp, cfi, vid) in levels.into_iter().take_while(|(present, ..)| key.get(*present) == 1) {
            let control = key.get(pcp) << 13 | key.get(cfi) << 12 | key.get(vid);
            frame.extend(get(tpid).bytes::<2>());
            frame.extend(Number(control).bytes::<2>());
        }
        frame.extend(get(Field::EthType).bytes::<2>());
    }
    let writer = Writer { key, extras };
    match key.get(Field::EthType) {
        0x0800 => frame.extend(writer.ipv4()),
        0x86dd => frame.extend(writer.ipv6()),
        0x0806 | 0x8035 => frame.extend(writer.arp()),
        0x8847 | 0x8848 => frame.extend(writer.labels()),
        0x894f => frame.extend(writer.nsh()),
        0x8864 => frame.extend(writer.pppoe()),
        0x8902 => frame.extend(writer.cfm()),
        _ => frame.extend(&extras.payload),
    }
    frame.resize(frame.len() + extras.padding, 0);
    frame
}

/// A number that goes out most significant byte first.
struct Number(u128);

impl Number {
    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0.to_be_bytes()[16 - N..]);
        bytes
    }
}

struct Writer<'a> {
    key: &'a Key,
    extras: &'a Extras,
}

impl Writer<'_> {
    fn bytes<const N: usize>(&self, field: Field) -> [u8; N] {
        Number(self.key.get(field)).bytes()
    }

    /// RFC 826.
    fn arp(&self) -> Vec<u8> {
        let mut message = vec![0, 1, 8, 0, 6, 4];
        message.extend(self.bytes::<2>(Field::ArpOp));
        message.extend(self.bytes::<6>(Field::ArpSha));
        message.extend(self.bytes::<4>(Field::ArpSip));
        message.extend(self.bytes::<6>(Field::ArpTha));
        message.extend(self.bytes::<4>(Field::ArpTip));
        message
    }

    /// RFC 3032, 2.1. Behind an entry that is not the bottom there is always another, up to one more than a key knows.
    fn labels(&self) -> Vec<u8> {
        let mut stack = Vec::new();
        for [label, class, ttl, bottom] in MPLS_ENTRIES {
            let [label, class, ttl, bottom] = [label, class, ttl, bottom].map(|field| self.key.get(field));
            stack.extend(Number(label << 12 | class << 9 | bottom << 8 | ttl).bytes::<4>());
            if bottom == 1 {
                stack.extend(&self.extras.payload);
                return stack;
            }
        }
        stack.extend([0, 0, 0x01, 64]);
        stack.extend(&self.extras.payload);
        stack
    }

    /// RFC 8300, 2.2: version 0, flags and time to live around the length in words.
    fn nsh(&self) -> Vec<u8> {
        let [kind, next, index] =
            [Field::NshMdType, Field::NshNextProto, Field::NshServiceIndex].map(|f| self.key.get(f));
        let words: u128 = if kind == 1 { 6 } else { 2 };
        let first = self.key.get(Field::NshFlags) << 12 | self.key.get(Field::NshTtl) << 6 | words;
        let mut header = Number(first).bytes::<2>().to_vec();
        header.extend(Number(kind << 8 | next).bytes::<2>());
        header.extend(Number(self.key.get(Field::NshPathId) << 8 | index).bytes::<4>());
        if kind == 1 {
            for field in [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4] {
                header.extend(self.bytes::<4>(field));
            }
        }
        header.extend(&self.extras.payload);
        header
    }

    /// RFC 2516, 4, and the protocol of RFC 1661, 2.
    fn pppoe(&self) -> Vec<u8> {
        let mut header = vec![0x11, 0];
        header.extend(self.bytes::<2>(Field::PppoeSession));
        header.extend(Number(2 + self.extras.payload.len() as u128).bytes::<2>());
        header.extend(self.bytes::<2>(Field::PppProtocol));
        header.extend(&self.extras.payload);
        header
    }

    /// IEEE 802.1Q, 21.4: level and version, operation code, flags, and where the first TLV is, which ends the message.
    fn cfm(&self) -> Vec<u8> {
        let level = self.key.get(Field::CfmLevel) << 5;
        let mut message = [Number(level).bytes::<1>(), self.bytes::<1>(Field::CfmOpcode)].concat();
        message.extend([0, 0, 0]);
        message.extend(&self.extras.payload);
        message
    }

    /// RFC 791, 3.1.
    fn ipv4(&self) -> Vec<u8> {
        let [source, destination] = [Field::Ipv4Src, Field::Ipv4Dst].map(|field| self.bytes::<4>(field));
        let proto = self.key.get(Field::Ipv4Proto);
        let pseudo: Vec<u8> = [&source[..], &destination].concat();
        let payload = self.transport(proto, 1, &pseudo);
        let words = 5 + self.extras.ipv4_options;
        let [fragment_high, fragment_low] = match u8::try_from(self.key.get(Field::Ipv4Frag)) {
            Ok(FRAGMENT_FIRST) => [0x20, 0],
            Ok(FRAGMENT_LATER) => [0x20, 0xb9],
            _ => [0x40, 0],
        };
        let mut header = vec![0x40 | low(words)];
        header.extend(self.bytes::<1>(Field::Ipv4Tos));
        header.extend(Number((4 * words + payload.len()) as u128).bytes::<2>());
        header.extend([0x12, 0x34, fragment_high, fragment_low]);
        header.extend(self.bytes::<1>(Field::Ipv4Ttl));
        header.extend(Number(proto).bytes::<1>());
        header.extend([0, 0]);
        header.extend(pseudo);
        // Options of one byte that do nothing (RFC 791, type 1).
        header.resize(4 * words, 1);
        let checksum = ones_complement(&[&header]) ^ self.wrong(WrongChecksum::Network);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header.extend(payload);
        header
    }

    /// RFC 8200, 3 and 4.
    fn ipv6(&self) -> Vec<u8> {
        let [source, destination] = [Field::Ipv6Src, Field::Ipv6Dst].map(|field| self.bytes::<16>(field));
        let proto = self.key.get(Field::Ipv6Proto);
        let pseudo = [source, destination].concat();
        let upper = self.transport(proto, 58, &pseudo);
        let fragment = self.key.get(Field::Ipv6Frag);
        // What is behind the fragment header of a later fragment is in no key.
        let later = fragment == u128::from(FRAGMENT_LATER);
        let mut next = if later { [17] } else { Number(proto).bytes::<1>() };
        // Built from the back: each header names the one behind it. A header that is itself an extension stays what it is.
        let mut extensions: Vec<u8> = Vec::new();
        let mut put = |number: u8, body: [u8; 7], rest: &[u8]| {
            let header = [&next[..], &body, rest].concat();
            extensions.splice(0..0, header);
            next = [number];
        };
        if self.extras.ipv6_extensions && !later {
            put(60, [0, 1, 4, 0, 0, 0, 0], &[]);
            put(51, [1, 0, 0, 0, 0, 1, 0], &[0, 0, 0, 1]);
        }
        match u8::try_from(fragment) {
            Ok(FRAGMENT_FIRST) => put(44, [0, 0, 1, 0, 0, 0, 7], &[]),
            Ok(FRAGMENT_LATER) => put(44, [0, 0x05, 0xc9, 0, 0, 0, 7], &[]),
            _ => {}
        }
        if self.extras.ipv6_extensions {
            put(0, [0, 1, 4, 0, 0, 0, 0], &[]);
        }
        let first = 6 << 28 | self.key.get(Field::Ipv6Tclass) << 20 | self.key.get(Field::Ipv6Label);
        let mut packet = Number(first).bytes::<4>().to_vec();
        packet.extend(Number((extensions.len() + upper.len()) as u128).bytes::<2>());
        packet.extend(next);
        packet.extend(self.bytes::<1>(Field::Ipv6Hlimit));
        packet.extend(pseudo);
        packet.extend(extensions);
        packet.extend(upper);
        packet
    }

    /// What IP carries; nothing but the payload in a later fragment.
    fn transport(&self, proto: u128, icmp: u128, pseudo: &[u8]) -> Vec<u8> {
        if self.key.get(Field::Ipv4Frag) == u128::from(FRAGMENT_LATER) {
            return self.extras.payload.clone();
        }
        match proto {
            6 => self.tcp(pseudo),
            17 => self.udp(pseudo),
            132 => self.sctp(),
            115 => self.session(Field::L2tpv3Session, &[], &[]),
            50 => self.session(Field::IpsecSpi, &[], &[0, 0, 0, 1]),
            // What follows, the length in words less two, and room for a value of 96 bits (RFC 4302, 2).
            51 => self.session(Field::IpsecSpi, &[59, 4, 0, 0], &[&[0, 0, 0, 1][..], &[7; 12]].concat()),
            _ if proto == icmp => self.icmp(icmp == 58, pseudo),
            _ => self.extras.payload.clone(),
        }
    }

    /// RFC 9293, 3.1.
    fn tcp(&self, pseudo: &[u8]) -> Vec<u8> {
        let words = 5 + self.extras.tcp_options;
        let mut segment = [self.bytes::<2>(Field::TcpSrc), self.bytes::<2>(Field::TcpDst)].concat();
        segment.extend([0, 0, 0, 1, 0, 0, 0, 2]);
        segment.extend(Number((words as u128) << 12 | self.key.get(Field::TcpFlags)).bytes::<2>());
        segment.extend([0x10, 0, 0, 0, 0, 0]);
        segment.resize(4 * words, 1);
        segment.extend(&self.extras.payload);
        self.sum(segment, 16, 6, Some(pseudo))
    }

    /// RFC 768.
    fn udp(&self, pseudo: &[u8]) -> Vec<u8> {
        let mut datagram = [self.bytes::<2>(Field::UdpSrc), self.bytes::<2>(Field::UdpDst)].concat();
        datagram.extend(Number(8 + self.extras.payload.len() as u128).bytes::<2>());
        datagram.extend([0, 0]);
        datagram.extend(&self.extras.payload);
        self.sum(datagram, 6, 17, Some(pseudo))
    }

    /// RFC 9260, 3: a common header and a DATA chunk.
    fn sctp(&self) -> Vec<u8> {
        let mut packet = [self.bytes::<2>(Field::SctpSrc), self.bytes::<2>(Field::SctpDst)].concat();
        packet.extend([0, 0, 0, 9, 0, 0, 0, 0]);
        packet.extend([0, 3]);
        packet.extend(Number(16 + self.extras.payload.len() as u128).bytes::<2>());
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(&self.extras.payload);
        packet.resize(packet.len().next_multiple_of(4), 0);
        let checksum = crc32c(&packet) ^ u32::from(self.wrong(WrongChecksum::Transport));
        // The register of a CRC goes out least significant byte first (RFC 9260, appendix A).
        packet[8..12].copy_from_slice(&checksum.to_le_bytes());
        packet
    }

    /// RFC 3931, 4.1.1.1, RFC 4303, 2, and RFC 4302, 2: the number of a session between what the header has besides.
    fn session(&self, number: Field, before: &[u8], behind: &[u8]) -> Vec<u8> {
        [before, &self.bytes::<4>(number), behind, &self.extras.payload].concat()
    }

    /// RFC 792 and RFC 4443; neighbour messages as RFC 4861, 4.3 and 4.4 have them.
    fn icmp(&self, version6: bool, pseudo: &[u8]) -> Vec<u8> {
        let kind = self.key.get(Field::IcmpType);
        let mut message = [self.bytes::<1>(Field::IcmpType), self.bytes::<1>(Field::IcmpCode)].concat();
        message.extend([0, 0]);
        if version6 && matches!(kind, 135 | 136) && self.key.get(Field::Icmpv6Code) == 0 {
            message.extend(self.bytes::<4>(Field::NdReserved));
            message.extend(self.bytes::<16>(Field::NdTarget));
            let mut options = [(1, Field::NdSll), (2, Field::NdTll)];
            options.sort_by_key(|(number, _)| u128::from(*number) != self.key.get(Field::NdOptionsType));
            for (number, address) in options {
                if self.key.get(address) != 0 {
                    message.extend([number, 1]);
                    message.extend(self.bytes::<6>(address));
                }
            }
        } else {
            message.extend([0, 7, 0, 1]);
            message.extend(&self.extras.payload);
        }
        self.sum(message, 2, if version6 { 58 } else { 1 }, version6.then_some(pseudo))
    }

    /// Puts the checksum of RFC 1071 at its place, over the pseudo header where there is one.
    fn sum(&self, mut message: Vec<u8>, at: usize, proto: u8, pseudo: Option<&[u8]>) -> Vec<u8> {
        let mut behind = Number(message.len() as u128).bytes::<4>().to_vec();
        behind.extend([0, 0, 0, proto]);
        let parts: &[&[u8]] = match pseudo {
            Some(pseudo) => &[pseudo, &behind, &message],
            None => &[&message],
        };
        let mut checksum = ones_complement(parts) ^ self.wrong(WrongChecksum::Transport);
        // Zero would say that there is none (RFC 768).
        if proto == 17 && checksum == 0 {
            checksum = 0xffff;
        }
        message[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    fn wrong(&self, which: WrongChecksum) -> u16 {
        if self.extras.wrong_checksum == Some(which) { 0x0101 } else { 0 }
    }
}

fn low(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// RFC 1071. Every part but the last has an even number of bytes.
pub fn ones_complement(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// The CRC of SCTP (RFC 9260, appendix A), bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    const REFLECTED: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ REFLECTED } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_examples_that_everybody_uses() {
        // RFC 1071, 3, and the check value of CRC-32C in the catalogue of parametrised CRC algorithms.
        assert_eq!(ones_complement(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
