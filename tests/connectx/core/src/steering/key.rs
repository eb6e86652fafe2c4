//! A packet as flow groups see it: the value of every field of [`super::fields`].

use super::bits::Bits;
use super::fields::{self as f, MATCH_BYTES};
use crate::packet::checks::Checks;
use crate::packet::layer::number;
use crate::packet::{Fragment, Headers, Layer, Transport, TunnelKind, Vlan};

/// What the device knows of a packet besides its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// The vport that sent it; 0xffff for the wire.
    pub(super) source_port: u16,
    /// The function that owns the switch.
    pub(super) vhca_id: u16,
    /// The send queue, if a function of this device sent it.
    pub(super) sqn: u32,
    pub(super) register_a: u32,
    pub(super) register_b: u32,
    pub(super) registers_c: [u32; 8],
}

/// Fills in a match parameter with all that is known of a packet. What it does not have is zero.
pub(super) fn build(headers: &Headers, metadata: &Metadata) -> Box<[u8; MATCH_BYTES]> {
    let mut key = Key(Box::new([0; MATCH_BYTES]));
    key.layer(&headers.outer, 0);
    key.second_vlan(headers.outer.vlans.get(1), &OUTER_SECOND);
    if let Some(inner) = &headers.inner {
        key.layer(inner, f::INNER);
        key.second_vlan(inner.vlans.get(1), &INNER_SECOND);
    }
    key.misc(headers, metadata);
    key.0
}

/// Fills in which headers and checksums are right.
pub(super) fn check(key: &mut [u8; MATCH_BYTES], headers: &Headers, frame: &[u8]) {
    for (layer, after) in [(Some(&headers.outer), 0), (headers.inner.as_ref(), f::INNER)] {
        let Checks { l3, l4, ipv4_checksum, l4_checksum, .. } =
            layer.map(|layer| Checks::of(layer, frame)).unwrap_or_default();
        let checks =
            [(f::L3_OK, l3), (f::L4_OK, l4), (f::IPV4_CHECKSUM_OK, ipv4_checksum), (f::L4_CHECKSUM_OK, l4_checksum)];
        checks.into_iter().for_each(|(field, is_right)| field.after(after).put(&mut key[..], is_right.into()));
    }
}

/// Priority, CFI, VLAN id, customer tag, service tag.
type SecondVlan = [Bits; 5];

const OUTER_SECOND: SecondVlan = [
    f::OUTER_SECOND_PRIO,
    f::OUTER_SECOND_CFI,
    f::OUTER_SECOND_VID,
    f::OUTER_SECOND_CVLAN_TAG,
    f::OUTER_SECOND_SVLAN_TAG,
];

const INNER_SECOND: SecondVlan = [
    f::INNER_SECOND_PRIO,
    f::INNER_SECOND_CFI,
    f::INNER_SECOND_VID,
    f::INNER_SECOND_CVLAN_TAG,
    f::INNER_SECOND_SVLAN_TAG,
];

struct Key(Box<[u8; MATCH_BYTES]>);

impl Key {
    fn put(&mut self, field: Bits, value: impl Into<u32>) {
        field.put(&mut self.0[..], value.into());
    }

    fn layer(&mut self, layer: &Layer, after: usize) {
        let field = |field: Bits| field.after(after);
        if let Some(ethernet) = &layer.ethernet {
            for (address, high, low) in
                [(ethernet.source, f::SMAC_47_16, f::SMAC_15_0), (ethernet.destination, f::DMAC_47_16, f::DMAC_15_0)]
            {
                let [a, b, c, d, e, g] = address;
                self.put(field(high), u32::from_be_bytes([a, b, c, d]));
                self.put(field(low), u16::from_be_bytes([e, g]));
            }
        }
        self.put(field(f::ETHERTYPE), layer.ethertype);
        if let Some(vlan) = layer.vlans.first() {
            self.vlan(vlan, &[f::FIRST_PRIO, f::FIRST_CFI, f::FIRST_VID, f::CVLAN_TAG, f::SVLAN_TAG].map(field));
        }
        if let Some(ip) = &layer.ip {
            self.put(field(f::IP_VERSION), ip.version);
            self.put(field(f::IP_PROTOCOL), ip.protocol);
            self.put(field(f::IP_DSCP), ip.dscp);
            self.put(field(f::IP_ECN), ip.ecn);
            self.put(field(f::FRAG), ip.fragment != Fragment::No);
            self.put(field(f::IPV4_IHL), ip.ihl);
            self.put(field(f::TTL_HOPLIMIT), ip.ttl);
            for (address, place) in [(ip.source, field(f::SRC_IP)), (ip.destination, field(f::DST_IP))] {
                let at = place.at / 8;
                self.0[at..at + 16].copy_from_slice(&address.to_be_bytes());
            }
        }
        match layer.transport {
            Some(Transport::Tcp { source, destination, flags, .. }) => {
                self.put(field(f::TCP_SPORT), source);
                self.put(field(f::TCP_DPORT), destination);
                self.put(field(f::TCP_FLAGS), flags);
            }
            Some(Transport::Udp { source, destination, .. }) => {
                self.put(field(f::UDP_SPORT), source);
                self.put(field(f::UDP_DPORT), destination);
            }
            _ => {}
        }
    }

    fn second_vlan(&mut self, vlan: Option<&Vlan>, fields: &SecondVlan) {
        if let Some(vlan) = vlan {
            self.vlan(vlan, fields);
        }
    }

