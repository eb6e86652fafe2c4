//! The objects that flows refer to: ports, meters, timeout policies and mirrors. Each came from the configuration file or at run
//! time, and the two are known apart: a reload compares the file with what is in force, and what came at run time stays.

mod change;
mod kept;
pub mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{PortKind, PortMap};
use sluice_flow::timeout::TimeoutPolicy;
use sluice_flow::{Port, PortNumber, Refusal};

pub use self::change::{Absence, Step, check, difference, make};
pub use self::kept::{Kept, KeptError, Saved, restore};

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file.
    File,
    /// A command.
    RunTime,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A port.
    Port(Port),
    /// A meter.
    Meter(Meter),
    /// A timeout policy of connections.
    TimeoutPolicy(TimeoutPolicy),
    /// A mirror: its match is large.
    Mirror(Box<Mirror>),
}

/// What an object is called. In order, an object comes behind those that it may refer to.
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

impl Object {
    /// What it is called.
    pub fn id(&self) -> ObjectId {
        match self {
            Self::Port(port) => ObjectId::Port(port.number),
            Self::Meter(meter) => ObjectId::Meter(meter.id),
            Self::TimeoutPolicy(policy) => ObjectId::TimeoutPolicy(policy.name.clone()),
            Self::Mirror(mirror) => ObjectId::Mirror(mirror.name.clone()),
        }
    }

    /// It is refused.
    pub fn error(&self, refusal: &Refusal) -> ObjectError {
        let (subject, refusal) = (format!("{}: ", self.described()), refusal.to_string());
        // A port's refusal names the port.
        let reason = if refusal.starts_with(&subject) { refusal } else { subject + &refusal };
        ObjectError { object: self.id(), reason }
    }

    /// What messages call it: a port by its name.
    fn described(&self) -> String {
        match self {
            Self::Port(port) => format!("port {}", port.name),
            other => other.id().to_string(),
        }
    }
}

impl From<Port> for Object {
    fn from(port: Port) -> Self {
        Self::Port(port)
    }
}

impl From<Meter> for Object {
    fn from(meter: Meter) -> Self {
        Self::Meter(meter)
    }
}

impl From<TimeoutPolicy> for Object {
    fn from(policy: TimeoutPolicy) -> Self {
        Self::TimeoutPolicy(policy)
    }
}

impl From<Mirror> for Object {
    fn from(mirror: Mirror) -> Self {
        Self::Mirror(mirror.into())
    }
}

impl ObjectId {
    /// The key of such objects in the configuration file.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Port(_) => "port",
            Self::Meter(_) => "meter",
            Self::TimeoutPolicy(_) => "ct_timeout",
            Self::Mirror(_) => "mirror",
        }
    }
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

/// An object in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The object.
    pub object: Object,
    /// Where it came from.
    pub origin: Origin,
}

/// All objects in force at a moment.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    held: BTreeMap<ObjectId, Held>,
    ports: Arc<PortMap>,
}

impl Objects {
    /// The ports.
    pub fn ports(&self) -> &Arc<PortMap> {
        &self.ports
    }

    /// The object of a name.
    pub fn get(&self, id: &ObjectId) -> Option<&Held> {
        self.held.get(id)
    }

    /// All objects, each behind those that it may refer to.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Held> {
        self.held.values()
    }

    /// The meters, by number.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.iter().filter_map(|held| if let Object::Meter(meter) = &held.object { Some(meter) } else { None })
    }

    /// The mirrors, by name.
    pub fn mirrors(&self) -> impl Iterator<Item = &Mirror> {
        self.iter().filter_map(|held| if let Object::Mirror(mirror) = &held.object { Some(&**mirror) } else { None })
    }

    /// The timeout policies, by name.
    pub fn timeout_policies(&self) -> impl Iterator<Item = &TimeoutPolicy> {
        self.iter()
            .filter_map(|held| if let Object::TimeoutPolicy(policy) = &held.object { Some(policy) } else { None })
    }

    /// Has an object be there.
    fn put(&mut self, object: Object, origin: Origin) {
        if let Object::Port(port) = &object {
            let ports = Arc::make_mut(&mut self.ports);
            ports.remove(port.number);
            // That no other port has its name is checked before.
            let _ = ports.insert(port.clone());
        }
        self.held.insert(object.id(), Held { object, origin });
    }

    /// Has an object be gone.
    fn remove(&mut self, id: &ObjectId) -> Option<Held> {
        if let ObjectId::Port(number) = id {
            Arc::make_mut(&mut self.ports).remove(*number);
        }
        self.held.remove(id)
    }

    /// Whether the ports fit each other: no two have one name, and every underlay is there.
    fn check_ports(&self) -> Result<(), ObjectError> {
        let mut known = PortMap::default();
        let is_of_file = |number| self.get(&ObjectId::Port(number)).is_some_and(|held| held.origin == Origin::File);
        let ports =
            || self.iter().filter_map(|held| if let Object::Port(port) = &held.object { Some(port) } else { None });
        for port in ports() {
            if let Err(taken) = known.insert(port.clone()) {
                // Said of the one that has a line in the file.
                let (port, other) = if is_of_file(port.number) { (port, taken) } else { (taken, port) };
                let reason = format!("port {}: number {} is {} already", port.name, other.number, other.name);
                return Err(ObjectError { object: ObjectId::Port(port.number), reason });
            }
        }
        for port in ports() {
            if let PortKind::Tunnel(tunnel) = &port.kind
                && known.get(tunnel.underlay).is_none()
            {
                let (name, underlay) = (&port.name, tunnel.underlay);
                let reason = format!("port {underlay} is the underlay of port {name}: delete that first");
                return Err(ObjectError { object: ObjectId::Port(underlay), reason });
            }
        }
        Ok(())
    }
}
