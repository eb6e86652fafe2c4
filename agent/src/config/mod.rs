//! The configuration file: TOML, one key a line, every key with a default. [`Config`] is its reference, and
//! `deploy/sluiced.toml` says the same in a form to start from.

mod api;
mod backend_tables;
mod difference;
mod error;
mod file;
mod forms;
mod keys;
mod mirroring;
mod port_reference;
mod sources;
mod tables;

#[cfg(test)]
mod tests;

pub use api::{Api, ApiClient, Remote};
pub use difference::Difference;
pub(crate) use difference::LEVEL_KEY;
pub use error::{ConfigError, MovedKey, Place};
pub use file::{Loaded, Places};
pub use forms::{format_metrics, parse_metrics};
pub use keys::{Config, OnExit};
pub use mirroring::Mirroring;
pub use sluice_host::logging::{LogConfig, LogFormat};
pub use sources::{ConntrackSource, Feedback, OvsSource, Sources};
