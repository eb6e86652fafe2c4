//! The objects of one kind, and what differs from kind to kind: how an object is named, written, and made in a device.

use std::collections::BTreeMap;
use std::fmt::Debug;

use sluice_flow::backend::Checker;
use sluice_flow::port::PortNames;
use sluice_flow::{Backend, Refusal};

use super::id::{ObjectError, ObjectId};
use super::set::Objects;

/// A kind of object. Each kind has a [`Registry`].
pub trait ObjectKind: Clone + Debug + PartialEq + Send + 'static {
    /// The name of an object of this kind.
    type Id: Clone + Debug + Ord + Into<ObjectId> + Send;

    /// The key of such objects in the configuration file, and the first word of each in the state folder.
    const KEY: &'static str;

    /// Its name.
    fn id(&self) -> Self::Id;

    /// Its name in messages.
    fn title(&self) -> String {
        self.id().into().to_string()
    }

    /// Returns the reason if it can neither exist beside `other` nor take its place by a change.
    fn conflict(&self, _other: &Self) -> Option<String> {
        None
    }

    /// Checks it as far as that can be done without the device.
    fn check(&self, checker: &mut dyn Checker) -> Result<(), Refusal>;

    /// Makes it in the device, or changes it there in place.
    fn make(&self, backend: &dyn Backend, absence: Absence) -> Result<(), Refusal>;

    /// Removes it from the device.
    fn unmake(id: &Self::Id, backend: &dyn Backend) -> Result<(), Refusal>;

    /// Reads the arguments of the command that adds one. `ports` are those that it may name.
    fn read(words: &[String], ports: &dyn PortNames) -> Result<Self, String>;

    /// Writes the arguments that [`read`](Self::read) takes.
    fn write(&self) -> String;

    /// Returns the registry of this kind.
    fn registry(objects: &Objects) -> &Registry<Self>;

    /// Returns the registry of this kind, to be changed.
    fn registry_mut(objects: &mut Objects) -> &mut Registry<Self>;

    /// The error if the device refuses it.
    fn refused(&self, refusal: &Refusal) -> ObjectError {
        let (subject, refusal) = (format!("{}: ", self.title()), refusal.to_string());
        // A port's refusal names the port.
        let reason = if refusal.starts_with(&subject) { refusal } else { subject + &refusal };
        ObjectError { object: self.id().into(), reason }
    }
}

/// What becomes of a port whose device is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The port is refused.
    Refused,
    /// The port is made, and usable once the device is there.
    Tolerated,
}

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file.
    File,
    /// A command.
    RunTime,
    /// A source of flows, which takes it away again.
    Source,
}

impl Origin {
    /// All of them, with the words that stand for them in the state folder.
    pub(super) const NAMES: [(Self, &str); 3] =
        [(Self::File, "file"), (Self::RunTime, "run-time"), (Self::Source, "source")];
}

/// An object with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The object.
    pub object: T,
    /// Where it came from.
    pub origin: Origin,
}

/// The objects of one kind, in order of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct Registry<T: ObjectKind>(BTreeMap<T::Id, Entry<T>>);

impl<T: ObjectKind> Default for Registry<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: ObjectKind> Registry<T> {
    /// The object of a name.
    pub fn get(&self, id: &T::Id) -> Option<&Entry<T>> {
        self.0.get(id)
    }

    /// All of them, with their origins.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<T>> {
        self.0.values()
    }

    /// All of them.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &T> {
        self.iter().map(|entry| &entry.object)
    }

    pub(super) fn put(&mut self, object: T, origin: Origin) {
        self.0.insert(object.id(), Entry { object, origin });
    }

    pub(super) fn remove(&mut self, id: &T::Id) {
        self.0.remove(id);
    }
}
