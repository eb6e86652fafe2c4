//! `tnl_push`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::arguments::{HexBytes, arguments, flag, hex_bytes, number, parenthesised, plain_number, value};
use super::headers::read_mac;
use crate::action::{
    GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE, GeneveOption, OuterHeaders, OuterNetwork, OuterTunnel, OuterUdp, TunnelPush,
};
use crate::port::PortNames;
use crate::text::cursor::{Cursor, error_at};
use crate::text::read_value::{address, read_port};
use crate::text::write_value::{Hex, write_mac, write_port};
use crate::text::{ParseError, Style};

/// Bytes of outer headers, as in OVS (`TNL_PUSH_HEADER_SIZE`).
const HEADER: usize = 512;
/// Bytes of Geneve options in one header: the length has 6 bits and counts words (RFC 8926, 3.4).
const GENEVE_OPTIONS: usize = 252;
/// Bytes of the value of a Geneve option: the length has 5 bits and counts words (RFC 8926, 3.5).
const GENEVE_OPTION: u8 = 124;
/// Segments of a segment routing header, as in OVS (`SRV6_MAX_SEGS`).
const SEGMENTS: usize = 6;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// Reads the arguments of `tnl_push`.
pub(super) fn read_tunnel_push(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<TunnelPush, ParseError> {
    cursor.expect("(")?;
    let (tunnel_port, header, out_port) = arguments!(cursor, "tnl_push";
        tnl_port: parenthesised(|cursor| read_port(cursor, names)),
        header: parenthesised(read_header),
        out_port: parenthesised(|cursor| read_port(cursor, names)),
    );
    let (tunnel_type, header) = header;
    Ok(TunnelPush { tunnel_port, out_port, tunnel_type, header })
}

/// Reads `size=,type=` and what follows, which must be of this size and type.
fn read_header(cursor: &mut Cursor<'_>) -> Result<(u32, Box<[u8]>), ParseError> {
    cursor.expect("size=")?;
    let size_start = cursor.offset();
    let size: u32 = plain_number(cursor, u32::MAX)?;
    cursor.expect(",type=")?;
    let type_start = cursor.offset();
    let tunnel_type = plain_number(cursor, u32::MAX)?;
    cursor.expect(",")?;
    let header = if cursor.eat("bytes(") {
        let header = hex_bytes(cursor);
        cursor.expect(")")?;
        header
    } else {
        let headers = read_layers(cursor)?;
        if headers.tunnel_type() != tunnel_type {
            return Err(error_at(type_start, format!("{}, the type of these headers", headers.tunnel_type())));
        }
        headers.bytes()
    };
    if usize::try_from(size) != Ok(header.len()) || header.len() > HEADER {
        return Err(error_at(size_start, format!("{}, the size of these headers, at most {HEADER}", header.len())));
    }
    Ok((tunnel_type, header.into()))
}

fn read_layers(cursor: &mut Cursor<'_>) -> Result<OuterHeaders, ParseError> {
    cursor.expect("eth(")?;
    let (destination, source, eth_type) = arguments!(cursor, "eth";
        dst: value(read_mac),
        src: value(read_mac),
        dl_type: value(read_eth_type),
    );
    cursor.expect(",")?;
    let network = if eth_type == ETH_P_IP { read_ipv4(cursor)? } else { read_ipv6(cursor)? };
    cursor.expect(",")?;
    let tunnel = read_tunnel(cursor)?;
    Ok(OuterHeaders { destination, source, network, tunnel })
}

fn read_eth_type(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    let start = cursor.offset();
    match plain_number(cursor, u16::MAX)? {
        eth_type @ (ETH_P_IP | ETH_P_IPV6) => Ok(eth_type),
        _ => Err(error_at(start, "0x0800 or 0x86dd")),
    }
}

fn ipv4(cursor: &mut Cursor<'_>) -> Result<Ipv4Addr, ParseError> {
    address(cursor, "an IPv4 address")
}

fn ipv6(cursor: &mut Cursor<'_>) -> Result<Ipv6Addr, ParseError> {
    address(cursor, "an IPv6 address")
}

fn read_ipv4(cursor: &mut Cursor<'_>) -> Result<OuterNetwork, ParseError> {
    cursor.expect("ipv4(")?;
    let (source, destination, protocol, tos, ttl, fragment) = arguments!(cursor, "ipv4";
        src: value(ipv4),
        dst: value(ipv4),
        proto: number(u8::MAX),
        tos: number(u8::MAX),
        ttl: number(u8::MAX),
        frag: number(u16::MAX),
    );
    Ok(OuterNetwork::Ipv4 { source, destination, protocol, tos, ttl, fragment })
}

fn read_ipv6(cursor: &mut Cursor<'_>) -> Result<OuterNetwork, ParseError> {
    cursor.expect("ipv6(")?;
    let (source, destination, label, next_header, traffic_class, hop_limit) = arguments!(cursor, "ipv6";
        src: value(ipv6),
        dst: value(ipv6),
        label: number(0xf_ffffu32),
        proto: number(u8::MAX),
        tclass: number(u8::MAX),
        hlimit: number(u8::MAX),
    );
    Ok(OuterNetwork::Ipv6 { source, destination, label, next_header, traffic_class, hop_limit })
}

fn read_tunnel(cursor: &mut Cursor<'_>) -> Result<OuterTunnel, ParseError> {
    let start = cursor.offset();
    match cursor.take_name() {
        "udp" => read_over_udp(cursor),
        "gre" => read_gre(cursor),
        "erspan" => read_erspan(cursor),
        "srv6" => read_srv6(cursor),
        _ => Err(error_at(start, "udp, gre, erspan or srv6")),
    }
}

fn read_over_udp(cursor: &mut Cursor<'_>) -> Result<OuterTunnel, ParseError> {
    cursor.expect("(")?;
    let (source, destination, checksum) = arguments!(cursor, "udp";
        src: number(u16::MAX),
        dst: number(u16::MAX),
        csum: number(u16::MAX),
    );
    let udp = OuterUdp { source, destination, checksum };
    cursor.expect(",")?;
    let start = cursor.offset();
    let name = cursor.take_name();
    cursor.expect("(")?;
    match name {
        "vxlan" => {
            let (flags, vni) = arguments!(cursor, "vxlan"; flags: number(u32::MAX), vni: number(0xff_ffffu32));
            Ok(OuterTunnel::Vxlan { udp, flags, vni })
        }
        "geneve" => {
            let (oam, critical, vni, options) = arguments!(cursor, "geneve";
                oam: flag => false,
                crit: flag => false,
                vni: number(0xff_ffffu32),
                options: parenthesised(read_options) => Vec::new(),
            );
            Ok(OuterTunnel::Geneve { udp, oam, critical, vni, options })
        }
        "gtpu" => {
            let (flags, message_type, endpoint) = arguments!(cursor, "gtpu";
                flags: number(u8::MAX),
                msgtype: number(u8::MAX),
                teid: number(u32::MAX),
            );
            Ok(OuterTunnel::Gtpu { udp, flags, message_type, endpoint })
        }
        _ => Err(error_at(start, "vxlan, geneve or gtpu")),
    }
}

/// Reads `{class=,type=,len=,0xVALUE}{…}`.
fn read_options(cursor: &mut Cursor<'_>) -> Result<Vec<GeneveOption>, ParseError> {
    let mut options: Vec<GeneveOption> = Vec::new();
    let start = cursor.offset();
    while cursor.eat("{") {
        options.push(read_option(cursor)?);
        cursor.expect("}")?;
        if options.iter().map(GeneveOption::length).sum::<usize>() > GENEVE_OPTIONS {
            return Err(error_at(start, format!("at most {GENEVE_OPTIONS} bytes of options")));
        }
    }
    Ok(options)
}

fn read_option(cursor: &mut Cursor<'_>) -> Result<GeneveOption, ParseError> {
    cursor.expect("class=")?;
    let class = plain_number(cursor, u16::MAX)?;
    cursor.expect(",type=")?;
    let kind = plain_number(cursor, u8::MAX)?;
    cursor.expect(",len=")?;
    let start = cursor.offset();
    let length = plain_number(cursor, GENEVE_OPTION)?;
    if length % 4 != 0 {
        return Err(error_at(start, "a multiple of 4 bytes"));
    }
    let mut data = Vec::new();
    if cursor.eat(",") {
        let start = cursor.offset();
        if cursor.eat("0x") {
            data = hex_bytes(cursor);
        } else {
            cursor.expect("0")?;
        }
        // OVS leaves zeros in front out, and reads a number.
        data.drain(..data.iter().take_while(|byte| **byte == 0).count());
        if data.len() > usize::from(length) {
            return Err(error_at(start, format!("a value of at most {length} bytes")));
        }
    }
    data.splice(0..0, std::iter::repeat_n(0, usize::from(length) - data.len()));
    Ok(GeneveOption { class, kind, data })
}

/// Reads `((flags=,proto=),csum=,key=,seq=)`, where the flags tell which of the last three there are.
fn read_gre(cursor: &mut Cursor<'_>) -> Result<OuterTunnel, ParseError> {
    cursor.expect("((")?;
    let (flags, protocol) = arguments!(cursor, "gre"; flags: number(u16::MAX), proto: number(u16::MAX));
    let mut optional = |bit: u16, name: &'static str, limit: u32| {
        if flags & bit == 0 {
            return Ok(None);
        }
        cursor.expect(name)?;
        plain_number(cursor, limit).map(Some)
    };
    let checksum = optional(GRE_CHECKSUM, ",csum=", u16::MAX.into())?.and_then(|checksum| checksum.try_into().ok());
    let key = optional(GRE_KEY, ",key=", u32::MAX)?;
    let sequence = optional(GRE_SEQUENCE, ",seq=", u32::MAX)?;
    cursor.expect(")")?;
    Ok(OuterTunnel::Gre { flags, protocol, checksum, key, sequence })
}

