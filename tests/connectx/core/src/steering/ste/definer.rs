//! What each lookup sees of a packet: 16 bytes, laid out by tables of fields.

use crate::packet::layer::number;
use crate::packet::{Fragment, Headers, Layer, Transport, TunnelKind, Vlan};
use crate::steering::bits::Bits;
use crate::steering::key::Metadata;

/// The fields of a lookup; None for one that is not modelled.
pub(in crate::steering) fn fields(lookup: u16, headers: &Headers, metadata: &Metadata, gvmi: u16) -> Option<[u8; 16]> {
    let absent = Layer::default();
    let outer = &headers.outer;
    let inner = headers.inner.as_ref().unwrap_or(&absent);
    let mut fields = Fields([0; 16]);
    match lookup {
        0x0002 => fields.tunnel(headers, inner),
        0x0003 => fields.ethernet(outer, Side::Destination),
        0x0004 => fields.ethernet(inner, Side::Destination),
        0x0005 => fields.ethernet(outer, Side::Source),
        0x0006 => fields.ethernet(inner, Side::Source),
        0x0007 => fields.ipv4_5_tuple(outer),
        0x0008 => fields.ipv4_5_tuple(inner),
        0x0009 => fields.transport(outer),
        0x000a => fields.transport(inner),
        0x000b => fields.both_addresses(outer),
        0x000c => fields.both_addresses(inner),
        0x000d => fields.ipv4_rest(outer),
        0x000f => fields.ipv4_rest(inner),
        0x000e => fields.tunnel_header(headers),
        0x0011 => fields.samples_there(headers),
        0x0104 => {
            fields.put(0x10, 16, gvmi);
            fields.put(0x28, 24, metadata.sqn);
        }
        0x0107 => fields.ipv6(outer, Side::Destination),
        0x0108 => fields.ipv6(inner, Side::Destination),
        0x0109 => fields.ipv6(outer, Side::Source),
        0x010a => fields.ipv6(inner, Side::Source),
        0x010b => fields.put(0x20, 32, outer.mpls.unwrap_or(0)),
        0x010c => fields.put(0x20, 32, inner.mpls.unwrap_or(0)),
        0x010d => fields.gre(headers),
        0x010e => fields.put(0, 32, metadata.register_a),
        0x010f => fields.registers(&metadata.registers_c[..4]),
        0x0110 => fields.registers(&metadata.registers_c[4..]),
        0x0111 => fields.samples(headers, 0),
        0x0112 => fields.samples(headers, 4),
        0x0113 => fields.transport_rest(outer),
        0x0114 => fields.transport_rest(inner),
        0x0117 => fields.whole_tunnel_header(headers),
        _ => return None,
    }
    Some(fields.0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

/// What the flexible parser looks for, each in a sample with the number that the capabilities tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    MplsOverGre = 0,
    MplsOverUdp = 1,
    GtpuFirstExtension = 2,
    /// Shares its sample with one that no packet has besides.
    GeneveOption = 8,
    /// Sequence number and what follows it.
    GtpuThird = 3,
    GtpuEndpoint = 4,
    GtpuFirst = 5,
    IcmpData = 6,
    /// Type and code.
    Icmp = 7,
}

impl Sample {
    const ALL: [Self; 9] = [
        Self::MplsOverGre,
        Self::MplsOverUdp,
        Self::GtpuFirstExtension,
        Self::GeneveOption,
        Self::GtpuThird,
        Self::GtpuEndpoint,
        Self::GtpuFirst,
        Self::IcmpData,
        Self::Icmp,
    ];

    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::GeneveOption => Self::GtpuFirstExtension as u64,
            sample => sample as u64,
        }
    }

    fn value(number: u64, headers: &Headers) -> Option<u32> {
        Self::ALL.into_iter().filter(|sample| sample.number() == number).find_map(|sample| sample.find(headers))
    }

    fn find(self, headers: &Headers) -> Option<u32> {
        match (self, headers.tunnel.map(|tunnel| tunnel.kind)) {
            (Self::MplsOverGre, Some(TunnelKind::Gre { mpls, .. })) => mpls,
            (Self::MplsOverUdp, Some(TunnelKind::MplsInUdp { entry })) => Some(entry),
            (Self::GtpuFirstExtension, Some(TunnelKind::Gtpu { extension, .. })) => extension,
            (Self::GeneveOption, Some(TunnelKind::Geneve { option, .. })) => option,
            (Self::GtpuThird, Some(TunnelKind::Gtpu { third, .. })) => third,
            (Self::GtpuEndpoint, Some(TunnelKind::Gtpu { teid, .. })) => Some(teid),
            (Self::GtpuFirst, Some(TunnelKind::Gtpu { first, .. })) => Some(first),
            (Self::IcmpData | Self::Icmp, _) => {
                let inner = headers.inner.as_ref().and_then(icmp);
                let (kind, code, data) = inner.or_else(|| icmp(&headers.outer))?;
                Some(if self == Self::Icmp { u32::from(kind) << 24 | u32::from(code) << 16 } else { data })
            }
            _ => None,
        }
    }
}

