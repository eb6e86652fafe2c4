//! Objects as words: what a command takes, and what is kept over a restart.

use std::fmt::Write as _;
use std::str::FromStr;

use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortKind, PortMap, PortNames, Tunnel, TunnelProtocol};
use sluice_flow::text::{self, Style};
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};
use sluice_flow::{MaskedKey, NameError, Port, PortNumber};

use super::Object;

/// A port: `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`; a tunnel that is not over UDP has no `UDP-PORT`.
pub fn port(words: &[String], ports: &PortMap) -> Result<Port, String> {
    let [number, name, rest @ ..] = words else { return Err("a number and a name are needed".into()) };
    let (kind, details) = match rest.split_first() {
        Some((kind, details)) => (kind.as_str(), details),
        None => ("physical", rest),
    };
    let kind = match (kind, details) {
        ("physical", []) => PortKind::Physical,
        ("representor", []) => PortKind::Representor,
        ("internal", []) => PortKind::Internal,
        ("mirror", []) => PortKind::Mirror,
        ("physical" | "representor" | "internal" | "mirror", [extra, ..]) => {
            return Err(format!("{extra}: only a tunnel port has a UDP port and an underlay"));
        }
        (word, details) => match TunnelProtocol::ALL.into_iter().find(|protocol| protocol.name() == word) {
            Some(protocol) => tunnel(protocol, details, ports)?,
            None => {
                let kinds = "physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror";
                return Err(format!("{word}: not a kind of port, expected {kinds}"));
            }
        },
    };
    let number = PortNumber(parsed(number, "port number")?);
    let name = name.parse().map_err(|error: NameError| error.to_string())?;
    Ok(Port { number, name, kind })
}

fn tunnel(protocol: TunnelProtocol, details: &[String], ports: &PortMap) -> Result<PortKind, String> {
    let (udp_port, underlay) = match (protocol.default_udp_port(), details) {
        (Some(_), [udp_port, underlay]) => (Some(parsed(udp_port, "UDP port")?), underlay),
        (None, [underlay]) => (None, underlay),
        (Some(_), _) => return Err("a tunnel port needs its UDP port and its underlay".into()),
        (None, _) => {
            return Err(format!("a port of kind {} needs its underlay, and has no UDP port", protocol.name()));
        }
    };
    Ok(PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: port_number(underlay, ports)? }))
}

/// The port that a number or a name means.
pub fn port_number(text: &str, ports: &PortMap) -> Result<PortNumber, String> {
    let by_number = text.parse().ok().map(PortNumber).filter(|number| ports.get(*number).is_some());
    by_number.or_else(|| ports.number(text)).ok_or_else(|| format!("there is no port {text}"))
}

/// A meter: `ID kbps|pps RATE[:BURST]...`, a rate for each band.
pub fn meter(words: &[String]) -> Result<Meter, String> {
    let [id, unit, bands @ ..] = words else { return Err("a number, a unit and a rate are needed".into()) };
    let unit = match unit.as_str() {
        "kbps" => MeterUnit::Kilobits,
        "pps" => MeterUnit::Packets,
        unknown => return Err(format!("{unknown}: not a unit, expected kbps or pps")),
    };
    let band = |text: &String| {
        let (rate, burst) = text.split_once(':').unwrap_or((text, "0"));
        Ok(MeterBand { rate: parsed(rate, "rate")?, burst: parsed(burst, "burst")? })
    };
    let bands = bands.iter().map(band).collect::<Result<_, String>>()?;
    Ok(Meter { id: meter_id(id)?, unit, bands })
}

/// The number of a meter.
pub fn meter_id(text: &str) -> Result<MeterId, String> {
    parsed(text, "meter").map(MeterId)
}

/// A mirror: `NAME KEY PORT[,PORT]...`.
pub fn mirror(words: &[String], ports: &PortMap) -> Result<Mirror, String> {
    let [name, key, copies] = words else { return Err("a name, a key and ports are needed".into()) };
    let wrong = |error: text::ParseError| format!("parsing flow key (Invalid argument)\n{}", error.caret(key));
    let matching = text::parse_key(key, ports).map_err(wrong)?.matching;
    let copies = copies.split(',').map(|text| port_number(text, ports)).collect::<Result<_, _>>()?;
    Mirror::new(name.as_str(), matching, copies)
}

