//! Tunnel headers: VXLAN, VXLAN-GPE, Geneve, GRE, GTP-U, MPLS in UDP or GRE, IP in IP.

use super::layer::number;
use super::{BytesAt, Layer, Transport, TunnelPorts};

const GENEVE_PORT: u16 = 6081;
const VXLAN_GPE_PORT: u16 = 4790;
const GTPU_PORT: u16 = 2152;
const MPLS_PORT: u16 = 6635;

/// GTP-U message type of a packet of the user.
const GTPU_USER_DATA: u8 = 255;

/// MPLS entries, or GTP-U extension headers, that are skipped at most.
const STACKED: usize = 16;

/// A tunnel header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// Offset of the header: after UDP, or after IP.
    pub at: usize,
    /// Which tunnel.
    pub kind: TunnelKind,
    /// What the tunnel says that it carries, and where it begins.
    pub payload: Option<(Payload, usize)>,
    /// The first four words of the header, of tunnels in UDP. Those that it does not have are zero.
    pub words: [u32; 4],
}

/// What a tunnel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// An Ethernet frame.
    Ethernet,
    /// An IP packet.
    Ip,
}

/// A tunnel's own fields, in host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelKind {
    /// VXLAN.
    Vxlan {
        /// VXLAN network identifier.
        vni: u32,
    },
    /// VXLAN generic protocol extension.
    VxlanGpe {
        /// VXLAN network identifier.
        vni: u32,
        /// Next protocol.
        next: u8,
        /// Flags.
        flags: u8,
    },
    /// Geneve.
    Geneve {
        /// Virtual network identifier.
        vni: u32,
        /// EtherType of the payload.
        protocol: u16,
        /// Length of the options in units of 4 bytes.
        options: u8,
        /// Control packet.
        oam: bool,
        /// The first word of data of the option that is looked for.
        option: Option<u32>,
    },
    /// GRE, and NVGRE.
    Gre {
        /// Checksum present.
        checksum: bool,
        /// Sequence number present.
        sequence: bool,
        /// The key, if present; NVGRE's upper 24 bits are the subnet.
        key: Option<u32>,
        /// EtherType of the payload.
        protocol: u16,
        /// The first MPLS entry, if the payload is MPLS.
        mpls: Option<u32>,
    },
    /// GTP-U.
    Gtpu {
        /// The first word: flags, message type, length.
        first: u32,
        /// Tunnel endpoint identifier.
        teid: u32,
        /// Sequence number, N-PDU number and next extension type, if present.
        third: Option<u32>,
        /// The first word of the first extension header.
        extension: Option<u32>,
    },
    /// MPLS in UDP.
    MplsInUdp {
        /// The first MPLS entry.
        entry: u32,
    },
    /// IP in IP.
    IpInIp,
}

impl Tunnel {
    /// The tunnel that begins where the outer layer ends.
    pub(super) fn after(frame: &[u8], outer: &Layer, ports: &TunnelPorts) -> Option<Self> {
        match outer.transport {
            Some(Transport::Udp { at, destination, .. }) => {
                let tunnel = Self::in_udp(frame, at + 8, destination, ports)?;
                Some(Self { words: tunnel.header_words(frame), ..tunnel })
            }
            Some(_) => None,
            None => {
                let ip = outer.ip.as_ref().filter(|ip| ip.fragment == super::Fragment::No)?;
                match ip.protocol {
                    number::GRE => Self::gre(frame, ip.payload),
                    number::IPV4_IN_IP | number::IPV6_IN_IP => Some(Self {
                        at: ip.payload,
                        kind: TunnelKind::IpInIp,
                        payload: Some((Payload::Ip, ip.payload)),
                        words: [0; 4],
                    }),
                    _ => None,
                }
            }
        }
    }

    /// The headers inside.
    pub(super) fn inner(&self, frame: &[u8]) -> Option<Layer> {
        match self.payload? {
            (Payload::Ethernet, at) => {
                let layer = Layer::ethernet(frame, at);
                layer.ethernet.is_some().then_some(layer)
            }
            (Payload::Ip, at) => Layer::bare_ip(frame, at),
        }
    }

    fn header_words(&self, frame: &[u8]) -> [u32; 4] {
        let end = self.payload.map_or(frame.len(), |(_, at)| at);
        let header = frame.get(self.at..end).unwrap_or_default();
        [0, 4, 8, 12].map(|at| header.u32_at(at).unwrap_or(0))
    }

    fn in_udp(frame: &[u8], at: usize, port: u16, ports: &TunnelPorts) -> Option<Self> {
        match port {
            VXLAN_GPE_PORT => {
                let [flags, _, _, next, ..] = frame.bytes_at::<8>(at)?;
                let payload = match next {
                    1 | 2 => Some((Payload::Ip, at + 8)),
                    3 => Some((Payload::Ethernet, at + 8)),
                    _ => None,
                };
                let vni = frame.u32_at(at + 4)? >> 8;
                Some(Self { at, kind: TunnelKind::VxlanGpe { vni, next, flags }, payload, words: [0; 4] })
            }
            GENEVE_PORT => Self::geneve(frame, at, ports.geneve_option),
            GTPU_PORT => Self::gtpu(frame, at),
            MPLS_PORT => {
                let entry = frame.u32_at(at)?;
                Some(Self { at, kind: TunnelKind::MplsInUdp { entry }, payload: under_mpls(frame, at), words: [0; 4] })
            }
            port if ports.vxlan.contains(&port) => {
                let vni = frame.bytes_at::<8>(at)?.u32_at(4)? >> 8;
                let payload = Some((Payload::Ethernet, at + 8));
                Some(Self { at, kind: TunnelKind::Vxlan { vni }, payload, words: [0; 4] })
            }
            _ => None,
        }
    }

