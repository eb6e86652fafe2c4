//! What match definers see of a packet: 32 bytes, laid out by their format. The numbers of formats are the PRM's.

use super::definer::{fragmented, l3_type, l4_type, ports};
use crate::packet::checks::Checks;
use crate::packet::layer::number;
use crate::packet::{Fragment, Headers, Ip, Layer, Transport, TunnelKind, Vlan};
use crate::steering::bits::Bits;
use crate::steering::key::Metadata;
use crate::steering::ste::packet::Packet;

/// Bytes of fields, and of a mask.
pub(crate) const FIELDS: usize = 32;

/// Formats that are modelled, by bit: those of which libmlx5 44 makes use.
pub(crate) const FORMATS: u64 =
    1 | 1 << 2 | 1 << 6 | 1 << 16 | 1 << 22 | 1 << 24 | 1 << 25 | 1 << 26 | 1 << 28 | 1 << 33;

/// The fields of a packet in a format; None for one that is not modelled.
pub(in crate::steering) fn fields(format: u16, packet: &Packet) -> Option<[u8; FIELDS]> {
    let view = View { frame: &packet.frame, headers: &packet.headers, metadata: &packet.metadata, gvmi: packet.gvmi };
    lay_out(format, &view).map(|fields| fields.bytes)
}

/// Which bits of a format are fields that are modelled.
pub(crate) fn known(format: u16) -> Option<[u8; FIELDS]> {
    let nothing = Headers { outer: Layer::default(), tunnel: None, inner: None };
    let view = View { frame: &[], headers: &nothing, metadata: &Metadata::default(), gvmi: 0 };
    lay_out(format, &view).map(|fields| fields.known)
}

struct View<'a> {
    frame: &'a [u8],
    headers: &'a Headers,
    metadata: &'a Metadata,
    gvmi: u16,
}

