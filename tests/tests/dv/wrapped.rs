//! Frames in tunnels, written byte by byte.

use std::net::IpAddr;

const ETHERNET: usize = 14;
const UDP: u8 = 17;
const GRE: u8 = 47;

/// Outer headers; a field that a test does not set is as in [`Outer::vxlan`].
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) tag: Option<u16>,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) source_port: u16,
    pub(crate) tunnel: Header,
}

/// A tunnel header.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    /// The first word, and the identifier.
    Vxlan(u32, u32),
    /// Whether it is a control packet, the identifier, and the options.
    Geneve(bool, u32, Vec<u8>),
    /// The key, and whether there is a checksum.
    Gre(Option<u32>, bool),
}

impl Outer {
    pub(crate) fn vxlan(vni: u32) -> Self {
        Self {
            source: [172, 16, 0, 9].into(),
            destination: [172, 16, 0, 1].into(),
            tag: None,
            tos: 0,
            ttl: 60,
            source_port: 50_000,
            tunnel: Header::Vxlan(0x0800_0000, vni),
        }
    }

    pub(crate) fn geneve(vni: u32) -> Self {
        Self { tunnel: Header::Geneve(false, vni, vec![]), ..Self::vxlan(0) }
    }

    pub(crate) fn gre(key: Option<u32>) -> Self {
        Self { tunnel: Header::Gre(key, false), ..Self::vxlan(0) }
    }

    pub(crate) fn v6(self) -> Self {
        let address = |last| [0xfd, 0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into();
        Self { source: address(9), destination: address(1), ..self }
    }

    /// Puts a frame into the tunnel.
    pub(crate) fn around(&self, inner: &[u8]) -> Vec<u8> {
        let carried = self.carried(inner);
        let length = u16::try_from(carried.len()).unwrap();
        let protocol = if matches!(self.tunnel, Header::Gre(..)) { GRE } else { UDP };
        let mut frame = vec![2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 9];
        frame.extend(self.tag.into_iter().flat_map(|tci| [&[0x81, 0x00][..], &tci.to_be_bytes()].concat()));
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0x45, self.tos];
                header.extend((20 + length).to_be_bytes());
                header.extend([0, 0, 0, 0, self.ttl, protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([0x08, 0x00]);
                frame.extend(header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                frame.extend(length.to_be_bytes());
                frame.extend([protocol, self.ttl]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            _ => panic!("addresses of two versions"),
        }
        frame.extend(carried);
        frame
    }

    fn carried(&self, inner: &[u8]) -> Vec<u8> {
        match &self.tunnel {
            Header::Vxlan(flags, vni) => {
                self.in_udp(4789, &[&flags.to_be_bytes()[..], &(vni << 8).to_be_bytes(), inner].concat())
            }
            Header::Geneve(is_control, vni, options) => {
                let words = u8::try_from(options.len() / 4).unwrap();
                let first = [words, u8::from(*is_control) << 7, 0x65, 0x58];
                self.in_udp(6081, &[&first[..], &(vni << 8).to_be_bytes(), options, inner].concat())
            }
            Header::Gre(key, has_checksum) => {
                let flags = u16::from(key.is_some()) << 13 | u16::from(*has_checksum) << 15;
                let mut bytes = [flags.to_be_bytes(), [0x65, 0x58]].concat();
                if *has_checksum {
                    bytes.extend([0; 4]);
                }
                bytes.extend(key.iter().flat_map(|key| key.to_be_bytes()));
                bytes.extend(inner);
                if *has_checksum {
                    let sum = checksum(&bytes);
                    bytes[4..6].copy_from_slice(&sum.to_be_bytes());
                }
                bytes
            }
        }
    }

    fn in_udp(&self, port: u16, bytes: &[u8]) -> Vec<u8> {
        let length = u16::try_from(8 + bytes.len()).unwrap();
        [&[self.source_port, port, length, 0].map(u16::to_be_bytes).concat()[..], bytes].concat()
    }
}

/// Sets to zero the source port of UDP in outer headers, which each device picks by a hash of its own, after checking that there is one.
pub(crate) fn without_entropy(mut frame: Vec<u8>) -> Vec<u8> {
    let at = match frame[12..ETHERNET] {
        [0x08, 0x00] if frame[ETHERNET + 9] == UDP => ETHERNET + 20,
        [0x86, 0xdd] if frame[ETHERNET + 6] == UDP => ETHERNET + 40,
        _ => return frame,
    };
    assert_ne!(frame[at..at + 2], [0, 0], "there is no source port");
    frame[at..at + 2].fill(0);
    frame
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