fn icmp(layer: &Layer) -> Option<(u8, u8, u32)> {
    match layer.transport? {
        Transport::Icmp { kind, code, data, .. } | Transport::Icmpv6 { kind, code, data, .. } => {
            Some((kind, code, data))
        }
        _ => None,
    }
}

/// Fields that are being laid out.
pub(super) struct Fields(pub(super) [u8; 16]);

impl Fields {
    pub(super) fn put(&mut self, at: usize, width: usize, value: impl Into<u32>) {
        Bits::new(at, width).put(&mut self.0, value.into());
    }

    /// Lookups of Ethernet headers begin with flags, and have one of the two addresses.
    fn ethernet(&mut self, layer: &Layer, side: Side) {
        self.put(0x03, 1, fragmented(layer));
        self.put(0x0a, 2, l3_type(layer));
        self.put(0x0c, 2, l4_type(layer));
        self.vlan(layer.vlans.first(), 0x0e, 0x10);
        self.address(layer, side);
        self.put(0x50, 16, layer.ethertype);
        self.put(0x6b, 1, layer.ethernet.is_some());
        self.put(0x6c, 1, layer.ip.is_some());
        self.put(0x6d, 1, layer.transport.is_some());
        self.vlan(layer.vlans.get(1), 0x6e, 0x70);
    }

    fn address(&mut self, layer: &Layer, side: Side) {
        if let Some(ethernet) = layer.ethernet {
            let address = if side == Side::Source { ethernet.source } else { ethernet.destination };
            self.0[4..10].copy_from_slice(&address);
        }
    }

    fn vlan(&mut self, vlan: Option<&Vlan>, qualifier: usize, tci: usize) {
        const SERVICE: u32 = 1;
        const CUSTOMER: u32 = 2;
        if let Some(vlan) = vlan {
            self.put(qualifier, 2, if vlan.ethertype == number::SERVICE_VLAN { SERVICE } else { CUSTOMER });
            self.put(tci, 16, vlan.tci);
        }
    }

    fn tunnel(&mut self, headers: &Headers, inner: &Layer) {
        if let Some(TunnelKind::Vxlan { vni }) = headers.tunnel.map(|tunnel| tunnel.kind) {
            self.put(0x00, 24, vni);
        }
        self.address(inner, Side::Destination);
        self.put(0x50, 16, inner.ethertype);
        self.put(0x63, 1, fragmented(inner));
        self.put(0x6a, 2, l3_type(inner));
        self.put(0x6c, 2, l4_type(inner));
        self.vlan(inner.vlans.first(), 0x6e, 0x70);
    }

    fn both_addresses(&mut self, layer: &Layer) {
        if let Some(ethernet) = layer.ethernet {
            self.0[..4].copy_from_slice(&ethernet.destination[..4]);
            self.0[4..8].copy_from_slice(&ethernet.source[..4]);
            self.0[8..10].copy_from_slice(&ethernet.destination[4..]);
            self.0[14..].copy_from_slice(&ethernet.source[4..]);
        }
        self.put(0x5a, 2, l3_type(layer));
        self.vlan(layer.vlans.first(), 0x5e, 0x60);
    }

    fn ipv4_rest(&mut self, layer: &Layer) {
        let Some(ip) = layer.ip else { return };
        self.put(0x40, 4, ip.version);
        self.put(0x44, 4, ip.ihl);
        self.put(0x48, 8, ip.ttl);
    }

    /// Of tunnels over UDP, the first two words of their headers as they are.
    pub(super) fn tunnel_header(&mut self, headers: &Headers) {
        if let Some(tunnel) = headers.tunnel {
            self.put(0x00, 32, tunnel.words[0]);
            self.put(0x20, 32, tunnel.words[1]);
        }
    }

    /// What four of the flexible parser's eight samples are; the lookup has the last of them first.
    pub(super) fn samples(&mut self, headers: &Headers, from: u64) {
        for place in 0..4 {
            let sample = Sample::value(from + place, headers);
            self.put(0x60 - usize::try_from(place).unwrap_or(0) * 0x20, 32, sample.unwrap_or(0));
        }
    }

