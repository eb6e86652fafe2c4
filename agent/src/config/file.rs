//! A file that was read, and where in it things are.

use std::collections::BTreeMap;

use sluice_objects::ObjectId;

use super::{Config, ConfigError, MovedKey, Place};

/// A configuration with the places of what may be refused later.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// Where it says so.
    pub places: Places,
    /// Keys that stand where they once did.
    pub moved: Vec<MovedKey>,
}

/// Places in a configuration file.
#[derive(Clone, Debug, Default)]
pub struct Places {
    pub(super) objects: BTreeMap<ObjectId, Place>,
    pub(super) control_group: Option<Place>,
    pub(super) metrics: Option<Place>,
}

impl Places {
    /// An error about an object, with its place.
    pub fn of_object(&self, object: &ObjectId, error: String) -> ConfigError {
        at(self.objects.get(object), error)
    }

    /// An error about `control_group`, with its place.
    pub fn of_control_group(&self, error: String) -> ConfigError {
        at(self.control_group.as_ref(), error)
    }

    /// An error about `metrics`, with its place.
    pub fn of_metrics(&self, error: String) -> ConfigError {
        at(self.metrics.as_ref(), error)
    }
}

fn at(place: Option<&Place>, error: String) -> ConfigError {
    match place {
        Some(place) => ConfigError::Wrong(place.clone(), error),
        None => ConfigError::Unplaced(error),
    }
}
