//! Frames with right checksums.

use sluice_flow::Flow;
use sluice_offload_dv::translate::translate;

use crate::rig::Vport;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// An IP packet in Ethernet; a field that a test does not set is as in [`Packet::v4`].
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    /// TPID and TCI, the outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    /// Entries of a label stack (RFC 3032), the outermost first.
    pub(crate) labels: Vec<u32>,
    pub(crate) is_v6: bool,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Flags and offset of IPv4.
    pub(crate) fragment: u16,
    /// The last byte of the addresses.
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) protocol: u8,
    /// Source and destination, or type with code and the rest.
    pub(crate) ports: [u16; 2],
    pub(crate) tcp_flags: u8,
}

impl Packet {
    pub(crate) fn v4(protocol: u8) -> Self {
        Self {
            destination: [2, 0, 0, 0, 0, 2],
            source: [2, 0, 0, 0, 0, 1],
            tags: vec![],
            labels: vec![],
            is_v6: false,
            tos: 0,
            ttl: 64,
            fragment: 0,
            from: 1,
            to: 2,
            protocol,
            ports: [1111, 2222],
            tcp_flags: 0x10,
        }
    }

    pub(crate) fn v6(protocol: u8) -> Self {
        Self { is_v6: true, ..Self::v4(protocol) }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = [self.destination, self.source].concat();
        for (tpid, tci) in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(match (self.labels.is_empty(), self.is_v6) {
            (false, _) => [0x88, 0x47],
            (true, false) => [0x08, 0x00],
            (true, true) => [0x86, 0xdd],
        });
        self.labels.iter().for_each(|entry| frame.extend(entry.to_be_bytes()));
        let (source, destination) = self.addresses();
        let transport = self.transport(&source, &destination);
        let length = u16::try_from(transport.len()).unwrap();
        if self.is_v6 {
            frame.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([self.protocol, self.ttl]);
            frame.extend([source, destination].concat());
        } else {
            let mut header = vec![0x45, self.tos];
            header.extend((20 + length).to_be_bytes());
            header.extend([0, 7]);
            header.extend(self.fragment.to_be_bytes());
            header.extend([self.ttl, self.protocol, 0, 0]);
            header.extend([source, destination].concat());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        frame.extend(transport);
        frame
    }

    /// The same packet with the addresses and ports of a frame that has no tags.
    pub(crate) fn read_back(&self, frame: &[u8]) -> Self {
        let (from, to, ports) = if self.is_v6 { (37, 53, 54) } else { (29, 33, 34) };
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        Self { from: frame[from], to: frame[to], ports: [port(ports), port(ports + 2)], ..self.clone() }
    }

    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        let address = |last: u8| match self.is_v6 {
            true => [&[0xfd][..], &[0; 14], &[last]].concat(),
            false => vec![10, 0, 0, last],
        };
        (address(self.from), address(self.to))
    }

    fn transport(&self, source: &[u8], destination: &[u8]) -> Vec<u8> {
        let ports = self.ports.map(u16::to_be_bytes).concat();
        let mut bytes = match self.protocol {
            TCP => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.tcp_flags, 0x10, 0, 0, 0, 0, 0]].concat(),
            UDP => [&ports[..], &[0, 12, 0, 0]].concat(),
            _ => [&ports[..2], &[0, 0], &ports[2..], &[0, 1]].concat(),
        };
        bytes.extend(b"data");
        let at = match self.protocol {
            TCP => 16,
            UDP => 6,
            _ => 2,
        };
        let pseudo = [source, destination, &[0, self.protocol], &u16::try_from(bytes.len()).unwrap().to_be_bytes()];
        let sum = if self.protocol == ICMP { checksum(&[&bytes]) } else { checksum(&[&pseudo.concat(), &bytes]) };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// Whether the rule of a flow leaves fragments to software that the flow takes.
pub(crate) fn leaves_fragments(flow: &Flow) -> bool {
    translate(flow, &Vport).is_ok_and(|rule| rule.matched.guarantees.leaves_fragments)
}

/// Whether a frame is a fragment of IPv4. Those of IPv6 have an extension header, for which see [`is_known`].
pub(crate) fn is_fragment(frame: &[u8]) -> bool {
    let (eth_type, behind) = behind_tags(frame);
    eth_type == Some([0x08, 0x00]) && behind.get(6..8).is_some_and(|word| word[0] & 0x3f | word[1] != 0)
}

/// Whether it is known what hardware does with such a frame. Behind extension headers of IPv6 it may find the protocol or not.
pub(crate) fn is_known(frame: &[u8]) -> bool {
    const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];
    let (eth_type, behind) = behind_tags(frame);
    eth_type != Some([0x86, 0xdd]) || !behind.get(6).is_some_and(|next| EXTENSIONS.contains(next))
}

/// The Ethernet type, and what is behind it.
fn behind_tags(frame: &[u8]) -> (Option<[u8; 2]>, &[u8]) {
    const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
    let mut rest = frame.get(12..).unwrap_or_default();
    while let Some((eth_type, behind)) = rest.split_first_chunk::<2>() {
        if !TAGS.contains(eth_type) {
            return (Some(*eth_type), behind);
        }
        rest = behind.get(2..).unwrap_or_default();
    }
    (None, &[])
}

/// The checksum of IP (RFC 1071) of parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2)).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
