//! From a configuration to the classifier.

use std::sync::Arc;

use sluice_flow::backend::{Backend, BackendConfig, Checker, OpenConfig};
use sluice_flow::refusal::Refusal;

use super::classifier::Classifier;
use super::trial::Trial;
use crate::config::Config;

impl BackendConfig for Config {
    /// Opens the classifier of the network namespace that the thread is in. The device may have any name.
    fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
        Ok(Arc::new(Classifier::open(config, self)?))
    }

    fn checker(&self) -> Box<dyn Checker> {
        Box::new(Trial::new(self))
    }
}
