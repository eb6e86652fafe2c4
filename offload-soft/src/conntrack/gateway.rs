//! The gateways that there are, and what one remembers of a connection.

use super::ftp::Lines;
use crate::packet::ip_proto;

/// The gateways that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ftp,
    Tftp,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Ftp, Self::Tftp];

    /// The gateway of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
        }
    }

    /// The protocol of IP that it reads.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Self::Ftp => ip_proto::TCP,
            Self::Tftp => ip_proto::UDP,
        }
    }
}

/// The gateway of a connection, with what it remembers.
#[derive(Clone, Debug)]
pub(crate) enum Helper {
    Ftp(Lines),
    Tftp,
}

impl Helper {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Ftp => Self::Ftp(Lines::default()),
            Kind::Tftp => Self::Tftp,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Ftp(_) => Kind::Ftp,
            Self::Tftp => Kind::Tftp,
        }
    }
}