    fn vlan(&mut self, vlan: &Vlan, [priority, cfi, id, customer, service]: &SecondVlan) {
        self.put(*priority, vlan.tci >> 13);
        self.put(*cfi, vlan.tci >> 12 & 1);
        self.put(*id, vlan.tci & 0xfff);
        self.put(*customer, vlan.ethertype == number::VLAN);
        self.put(*service, vlan.ethertype == number::SERVICE_VLAN);
    }

    fn misc(&mut self, headers: &Headers, metadata: &Metadata) {
        self.put(f::SOURCE_PORT, metadata.source_port);
        self.put(f::SOURCE_ESWITCH_OWNER_VHCA_ID, metadata.vhca_id);
        self.put(f::SOURCE_SQN, metadata.sqn);
        self.put(f::METADATA_REG_A, metadata.register_a);
        for (field, value) in f::REGISTERS_C.into_iter().zip(metadata.registers_c) {
            self.put(field, value);
        }
        self.outer_and_inner(&headers.outer, f::OUTER_IPV6_FLOW_LABEL, f::OUTER_FIRST_MPLS);
        self.tcp_numbers(&headers.outer, f::OUTER_TCP_SEQ_NUM, f::OUTER_TCP_ACK_NUM);
        if let Some(inner) = &headers.inner {
            self.outer_and_inner(inner, f::INNER_IPV6_FLOW_LABEL, f::INNER_FIRST_MPLS);
            self.tcp_numbers(inner, f::INNER_TCP_SEQ_NUM, f::INNER_TCP_ACK_NUM);
        }
        // The device has these once: they are those of the innermost header that it saw.
        for layer in std::iter::once(&headers.outer).chain(&headers.inner) {
            match layer.transport {
                Some(Transport::Icmp { kind, code, data, .. }) => {
                    self.put(f::ICMP_TYPE, kind);
                    self.put(f::ICMP_CODE, code);
                    self.put(f::ICMP_HEADER_DATA, data);
                }
                Some(Transport::Icmpv6 { kind, code, data, .. }) => {
                    self.put(f::ICMPV6_TYPE, kind);
                    self.put(f::ICMPV6_CODE, code);
                    self.put(f::ICMPV6_HEADER_DATA, data);
                }
                _ => {}
            }
        }
        if let Some(Transport::Esp { spi, .. }) = headers.outer.transport {
            self.put(f::OUTER_ESP_SPI, spi);
        }
        if let Some(tunnel) = &headers.tunnel {
            self.tunnel(&tunnel.kind);
            for (field, word) in f::TUNNEL_HEADER.into_iter().zip(tunnel.words) {
                self.put(field, word);
            }
        }
    }

    fn outer_and_inner(&mut self, layer: &Layer, label: Bits, mpls: Bits) {
        if let Some(ip) = &layer.ip {
            self.put(label, ip.flow_label);
        }
        if let Some(entry) = layer.mpls {
            self.put(mpls, entry);
        }
    }

    fn tcp_numbers(&mut self, layer: &Layer, sequence_field: Bits, acknowledgement_field: Bits) {
        if let Some(Transport::Tcp { sequence, acknowledgement, .. }) = layer.transport {
            self.put(sequence_field, sequence);
            self.put(acknowledgement_field, acknowledgement);
        }
    }

    fn tunnel(&mut self, kind: &TunnelKind) {
        match *kind {
            TunnelKind::Vxlan { vni } => self.put(f::VXLAN_VNI, vni),
            TunnelKind::VxlanGpe { vni, next, flags } => {
                self.put(f::OUTER_VXLAN_GPE_VNI, vni);
                self.put(f::OUTER_VXLAN_GPE_NEXT_PROTOCOL, next);
                self.put(f::OUTER_VXLAN_GPE_FLAGS, flags);
            }
            TunnelKind::Geneve { vni, protocol, options, oam, option } => {
                self.put(f::GENEVE_TLV_OPTION_0_EXIST, option.is_some());
                self.put(f::GENEVE_TLV_OPTION_0_DATA, option.unwrap_or(0));
                self.put(f::GENEVE_VNI, vni);
                self.put(f::GENEVE_PROTOCOL_TYPE, protocol);
                self.put(f::GENEVE_OPT_LEN, options);
                self.put(f::GENEVE_OAM, oam);
            }
            TunnelKind::Gre { checksum, sequence, key, protocol, mpls } => {
                self.put(f::GRE_C_PRESENT, checksum);
                self.put(f::GRE_S_PRESENT, sequence);
                self.put(f::GRE_K_PRESENT, key.is_some());
                self.put(f::GRE_KEY, key.unwrap_or(0));
                self.put(f::GRE_PROTOCOL, protocol);
                self.put(f::OUTER_FIRST_MPLS_OVER_GRE, mpls.unwrap_or(0));
            }
            TunnelKind::Gtpu { first, teid, third, extension } => {
                self.put(f::GTPU_DW_0, first);
                self.put(f::GTPU_MSG_FLAGS, first >> 24);
                self.put(f::GTPU_MSG_TYPE, first >> 16 & 0xff);
                self.put(f::GTPU_TEID, teid);
                self.put(f::GTPU_DW_2, third.unwrap_or(0));
                self.put(f::GTPU_FIRST_EXT_DW_0, extension.unwrap_or(0));
            }
            TunnelKind::MplsInUdp { entry } => self.put(f::OUTER_FIRST_MPLS_OVER_UDP, entry),
            TunnelKind::IpInIp => {}
        }
    }
}
