//! What the kernel's policies of IPsec mean for packets of tunnels. The device neither encrypts nor decrypts: packets that a policy is for are
//! the kernel's.
//!
//! What a flow sends into a tunnel would leave in the clear, and what comes out of a tunnel in the device has come in the clear: what came
//! encrypted the kernel has decrypted, and its flow is met behind the tunnel device. The kernel drops packets in the clear that a policy
//! lets in encrypted only; one that misses here is given to it as it came in, and so it does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::Cause;
use sluice_flow::Flow;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_netdev::{Addresses, Packets, PolicyList};

use crate::translate::{Hop, Protocol, Vports};

/// Returns why packets to a next hop are the kernel's to send, if a policy is for them. `source` is where they come from.
pub(crate) fn why_not_sent(policies: &PolicyList, hop: Hop, source: IpAddr) -> Option<String> {
    let source = if source.is_unspecified() { Addresses::Any } else { Addresses::one(source) };
    let destination = Addresses::one(hop.destination);
    let packets = Packets { source, destination, protocol: hop.protocol.number(), udp_port: hop.udp_port };
    let reason = "a policy of IPsec is for the packets of the tunnel, and the device would send them in the clear";
    policies.cover_sent(&packets).then(|| reason.to_owned())
}

/// Fails for a flow of packets that come by a tunnel, if a policy lets in some of them only if they come encrypted.
pub(crate) fn check_received(policies: &PolicyList, flow: &Flow, vports: &dyn Vports) -> Result<(), Refusal> {
    if policies.is_empty() {
        return Ok(());
    }
    let Some(packets) = received(flow, vports) else { return Ok(()) };
    if !policies.cover_received(&packets) {
        return Ok(());
    }
    let reason = "a policy of IPsec lets packets of the tunnel in only if they come encrypted, and the device sees those that do not";
    Err(Refusal::Field { field: Field::InPort, reason: reason.into() }.until(Cause::Module))
}

/// The packets with outer headers that a flow is for; `None` of a flow at another port than that of a tunnel.
fn received(flow: &Flow, vports: &dyn Vports) -> Option<Packets> {
    let matching = flow.matching();
    let port = PortNumber(u32::try_from(matching.get(Field::InPort).0).ok()?);
    let protocol = Protocol::of(&vports.tunnel(port)?).ok()?;
    let addresses = |four, six| {
        let ((four, four_mask), (six, six_mask)) = (matching.get(four), matching.get(six));
        match (u32::try_from(four), six_mask) {
            (_, 1..) => Addresses::Like(Ipv6Addr::from_bits(six).into(), six_mask),
            (Ok(four), _) if four_mask != 0 => Addresses::Like(Ipv4Addr::from_bits(four).into(), four_mask),
            _ => Addresses::Any,
        }
    };
    Some(Packets {
        source: addresses(Field::TunnelIpv4Src, Field::TunnelIpv6Src),
        destination: addresses(Field::TunnelIpv4Dst, Field::TunnelIpv6Dst),
        protocol: protocol.number(),
        udp_port: protocol.udp_port(),
    })
}
