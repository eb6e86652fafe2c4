//! The objects of all kinds.

use std::sync::Arc;

use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortMap};
use sluice_flow::timeout::TimeoutPolicy;

use super::id::ObjectError;
use super::registry::{Entry, ObjectKind, Origin, Registry};

/// Objects of all kinds: those in force at a moment, or those that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub(super) ports: Registry<Port>,
    pub(super) meters: Registry<Meter>,
    pub(super) timeout_policies: Registry<TimeoutPolicy>,
    pub(super) mirrors: Registry<Mirror>,
    /// The ports once more, as texts name them.
    pub(super) port_map: Arc<PortMap>,
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

    /// The ports that came so.
    pub fn ports_of(&self, origin: Origin) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(move |entry| entry.origin == origin).map(|entry| &entry.object)
    }

    /// The meters that came so.
    pub fn meters_of(&self, origin: Origin) -> impl Iterator<Item = &Meter> {
        self.meters.iter().filter(move |entry| entry.origin == origin).map(|entry| &entry.object)
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

    /// Checks that the ports fit each other: no two have one name, and every underlay is there, or still there. Returns them as texts name
    /// them.
    pub(super) fn check_ports(&self, before: &PortMap) -> Result<PortMap, ObjectError> {
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
                let (object, reason) = match before.get(underlay) {
                    Some(_) => (underlay, format!("port {underlay} is the underlay of port {name}: delete that first")),
                    None => (port.number, format!("port {name}: there is no port {underlay}, which is its underlay")),
                };
                return Err(ObjectError { object: object.into(), reason });
            }
        }
        Ok(known)
    }
}

/// Does the same for each kind. A kind refers only to kinds before it.
macro_rules! for_each_kind {
    ($Kind:ident => $body:block) => {{
        {
            type $Kind = sluice_flow::Port;
            $body
        }
        {
            type $Kind = sluice_flow::meter::Meter;
            $body
        }
        {
            type $Kind = sluice_flow::timeout::TimeoutPolicy;
            $body
        }
        {
            type $Kind = sluice_flow::mirror::Mirror;
            $body
        }
    }};
}
pub(super) use for_each_kind;
