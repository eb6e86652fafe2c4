//! Reading the file, and where in it things are.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::{Config, ConfigError, MovedKey, Place};
use crate::objects::ObjectId;

/// The size of a configuration file at most: some ten thousand ports fit.
const LIMIT: u64 = 4 << 20;

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

/// The text of a file. Nothing but a regular file of a bounded size is read, so that neither a pipe nor a device without an end
/// holds the reader up.
pub fn read_bounded(path: &Path) -> io::Result<String> {
    // Of a pipe, opening it would wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(io::Error::other(format!("it is larger than {} MiB", LIMIT >> 20)));
    }
    Ok(text)
}
