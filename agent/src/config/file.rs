//! A file that was read, and where in it things are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use sluice_host::bounded::read_bounded;
use sluice_objects::ObjectId;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::backend_tables::{BackendTables, Moved};
use super::error::{ConfigError, Fault, MovedKey, Place};
use super::keys::Config;
use super::mirroring::MirroringTable;
use super::tables::Tables;
use crate::backends::Configured;

/// The size of a configuration file at most: some ten thousand ports fit.
const MOST_BYTES: u64 = 4 << 20;

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
    objects: BTreeMap<ObjectId, Place>,
    control_group: Option<Place>,
    metrics: Option<Place>,
}

/// What stands for itself in a file, and what is still to be checked.
struct Read {
    config: Config,
    tables: Tables,
    mirroring: Option<Spanned<MirroringTable>>,
    moved: Vec<Moved>,
}

impl Config {
    /// Reads a regular file of 4 MiB at most. A backend that is given wins over the one in it.
    pub fn load(path: &Path, backend: Option<&Configured>) -> Result<Loaded, ConfigError> {
        let failed = |source| ConfigError::Read { file: path.to_owned(), source };
        let text = read_bounded(path, MOST_BYTES).map_err(failed)?;
        Self::parse(&text, &path.display().to_string(), backend)
    }

    /// Reads the text of a file; errors speak of `file_name`. A backend that is given wins over the one in it.
    pub fn parse(text: &str, file_name: &str, backend: Option<&Configured>) -> Result<Loaded, ConfigError> {
        let place = |span: Range<usize>| Place::new(text, file_name, span);
        let wrong = |fault: Fault| ConfigError::Wrong(place(fault.span), fault.message);
        let Read { mut config, tables, mirroring, moved } = Self::read(text, backend).map_err(wrong)?;
        let (control_group, metrics) = (tables.control_group().map(place), tables.metrics().map(place));
        let checked = tables.check(mirroring.as_ref().map(Spanned::get_ref)).map_err(wrong)?;
        let of_backend = |(table, mirroring): (&Spanned<MirroringTable>, _)| {
            config.backend.mirroring(mirroring).map_err(|message| wrong(Fault::at(table, message)))
        };
        config.mirroring = mirroring.as_ref().zip(checked.mirroring).map(of_backend).transpose()?;
        config.ports = checked.ports;
        config.meters = checked.meters;
        config.mirrors = checked.mirrors;
        config.ct_timeouts = checked.ct_timeouts;
        let objects = checked.spans.into_iter().map(|(id, span)| (id, place(span))).collect();
        let places = Places { objects, control_group, metrics };
        let of_moved = |moved: Moved| MovedKey { place: place(moved.span), key: moved.key, table: moved.table };
        match config.backend.check(&config.objects()) {
            Ok(()) => Ok(Loaded { config, places, moved: moved.into_iter().map(of_moved).collect() }),
            Err(error) => Err(places.of_object(&error.object, error.reason)),
        }
    }

    /// Reads all that stands for itself. Ports and meters refer to each other, so that they are checked apart, with their places in the
    /// text at hand.
    fn read(text: &str, backend: Option<&Configured>) -> Result<Read, Fault> {
        let mut file = DeTable::parse(text)?;
        let backends = BackendTables::take_from(file.get_mut())?;
        let mirroring = MirroringTable::take_from(file.get_mut())?;
        let tables = Tables::deserialize(Deserializer::from(file.clone()))?;
        let keys: Vec<_> = file.get_ref().keys().map(Spanned::span).collect();
        let mut config = Self::deserialize(Deserializer::from(file)).map_err(|error| {
            let is_unknown = error.span().is_some_and(|span| keys.contains(&span));
            let mut fault = Fault::from(error);
            if is_unknown {
                // The tables of the backends were known, too.
                fault.message.extend(Configured::all().map(|backend| format!(", `{}`", backend.name())));
            }
            fault
        })?;
        let (backend, moved) = backends.read(backend.unwrap_or(&config.backend))?;
        if !tables.names_device() {
            backend.default_device().clone_into(&mut config.device);
        }
        config.backend = backend;
        Ok(Read { config, tables, mirroring, moved })
    }
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
