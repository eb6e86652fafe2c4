//! Ports and meters at run time.

use std::str::FromStr;

use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::port::{PortKind, PortNames, Tunnel, TunnelProtocol};
use sluice_flow::{Port, PortNumber};

use super::Failure;
use super::arguments::Arguments;
use crate::agent::{Agent, AgentError};
use crate::unixctl::Output;

/// `sluice/add-port`: `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`; a tunnel that is not over UDP has no `UDP-PORT`.
pub(super) fn add_port(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let [number, name, rest @ ..] = arguments.rest.as_slice() else {
        return Err(Failure::new("a number and a name are needed"));
    };
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
            return Err(Failure::new(format_args!("{extra}: only a tunnel port has a UDP port and an underlay")));
        }
        (word, details) => match TunnelProtocol::ALL.into_iter().find(|protocol| protocol.name() == word) {
            Some(protocol) => tunnel(agent, protocol, details)?,
            None => {
                let kinds = "physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror";
                return Err(Failure::new(format_args!("{word}: not a kind of port, expected {kinds}")));
            }
        },
    };
    let number = PortNumber(parsed(number, "port number")?);
    agent.add_port(Port { number, name: name.clone(), kind })?;
    agent.count_device();
    Ok(())
}

/// `sluice/del-port`
pub(super) fn delete_port(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let number = port(agent, arguments.rest.first().map_or("", String::as_str))?;
    Ok(agent.remove_port(number)?)
}

/// `sluice/add-meter`: `ID kbps|pps RATE[:BURST]...`, a rate for each band
pub(super) fn add_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let [id, unit, bands @ ..] = arguments.rest.as_slice() else {
        return Err(Failure::new("a number, a unit and a rate are needed"));
    };
    let unit = match unit.as_str() {
        "kbps" => MeterUnit::Kilobits,
        "pps" => MeterUnit::Packets,
        unknown => return Err(Failure::new(format_args!("{unknown}: not a unit, expected kbps or pps"))),
    };
    let band = |text: &String| {
        let (rate, burst) = text.split_once(':').unwrap_or((text, "0"));
        Ok(MeterBand { rate: parsed(rate, "rate")?, burst: parsed(burst, "burst")? })
    };
    let bands = bands.iter().map(band).collect::<Result<_, Failure>>()?;
    agent.set_meter(Meter { id: MeterId(parsed(id, "meter")?), unit, bands })?;
    agent.count_device();
    Ok(())
}

/// `sluice/del-meter`
pub(super) fn delete_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let id = parsed(arguments.rest.first().map_or("", String::as_str), "meter")?;
    Ok(agent.remove_meter(MeterId(id))?)
}

/// `sluice/show-meters`
pub(super) fn show_meters(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let device = agent.device_counters();
    for Meter { id, unit, bands } in agent.meters() {
        let counters = device.meter(id);
        write!(out, "meter:{id}, unit:{}", unit.per_second())?;
        if let Some(counters) = counters {
            let MeterCounters { packets, bytes, dropped_packets, .. } = counters;
            write!(out, ", packets:{packets}, bytes:{bytes}, dropped:{dropped_packets}")?;
        }
        writeln!(out)?;
        for (index, MeterBand { rate, burst }) in bands.iter().enumerate() {
            // As OVS does, a band without a burst lets a second's worth pass at once.
            let burst = if *burst == 0 { rate } else { burst };
            write!(out, "  band:{index}, rate:{rate}, burst:{burst}")?;
            if let Some(dropped) = counters.and_then(|counters| counters.bands.get(index)) {
                write!(out, ", dropped:{dropped}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn tunnel(agent: &Agent, protocol: TunnelProtocol, rest: &[String]) -> Result<PortKind, Failure> {
    let (udp_port, underlay) = match (protocol.default_udp_port(), rest) {
        (Some(_), [udp_port, underlay]) => (Some(parsed(udp_port, "UDP port")?), underlay),
        (None, [underlay]) => (None, underlay),
        (Some(_), _) => return Err(Failure::new("a tunnel port needs its UDP port and its underlay")),
        (None, _) => {
            let kind = protocol.name();
            return Err(Failure::new(format_args!("a port of kind {kind} needs its underlay, and has no UDP port")));
        }
    };
    Ok(PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: port(agent, underlay)? }))
}

/// The port that a number or a name means.
pub(super) fn port(agent: &Agent, text: &str) -> Result<PortNumber, Failure> {
    let ports = agent.ports();
    let by_number = text.parse().ok().map(PortNumber).filter(|number| ports.get(*number).is_some());
    by_number.or_else(|| ports.number(text)).ok_or_else(|| Failure::new(format_args!("there is no port {text}")))
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new(format_args!("{text}: not a {what}")))
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(error)
    }
}
