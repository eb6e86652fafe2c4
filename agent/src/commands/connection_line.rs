//! A connection as text: a line of `dpctl/dump-conntrack` without `-m`.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sluice_flow::connection::{Connection, Direction, State, TcpState};
use sluice_flow::text::parse_number;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Linux's timeouts of established connections (`nf_conntrack_tcp_timeout_established`, `nf_conntrack_udp_timeout_stream`).
const OF_TCP: Duration = Duration::from_secs(432_000);
const OF_UDP: Duration = Duration::from_secs(120);

/// Bits of a connection's status, by their places in [`sluice_flow::connection::STATUS`].
const SEEN_AND_CONFIRMED: u32 = 1 << 1 | 1 << 2 | 1 << 3;
const SOURCE_TRANSLATED: u32 = 1 << 4 | 1 << 7;
const DESTINATION_TRANSLATED: u32 = 1 << 5 | 1 << 8;

/// Reads a connection that packets went by in both directions. What is translated follows from the answers.
pub(super) fn parse(text: &str) -> Result<Connection, String> {
    let mut parts = parts(text)?.into_iter();
    let protocol = match parts.next().unwrap_or_default() {
        "tcp" => TCP,
        "udp" => UDP,
        other => return Err(format!("{other:?}: expected tcp or udp")),
    };
    let (mut original, mut reply, mut zone, mut mark, mut label, mut timeout, mut state) = Default::default();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "orig" => set_once(key, &mut original, direction(key, value, protocol)?)?,
            "reply" => set_once(key, &mut reply, direction(key, value, protocol)?)?,
            "zone" => set_once(key, &mut zone, number(key, value)?)?,
            "mark" => set_once(key, &mut mark, number(key, value)?)?,
            "labels" => set_once(key, &mut label, number(key, value)?)?,
            "timeout" => set_once(key, &mut timeout, Duration::from_secs(number::<u32>(key, value)?.into()))?,
            "protoinfo" if protocol == TCP => set_once(key, &mut state, tcp_state(value)?)?,
            _ => return Err(format!("{key}: expected orig, reply, zone, mark, labels, timeout or, of tcp, protoinfo")),
        }
    }
    let Some(original) = original else { return Err("orig=(src=..,dst=..,sport=..,dport=..) is missing".to_owned()) };
    let answers = inverse(&original);
    let reply = reply.unwrap_or(answers);
    if reply.source.is_ipv4() != original.source.is_ipv4() {
        return Err("reply: it is of another version of IP than orig".to_owned());
    }
    let has = |is: bool, bits| if is { bits } else { 0 };
    let is_source = (reply.destination, reply.destination_port) != (answers.destination, answers.destination_port);
    let is_destination = (reply.source, reply.source_port) != (answers.source, answers.source_port);
    Ok(Connection {
        zone: zone.unwrap_or_default(),
        id: 0,
        original,
        reply,
        status: SEEN_AND_CONFIRMED | has(is_source, SOURCE_TRANSLATED) | has(is_destination, DESTINATION_TRANSLATED),
        mark: mark.unwrap_or_default(),
        label: label.unwrap_or_default(),
        timeout: timeout.unwrap_or(if protocol == TCP { OF_TCP } else { OF_UDP }),
        state: match protocol {
            TCP => State::Tcp { state: state.unwrap_or(TcpState::Established), scales: [0; 2], flags: [0; 2] },
            _ => State::Other,
        },
        helper: None,
        parent: None,
    })
}

/// The parts between commas that are in no brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut depth, mut first) = (Vec::new(), 0_usize, 0);
    for (place, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("a bracket is closed that is not open")?,
            ',' if depth == 0 => {
                parts.push(&text[first..place]);
                first = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[first..]);
    if depth == 0 { Ok(parts) } else { Err("a bracket is not closed".to_owned()) }
}

fn in_brackets<'t>(key: &str, value: &'t str) -> Result<&'t str, String> {
    let inside = value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    inside.ok_or_else(|| format!("{key}: expected brackets"))
}

