//! The match fields that the device knows.
//!
//! A row says which value of a header is a field of the key. It is the only place that a field of a known header needs in this
//! crate: the parser sets the field by it, and the translation takes the field out of a match because it is here. A field that
//! is not here is refused by name.

use sluice_flow::field::{FIELDS, Field, GENEVE_CHUNKS, MPLS_ENTRIES, MPLS_PRESENT};
use sluice_flow::key::Key;

use super::extract::fragment;
use super::headers::{
    Arp, Authentication, Cfm, Ethernet, Icmp, Ipv4, Ipv6, Nsh, NshContexts, Pppoe, Sctp, Security, Tcp, Udp,
};
use super::mac_to_bits;
use super::tunnel::TunnelMetadata;
use crate::conntrack::ConnectionKey;

macro_rules! headers {
    ($($header:ident($view:ident) { $($field:ident = $value:expr;)* })*) => {
        $(impl $header<&[u8]> {
            /// Sets the fields that the header has.
            pub(super) fn write(&self, key: &mut Key) {
                let $view = self;
                $(key.set(Field::$field, u128::from($value));)*
            }
        })*

        const IN_HEADERS: &[Field] = &[$($(Field::$field,)*)*];
    };
}

headers! {
    Ethernet(header) {
        EthSrc = mac_to_bits(header.source());
        EthDst = mac_to_bits(header.destination());
    }
    Nsh(header) {
        NshFlags = header.flags();
        NshTtl = header.ttl();
        NshMdType = header.metadata_type();
        NshNextProto = header.next_protocol();
        NshPathId = header.path_and_index() >> 8;
        NshServiceIndex = header.path_and_index() & 0xff;
    }
    NshContexts(contexts) {
        NshContext1 = contexts.context_1();
        NshContext2 = contexts.context_2();
        NshContext3 = contexts.context_3();
        NshContext4 = contexts.context_4();
    }
    Pppoe(header) {
        PppoePresent = 1u8;
        PppoeSession = header.session();
        PppProtocol = header.protocol();
    }
    Cfm(message) {
        CfmLevel = message.level_and_version() >> 5;
        CfmOpcode = message.opcode();
    }
    Arp(arp) {
        ArpSip = arp.sender_ip();
        ArpTip = arp.target_ip();
        ArpSha = mac_to_bits(arp.sender_mac());
        ArpTha = mac_to_bits(arp.target_mac());
    }
    Ipv4(ip) {
        Ipv4Src = ip.source();
        Ipv4Dst = ip.destination();
        Ipv4Proto = ip.protocol();
        Ipv4Tos = ip.tos();
        Ipv4Ttl = ip.ttl();
        Ipv4Frag = fragment(ip.is_fragment(), ip.is_later_fragment());
    }
    Ipv6(ip) {
        Ipv6Src = ip.source();
        Ipv6Dst = ip.destination();
        Ipv6Label = ip.flow_label();
        Ipv6Tclass = ip.traffic_class();
        Ipv6Hlimit = ip.hop_limit();
    }
    Tcp(tcp) {
        TcpSrc = tcp.source();
        TcpDst = tcp.destination();
        TcpFlags = tcp.flags();
    }
    Udp(udp) {
        UdpSrc = udp.source();
        UdpDst = udp.destination();
    }
    Sctp(sctp) {
        SctpSrc = sctp.source();
        SctpDst = sctp.destination();
    }
    Icmp(icmp) {
        IcmpType = icmp.kind();
        IcmpCode = icmp.code();
    }
    Security(header) {
        IpsecSpi = header.index();
    }
    Authentication(header) {
        IpsecSpi = header.index();
    }
}

/// Fields that come from more than one header, from where in a row a header is, or from what is known of the packet besides its
/// bytes. The parser sets them one by one.
const BY_THE_PARSER: &[Field] = &[
    Field::RecircId,
    Field::InPort,
    Field::SkbMark,
    Field::SkbPriority,
    Field::DpHash,
    Field::PacketTypeNs,
    Field::PacketTypeId,
    Field::EthType,
    Field::NumOfVlans,
    Field::VlanPresent,
    Field::VlanTpid,
    Field::VlanVid,
    Field::VlanPcp,
    Field::VlanCfi,
    Field::CvlanPresent,
    Field::CvlanTpid,
    Field::CvlanVid,
    Field::CvlanPcp,
    Field::CvlanCfi,
    Field::ArpOp,
    Field::Ipv6Proto,
    Field::Ipv6Frag,
    // These are where ICMP has its type and code.
    Field::Icmpv6Type,
    Field::Icmpv6Code,
    Field::NdTarget,
    Field::NdSll,
    Field::NdTll,
    Field::NdReserved,
    Field::NdOptionsType,
    Field::L2tpv3Session,
];

/// Whether the device knows each field of the table.
static KNOWN: [bool; FIELDS.len()] = {
    let [first, second, third] = &MPLS_ENTRIES;
    let lists: [&[Field]; _] = [
        IN_HEADERS,
        BY_THE_PARSER,
        &TunnelMetadata::FIELDS,
        &GENEVE_CHUNKS,
        &ConnectionKey::FIELDS,
        &MPLS_PRESENT,
        first,
        second,
        third,
    ];
    let mut known = [false; FIELDS.len()];
    let mut list = 0;
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            known[lists[list][at] as usize] = true;
            at += 1;
        }
        list += 1;
    }
    known
};

/// Whether a match may look at a field: the parser sets it.
pub(crate) fn is_known(field: Field) -> bool {
    KNOWN[field as usize]
}
