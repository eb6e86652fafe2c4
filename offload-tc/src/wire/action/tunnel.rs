//! Outer headers (`act_tunnel_key`, `include/uapi/linux/tc_act/tc_tunnel_key.h`).

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed, Writer};

use super::super::options::Options;
use super::common::{Common, without_parameters};

const PARAMETERS: u16 = 2;
const IPV4_SOURCE: u16 = 3;
const IPV4_DESTINATION: u16 = 4;
const IPV6_SOURCE: u16 = 5;
const IPV6_DESTINATION: u16 = 6;
const KEY_ID: u16 = 7;
const PORT: u16 = 9;
const NO_CHECKSUM: u16 = 10;
const OPTIONS: u16 = 11;
const TOS: u16 = 12;
const TTL: u16 = 13;
const NO_FRAGMENT: u16 = 14;

/// An outer header. The kernel requires both addresses, of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encapsulation {
    /// IPv4 addresses, source first.
    pub ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    /// IPv6 addresses, source first.
    pub ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
    /// The key, such as a VNI.
    pub key: Option<u32>,
    /// The UDP destination port.
    pub port: Option<u16>,
    /// Whether the UDP checksum is left out.
    pub no_checksum: bool,
    /// Type of service.
    pub tos: Option<u8>,
    /// Time to live.
    pub ttl: Option<u8>,
    /// The don't-fragment flag; Linux 6.3 and later.
    pub no_fragment: bool,
    /// Options.
    pub options: Option<Options>,
}

/// Writes an action that sets a header, or that releases it.
pub(super) fn emit(header: Option<&Encapsulation>, common: Common, writer: &mut Writer<'_>) {
    let action = if header.is_some() { 1i32 } else { 2 };
    common.put(PARAMETERS, writer, |writer| writer.raw(&action.to_ne_bytes()));
    let Some(header) = header else { return };
    if let Some((source, destination)) = header.ipv4 {
        writer.put(IPV4_SOURCE, &source.octets());
        writer.put(IPV4_DESTINATION, &destination.octets());
    }
    if let Some((source, destination)) = header.ipv6 {
        writer.put(IPV6_SOURCE, &source.octets());
        writer.put(IPV6_DESTINATION, &destination.octets());
    }
    if let Some(key) = header.key {
        writer.put(KEY_ID, &key.to_be_bytes());
    }
    if let Some(port) = header.port {
        writer.put(PORT, &port.to_be_bytes());
    }
    if header.no_checksum {
        writer.put(NO_CHECKSUM, &[1]);
    }
    if let Some(tos) = header.tos {
        writer.put(TOS, &[tos]);
    }
    if let Some(ttl) = header.ttl {
        writer.put(TTL, &[ttl]);
    }
    if header.no_fragment {
        writer.put(NO_FRAGMENT, &[]);
    }
    if let Some(options) = &header.options {
        options.emit(OPTIONS, writer);
    }
}

/// Reads the header that is set; `None` if the action releases it.
pub(super) fn parse(options: Attributes<'_>) -> Result<(Option<Encapsulation>, Common), Malformed> {
    let (mut parameters, mut header) = (None, Encapsulation::default());
    let (mut ipv4, mut ipv6) = ([None; 2], [None; 2]);
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            PARAMETERS => {
                let mut fields = Fields::new(attribute.payload, "tunnel_key");
                parameters = Some((Common::read(&mut fields)?, fields.i32()?, attribute));
            }
            IPV4_SOURCE => ipv4[0] = Some(Ipv4Addr::from(attribute.bytes::<4>()?)),
            IPV4_DESTINATION => ipv4[1] = Some(Ipv4Addr::from(attribute.bytes::<4>()?)),
            IPV6_SOURCE => ipv6[0] = Some(Ipv6Addr::from(attribute.bytes::<16>()?)),
            IPV6_DESTINATION => ipv6[1] = Some(Ipv6Addr::from(attribute.bytes::<16>()?)),
            KEY_ID => header.key = Some(attribute.be32()?),
            PORT => header.port = Some(attribute.be16()?),
            NO_CHECKSUM => header.no_checksum = attribute.u8()? != 0,
            OPTIONS => header.options = Some(Options::parse(&attribute)?),
            TOS => header.tos = Some(attribute.u8()?),
            TTL => header.ttl = Some(attribute.u8()?),
            NO_FRAGMENT => header.no_fragment = true,
            1 | 8 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    let (common, action, attribute) = parameters.ok_or(without_parameters("tunnel_key", PARAMETERS))?;
    // `tc` leaves an unspecified source out, and the kernel then shows zeros.
    header.ipv4 = ipv4[1].map(|destination| (ipv4[0].unwrap_or(Ipv4Addr::UNSPECIFIED), destination));
    header.ipv6 = ipv6[1].map(|destination| (ipv6[0].unwrap_or(Ipv6Addr::UNSPECIFIED), destination));
    match action {
        1 => Ok((Some(header), common)),
        2 => Ok((None, common)),
        other => Err(attribute.value(other.to_string())),
    }
}
