//! What differs in the outer headers of every packet: lengths, checksums, source port, sequence number, time.
//!
//! Headers are filled alike whether `set(tunnel(…))` made them or `tnl_push` brought them.

use sluice_flow::port::TunnelProtocol;
use sluice_flow::time::Timestamp;

use super::header::{Payload, UDP};
use crate::packet::checksum::{Sum, pseudo_header};
use crate::packet::headers::{
    Checksum, Erspan, Ethernet, GRE_CHECKSUM, GRE_SEQUENCE, Gre, Gtpu, GtpuOptional, Ipv4, Ipv6, Number, Udp,
};
use crate::packet::{eth_type, ip_proto};
use crate::ports::Sequence;

const ETHERNET: usize = Ethernet::<&[u8]>::LENGTH;
const IPV4: usize = Ipv4::<&[u8]>::LENGTH;
pub(super) const IPV6: usize = Ipv6::<&[u8]>::LENGTH;

/// A UDP checksum that is to be computed; one of zero is not.
pub(super) const CHECKSUM_WANTED: u16 = 0xffff;
/// The unit of the time in ERSPAN version 2, in nanoseconds (`erspan_get_timestamp` in `include/net/erspan.h`).
const ERSPAN_TICK: u64 = 100_000;

/// From what the headers of one packet are filled.
pub(super) struct PerPacket<'a> {
    pub(super) payload: Payload<'a>,
    /// Numbers the packets of the tunnel port.
    pub(super) sequence: &'a Sequence,
    pub(super) now: Timestamp,
}

/// Where IP and what it carries begin in outer headers without tags, options and extension headers, and the protocol of
/// what it carries.
pub(super) fn places(frame: &[u8]) -> Option<(u16, usize, u8)> {
    let ethernet_type = Ethernet::new(frame)?.ethernet_type();
    let network = frame.get(ETHERNET..)?;
    match ethernet_type {
        eth_type::IPV4 => {
            let ip = Ipv4::new(network)?;
            (ip.version_and_length() == 0x45).then(|| (ethernet_type, ETHERNET + IPV4, ip.protocol()))
        }
        eth_type::IPV6 => Some((ethernet_type, ETHERNET + IPV6, Ipv6::new(network)?.next_header())),
        _ => None,
    }
}

/// Fills the headers in front of a payload; `None` if it is longer than IP can carry.
pub(super) fn fill(frame: &mut [u8], protocol: TunnelProtocol, packet: &PerPacket<'_>) -> Option<()> {
    let (ethernet_type, at, _) = places(frame)?;
    let (headers, body) = frame.split_at_mut(at);
    let network = headers.get_mut(ETHERNET..)?;
    let length = u16::try_from(body.len()).ok()?;
    match protocol {
        TunnelProtocol::Gre | TunnelProtocol::Erspan => fill_gre(body, protocol, packet)?,
        TunnelProtocol::Gtpu => fill_gtpu(body.get_mut(UDP..)?, packet)?,
        TunnelProtocol::Vxlan | TunnelProtocol::Geneve => {}
    }
    let pseudo = if ethernet_type == eth_type::IPV4 {
        let mut ip = Ipv4::new(&mut *network)?;
        ip.set_total_length(length.checked_add(20)?);
        ip.set_checksum(0);
        let pseudo =
            pseudo_header(&ip.source().to_be_bytes(), &ip.destination().to_be_bytes(), ip_proto::UDP, body.len());
        let checksum = Sum::default().bytes(network).finish();
        Ipv4::new(network)?.set_checksum(checksum);
        pseudo
    } else {
        let mut ip = Ipv6::new(network)?;
        ip.set_payload_length(length);
        pseudo_header(&ip.source().to_be_bytes(), &ip.destination().to_be_bytes(), ip_proto::UDP, body.len())
    };
    if !matches!(protocol, TunnelProtocol::Gre | TunnelProtocol::Erspan) {
        let mut udp = Udp::new(&mut *body)?;
        udp.set_source(packet.payload.entropy());
        udp.set_length(length);
        if udp.checksum() != 0 {
            udp.set_checksum(0);
            let checksum = match pseudo.bytes(body).finish() {
                0 => 0xffff,
                checksum => checksum,
            };
            Udp::new(body)?.set_checksum(checksum);
        }
    }
    Some(())
}

fn fill_gre(bytes: &mut [u8], protocol: TunnelProtocol, packet: &PerPacket<'_>) -> Option<()> {
    let gre = Gre::new(&*bytes)?;
    let (checksum_at, sequence_at) = (gre.place(GRE_CHECKSUM), gre.place(GRE_SEQUENCE));
    let (header, is_erspan2) = (gre.header_length(), gre.protocol() == eth_type::ERSPAN2);
    if let Some(at) = sequence_at {
        Number::new(bytes.get_mut(at..)?)?.set_value(packet.sequence.next());
    }
    if protocol == TunnelProtocol::Erspan && is_erspan2 {
        #[expect(clippy::cast_possible_truncation, reason = "the time on the wire goes round")]
        Erspan::new(bytes.get_mut(header..)?)?.set_index_or_time((packet.now.0 / ERSPAN_TICK) as u32);
    }
    if let Some(at) = checksum_at {
        Checksum::new(bytes.get_mut(at..)?)?.set_value(0);
        let checksum = Sum::default().bytes(bytes).finish();
        Checksum::new(bytes.get_mut(at..)?)?.set_value(checksum);
    }
    Some(())
}

fn fill_gtpu(bytes: &mut [u8], packet: &PerPacket<'_>) -> Option<()> {
    let length = bytes.len().checked_sub(Gtpu::<&[u8]>::LENGTH)?;
    let mut gtpu = Gtpu::new(&mut *bytes)?;
    gtpu.set_length(u16::try_from(length).ok()?);
    if gtpu.flags() & super::gtpu::SEQUENCE != 0 {
        #[expect(clippy::cast_possible_truncation, reason = "the number on the wire goes round")]
        let sequence = packet.sequence.next() as u16;
        GtpuOptional::new(bytes.get_mut(Gtpu::<&[u8]>::LENGTH..)?)?.set_sequence(sequence);
    }
    Some(())
}
