//! The objects of one kind.

use std::collections::BTreeMap;

use super::ObjectKind;

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration file.
    File,
    /// A command.
    RunTime,
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
