//! Ports as objects.

use sluice_flow::backend::Checker;
use sluice_flow::port::{PortKind, PortNames, Tunnel, TunnelProtocol};
use sluice_flow::{Backend, NameError, Port, PortNumber, Refusal};

use super::id::ObjectId;
use super::number::parsed;
use super::registry::{Absence, ObjectKind, Registry};
use super::set::Objects;

impl ObjectKind for Port {
    type Id = PortNumber;

    const KEY: &'static str = "port";

    fn id(&self) -> PortNumber {
        self.number
    }

    fn title(&self) -> String {
        format!("port {}", self.name)
    }

    /// Flows are bound to a port by number and name, so that a port never becomes another one in place.
    fn conflict(&self, other: &Self) -> Option<String> {
        let is_taken = self.number == other.number || self.name == other.name;
        is_taken.then(|| format!("port {}: number {} is {} already", self.name, other.number, other.name))
    }

    fn check(&self, checker: &mut dyn Checker) -> Result<(), Refusal> {
        checker.port(self)
    }

    fn make(&self, backend: &dyn Backend, absence: Absence) -> Result<(), Refusal> {
        match absence {
            Absence::Refused => backend.attach_port(self),
            Absence::Tolerated => backend.expect_port(self),
        }
    }

    fn unmake(number: &PortNumber, backend: &dyn Backend) -> Result<(), Refusal> {
        backend.detach_port(*number)
    }

    /// `NUMBER NAME [KIND] [UDP-PORT] [UNDERLAY]`; a tunnel that is not over UDP has no `UDP-PORT`, and one that is has a default.
    fn read(words: &[String], ports: &dyn PortNames) -> Result<Self, String> {
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
                Some(protocol) => read_tunnel(protocol, details, ports)?,
                None => {
                    let kinds = "physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror";
                    return Err(format!("{word}: not a kind of port, expected {kinds}"));
                }
            },
        };
        let number = PortNumber(parsed(number, "port number")?);
        let name = name.parse().map_err(|error: NameError| error.to_string())?;
        Ok(Self { number, name, kind })
    }

    fn write(&self) -> String {
        let Self { number, name, kind } = self;
        let mut words = vec![number.to_string(), name.to_string(), kind.name().to_owned()];
        if let PortKind::Tunnel(Tunnel { udp_port, underlay, .. }) = kind {
            words.extend(udp_port.map(|udp_port| udp_port.to_string()));
            words.push(underlay.to_string());
        }
        words.join(" ")
    }

    fn registry(objects: &Objects) -> &Registry<Self> {
        &objects.ports
    }

    fn registry_mut(objects: &mut Objects) -> &mut Registry<Self> {
        &mut objects.ports
    }
}

impl From<PortNumber> for ObjectId {
    fn from(number: PortNumber) -> Self {
        Self::Port(number)
    }
}

fn read_tunnel(protocol: TunnelProtocol, details: &[String], ports: &dyn PortNames) -> Result<PortKind, String> {
    let (udp_port, underlay) = match (protocol.default_udp_port(), details) {
        (Some(_), [udp_port, underlay]) => (Some(parsed(udp_port, "UDP port")?), underlay),
        // As in the configuration file, a tunnel over UDP has the port that is registered for it, unless another is given.
        (default, [underlay]) => (default, underlay),
        (Some(_), _) => return Err("a tunnel port needs its underlay, and may have a UDP port before that".into()),
        (None, _) => {
            return Err(format!("a port of kind {} needs its underlay, and has no UDP port", protocol.name()));
        }
    };
    Ok(PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: port_number(underlay, ports)? }))
}

/// The port that a number or a name means.
pub fn port_number(text: &str, ports: &dyn PortNames) -> Result<PortNumber, String> {
    let by_number = text.parse().ok().map(PortNumber).filter(|number| ports.name(*number).is_some());
    by_number.or_else(|| ports.number(text)).ok_or_else(|| format!("there is no port {text}"))
}
