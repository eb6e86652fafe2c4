//! What not every device has.

use std::fmt;

/// A part of a backend that not every device has: a trait of its own, which the [`Backend`](super::Backend) hands out or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Facet {
    /// [`Meters`](super::Meters)
    Meters,
    /// [`Mirrors`](super::Mirrors)
    Mirrors,
    /// [`Connections`](super::Connections)
    Connections,
    /// [`Adopter`](super::Adopter)
    Adoption,
    /// [`Auditor`](super::Auditor)
    Audit,
    /// [`Capacity`](super::Capacity)
    Capacity,
    /// [`Injector`](super::Injector)
    Injector,
}

impl Facet {
    /// Every facet, in the order in which they are shown.
    pub const ALL: [Self; 7] =
        [Self::Meters, Self::Mirrors, Self::Connections, Self::Adoption, Self::Audit, Self::Capacity, Self::Injector];

    /// Returns the word for it, as `sluice show` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meters => "meters",
            Self::Mirrors => "mirrors",
            Self::Connections => "connections",
            Self::Adoption => "adoption",
            Self::Audit => "audit",
            Self::Capacity => "capacity",
            Self::Injector => "injector",
        }
    }

    /// Returns what a backend without it lacks, as a sentence.
    pub const fn missing(self) -> &'static str {
        match self {
            Self::Meters => "this backend has no meters",
            Self::Mirrors => "this backend has no mirrors",
            Self::Connections => "this backend tracks no connections",
            Self::Adoption => "this backend has no rules but those of its own agent",
            Self::Audit => "this backend has no rules but those of flows",
            Self::Capacity => "this backend keeps no rules in software that it counts",
            Self::Injector => "this backend takes no packets from the control socket",
        }
    }
}

impl fmt::Display for Facet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
