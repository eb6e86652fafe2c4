//! A packet by its fields, so that what shall come out is what went in with another field; checksums are right.

use std::net::IpAddr;

use crate::frames::{HOST, ROUTER, checksum};

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) to: [u8; 6],
    pub(crate) from: [u8; 6],
    /// Ethernet type and TCI, the outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// Flags and offset of IPv4.
    pub(crate) fragment: u16,
    pub(crate) protocol: u8,
    /// Source and destination; of ICMP, type and code, and the identifier.
    pub(crate) ports: [u16; 2],
    /// Of TCP.
    pub(crate) flags: u8,
}

impl Packet {
    /// Of IPv4, from 10.0.0.1 to 10.9.9.9.
    pub(crate) fn v4(protocol: u8) -> Self {
        Self {
            to: ROUTER,
            from: HOST,
            tags: vec![],
            source: [10, 0, 0, 1].into(),
            destination: [10, 9, 9, 9].into(),
            tos: 0,
            ttl: 64,
            fragment: 0,
            protocol,
            ports: [1000, 80],
            flags: 0x12,
        }
    }

    /// Of IPv6, from fd00::1 to fd09::9.
    pub(crate) fn v6(protocol: u8) -> Self {
        let source = (0xfd00_u128 << 112 | 1).to_be_bytes();
        let destination = (0xfd09_u128 << 112 | 9).to_be_bytes();
        Self { source: source.into(), destination: destination.into(), ..Self::v4(protocol) }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let ethertype: u16 = if self.source.is_ipv4() { 0x0800 } else { 0x86dd };
        let mut frame = [self.to, self.from].concat();
        for (ethertype, tci) in &self.tags {
            frame.extend([ethertype.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(self.network());
        frame
    }

    fn network(&self) -> Vec<u8> {
        let payload = self.transport();
        let (mut header, at) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
                let fragment = self.fragment.to_be_bytes();
                let mut header = vec![0x45, self.tos, length[0], length[1], 0, 7, fragment[0], fragment[1]];
                header.extend([self.ttl, self.protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                (header, Some(10))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
                let mut header = vec![0x60 | self.tos >> 4, self.tos << 4, 0, 0, length[0], length[1]];
                header.extend([self.protocol, self.ttl]);
                header.extend(source.octets());
                header.extend(destination.octets());
                (header, None)
            }
            _ => panic!("two families"),
        };
        if let Some(at) = at {
            let sum = checksum(&header).to_be_bytes();
            header[at..at + 2].copy_from_slice(&sum);
        }
        [header, payload].concat()
    }

    fn transport(&self) -> Vec<u8> {
        const DATA: [u8; 18] = *b"what is carried on";
        let [first, second] = self.ports.map(u16::to_be_bytes);
        let (mut bytes, at) = match self.protocol {
            TCP => {
                let mut bytes = [first, second].concat();
                bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 0x50, self.flags, 0x10, 0, 0, 0, 0, 0]);
                bytes.extend(DATA);
                (bytes, 16)
            }
            UDP => {
                let mut bytes = [first, second, 26_u16.to_be_bytes(), [0, 0]].concat();
                bytes.extend(DATA);
                (bytes, 6)
            }
            ICMP | ICMPV6 => {
                let mut bytes = [first, [0, 0], second, [0, 1]].concat();
                bytes.extend(DATA);
                (bytes, 2)
            }
            _ => return DATA.to_vec(),
        };
        let mut covered = vec![];
        if self.protocol != ICMP {
            for address in [self.source, self.destination] {
                match address {
                    IpAddr::V4(address) => covered.extend(address.octets()),
                    IpAddr::V6(address) => covered.extend(address.octets()),
                }
            }
            covered.extend([0, self.protocol]);
            covered.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        }
        covered.extend(&bytes);
        let sum = checksum(&covered).to_be_bytes();
        bytes[at..at + 2].copy_from_slice(&sum);
        bytes
    }
}
