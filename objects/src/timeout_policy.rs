//! Timeout policies of connections as objects.

use sluice_flow::backend::{Checker, Facet};
use sluice_flow::port::PortNames;
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};
use sluice_flow::{Backend, Refusal};

use super::id::ObjectId;
use super::registry::{Absence, ObjectKind, Registry};
use super::set::Objects;

impl ObjectKind for TimeoutPolicy {
    type Id = Box<str>;

    const KEY: &'static str = "ct_timeout";

    fn id(&self) -> Box<str> {
        self.name.clone()
    }

    fn check(&self, checker: &mut dyn Checker) -> Result<(), Refusal> {
        checker.timeout_policy(self)
    }

    fn make(&self, backend: &dyn Backend, _: Absence) -> Result<(), Refusal> {
        Facet::Connections.require(backend.connections())?.set_timeout_policy(self)
    }

    fn unmake(name: &Box<str>, backend: &dyn Backend) -> Result<(), Refusal> {
        Facet::Connections.require(backend.connections())?.remove_timeout_policy(name)
    }

    /// `NAME [KEY=SECONDS]...`.
    fn read(words: &[String], _: &dyn PortNames) -> Result<Self, String> {
        let [name, timeouts @ ..] = words else { return Err("a name is needed".into()) };
        Self::check_name(name).map_err(|error| error.to_string())?;
        let mut policy = Self::new(name.as_str());
        for text in timeouts {
            let (key, seconds) = text.split_once('=').unwrap_or((text, ""));
            let Some(key) = TimeoutKey::named(key) else {
                let known: Vec<_> = TimeoutKey::ALL.iter().map(|key| key.name()).collect();
                return Err(format!("{key}: not a timeout, expected one of {}", known.join(", ")));
            };
            let seconds = seconds.parse().map_err(|_| format!("{text}: {} needs a number of seconds", key.name()))?;
            policy.set(key, seconds);
        }
        Ok(policy)
    }

    fn write(&self) -> String {
        let timeouts = self.timeouts().map(|(key, seconds)| format!("{}={seconds}", key.name()));
        [self.name.to_string()].into_iter().chain(timeouts).collect::<Vec<_>>().join(" ")
    }

    fn registry(objects: &Objects) -> &Registry<Self> {
        &objects.timeout_policies
    }

    fn registry_mut(objects: &mut Objects) -> &mut Registry<Self> {
        &mut objects.timeout_policies
    }
}

impl From<Box<str>> for ObjectId {
    fn from(name: Box<str>) -> Self {
        Self::TimeoutPolicy(name)
    }
}