    /// Which of the flexible parser's eight samples the packet has, the first in the lowest bit.
    fn samples_there(&mut self, headers: &Headers) {
        let there = (0..8).filter(|number| Sample::value(*number, headers).is_some());
        self.put(0x40, 8, there.fold(0_u32, |there, number| there | 1 << number));
    }

    fn whole_tunnel_header(&mut self, headers: &Headers) {
        let words = headers.tunnel.map_or([0; 4], |tunnel| tunnel.words);
        self.registers(&words);
    }

    /// Of TCP its numbers, of ICMP type and code, and the rest of the header.
    fn transport_rest(&mut self, layer: &Layer) {
        match layer.transport {
            Some(Transport::Tcp { sequence, acknowledgement, .. }) => {
                self.put(0x20, 32, acknowledgement);
                self.put(0x40, 32, sequence);
            }
            _ => {
                let Some((kind, code, data)) = icmp(layer) else { return };
                self.put(0x20, 32, data);
                self.put(0x40, 8, kind);
                self.put(0x48, 8, code);
            }
        }
    }

    fn ipv4_5_tuple(&mut self, layer: &Layer) {
        let Some(ip) = layer.ip.filter(|ip| ip.version == 4) else { return };
        self.0[..4].copy_from_slice(&ip.source.to_be_bytes()[12..]);
        self.0[4..8].copy_from_slice(&ip.destination.to_be_bytes()[12..]);
        self.ports(layer, 0x40);
        self.flags(layer, 0x64);
        self.put(0x70, 6, ip.dscp);
        self.put(0x76, 2, ip.ecn);
        self.put(0x78, 8, ip.protocol);
    }

    fn transport(&mut self, layer: &Layer) {
        let Some(ip) = layer.ip else { return };
        self.put(0x00, 4, ip.version);
        self.put(0x08, 6, ip.dscp);
        self.put(0x0e, 2, ip.ecn);
        self.put(0x10, 8, ip.ttl);
        self.put(0x18, 8, ip.protocol);
        self.ports(layer, 0x20);
        self.put(0x40, 1, ip.fragment == Fragment::First);
        self.put(0x4c, 20, ip.flow_label);
        self.flags(layer, 0x64);
    }

    pub(super) fn ipv6(&mut self, layer: &Layer, side: Side) {
        if let Some(ip) = layer.ip.filter(|ip| ip.version == 6) {
            self.0 = if side == Side::Source { ip.source } else { ip.destination }.to_be_bytes();
        }
    }

    pub(super) fn gre(&mut self, headers: &Headers) {
        if let Some(TunnelKind::Gre { checksum, sequence, key, protocol, .. }) =
            headers.tunnel.map(|tunnel| tunnel.kind)
        {
            self.put(0x00, 1, checksum);
            self.put(0x02, 1, key.is_some());
            self.put(0x03, 1, sequence);
            self.put(0x10, 16, protocol);
            self.put(0x40, 32, key.unwrap_or(0));
        }
    }

    pub(super) fn registers(&mut self, registers: &[u32]) {
        for (place, register) in registers.iter().enumerate() {
            self.put(place * 32, 32, *register);
        }
    }

    fn ports(&mut self, layer: &Layer, at: usize) {
        if let Some((source, destination)) = ports(layer) {
            self.put(at, 16, source);
            self.put(at + 16, 16, destination);
        }
    }

    /// L4 and L3 present, fragmented, nine TCP flags.
    fn flags(&mut self, layer: &Layer, at: usize) {
        self.put(at, 1, layer.transport.is_some());
        self.put(at + 1, 1, layer.ip.is_some());
        self.put(at + 2, 1, fragmented(layer));
        if let Some(Transport::Tcp { flags, .. }) = layer.transport {
            self.put(at + 3, 9, flags);
        }
    }
}

/// Of TCP and UDP.
pub(super) fn ports(layer: &Layer) -> Option<(u16, u16)> {
    match layer.transport {
        Some(Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination, .. }) => {
            Some((source, destination))
        }
        _ => None,
    }
}

pub(super) fn fragmented(layer: &Layer) -> bool {
    layer.ip.is_some_and(|ip| ip.fragment != Fragment::No)
}

pub(super) fn l3_type(layer: &Layer) -> u32 {
    match layer.ip.map(|ip| ip.version) {
        Some(4) => 1,
        Some(6) => 2,
        _ => 0,
    }
}

pub(super) fn l4_type(layer: &Layer) -> u32 {
    match layer.transport {
        Some(Transport::Tcp { .. }) => 1,
        Some(Transport::Udp { .. }) => 2,
        _ => 0,
    }
}
