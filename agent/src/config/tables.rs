//! `[[port]]` and `[[meter]]`: what refers to each other, and therefore is checked as a whole.

use std::ops::Range;

use serde::Deserialize;
use serde::de::Deserializer;
use sluice_flow::meter::{Meter, MeterId, MeterRate};
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use toml::Spanned;

/// The part of the file that is looked at here.
#[derive(Deserialize)]
pub(super) struct Tables {
    #[serde(default)]
    port: Vec<PortTable>,
    #[serde(default)]
    meter: Vec<MeterTable>,
}

/// What is wrong, and where in the text.
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortTable {
    number: Spanned<u32>,
    name: Spanned<String>,
    #[serde(default)]
    kind: Option<Spanned<Kind>>,
    #[serde(default)]
    udp_port: Option<Spanned<u16>>,
    #[serde(default)]
    underlay: Option<Spanned<PortReference>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Physical,
    Representor,
    Internal,
    Vxlan,
    Geneve,
    Mirror,
}

/// A port by number or name.
enum PortReference {
    Number(u32),
    Name(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeterTable {
    id: Spanned<u32>,
    #[serde(default)]
    kbps: Option<Spanned<u64>>,
    #[serde(default)]
    pps: Option<Spanned<u64>>,
    #[serde(default)]
    burst: u64,
}

impl Tables {
    /// The ports and meters, if all of them are right.
    pub(super) fn check(self) -> Result<(Vec<Port>, Vec<Meter>), Fault> {
        for (index, port) in self.port.iter().enumerate() {
            port.check_against(&self.port[..index])?;
        }
        for (index, meter) in self.meter.iter().enumerate() {
            let id = *meter.id.get_ref();
            if self.meter[..index].iter().any(|earlier| *earlier.id.get_ref() == id) {
                return Err(fault(&meter.id, format!("meter {id} is there twice")));
            }
        }
        let ports = self.port.iter().map(|port| port.port(&self.port)).collect::<Result<_, _>>()?;
        let meters = self.meter.iter().map(MeterTable::meter).collect::<Result<_, _>>()?;
        Ok((ports, meters))
    }
}

impl PortTable {
    fn check_against(&self, earlier: &[Self]) -> Result<(), Fault> {
        let (number, name) = (*self.number.get_ref(), self.name.get_ref());
        if let Some(other) = earlier.iter().find(|other| *other.number.get_ref() == number) {
            return Err(fault(&self.number, format!("port {number} is \"{}\" already", other.name.get_ref())));
        }
        if let Some(other) = earlier.iter().find(|other| other.name.get_ref() == name) {
            return Err(fault(&self.name, format!("\"{name}\" is port {} already", other.number.get_ref())));
        }
        if name.is_empty()
            || name.contains(|char: char| char.is_whitespace() || char.is_control() || "(),\"".contains(char))
        {
            return Err(fault(&self.name, "a port's name is one word without brackets, commas and quotes".to_owned()));
        }
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fault(&self.name, format!("the name \"{name}\" would be taken for a port's number")));
        }
        Ok(())
    }

    fn port(&self, all: &[Self]) -> Result<Port, Fault> {
        let kind = match self.kind() {
            Kind::Physical => self.without_tunnel(PortKind::Physical)?,
            Kind::Representor => self.without_tunnel(PortKind::Representor)?,
            Kind::Internal => self.without_tunnel(PortKind::Internal)?,
            Kind::Mirror => self.without_tunnel(PortKind::Mirror)?,
            Kind::Vxlan => self.tunnel(TunnelProtocol::Vxlan, all)?,
            Kind::Geneve => self.tunnel(TunnelProtocol::Geneve, all)?,
        };
        Ok(Port { number: PortNumber(*self.number.get_ref()), name: self.name.get_ref().clone(), kind })
    }

    fn kind(&self) -> Kind {
        self.kind.as_ref().map_or(Kind::Physical, |kind| *kind.get_ref())
    }

    fn without_tunnel(&self, kind: PortKind) -> Result<PortKind, Fault> {
        let only =
            |key| format!("`{key}` is for ports of kind \"vxlan\" and \"geneve\", this one is \"{}\"", kind.name());
        match (&self.udp_port, &self.underlay) {
            (Some(udp_port), _) => Err(fault(udp_port, only("udp_port"))),
            (None, Some(underlay)) => Err(fault(underlay, only("underlay"))),
            (None, None) => Ok(kind),
        }
    }

    fn tunnel(&self, protocol: TunnelProtocol, all: &[Self]) -> Result<PortKind, Fault> {
        let Some(reference) = &self.underlay else {
            let name = self.name.get_ref();
            return Err(fault(&self.name, format!("tunnel \"{name}\" needs an `underlay`, the port its packets take")));
        };
        let found = all.iter().find(|port| match reference.get_ref() {
            PortReference::Number(number) => port.number.get_ref() == number,
            PortReference::Name(name) => port.name.get_ref() == name,
        });
        let Some(underlay) = found else {
            return Err(fault(
                reference,
                format!("there is no port {} to be the underlay", reference.get_ref().text()),
            ));
        };
        if matches!(underlay.kind(), Kind::Vxlan | Kind::Geneve | Kind::Mirror) {
            return Err(fault(reference, format!("port \"{}\" cannot be an underlay", underlay.name.get_ref())));
        }
        let udp_port = match &self.udp_port {
            None => protocol.default_udp_port(),
            Some(udp_port) if *udp_port.get_ref() == 0 => {
                return Err(fault(udp_port, "a UDP port is from 1 to 65535".to_owned()));
            }
            Some(udp_port) => *udp_port.get_ref(),
        };
        Ok(PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(*underlay.number.get_ref()) }))
    }
}

impl PortReference {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => format!("\"{name}\""),
        }
    }
}

impl<'de> Deserialize<'de> for PortReference {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected the number or the name of a port")]
        enum NumberOrName {
            Number(u32),
            Name(String),
        }
        Ok(match NumberOrName::deserialize(from)? {
            NumberOrName::Number(number) => Self::Number(number),
            NumberOrName::Name(name) => Self::Name(name),
        })
    }
}

impl MeterTable {
    fn meter(&self) -> Result<Meter, Fault> {
        let id = *self.id.get_ref();
        let (rate, place) = match (&self.kbps, &self.pps) {
            (Some(kbps), None) => (MeterRate::Kbps(*kbps.get_ref()), kbps),
            (None, Some(pps)) => (MeterRate::Pps(*pps.get_ref()), pps),
            (Some(_), Some(pps)) => return Err(fault(pps, format!("meter {id} has both `kbps` and `pps`"))),
            (None, None) => return Err(fault(&self.id, format!("meter {id} needs either `kbps` or `pps`"))),
        };
        if *place.get_ref() == 0 {
            return Err(fault(place, format!("meter {id} would let nothing pass")));
        }
        Ok(Meter { id: MeterId(id), rate, burst: self.burst })
    }
}

fn fault<T>(place: &Spanned<T>, message: String) -> Fault {
    Fault { span: place.span(), message }
}
