//! `ct`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::arguments::{arguments, flag, number, placed, placed_flag, plain_number, value};
use crate::action::{Commit, Conntrack, Nat, NatSide, PortPick, Translation};
use crate::text::ParseError;
use crate::text::cursor::{Cursor, error_at};
use crate::text::read_value::address;
use crate::text::write_value::Hex;

/// Bytes of the name of a helper, as in OVS (`NF_CT_HELPER_NAME_LEN` less the terminator).
const HELPER_NAME: usize = 15;
/// Bytes of the name of a timeout policy, as in OVS (`CTNL_TIMEOUT_NAME_MAX` less the terminator).
const TIMEOUT_NAME: usize = 31;

/// Reads the arguments of `ct`, which may have none.
pub(super) fn read_conntrack(cursor: &mut Cursor<'_>) -> Result<Conntrack, ParseError> {
    if !cursor.eat("(") {
        return Ok(Conntrack::default());
    }
    let (commit, force, zone, mark, label, helper, timeout, nat) = arguments!(cursor, "ct";
        commit: flag => false,
        force_commit: placed_flag("force_commit") => None,
        zone: number(u16::MAX) => 0,
        mark: value(|cursor| masked(cursor, u32::MAX)) => None,
        label: value(|cursor| masked(cursor, u128::MAX)) => None,
        helper: value(|cursor| read_name(cursor, HELPER_NAME)) => None,
        timeout: value(|cursor| read_name(cursor, TIMEOUT_NAME)) => None,
        nat: |cursor| read_nat(cursor).map(Some) => None,
    );
    let commit = match (commit, force) {
        (true, Some(offset)) => return Err(error_at(offset, "commit or force_commit, not both")),
        (true, None) => Commit::Yes,
        (false, Some(_)) => Commit::Force,
        (false, None) => Commit::No,
    };
    Ok(Conntrack { commit, zone, mark, label, helper, timeout, nat })
}

/// Reads `V/M` or `V`, which sets all bits; a mask of zero sets nothing.
fn masked<T>(cursor: &mut Cursor<'_>, full: T) -> Result<Option<(T, T)>, ParseError>
where
    T: Copy + Into<u128> + TryFrom<u128> + Default + PartialEq,
{
    let value = plain_number(cursor, full)?;
    let mask = if cursor.eat("/") { plain_number(cursor, full)? } else { full };
    Ok((mask != T::default()).then_some((value, mask)))
}

fn read_name(cursor: &mut Cursor<'_>, longest: usize) -> Result<Option<Box<str>>, ParseError> {
    let start = cursor.offset();
    let name = cursor.take_while(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'(' | b')'));
    if name.is_empty() || name.len() > longest {
        return Err(error_at(start, format!("a name of at most {longest} characters")));
    }
    Ok(Some(name.into()))
}

fn read_nat(cursor: &mut Cursor<'_>) -> Result<Nat, ParseError> {
    if !cursor.eat("(") {
        return Ok(Nat::Existing);
    }
    let start = cursor.offset();
    let (source, destination, persistent, hash, random) = arguments!(cursor, "nat";
        src: placed(read_range) => None,
        dst: placed(read_range) => None,
        persistent: flag => false,
        hash: flag => false,
        random: placed_flag("random") => None,
    );
    let (side, range) = match (source, destination) {
        (Some(source), Some(destination)) => {
            return Err(error_at(source.offset.max(destination.offset), "src or dst, not both"));
        }
        (Some(range), None) => (NatSide::Source, range.value),
        (None, Some(range)) => (NatSide::Destination, range.value),
        (None, None) if !persistent && !hash && random.is_none() => return Ok(Nat::Existing),
        (None, None) => return Err(error_at(start, "src or dst in nat()")),
    };
    let pick = match (hash, random) {
        (true, Some(offset)) => return Err(error_at(offset, "hash or random, not both")),
        (true, None) => PortPick::Hash,
        (false, Some(_)) => PortPick::Random,
        (false, None) => PortPick::Default,
    };
    Ok(Nat::New(Translation { side, addresses: range.addresses, ports: range.ports, persistent, pick }))
}

#[derive(Clone, Copy, Default)]
struct Range {
    addresses: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
}

