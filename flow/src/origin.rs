//! Who wants a flow.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::name::{self, NameError};

/// Who wants a flow: somebody who typed it, a [source](crate::source::Source), or a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A command on the control socket. The log of flows keeps it.
    #[default]
    Command,
    /// The kernel's Open vSwitch datapath. Open vSwitch itself keeps the flow and says after a restart whether it is still wanted.
    OpenVswitch,
    /// The kernel's connection tracking. A connection ends there, and is found there after a restart.
    Conntrack,
    /// A program that speaks the agent's gRPC interface. The log of flows keeps it.
    Controller(ControllerName),
}

impl Origin {
    /// All that are sources.
    pub const SOURCES: [Self; 2] = [Self::OpenVswitch, Self::Conntrack];

    /// The word for its kind in dumps, metrics and the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::OpenVswitch => "ovs",
            Self::Conntrack => "conntrack",
            Self::Controller(_) => "controller",
        }
    }

    /// Who that is, in a sentence.
    pub fn owner(self) -> Cow<'static, str> {
        match self {
            Self::Command => "whoever added it by a command".into(),
            Self::OpenVswitch => "Open vSwitch".into(),
            Self::Conntrack => "the kernel's connection tracking".into(),
            Self::Controller(name) => format!("controller {name}").into(),
        }
    }

    /// Whether the log of flows keeps it. What a source wants, the source itself knows after a restart.
    pub const fn is_logged(self) -> bool {
        !self.is_source()
    }

    /// Whether it is a source.
    pub const fn is_source(self) -> bool {
        matches!(self, Self::OpenVswitch | Self::Conntrack)
    }

    /// Whether flows come as packets do, so that a chain never has all flows that packets in it need. A packet that misses there has to go on
    /// where the source's own datapath would take it on.
    pub const fn is_reactive(self) -> bool {
        matches!(self, Self::OpenVswitch)
    }
}

/// The name of an owner, which tells any two apart: that of a controller, or the word for the kind.
impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller(name) => name.fmt(out),
            other => out.write_str(other.name()),
        }
    }
}

/// The name of a controller: one word that is no other owner's.
///
/// It is copied with its bytes, for flows of all owners share [terms](crate::flow::Terms), which are compared and hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerName {
    bytes: [u8; Self::LIMIT],
    length: u8,
}

impl ControllerName {
    /// The length of a name, in bytes, at most.
    pub const LIMIT: usize = 31;

    /// The one that speaks OPI's interface for sessions.
    pub const OPI: Self = {
        let mut bytes = [0; Self::LIMIT];
        [bytes[0], bytes[1], bytes[2]] = *b"opi";
        Self { bytes, length: 3 }
    };

    /// Names that other owners have.
    pub const TAKEN: [&str; 4] = ["command", "conntrack", "controller", "ovs"];
}

impl FromStr for ControllerName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        const WHAT: &str = "the name of an owner";
        name::check(WHAT, name, Self::LIMIT)?;
        if Self::TAKEN.contains(&name) {
            return Err(NameError::Taken { what: WHAT, name: name.to_owned() });
        }
        let mut bytes = [0; Self::LIMIT];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, length: u8::try_from(name.len()).unwrap_or(0) })
    }
}

impl Deref for ControllerName {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length.into()]).unwrap_or_default()
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self)
    }
}

impl fmt::Debug for ControllerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_controller_is_one_word_that_no_other_owner_has() {
        for name in ["a", "ovn-central", "tenant:7", &"x".repeat(31), "zürich"] {
            assert_eq!(name.parse::<ControllerName>().map(|name| name.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("opi".parse(), Ok(ControllerName::OPI));
        for wrong in ["", "two words", "a,b", "a(b)", &"x".repeat(32), "command", "ovs"] {
            assert!(wrong.parse::<ControllerName>().is_err(), "{wrong:?}");
        }
    }
}
