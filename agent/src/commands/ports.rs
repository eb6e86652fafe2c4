//! Ports and meters at run time, and frames put in by hand.

use std::str::FromStr;

use sluice_flow::meter::{Meter, MeterId, MeterRate};
use sluice_flow::port::{PortKind, PortNames, Tunnel, TunnelProtocol};
use sluice_flow::{Port, PortNumber};

use super::Failure;
use super::arguments::Arguments;
use crate::agent::{Agent, AgentError};
use crate::unixctl::Output;

/// `sluice/add-port`: `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`
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
        ("vxlan", details) => tunnel(agent, TunnelProtocol::Vxlan, details)?,
        ("geneve", details) => tunnel(agent, TunnelProtocol::Geneve, details)?,
        ("physical" | "representor" | "internal" | "mirror", [extra, ..]) => {
            return Err(Failure::new(format_args!("{extra}: only a tunnel port has a UDP port and an underlay")));
        }
        (unknown, _) => {
            let kinds = "physical, representor, internal, vxlan, geneve or mirror";
            return Err(Failure::new(format_args!("{unknown}: not a kind of port, expected {kinds}")));
        }
    };
    let number = PortNumber(parsed(number, "port number")?);
    Ok(agent.add_port(Port { number, name: name.clone(), kind })?)
}

/// `sluice/del-port`
pub(super) fn delete_port(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let number = port(agent, arguments.rest.first().map_or("", String::as_str))?;
    Ok(agent.remove_port(number)?)
}

/// `sluice/add-meter`: `ID kbps|pps RATE [BURST]`
pub(super) fn add_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let [id, unit, rate, rest @ ..] = arguments.rest.as_slice() else {
        return Err(Failure::new("a number, a unit and a rate are needed"));
    };
    let amount = parsed(rate, "rate")?;
    let rate = match unit.as_str() {
        "kbps" => MeterRate::Kbps(amount),
        "pps" => MeterRate::Pps(amount),
        unknown => return Err(Failure::new(format_args!("{unknown}: not a unit, expected kbps or pps"))),
    };
    // As OVS does, a meter without a burst lets a second's worth pass at once.
    let burst = rest.first().map_or(Ok(amount), |burst| parsed(burst, "burst"))?;
    Ok(agent.set_meter(Meter { id: MeterId(parsed(id, "meter")?), rate, burst })?)
}

/// `sluice/del-meter`
pub(super) fn delete_meter(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let id = parsed(arguments.rest.first().map_or("", String::as_str), "meter")?;
    Ok(agent.remove_meter(MeterId(id))?)
}

/// `sluice/show-meters`
pub(super) fn show_meters(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    for Meter { id, rate, burst } in agent.meters() {
        let (unit, amount) = match rate {
            MeterRate::Kbps(amount) => ("kbps", amount),
            MeterRate::Pps(amount) => ("pps", amount),
        };
        write!(out, "meter:{id}, rate:{amount} {unit}, burst:{burst}")?;
        if let Some(counters) = agent.backend.meter_counters(id) {
            write!(
                out,
                ", packets:{}, bytes:{}, dropped:{}",
                counters.packets, counters.bytes, counters.dropped_packets
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// `sluice/inject`: frames in hexadecimal, let in at a port of a NIC in software. Answers what became of them.
pub(super) fn inject(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let [name, frames @ ..] = arguments.rest.as_slice() else { return Err(Failure::new("a port is needed")) };
    let number = port(agent, name)?;
    let injector = agent.backend.injector().ok_or_else(|| {
        Failure::new(format_args!("frames can be put into a NIC in software only, not into {}", agent.datapath()))
    })?;
    let bytes = |(index, frame): (usize, &String)| {
        from_hex(frame).ok_or_else(|| Failure::new(format_args!("frame {index}: not hexadecimal")))
    };
    // All are read before the first is let in, so that a mistake changes nothing.
    let frames: Vec<_> = frames.iter().enumerate().map(bytes).collect::<Result<_, _>>()?;
    let (mut hit, mut missed, mut sent) = (0, 0, 0);
    for (index, frame) in frames.iter().enumerate() {
        let refused = |refusal| Failure::new(format_args!("frame {index}: {refusal}; those before it were let in"));
        let verdict = injector.inject(number, frame).map_err(refused)?;
        hit += usize::from(!verdict.hits.is_empty());
        missed += usize::from(verdict.missed.is_some());
        sent += verdict.sent.len();
    }
    Ok(writeln!(out, "frames:{} hit:{hit} missed:{missed} sent:{sent}", frames.len())?)
}

fn tunnel(agent: &Agent, protocol: TunnelProtocol, rest: &[String]) -> Result<PortKind, Failure> {
    let [udp_port, underlay] = rest else {
        return Err(Failure::new("a tunnel port needs its UDP port and its underlay"));
    };
    Ok(PortKind::Tunnel(Tunnel { protocol, udp_port: parsed(udp_port, "UDP port")?, underlay: port(agent, underlay)? }))
}

/// The port that a number or a name means.
fn port(agent: &Agent, text: &str) -> Result<PortNumber, Failure> {
    let ports = agent.ports();
    let by_number = text.parse().ok().map(PortNumber).filter(|number| ports.get(*number).is_some());
    by_number.or_else(|| ports.number(text)).ok_or_else(|| Failure::new(format_args!("there is no port {text}")))
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new(format_args!("{text}: not a {what}")))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?, 16).ok()).collect()
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(error)
    }
}
