//! Objects that were made at run time and that the device has refused since a start. They are not in force; but what the device
//! refuses while the host boots it may take later, so they stay in the file and are tried again.

use std::collections::BTreeMap;

use sluice_flow::PortNumber;
use sluice_flow::port::PortNames;

use super::id::ObjectId;
use super::registry::{ObjectKind, Origin};
use super::set::{Objects, for_each_kind};

/// Objects that were made at run time, that the device has refused since a start, and that are tried again. Of none of them there is one of its
/// name in force.
#[derive(Clone, Debug, Default)]
pub struct RefusedObjects {
    objects: Objects,
    reasons: BTreeMap<ObjectId, String>,
}

impl RefusedObjects {
    /// What a person should know of each, in a sentence.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().map(|(id, reason)| format!("{id} is not in force, and is tried again: {reason}"))
    }

    /// Those of a kind.
    pub(super) fn of<T: ObjectKind>(&self) -> impl Iterator<Item = &T> {
        self.objects.of::<T>().objects()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub(super) fn put<T: ObjectKind>(&mut self, object: T, reason: String) {
        self.reasons.insert(object.id().into(), reason);
        T::registry_mut(&mut self.objects).put(object, Origin::RunTime);
    }

    /// Says whether it was among them.
    pub(super) fn remove<T: ObjectKind>(&mut self, id: &T::Id) -> bool {
        T::registry_mut(&mut self.objects).remove(id);
        self.reasons.remove(&id.clone().into()).is_some()
    }

    /// Forgets those of whose names there are others in force by now, or they themselves.
    pub(super) fn give_way_to(&mut self, in_force: &Objects) {
        for_each_kind!(Kind => {
            let objects: Vec<Kind> = self.of::<Kind>().cloned().collect();
            for object in objects {
                let Some(entry) = in_force.of::<Kind>().get(&object.id()) else { continue };
                if entry.object != object {
                    tracing::warn!("{}, as it was set at run time and then refused, gives way to another one", object.title());
                }
                self.remove::<Kind>(&object.id());
            }
        });
    }

    /// Returns them beside those in force, as they are kept.
    pub(super) fn beside(&self, in_force: &Objects) -> Objects {
        let mut all = in_force.clone();
        for_each_kind!(Kind => {
            self.of::<Kind>().for_each(|object| Kind::registry_mut(&mut all).put(object.clone(), Origin::RunTime));
        });
        all
    }
}

/// Its ports.
impl PortNames for RefusedObjects {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.objects.ports.objects().find(|port| &*port.name == name).map(|port| port.number)
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.objects.ports.get(&number).map(|entry| &*entry.object.name)
    }
}
