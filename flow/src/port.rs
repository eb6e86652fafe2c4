//! Datapath ports: number, name and kind.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::name::is_number;
use crate::name::{self, NameError};

/// The number of a datapath port, as in `in_port(N)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNumber(pub u32);

impl PortNumber {
    /// From this number on, ports are taps: places where the agent itself picks up copies of packets. No port of the configuration has such
    /// a number.
    pub const FIRST_TAP: Self = Self(0xfff0_0000);

    /// Returns whether it is the number of a tap.
    pub fn is_tap(self) -> bool {
        self >= Self::FIRST_TAP
    }
}

impl fmt::Display for PortNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The name of a port: one word that can stand in a flow and is not taken for a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName(Box<str>);

impl PortName {
    /// The length of a name, in bytes, at most.
    pub const LIMIT: usize = 64;
}

impl FromStr for PortName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        name::check("a port's name", name, Self::LIMIT)?;
        if is_number(name) {
            return Err(NameError::Number { what: "port", name: name.to_owned() });
        }
        Ok(Self(name.into()))
    }
}

impl Deref for PortName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// It is looked up as the text that it is.
impl Borrow<str> for PortName {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self)
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
    /// UDP destination port of the outer header; `None` for an encapsulation directly in IP.
    pub udp_port: Option<u16>,
    /// The port through which outer packets come and go.
    pub underlay: PortNumber,
}

/// Encapsulations of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelProtocol {
    /// RFC 7348 with the group policy extension.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2784 and RFC 2890.
    Gre,
    /// ERSPAN types II and III in GRE, which are versions 1 and 2 in the kernel and in OVS.
    Erspan,
    /// GTP-U (3GPP TS 29.281).
    Gtpu,
}

impl TunnelProtocol {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Vxlan, Self::Geneve, Self::Gre, Self::Erspan, Self::Gtpu];

    /// The word for it as a kind of port.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Erspan => "erspan",
            Self::Gtpu => "gtpu",
        }
    }

    /// The UDP port that IANA assigned, if it goes over UDP.
    pub const fn default_udp_port(self) -> Option<u16> {
        match self {
            Self::Vxlan => Some(4789),
            Self::Geneve => Some(6081),
            Self::Gtpu => Some(2152),
            Self::Gre | Self::Erspan => None,
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
            Self::Tunnel(tunnel) => tunnel.protocol.name(),
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
    pub name: PortName,
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

/// All ports of a datapath, by number and by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMap {
    ports: BTreeMap<PortNumber, Port>,
    numbers: BTreeMap<PortName, PortNumber>,
}

impl PortMap {
    /// Adds a port, or says which port has its number or name already.
    pub fn insert(&mut self, port: Port) -> Result<(), &Port> {
        let is_taken = self.ports.contains_key(&port.number);
        let taken = if is_taken { Some(port.number) } else { self.numbers.get(&port.name).copied() };
        match taken {
            Some(number) => Err(&self.ports[&number]),
            None => {
                self.numbers.insert(port.name.clone(), port.number);
                self.ports.insert(port.number, port);
                Ok(())
            }
        }
    }

    /// Takes a port out.
    pub fn remove(&mut self, number: PortNumber) -> Option<Port> {
        let port = self.ports.remove(&number)?;
        self.numbers.remove(&port.name);
        Some(port)
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
        self.numbers.get(name).copied()
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.ports.get(&number).map(|port| &*port.name)
    }
}

/// A port that is gone, as the flows that were accepted for it know it: another port of its number is another port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GonePort {
    /// The number that it had.
    pub number: PortNumber,
    /// The name that it had.
    pub name: PortName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_known_by_its_number_and_its_name_until_it_is_taken_out() {
        let port = |number, name: &str| Port {
            number: PortNumber(number),
            name: name.parse().unwrap(),
            kind: PortKind::Physical,
        };
        let mut ports = PortMap::default();
        assert_eq!(ports.insert(port(1, "a")), Ok(()));
        assert_eq!(ports.insert(port(2, "b")), Ok(()));
        assert_eq!(ports.insert(port(3, "a")), Err(&port(1, "a")));
        assert_eq!(ports.insert(port(2, "c")), Err(&port(2, "b")));
        let known = |ports: &PortMap| ["a", "b", "c"].map(|name| ports.number(name).map(|number| number.0));
        assert_eq!(known(&ports), [Some(1), Some(2), None]);
        assert_eq!(ports.remove(PortNumber(1)), Some(port(1, "a")));
        assert_eq!((known(&ports), ports.remove(PortNumber(1))), ([None, Some(2), None], None));
        assert_eq!(ports.insert(port(3, "a")), Ok(()));
        assert_eq!(known(&ports), [Some(3), Some(2), None]);
    }

    #[test]
    fn a_name_can_stand_in_every_text() {
        for name in ["p0", "pf0vf0", "eth0.100", "veth-1@if2", "größe", "10g0", "-"] {
            assert_eq!(&**name.parse::<PortName>().as_ref().unwrap(), name);
        }
        let long = "x".repeat(65);
        let wrong = [
            "",
            "a b",
            "a\nb",
            "\u{1b}[31mp0",
            "a,b",
            "a(b",
            "a)b",
            "a\"b",
            "a/b",
            "a=b",
            "a#b",
            "p\u{202e}0",
            "p\u{200b}0",
            "7",
            "0x1f",
            &long,
        ];
        for name in wrong {
            let text = name.parse::<PortName>().unwrap_err().to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
