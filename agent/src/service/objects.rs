//! Requests about ports, meters, mirrors and timeout policies.

use sluice_objects::{ChangeError, ObjectKind};

use super::accepted::Durable;
use super::error::Error;
use super::faces::Service;

impl Service {
    /// Makes an object at run time, or changes it in place. A port is only ever added; flows that were accepted for it before it went
    /// are looked at again.
    pub fn put<T: ObjectKind>(&self, object: T) -> Result<Durable<'_, ()>, Error> {
        let put = self.agent().object_store.put(object);
        if !matches!(put, Err(ChangeError::Object(_))) {
            self.agent().renew_mirroring();
            self.agent().count_device();
        }
        put?;
        Ok(Durable::at_once(self.agent(), ()))
    }

    /// Removes an object. The flows that name a port are refused until it is back.
    pub fn remove<T: ObjectKind>(&self, id: &T::Id) -> Result<Durable<'_, ()>, Error> {
        let removed = self.agent().object_store.remove::<T>(id);
        if !matches!(removed, Err(ChangeError::Object(_))) {
            self.agent().renew_mirroring();
        }
        removed?;
        Ok(Durable::at_once(self.agent(), ()))
    }
}
