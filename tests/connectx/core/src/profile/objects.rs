//! Types of general objects.

use crate::steering::{definers, icm};

/// Types of general objects that are modelled, by the PRM's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    SteeringMemory = icm::OBJECT_TYPE as isize,
    Meter = 0x0a,
    GeneveOption = 0x0b,
    MatchDefiner = definers::OBJECT_TYPE as isize,
    Sampler = 0x20,
    Argument = 0x23,
    MeterObjects = 0x24,
    FirstHits = 0x25,
    ConnectionTracking = 0x31,
}

impl Type {
    pub(crate) const ALL: [Self; 9] = [
        Self::SteeringMemory,
        Self::Meter,
        Self::GeneveOption,
        Self::MatchDefiner,
        Self::Sampler,
        Self::Argument,
        Self::MeterObjects,
        Self::FirstHits,
        Self::ConnectionTracking,
    ];
}
