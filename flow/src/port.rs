//! Datapath ports: number, name and kind.

use std::collections::BTreeMap;
use std::fmt;

/// The number of a datapath port, as in `in_port(N)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNumber(pub u32);

impl fmt::Display for PortNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// An uplink or any other wire.
    Physical,
    /// The eswitch's end of a virtual or physical function.
    Representor,
    /// A port of the host itself, such as a bridge's local port.
    Internal,
    /// A tunnel in collect-metadata mode.
    Tunnel(Tunnel),
    /// Where mirrored packets go.
    Mirror,
}

/// A tunnel port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The encapsulation.
    pub protocol: TunnelProtocol,
    /// UDP destination port of the outer header.
    pub udp_port: u16,
    /// The port through which outer packets come and go.
    pub underlay: PortNumber,
}

/// Encapsulations of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelProtocol {
    /// RFC 7348, UDP port 4789.
    Vxlan,
    /// RFC 8926, UDP port 6081.
    Geneve,
}

impl TunnelProtocol {
    /// The UDP port that IANA assigned.
    pub const fn default_udp_port(self) -> u16 {
        match self {
            Self::Vxlan => 4789,
            Self::Geneve => 6081,
        }
    }
}

impl PortKind {
    /// The word for it in configuration and listings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Representor => "representor",
            Self::Internal => "internal",
            Self::Tunnel(Tunnel { protocol: TunnelProtocol::Vxlan, .. }) => "vxlan",
            Self::Tunnel(Tunnel { protocol: TunnelProtocol::Geneve, .. }) => "geneve",
            Self::Mirror => "mirror",
        }
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number in the datapath.
    pub number: PortNumber,
    /// Its name: a netdev's or a representor's, any word for the software NIC.
    pub name: String,
    /// What it is.
    pub kind: PortKind,
}

/// Numbers and names of the ports that a text may speak of.
pub trait PortNames {
    /// The number of the port called `name`.
    fn number(&self, name: &str) -> Option<PortNumber>;
    /// The name of port `number`.
    fn name(&self, number: PortNumber) -> Option<&str>;
}

/// No names are known: ports are numbers.
impl PortNames for () {
    fn number(&self, _name: &str) -> Option<PortNumber> {
        None
    }

    fn name(&self, _number: PortNumber) -> Option<&str> {
        None
    }
}

/// All ports of a datapath, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMap {
    ports: BTreeMap<PortNumber, Port>,
}

impl PortMap {
    /// Adds a port, or says which port has its number or name already.
    pub fn insert(&mut self, port: Port) -> Result<(), &Port> {
        let taken = self.ports.values().find(|p| p.number == port.number || p.name == port.name).map(|p| p.number);
        match taken {
            Some(number) => Err(&self.ports[&number]),
            None => {
                self.ports.insert(port.number, port);
                Ok(())
            }
        }
    }

    /// Takes a port out.
    pub fn remove(&mut self, number: PortNumber) -> Option<Port> {
        self.ports.remove(&number)
    }

    /// The port with this number.
    pub fn get(&self, number: PortNumber) -> Option<&Port> {
        self.ports.get(&number)
    }

    /// All ports, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.ports.values()
    }
}

impl PortNames for PortMap {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.ports.values().find(|port| port.name == name).map(|port| port.number)
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.ports.get(&number).map(|port| port.name.as_str())
    }
}
