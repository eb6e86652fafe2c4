//! Requests about ports, meters, mirrors and timeout policies.

use super::{Durable, Error, Service};
use crate::objects::{Object, ObjectId};

impl Service {
    /// Makes an object at run time or, unless it is a port, changes it.
    pub fn put(&self, object: impl Into<Object>) -> Result<Durable<'_, ()>, Error> {
        self.agent().put(object)?;
        self.agent().count_device();
        Ok(Durable::at_once(self.agent(), ()))
    }

    /// Removes an object.
    pub fn remove(&self, id: ObjectId) -> Result<Durable<'_, ()>, Error> {
        self.agent().remove(id)?;
        Ok(Durable::at_once(self.agent(), ()))
    }
}
