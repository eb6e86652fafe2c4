//! Which connections are meant, as `dpctl/flush-conntrack` of OVS takes it: `[zone=N] [mark=X[/M]] [labels=Y[/N]]
//! [ct-orig-tuple [ct-reply-tuple]]` (`ofp_ct_match_parse` in `lib/ofp-ct.c`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use sluice_flow::connection::{DirectionSelection, Selection};
use sluice_flow::text::parse_number;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Reads the arguments, in this order. What is wrong is said in the words of OVS.
pub(super) fn parse(arguments: &[String]) -> Result<Selection, String> {
    let mut selection = Selection::default();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    if let Some(zone) = rest.peek().and_then(|text| text.strip_prefix("zone=")) {
        selection.zone = Some(zone.parse().map_err(|_| "failed to parse zone")?);
        rest.next();
    }
    if let Some(mark) = rest.peek().and_then(|text| text.strip_prefix("mark=")) {
        selection.mark = masked(mark, u32::MAX).ok_or("failed to parse mark")?;
        rest.next();
    }
    if let Some(label) = rest.peek().and_then(|text| text.strip_prefix("labels=")) {
        selection.label = masked(label, u128::MAX).ok_or("failed to parse labels")?;
        rest.next();
    }
    if let Some(text) = rest.next() {
        selection.original = direction(text, &mut selection)?;
    }
    if let Some(text) = rest.next() {
        selection.reply = direction(text, &mut selection)?;
    }
    if rest.next().is_some() { Err("invalid arguments".into()) } else { Ok(selection) }
}

/// `VALUE[/MASK]`
fn masked<T: TryFrom<u128>>(text: &str, exactly: T) -> Option<(T, T)> {
    let read = |text: &str| T::try_from(parse_number(text)?).ok();
    match text.split_once('/') {
        Some((value, mask)) => Some((read(value)?, read(mask)?)),
        None => Some((read(text)?, exactly)),
    }
}

/// Reads a tuple; its family and its protocol are the connection's.
fn direction(text: &str, of: &mut Selection) -> Result<DirectionSelection, String> {
    let mut direction = DirectionSelection::default();
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if value.is_empty() {
            return Err(format!("field {key} missing value"));
        }
        match key {
            "ct_nw_src" => address::<Ipv4Addr>(key, value, &mut direction.source, &mut of.is_ipv6)?,
            "ct_nw_dst" => address::<Ipv4Addr>(key, value, &mut direction.destination, &mut of.is_ipv6)?,
            "ct_ipv6_src" => address::<Ipv6Addr>(key, value, &mut direction.source, &mut of.is_ipv6)?,
            "ct_ipv6_dst" => address::<Ipv6Addr>(key, value, &mut direction.destination, &mut of.is_ipv6)?,
            "ct_nw_proto" => set_once(key, &mut of.protocol, read(key, value)?)?,
            "ct_tp_src" => direction.source_port = Some(read(key, value)?),
            "ct_tp_dst" => direction.destination_port = (read(key, value)?, u16::MAX),
            "icmp_id" | "icmp_type" | "icmp_code" if !matches!(of.protocol, Some(ICMP | ICMPV6)) => {
                return Err("invalid L4 fields".into());
            }
            "icmp_id" => direction.source_port = Some(read(key, value)?),
            "icmp_type" => add(&mut direction.destination_port, u16::from(read::<u8>(key, value)?) << 8, 0xff00),
            "icmp_code" => add(&mut direction.destination_port, read::<u8>(key, value)?.into(), 0x00ff),
            _ => return Err(format!("invalid conntrack tuple field: {key}")),
        }
    }
    let has_port = direction.source_port.is_some() || direction.destination_port.1 != 0;
    if has_port && of.protocol.is_none() { Err("port is set without protocol".into()) } else { Ok(direction) }
}

fn address<T: FromStr + Into<IpAddr>>(
    key: &str,
    text: &str,
    place: &mut Option<IpAddr>,
    is_ipv6: &mut Option<bool>,
) -> Result<(), String> {
    let address: IpAddr = read::<T>(key, text)?.into();
    if is_ipv6.replace(address.is_ipv6()).is_some_and(|known| known != address.is_ipv6()) {
        return Err(format!("the L3 protocol does not match {text}"));
    }
    set_once(key, place, address)
}

fn read<T: FromStr>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("failed to parse field {key}"))
}

fn set_once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() { Err(format!("{key} is set multiple times")) } else { Ok(()) }
}

fn add((value, mask): &mut (u16, u16), bits: u16, of: u16) {
    (*value, *mask) = (*value & !of | bits, *mask | of);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Selection, String> {
        parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read_as_ovs_reads_them() {
        let all = "zone=5 mark=0x1/0xf labels=3 ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_dst=80 ct_nw_dst=10.0.0.9";
        let original = DirectionSelection {
            source: Some(IpAddr::from([10, 0, 0, 1])),
            destination_port: (80, u16::MAX),
            ..DirectionSelection::default()
        };
        let reply =
            DirectionSelection { destination: Some(IpAddr::from([10, 0, 0, 9])), ..DirectionSelection::default() };
        let expected = Selection {
            zone: Some(5),
            mark: (1, 15),
            label: (3, u128::MAX),
            is_ipv6: Some(false),
            protocol: Some(6),
            original,
            reply,
        };
        assert_eq!(parsed(all), Ok(expected));
        let icmp = parsed("ct_nw_proto=1,icmp_type=8,icmp_id=7").unwrap().original;
        assert_eq!((icmp.source_port, icmp.destination_port), (Some(7), (0x0800, 0xff00)));
    }

    #[test]
    fn what_is_wrong_is_said_as_ovs_says_it() {
        // All but the last three as ovs-vswitchd 3.1 says them.
        for (text, reason) in [
            ("zone=x", "failed to parse zone"),
            ("zone=5 ct_nw_src=x", "failed to parse field ct_nw_src"),
            ("ct_nw_srx=x", "invalid conntrack tuple field: ct_nw_srx"),
            ("ct_nw_src=1.1.1.1,ct_tp_src=3", "port is set without protocol"),
            ("ct_nw_src=", "field ct_nw_src missing value"),
            ("ct_nw_src=1.1.1.1,ct_ipv6_dst=::1", "the L3 protocol does not match ::1"),
            ("ct_nw_proto=6,icmp_type=8", "invalid L4 fields"),
            ("ct_nw_src=1.1.1.1 ct_nw_src=1.1.1.1 zone=5", "invalid arguments"),
            ("mark=x", "failed to parse mark"),
            ("labels=1/x", "failed to parse labels"),
        ] {
            assert_eq!(parsed(text), Err(reason.to_owned()), "{text}");
        }
    }
}