    fn geneve(frame: &[u8], at: usize, wanted: Option<(u16, u8)>) -> Option<Self> {
        let [first, second, ..] = frame.bytes_at::<8>(at)?;
        let options = first & 0x3f;
        let protocol = frame.u16_at(at + 2)?;
        let end = at + 8 + usize::from(options) * 4;
        let kind = TunnelKind::Geneve {
            vni: frame.u32_at(at + 4)? >> 8,
            protocol,
            options,
            oam: second & 0x80 != 0,
            option: wanted.and_then(|wanted| geneve_option(frame, at + 8..end, wanted)),
        };
        let payload = carried(protocol).map(|payload| (payload, end));
        Some(Self { at, kind, payload, words: [0; 4] })
    }

    fn gre(frame: &[u8], at: usize) -> Option<Self> {
        const CHECKSUM: u16 = 0x8000;
        const ROUTING: u16 = 0x4000;
        const KEY: u16 = 0x2000;
        const SEQUENCE: u16 = 0x1000;
        const VERSION: u16 = 0x0007;
        let flags = frame.u16_at(at)?;
        if flags & (ROUTING | VERSION) != 0 {
            return None;
        }
        let protocol = frame.u16_at(at + 2)?;
        let mut next = at + 4 + if flags & CHECKSUM != 0 { 4 } else { 0 };
        let mut key = None;
        if flags & KEY != 0 {
            key = Some(frame.u32_at(next)?);
            next += 4;
        }
        next += if flags & SEQUENCE != 0 { 4 } else { 0 };
        let (mpls, payload) = if protocol == number::MPLS {
            (frame.u32_at(next), under_mpls(frame, next))
        } else {
            (None, carried(protocol).map(|payload| (payload, next)))
        };
        let kind =
            TunnelKind::Gre { checksum: flags & CHECKSUM != 0, sequence: flags & SEQUENCE != 0, key, protocol, mpls };
        Some(Self { at, kind, payload, words: [0; 4] })
    }

    fn gtpu(frame: &[u8], at: usize) -> Option<Self> {
        const OPTIONAL_WORD: u8 = 0x07;
        const EXTENSION: u8 = 0x04;
        let [flags, message, ..] = frame.bytes_at::<8>(at)?;
        let first = frame.u32_at(at)?;
        let teid = frame.u32_at(at + 4)?;
        let mut next = at + 8;
        let mut third = None;
        let mut extension = None;
        if flags & OPTIONAL_WORD != 0 {
            let word = frame.u32_at(next)?;
            third = Some(word);
            next += 4;
            if flags & EXTENSION != 0 && word & 0xff != 0 {
                extension = frame.u32_at(next);
                next = after_extensions(frame, next)?;
            }
        }
        let payload = (message == GTPU_USER_DATA).then_some((Payload::Ip, next));
        Some(Self { at, kind: TunnelKind::Gtpu { first, teid, third, extension }, payload, words: [0; 4] })
    }
}

/// The first word of data of an option of Geneve, by class and type; the type's highest bit says that it is critical.
fn geneve_option(frame: &[u8], mut within: std::ops::Range<usize>, wanted: (u16, u8)) -> Option<u32> {
    while within.len() > 4 {
        let (class, [kind, length]) = (frame.u16_at(within.start)?, frame.bytes_at(within.start + 2)?);
        let data = within.start + 4;
        let length = usize::from(length & 0x1f) * 4;
        if (class, kind) == wanted && length > 0 {
            return frame.u32_at(data);
        }
        within.start = data + length;
    }
    None
}

/// What an EtherType in a tunnel header stands for.
fn carried(protocol: u16) -> Option<Payload> {
    match protocol {
        number::BRIDGED => Some(Payload::Ethernet),
        number::IPV4 | number::IPV6 => Some(Payload::Ip),
        _ => None,
    }
}

/// What lies under the MPLS entry at `at`, once the bottom of the stack is found.
fn under_mpls(frame: &[u8], at: usize) -> Option<(Payload, usize)> {
    const BOTTOM_OF_STACK: u32 = 0x100;
    (0..STACKED)
        .map(|entry| at + entry * 4)
        .find(|&at| frame.u32_at(at).is_none_or(|entry| entry & BOTTOM_OF_STACK != 0))
        .map(|bottom| (Payload::Ip, bottom + 4))
}

/// Where GTP-U's extension headers end. Each says its length in units of 4 bytes first, and its successor's type last.
fn after_extensions(frame: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..STACKED {
        let length = usize::from(frame.u8_at(at)?) * 4;
        if length == 0 {
            return None;
        }
        at += length;
        if frame.u8_at(at - 1)? == 0 {
            return Some(at);
        }
    }
    None
}