fn direction(name: &str, value: &str, protocol: u8) -> Result<Direction, String> {
    let (mut source, mut destination, mut source_port, mut destination_port) = Default::default();
    for part in in_brackets(name, value)?.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "src" => read::<IpAddr>(key, value).and_then(|read| set_once(key, &mut source, read)),
            "dst" => read::<IpAddr>(key, value).and_then(|read| set_once(key, &mut destination, read)),
            "sport" => read::<u16>(key, value).and_then(|read| set_once(key, &mut source_port, read)),
            "dport" => read::<u16>(key, value).and_then(|read| set_once(key, &mut destination_port, read)),
            _ => Err(format!("{key}: expected src, dst, sport or dport")),
        }
        .map_err(|reason| format!("{name}: {reason}"))?;
    }
    let (Some(source), Some(destination), Some(source_port), Some(destination_port)) =
        (source, destination, source_port, destination_port)
    else {
        return Err(format!("{name}: expected src, dst, sport and dport"));
    };
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(format!("{name}: its addresses are of both versions of IP"));
    }
    Ok(Direction { source, destination, protocol, source_port, destination_port })
}

fn tcp_state(value: &str) -> Result<TcpState, String> {
    let name = in_brackets("protoinfo", value)?.strip_prefix("state=").unwrap_or_default();
    let found = TcpState::ALL.iter().find(|state| state.name() == name);
    found.copied().ok_or_else(|| "protoinfo: expected (state=NAME), such as ESTABLISHED".to_owned())
}

/// What the answers to a direction look like if nothing is translated.
fn inverse(of: &Direction) -> Direction {
    Direction {
        source: of.destination,
        destination: of.source,
        protocol: of.protocol,
        source_port: of.destination_port,
        destination_port: of.source_port,
    }
}

fn number<T: TryFrom<u128>>(key: &str, value: &str) -> Result<T, String> {
    let number = parse_number(value).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{key}: {value:?} is no such number"))
}

fn read<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}: {value:?} is none"))
}

fn set_once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() { Err(format!("{key} is set twice")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_follows_from_the_original_direction() {
        let connection = parse("udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=53)").unwrap();
        assert_eq!(connection.reply, inverse(&connection.original));
        assert_eq!((connection.status, connection.timeout), (SEEN_AND_CONFIRMED, OF_UDP));
        let translated = parse(
            "tcp,orig=(src=fd00::1,dst=fd00::2,sport=1,dport=80),reply=(src=fd00::8,dst=fd00::1,sport=80,dport=1),\
             zone=7,mark=0x5,labels=0x10,protoinfo=(state=ESTABLISHED),timeout=60",
        )
        .unwrap();
        assert_eq!(translated.status, SEEN_AND_CONFIRMED | DESTINATION_TRANSLATED);
        assert_eq!((translated.zone, translated.mark, translated.label), (7, 5, 16));
        assert_eq!(translated.timeout, Duration::from_secs(60));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let orig = "orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=53)";
        for (text, reason) in [
            ("", "\"\": expected tcp or udp"),
            ("icmp", "\"icmp\": expected tcp or udp"),
            ("udp", "orig=(src=..,dst=..,sport=..,dport=..) is missing"),
            ("udp,orig=(src=10.0.0.1", "a bracket is not closed"),
            ("udp,orig=5)", "a bracket is closed that is not open"),
            ("udp,orig=5", "orig: expected brackets"),
            ("udp,orig=(src=x)", "orig: src: \"x\" is none"),
            ("udp,orig=(src=10.0.0.1,dst=10.0.0.2)", "orig: expected src, dst, sport and dport"),
            ("udp,orig=(src=10.0.0.1,dst=fd00::2,sport=1,dport=2)", "orig: its addresses are of both versions of IP"),
            (&format!("udp,{orig},zone=65536"), "zone: \"65536\" is no such number"),
            (&format!("udp,{orig},{orig}"), "orig is set twice"),
            (
                &format!("udp,{orig},protoinfo=(state=ESTABLISHED)"),
                "protoinfo: expected orig, reply, zone, mark, labels, timeout or, of tcp, protoinfo",
            ),
            (&format!("tcp,{orig},protoinfo=(state=OPEN)"), "protoinfo: expected (state=NAME), such as ESTABLISHED"),
            (
                &format!("udp,{orig},reply=(src=fd00::2,dst=fd00::1,sport=2,dport=1)"),
                "reply: it is of another version of IP than orig",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), reason, "{text}");
        }
    }
}
