//! The backends that are built in: the one place that names them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_flow::backend::{BackendConfig, BackendKind, Checker, Need, OpenConfig};
use sluice_flow::{Backend, Refusal};
use sluice_objects::{ObjectError, Objects};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use crate::config::Mirroring;

const BACKENDS: &[Row] = &[
    Row::new::<sluice_offload_soft::Config>(&sluice_offload_soft::KIND),
    Row::new::<sluice_offload_tc::Config>(&sluice_offload_tc::KIND),
    Row::new::<sluice_offload_dv::Config>(&sluice_offload_dv::KIND),
];

/// The backend if the configuration names none.
const DEFAULT: &Row = &BACKENDS[0];

/// A backend without its configuration.
#[derive(Debug)]
struct Row {
    kind: &'static BackendKind,
    default: fn(&'static Self) -> Configured,
    read: fn(&'static Self, Spanned<DeValue<'_>>) -> Result<Configured, toml::de::Error>,
}

impl Row {
    const fn new<C: BackendConfig + Default + DeserializeOwned + Serialize + 'static>(
        kind: &'static BackendKind,
    ) -> Self {
        Self {
            kind,
            default: |row| Configured::new(row, C::default()),
            read: |row, table| Ok(Configured::new(row, C::deserialize(ValueDeserializer::from(table))?)),
        }
    }
}

/// A backend of those that are built in, with its configuration.
#[derive(Clone, Debug)]
pub struct Configured {
    row: &'static Row,
    config: Arc<dyn BackendConfig>,
    settings: Map<String, Value>,
}

impl Configured {
    /// Returns each backend with the default for every key.
    pub fn all() -> impl Iterator<Item = Self> {
        BACKENDS.iter().map(|row| (row.default)(row))
    }

    /// Returns those that carry flows in hardware or in the kernel, with the default for every key.
    pub fn real() -> impl Iterator<Item = Self> {
        Self::all().filter(|backend| backend.name() != sluice_offload_soft::KIND.name)
    }

    /// Returns the names of all backends, as in a sentence.
    pub fn names() -> String {
        BACKENDS.iter().map(|row| row.kind.name).collect::<Vec<_>>().join(" or ")
    }

    /// Returns the backend called `name` with the default for every key. If there is none, says which there are.
    pub fn named(name: &str) -> Result<Self, String> {
        match BACKENDS.iter().find(|row| row.kind.name == name) {
            Some(row) => Ok((row.default)(row)),
            None => Err(format!("no backend {name} in this build, only {}", Self::names())),
        }
    }

    /// Reads the table of the same backend. An error has its place in the text.
    pub fn read(&self, table: Spanned<DeValue<'_>>) -> Result<Self, toml::de::Error> {
        (self.row.read)(self.row, table)
    }

    fn new(row: &'static Row, config: impl BackendConfig + Serialize + 'static) -> Self {
        let settings = match serde_json::to_value(&config) {
            Ok(Value::Object(settings)) => settings,
            // It was a table in the file.
            Ok(_) | Err(_) => Map::new(),
        };
        Self { row, config: Arc::new(config), settings }
    }

    /// Returns the kind of backend that it is.
    pub fn kind(&self) -> &'static BackendKind {
        self.row.kind
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.row.kind.name
    }

    /// Returns its device, if the configuration names none.
    pub fn default_device(&self) -> &'static str {
        self.row.kind.device
    }

    /// Returns the keys of its table that stood at the top of the file before there was one.
    pub fn former_keys(&self) -> &'static [&'static str] {
        self.row.kind.former_keys
    }

    /// Returns what it needs of the host.
    pub fn needs(&self) -> &'static [Need] {
        self.row.kind.needs
    }

    /// Returns what its keys are set to.
    pub fn settings(&self) -> &Map<String, Value> {
        &self.settings
    }

    /// Names the keys of the file in which `new` differs from this one.
    pub fn difference(&self, new: &Self) -> Vec<String> {
        if self.name() != new.name() {
            return vec!["backend".to_owned()];
        }
        let changed = new.settings.iter().filter(|(key, value)| self.settings.get(*key) != Some(*value));
        changed.map(|(key, _)| format!("{}.{key}", self.name())).collect()
    }

    /// Checks objects as far as that can be done without the device.
    pub fn check(&self, objects: &Objects) -> Result<(), ObjectError> {
        sluice_objects::check(&mut *self.checker(), objects)
    }

    /// Returns what checks objects and flows without the device, of which it has seen none yet.
    pub fn checker(&self) -> Box<dyn Checker> {
        self.config.checker()
    }

    /// Returns the mirror of control traffic as it is for this backend: one whose copies have another way out passes over the port that
    /// they would go to. Fails with a sentence if there can be no such mirror.
    pub fn mirroring(&self, mirroring: Mirroring) -> Result<Mirroring, String> {
        match (self.row.kind.mirrors_to_ports_only, mirroring.to) {
            (true, None) => {
                Err(format!("backend \"{}\" copies to ports of its device only: `to` names one", self.name()))
            }
            (false, _) => Ok(Mirroring { to: None, ..mirroring }),
            (true, Some(_)) => Ok(mirroring),
        }
    }

    /// Opens the device.
    pub fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
        self.config.open(config)
    }

    /// Returns what all agents of a machine call a device, so that no two use it.
    pub fn name_on_machine(&self, device: &str) -> io::Result<String> {
        let device = (self.row.kind.canonical)(device);
        if !self.row.kind.is_in_network_namespace {
            return Ok(device);
        }
        // The number of a namespace is its own as long as it exists (namespaces(7)).
        let namespace = fs::metadata("/proc/self/ns/net")?.ino();
        Ok(format!("{device}@net:{namespace}"))
    }
}

impl Default for Configured {
    fn default() -> Self {
        (DEFAULT.default)(DEFAULT)
    }
}

impl PartialEq for Configured {
    fn eq(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }
}

impl Eq for Configured {}
