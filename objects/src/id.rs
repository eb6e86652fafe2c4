//! What objects are called, and why one cannot be.

use std::fmt;

use sluice_flow::PortNumber;
use sluice_flow::meter::MeterId;

/// What an object is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectId {
    /// A port.
    Port(PortNumber),
    /// A meter.
    Meter(MeterId),
    /// A timeout policy of connections.
    TimeoutPolicy(Box<str>),
    /// A mirror.
    Mirror(String),
}

impl fmt::Display for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(number) => write!(out, "port {number}"),
            Self::Meter(id) => write!(out, "meter {id}"),
            Self::TimeoutPolicy(name) => write!(out, "timeout policy {name}"),
            Self::Mirror(name) => write!(out, "mirror {name}"),
        }
    }
}

/// Why an object cannot be as it is wanted. Nothing is changed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ObjectError {
    /// The object.
    pub object: ObjectId,
    /// The reason, with the object's name.
    pub reason: String,
}
