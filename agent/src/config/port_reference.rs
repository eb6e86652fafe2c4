//! A port as the file names it.

use serde::Deserialize;
use serde::de::Deserializer;
use sluice_flow::port::{PortMap, PortNames, PortNumber};

/// A port by number or name.
pub(super) enum PortReference {
    Number(u32),
    Name(String),
}

impl PortReference {
    /// Returns the port, if there is such a one.
    pub(super) fn find(&self, ports: &PortMap) -> Option<PortNumber> {
        match self {
            Self::Number(number) => Some(PortNumber(*number)).filter(|port| ports.get(*port).is_some()),
            Self::Name(name) => ports.number(name),
        }
    }

    /// Writes it as it stands in the file.
    pub(super) fn text(&self) -> String {
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
