//! The objects that flows refer to: ports, meters, timeout policies and mirrors. Each came from the configuration file or at run
//! time, and the two are known apart: a reload compares the file with what is in force, and what came at run time stays.
//!
//! A kind of object implements [`ObjectKind`]: its name, its text, and how a device makes it. Everything else is the same for all
//! kinds: a [`Registry`] of each, [`Steps`] that lead from what is in force to what is wanted and back, the [file](ObjectsFile) in the
//! state folder, and the [store](ObjectStore) that makes one change at a time.

mod file;
mod kind;
mod meter;
mod mirror;
mod port;
mod registry;
mod steps;
mod store;
mod timeout_policy;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sluice_flow::PortNumber;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortMap};
use sluice_flow::timeout::TimeoutPolicy;

pub use self::file::{ObjectsFile, ObjectsFileError, Saved};
pub use self::kind::{Absence, ObjectKind};
pub use self::meter::meter_id;
pub use self::port::port_number;
pub use self::registry::{Entry, Origin, Registry};
pub use self::steps::{Steps, check, difference, make};
pub use self::store::{ChangeError, ObjectStore};

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

/// Objects of all kinds: those in force at a moment, or those that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    ports: Registry<Port>,
    meters: Registry<Meter>,
    timeout_policies: Registry<TimeoutPolicy>,
    mirrors: Registry<Mirror>,
    /// The ports once more, as texts name them.
    port_map: Arc<PortMap>,
}

impl Objects {
    /// Adds an object of the configuration file.
    pub fn configure<T: ObjectKind>(&mut self, object: T) {
        T::registry_mut(self).put(object, Origin::File);
    }

    /// The ports in force.
    pub fn ports(&self) -> &Arc<PortMap> {
        &self.port_map
    }

    /// The meters in force.
    pub fn meters(&self) -> impl ExactSizeIterator<Item = &Meter> {
        self.meters.objects()
    }

    /// The timeout policies in force.
    pub fn timeout_policies(&self) -> impl ExactSizeIterator<Item = &TimeoutPolicy> {
        self.timeout_policies.objects()
    }

    /// The mirrors in force.
    pub fn mirrors(&self) -> impl ExactSizeIterator<Item = &Mirror> {
        self.mirrors.objects()
    }

    /// The objects of a kind, with their origins.
    pub fn of<T: ObjectKind>(&self) -> &Registry<T> {
        T::registry(self)
    }

    /// Checks that the ports fit each other: no two have one name, and every underlay is there. Returns them as texts name them.
    fn check_ports(&self) -> Result<PortMap, ObjectError> {
        let mut known = PortMap::default();
        for Entry { object: port, origin } in self.ports.iter() {
            if let Err(taken) = known.insert(port.clone()) {
                // Said of the one that has a line in the file.
                let (port, other) = if *origin == Origin::File { (port, taken) } else { (taken, port) };
                let reason = format!("port {}: number {} is {} already", port.name, other.number, other.name);
                return Err(ObjectError { object: port.number.into(), reason });
            }
        }
        for port in self.ports.objects() {
            if let PortKind::Tunnel(tunnel) = &port.kind
                && known.get(tunnel.underlay).is_none()
            {
                let (name, underlay) = (&port.name, tunnel.underlay);
                let reason = format!("port {underlay} is the underlay of port {name}: delete that first");
                return Err(ObjectError { object: underlay.into(), reason });
            }
        }
        Ok(known)
    }
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a {what}"))
}