fn read_erspan(cursor: &mut Cursor<'_>) -> Result<OuterTunnel, ParseError> {
    cursor.expect("(ver=")?;
    let start = cursor.offset();
    match plain_number(cursor, u8::MAX)? {
        1 => {
            let (session, index) = arguments!(cursor, "erspan"; sid: number(0x3ffu16), idx: number(u32::MAX));
            Ok(OuterTunnel::Erspan1 { session, index })
        }
        2 => {
            let (session, direction, hardware_id) = arguments!(cursor, "erspan";
                sid: number(0x3ffu16),
                dir: number(1u8),
                hwid: number(0x3fu8),
            );
            Ok(OuterTunnel::Erspan2 { session, direction: direction == 1, hardware_id })
        }
        _ => Err(error_at(start, "1 or 2")),
    }
}

fn read_srv6(cursor: &mut Cursor<'_>) -> Result<OuterTunnel, ParseError> {
    cursor.expect("(segments_left=")?;
    let left: u8 = plain_number(cursor, u8::MAX)?;
    cursor.expect(",segs(")?;
    let mut segments = vec![ipv6(cursor)?];
    while cursor.eat(",") {
        if segments.len() == SEGMENTS {
            return Err(cursor.error(format!("at most {SEGMENTS} segments")));
        }
        segments.push(ipv6(cursor)?);
    }
    if segments.len() != usize::from(left) + 1 {
        return Err(cursor.error(format!("{} segments in all, one more than are left", usize::from(left) + 1)));
    }
    cursor.expect("))")?;
    Ok(OuterTunnel::Srv6(segments))
}