/// A timeout policy: `NAME [KEY=SECONDS]...`.
pub fn timeout_policy(words: &[String]) -> Result<TimeoutPolicy, String> {
    let [name, timeouts @ ..] = words else { return Err("a name is needed".into()) };
    TimeoutPolicy::check_name(name).map_err(|error| error.to_string())?;
    let mut policy = TimeoutPolicy::new(name.as_str());
    for text in timeouts {
        let (key, seconds) = text.split_once('=').unwrap_or((text, ""));
        let Some(key) = TimeoutKey::named(key) else {
            let known: Vec<_> = TimeoutKey::ALL.iter().map(|key| key.name()).collect();
            return Err(format!("{key}: not a timeout, expected one of {}", known.join(", ")));
        };
        let seconds = seconds.parse().map_err(|_| format!("{text}: {} needs a number of seconds", key.name()))?;
        policy.set(key, seconds);
    }
    Ok(policy)
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a {what}"))
}

/// An object as one line that [`read`] reads: what it is, and the words of its command.
pub fn write(object: &Object) -> String {
    let mut line = object.id().key().to_owned();
    // Writing to a string does not fail.
    let _ = match object {
        Object::Port(Port { number, name, kind }) => write!(line, " {number} {name} {}", kind.name()).and_then(|()| {
            let PortKind::Tunnel(Tunnel { udp_port, underlay, .. }) = kind else { return Ok(()) };
            udp_port.map_or(Ok(()), |udp_port| write!(line, " {udp_port}"))?;
            write!(line, " {underlay}")
        }),
        Object::Meter(Meter { id, unit, bands }) => {
            let unit = if *unit == MeterUnit::Kilobits { "kbps" } else { "pps" };
            write!(line, " {id} {unit}")
                .and_then(|()| bands.iter().try_for_each(|MeterBand { rate, burst }| write!(line, " {rate}:{burst}")))
        }
        Object::Mirror(mirror) => {
            let Mirror { name, matching, copies } = &**mirror;
            let mut key = String::new();
            let _ = text::write_key(&mut key, &MaskedKey::new(matching), &Style::default());
            let copies: Vec<_> = copies.iter().map(ToString::to_string).collect();
            write!(line, " {name} {key} {}", copies.join(","))
        }
        Object::TimeoutPolicy(policy) => write!(line, " {}", policy.name)
            .and_then(|()| policy.timeouts().try_for_each(|(key, seconds)| write!(line, " {}={seconds}", key.name()))),
    };
    line
}

/// Reads an object of such a line.
pub fn read(line: &str, ports: &PortMap) -> Result<Object, String> {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let kind = words.remove(0);
    match kind.as_str() {
        "port" => port(&words, ports).map(Object::Port),
        "meter" => meter(&words).map(Object::Meter),
        "ct_timeout" => timeout_policy(&words).map(Object::TimeoutPolicy),
        "mirror" => mirror(&words, ports).map(|mirror| Object::Mirror(mirror.into())),
        other => Err(format!("{other}: not a kind of object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_read_as_it_is_written() {
        let mut ports = PortMap::default();
        for line in [
            "port 1 p0 physical",
            "port 2 vf0 representor",
            "port 3 br0 internal",
            "port 4 vx0 vxlan 4789 1",
            "port 5 gre0 gre 1",
            "port 6 tap mirror",
            "meter 1 kbps 1000:0 5:7",
            "meter 4294967295 pps 1:2",
            "ct_timeout short tcp_syn_sent=5 udp_single=7",
            "ct_timeout empty",
        ] {
            let object = read(line, &ports).unwrap();
            assert_eq!(write(&object), line);
            if let Object::Port(port) = object {
                ports.insert(port).unwrap();
            }
        }
        let key = "in_port(p0),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)";
        let mirror = read(&format!("mirror m {key} tap,2"), &ports).unwrap();
        assert_eq!(read(&write(&mirror), &PortMap::default()).unwrap_err(), "there is no port 6");
        assert_eq!(read(&write(&mirror), &ports).unwrap(), mirror);
        assert!(!write(&mirror).contains('\n'));
    }
}