fn lay_out(format: u16, view: &View<'_>) -> Option<Fields> {
    let mut fields = Fields { bytes: [0; FIELDS], known: [0; FIELDS] };
    let absent = Layer::default();
    let outer = &view.headers.outer;
    let inner = view.headers.inner.as_ref().unwrap_or(&absent);
    let registers = &view.metadata.registers_c;
    let checks = || [inner, outer].map(|layer| Checks::of(layer, view.frame));
    match format {
        0 => {
            fields.put(0x00, 32, registers[0]);
            fields.put(0x20, 32, registers[1]);
            fields.address_of(outer, Side::Destination, 0x40, 0x60);
            fields.put(0x70, 16, outer.ethertype);
            fields.vlan_and_types(outer, 0x80);
            fields.vlan(outer.vlans.get(1), 0xae);
            fields.address_of(outer, Side::Source, 0xc0, 0xe0);
            fields.checks(checks(), 0xf0);
            fields.tcp_flags(outer, 0xf8, 8);
        }
        2 => {
            fields.put(0x00, 32, view.metadata.register_a);
            fields.ip(outer, |ip| ip.version, 0x20, 4);
            fields.ip(outer, |ip| ip.ihl, 0x24, 4);
            fields.ip(outer, |ip| ip.dscp, 0x28, 6);
            fields.ip(outer, |ip| ip.ecn, 0x2e, 2);
            fields.ip(outer, |ip| ip.ttl, 0x30, 8);
            fields.ip(outer, |ip| ip.protocol, 0x38, 8);
            fields.ip(outer, |ip| ip.flow_label, 0x8c, 20);
            fields.ports(outer, 0xc0);
            fields.put(0xe6, 1, fragmented(outer));
            fields.tcp_flags(outer, 0xe7, 9);
            fields.ip(outer, |ip| ip.fragment == Fragment::First, 0xf0, 1);
            fields.checks(checks(), 0xf8);
        }
        6 => {
            fields.ipv6(outer, |ip| ip.destination);
            fields.ports(outer, 0xc0);
            fields.put(0xe4, 1, checks()[1].l4);
            fields.put(0xe5, 1, checks()[1].l3);
            fields.put(0xe6, 1, fragmented(outer));
            fields.tcp_flags(outer, 0xe7, 9);
        }
        16 => {
            let words = view.headers.tunnel.map_or([0; 4], |tunnel| tunnel.words);
            words.into_iter().enumerate().for_each(|(place, word)| fields.put(place * 32, 32, word));
            fields.put(0xa0, 32, view.metadata.register_a);
            fields.types(outer, 0xc8);
            fields.put(0xd0, 16, view.gvmi);
            fields.put(0xe1, 1, fragmented(outer));
            fields.put(0xe8, 24, view.metadata.sqn);
        }
        22 => {
            fields.ipv4_addresses(outer, 0x00);
            fields.ports(outer, 0x40);
            fields.vlan_and_types(outer, 0x60);
            fields.put(0x80, 32, registers[0]);
            fields.address_of(outer, Side::Destination, 0xa0, 0xf0);
            fields.address_of(outer, Side::Source, 0xc0, 0xe0);
        }
        24 => {
            for (place, register) in [2, 3, 0, 1].into_iter().enumerate() {
                fields.put(place * 32, 32, registers[register]);
            }
            fields.ipv4_addresses(outer, 0x80);
            fields.ports(outer, 0xc0);
            fields.protocol_and_types(inner, 0xe0);
            fields.protocol_and_types(outer, 0xf0);
        }
        25 => {
            fields.ipv4_addresses(inner, 0x00);
            fields.ports(inner, 0x40);
            let words = view.headers.tunnel.map_or([0; 4], |tunnel| tunnel.words);
            fields.put(0x60, 32, words[0]);
            fields.put(0x80, 32, words[1]);
            fields.types(inner, 0xc2);
            fields.types(outer, 0xca);
            fields.put(0xd0, 16, ports(outer).map_or(0, |(_, destination)| destination));
        }
        26 => {
            fields.ipv6(outer, |ip| ip.source);
            fields.vlan_and_types(outer, 0x80);
            fields.put(0xab, 1, outer.ethernet.is_some());
            fields.put(0xac, 1, checks()[1].l3);
            fields.put(0xad, 1, checks()[1].l4);
            fields.vlan(outer.vlans.get(1), 0xae);
            fields.address_of(outer, Side::Source, 0xc0, 0xe0);
            fields.ip(outer, |ip| ip.protocol, 0xf0, 8);
            fields.tcp_flags(outer, 0xf8, 8);
        }
        28 => {
            fields.ports(inner, 0x00);
            let endpoint = match view.headers.tunnel.map(|tunnel| tunnel.kind) {
                Some(TunnelKind::Gtpu { teid, .. }) => teid,
                _ => 0,
            };
            fields.put(0x20, 32, endpoint);
            fields.ipv4_addresses(inner, 0x40);
            fields.ipv4_addresses(outer, 0x80);
            fields.ports(outer, 0xc0);
            fields.protocol_and_types(inner, 0xe0);
            fields.protocol_and_types(outer, 0xf0);
        }
        33 => {
            fields.ipv4_addresses(outer, 0x00);
            fields.ports(outer, 0x40);
            fields.vlan_and_types(outer, 0x60);
            fields.ip(outer, |ip| ip.version, 0xe0, 4);
            fields.ip(outer, |ip| ip.ihl, 0xe4, 4);
            fields.checks(checks(), 0xe8);
            fields.ip(outer, |ip| ip.ttl, 0xf0, 8);
            fields.ip(outer, |ip| ip.protocol, 0xf8, 8);
        }
        _ => return None,
    }
    Some(fields)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// Fields that are being laid out. Each is, whether the packet has it or not.
struct Fields {
    bytes: [u8; FIELDS],
    known: [u8; FIELDS],
}

impl Fields {
    fn put(&mut self, at: usize, width: usize, value: impl Into<u32>) {
        let field = Bits::new(at, width);
        field.put(&mut self.bytes, value.into());
        field.put(&mut self.known, u32::MAX);
    }

    /// 32 bits of an address of Ethernet, and the other 16 elsewhere.
    fn address_of(&mut self, layer: &Layer, side: Side, high: usize, low: usize) {
        let address = layer.ethernet.map_or([0; 6], |ethernet| match side {
            Side::Source => ethernet.source,
            Side::Destination => ethernet.destination,
        });
        let [a, b, c, d, e, f] = address;
        self.put(high, 32, u32::from_be_bytes([a, b, c, d]));
        self.put(low, 16, u16::from_be_bytes([e, f]));
    }

    /// Kind of a tag, priority, CFI and number.
    fn vlan(&mut self, vlan: Option<&Vlan>, at: usize) {
        self.put(at, 2, kind_of_tag(vlan));
        self.put(at + 2, 16, vlan.map_or(0, |vlan| vlan.tci));
    }

    /// Of a word: whether it is a fragment, kinds of the headers of layers 3 and 4, and the first tag.
    fn vlan_and_types(&mut self, layer: &Layer, at: usize) {
        self.put(at + 0x03, 1, fragmented(layer));
        self.put(at + 0x0a, 2, l3_type(layer));
        self.put(at + 0x0c, 2, l4_type(layer));
        self.vlan(layer.vlans.first(), at + 0x0e);
    }

    /// Kinds of the headers of layers 3 and 4, and of the first tag.
    fn types(&mut self, layer: &Layer, at: usize) {
        self.put(at, 2, l3_type(layer));
        self.put(at + 2, 2, l4_type(layer));
        self.put(at + 4, 2, kind_of_tag(layer.vlans.first()));
    }

    fn protocol_and_types(&mut self, layer: &Layer, at: usize) {
        self.ip(layer, |ip| ip.protocol, at, 8);
        self.types(layer, at + 8);
        self.put(at + 14, 1, fragmented(layer));
    }

    fn ip<T: Into<u32>>(&mut self, layer: &Layer, field: impl Fn(&Ip) -> T, at: usize, width: usize) {
        self.put(at, width, layer.ip.as_ref().map_or(0, |ip| field(ip).into()));
    }

    /// Source and destination.
    fn ipv4_addresses(&mut self, layer: &Layer, at: usize) {
        let ip = layer.ip.filter(|ip| ip.version == 4);
        let low = |address: u128| {
            let [.., a, b, c, d] = address.to_be_bytes();
            u32::from_be_bytes([a, b, c, d])
        };
        self.put(at, 32, ip.map_or(0, |ip| low(ip.source)));
        self.put(at + 32, 32, ip.map_or(0, |ip| low(ip.destination)));
    }

    /// An address, which comes first where it is at all.
    fn ipv6(&mut self, layer: &Layer, which: impl Fn(&Ip) -> u128) {
        let address = layer.ip.filter(|ip| ip.version == 6).map_or(0, |ip| which(&ip)).to_be_bytes();
        for (place, word) in address.as_chunks().0.iter().enumerate() {
            self.put(place * 32, 32, u32::from_be_bytes(*word));
        }
    }

    fn ports(&mut self, layer: &Layer, at: usize) {
        let (source, destination) = ports(layer).unwrap_or_default();
        self.put(at, 16, source);
        self.put(at + 16, 16, destination);
    }

    /// So many of TCP's flags, FIN the last.
    fn tcp_flags(&mut self, layer: &Layer, at: usize, width: usize) {
        let flags = match layer.transport {
            Some(Transport::Tcp { flags, .. }) => flags,
            _ => 0,
        };
        self.put(at, width, flags);
    }

    /// Checksums of layers 3 and 4, inner ones first, and then the headers of both without them.
    fn checks(&mut self, layers: [Checks; 2], at: usize) {
        let checksums = layers.map(|checks| [checks.ipv4_checksum, checks.l4_checksum]);
        let headers = layers.map(|checks| [checks.l3, checks.l4]);
        let bits = checksums.into_iter().chain(headers).flatten();
        bits.enumerate().for_each(|(place, is_right)| self.put(at + place, 1, is_right));
    }
}

fn kind_of_tag(vlan: Option<&Vlan>) -> u32 {
    const NONE: u32 = 0;
    const SERVICE: u32 = 1;
    const CUSTOMER: u32 = 2;
    match vlan.map(|vlan| vlan.ethertype) {
        None => NONE,
        Some(number::SERVICE_VLAN) => SERVICE,
        Some(_) => CUSTOMER,
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, known};

    #[test]
    fn the_formats_that_are_modelled_are_those_that_are_laid_out() {
        for format in 0..64 {
            assert_eq!(known(format).is_some(), FORMATS >> format & 1 == 1, "{format}");
        }
    }
}