/// Writes `tnl_push`. Headers that the grammar of OVS has no words for are written as `bytes(HEX)`, which is our own.
pub(super) fn write_tunnel_push(out: &mut dyn fmt::Write, push: &TunnelPush, style: &Style<'_>) -> fmt::Result {
    out.write_str("tnl_push(tnl_port(")?;
    write_port(out, push.tunnel_port, style)?;
    write!(out, "),header(size={},type={},", push.header.len(), push.tunnel_type)?;
    match OuterHeaders::read(push.tunnel_type, &push.header) {
        Some(headers) => write_layers(out, &headers)?,
        None => write!(out, "bytes({})", HexBytes(&push.header))?,
    }
    out.write_str("),out_port(")?;
    write_port(out, push.out_port, style)?;
    out.write_str("))")
}

fn write_layers(out: &mut dyn fmt::Write, headers: &OuterHeaders) -> fmt::Result {
    let eth_type = match headers.network {
        OuterNetwork::Ipv4 { .. } => ETH_P_IP,
        OuterNetwork::Ipv6 { .. } => ETH_P_IPV6,
    };
    out.write_str("eth(dst=")?;
    write_mac(out, headers.destination.into())?;
    out.write_str(",src=")?;
    write_mac(out, headers.source.into())?;
    write!(out, ",dl_type=0x{eth_type:04x}),")?;
    match &headers.network {
        OuterNetwork::Ipv4 { source, destination, protocol, tos, ttl, fragment } => {
            write!(out, "ipv4(src={source},dst={destination},proto={protocol},tos={}", Hex((*tos).into()))?;
            write!(out, ",ttl={ttl},frag={fragment:#x}),")?;
        }
        OuterNetwork::Ipv6 { source, destination, label, next_header, traffic_class, hop_limit } => {
            write!(out, "ipv6(src={source},dst={destination},label={label},proto={next_header}")?;
            write!(out, ",tclass={traffic_class:#x},hlimit={hop_limit}),")?;
        }
    }
    write_tunnel(out, &headers.tunnel)
}