/// Reads `=IP-IP:PORT-PORT`, `=[IP]-[IP]:PORT-PORT`, a part of it, or nothing.
fn read_range(cursor: &mut Cursor<'_>) -> Result<Range, ParseError> {
    if !cursor.eat("=") {
        return Ok(Range::default());
    }
    let first = read_address(cursor)?;
    let mut addresses = (first, first);
    if cursor.eat("-") {
        let start = cursor.offset();
        addresses.1 = read_address(cursor)?;
        if addresses.1.is_ipv4() != first.is_ipv4() || addresses.1 < first {
            return Err(error_at(start, format!("an address not below {first}")));
        }
    }
    let mut ports = None;
    if cursor.eat(":") {
        let first = read_port_number(cursor, 1)?;
        let last = if cursor.eat("-") { read_port_number(cursor, first)? } else { first };
        ports = Some((first, last));
    }
    Ok(Range { addresses: Some(addresses), ports })
}

fn read_port_number(cursor: &mut Cursor<'_>, least: u16) -> Result<u16, ParseError> {
    let start = cursor.offset();
    let port = plain_number(cursor, u16::MAX)?;
    // To OVS a port of 0 is none at all.
    if port < least { Err(error_at(start, format!("a port from {least} to {}", u16::MAX))) } else { Ok(port) }
}

/// Reads an address, which for IPv6 may be in brackets, and must be if a port follows.
fn read_address(cursor: &mut Cursor<'_>) -> Result<IpAddr, ParseError> {
    if cursor.eat("[") {
        let inner = address::<Ipv6Addr>(cursor, "an IPv6 address")?;
        cursor.expect("]")?;
        return Ok(inner.into());
    }
    let mut ahead = cursor.clone();
    ahead.take_while(|byte| byte.is_ascii_hexdigit());
    if ahead.peek() == Some(b':') {
        return address::<Ipv6Addr>(cursor, "an IPv6 address").map(IpAddr::from);
    }
    let start = cursor.offset();
    let text = cursor.take_while(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| error_at(start, "an IP address"))
}

/// Writes `ct`.
pub(super) fn write_conntrack(out: &mut dyn fmt::Write, conntrack: &Conntrack) -> fmt::Result {
    out.write_str("ct")?;
    if *conntrack == Conntrack::default() {
        return Ok(());
    }
    let mut separator = "(";
    let mut next = || std::mem::replace(&mut separator, ",");
    match conntrack.commit {
        Commit::No => {}
        Commit::Yes => write!(out, "{}commit", next())?,
        Commit::Force => write!(out, "{}force_commit", next())?,
    }
    if conntrack.zone != 0 {
        write!(out, "{}zone={}", next(), conntrack.zone)?;
    }
    if let Some((value, mask)) = conntrack.mark {
        write!(out, "{}mark={}/{}", next(), Hex(value.into()), Hex(mask.into()))?;
    }
    if let Some((value, mask)) = conntrack.label {
        write!(out, "{}label={}", next(), Hex(value))?;
        if mask != u128::MAX {
            write!(out, "/{}", Hex(mask))?;
        }
    }
    if let Some(helper) = &conntrack.helper {
        write!(out, "{}helper={helper}", next())?;
    }
    if let Some(timeout) = &conntrack.timeout {
        write!(out, "{}timeout={timeout}", next())?;
    }
    if let Some(nat) = &conntrack.nat {
        out.write_str(next())?;
        write_nat(out, nat)?;
    }
    out.write_char(')')
}

fn write_nat(out: &mut dyn fmt::Write, nat: &Nat) -> fmt::Result {
    let Nat::New(translation) = nat else {
        return out.write_str("nat");
    };
    out.write_str(match translation.side {
        NatSide::Source => "nat(src",
        NatSide::Destination => "nat(dst",
    })?;
    if let Some((first, last)) = translation.addresses {
        let bracketed = first.is_ipv6() && translation.ports.is_some();
        let address = |address| if bracketed { format!("[{address}]") } else { format!("{address}") };
        write!(out, "={}", address(first))?;
        if last != first {
            write!(out, "-{}", address(last))?;
        }
        if let Some((first, last)) = translation.ports {
            write!(out, ":{first}")?;
            if last != first {
                write!(out, "-{last}")?;
            }
        }
    }
    if translation.persistent {
        out.write_str(",persistent")?;
    }
    out.write_str(match translation.pick {
        PortPick::Default => ")",
        PortPick::Hash => ",hash)",
        PortPick::Random => ",random)",
    })
}