fn write_tunnel(out: &mut dyn fmt::Write, tunnel: &OuterTunnel) -> fmt::Result {
    match tunnel {
        OuterTunnel::Vxlan { udp, flags, vni } => {
            write_udp(out, udp)?;
            write!(out, "vxlan(flags={flags:#x},vni={vni:#x})")
        }
        OuterTunnel::Geneve { udp, oam, critical, vni, options } => {
            write_udp(out, udp)?;
            let oam = if *oam { "oam," } else { "" };
            let critical = if *critical { "crit," } else { "" };
            write!(out, "geneve({oam}{critical}vni={vni:#x}")?;
            if !options.is_empty() {
                out.write_str(",options(")?;
                options.iter().try_for_each(|option| write_option(out, option))?;
                out.write_char(')')?;
            }
            out.write_char(')')
        }
        OuterTunnel::Gtpu { udp, flags, message_type, endpoint } => {
            write_udp(out, udp)?;
            write!(out, "gtpu(flags={flags:#x},msgtype={message_type},teid={endpoint:#x})")
        }
        OuterTunnel::Gre { flags, protocol, checksum, key, sequence } => {
            write!(out, "gre((flags={flags:#x},proto={protocol:#x})")?;
            for (name, field) in [("csum", checksum.map(u32::from)), ("key", *key), ("seq", *sequence)] {
                if let Some(field) = field {
                    write!(out, ",{name}={field:#x}")?;
                }
            }
            out.write_char(')')
        }
        OuterTunnel::Erspan1 { session, index } => write!(out, "erspan(ver=1,sid={session:#x},idx={index:#x})"),
        OuterTunnel::Erspan2 { session, direction, hardware_id } => {
            let direction = u8::from(*direction);
            write!(out, "erspan(ver=2,sid={session:#x},dir={direction},hwid={hardware_id:#x})")
        }
        OuterTunnel::Srv6(segments) => {
            write!(out, "srv6(segments_left={},segs(", segments.len().saturating_sub(1))?;
            for (index, segment) in segments.iter().enumerate() {
                write!(out, "{}{segment}", if index == 0 { "" } else { "," })?;
            }
            out.write_str("))")
        }
    }
}

fn write_udp(out: &mut dyn fmt::Write, udp: &OuterUdp) -> fmt::Result {
    write!(out, "udp(src={},dst={},csum={:#x}),", udp.source, udp.destination, udp.checksum)
}

fn write_option(out: &mut dyn fmt::Write, option: &GeneveOption) -> fmt::Result {
    let GeneveOption { class, kind, data } = option;
    write!(out, "{{class={},type={},len={}", Hex((*class).into()), Hex((*kind).into()), data.len())?;
    let zeros = data.iter().take_while(|byte| **byte == 0).count();
    match &data[zeros..] {
        [] if data.is_empty() => {}
        [] => out.write_str(",0")?,
        [first, others @ ..] => write!(out, ",{first:#x}{}", HexBytes(others))?,
    }
    out.write_char('}')
}
