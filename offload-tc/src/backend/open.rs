//! From a configuration to the classifier.

use std::sync::Arc;

use sluice_flow::backend::{Backend, BackendConfig, Checker, OpenConfig};
use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::Port;
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::TimeoutPolicy;

use super::classifier::Classifier;
use super::ports::device::check_port;
use crate::config::Config;
use crate::meters;

impl BackendConfig for Config {
    /// Opens the classifier of the network namespace that the thread is in. The device may have any name.
    fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
        Ok(Arc::new(Classifier::open(config, self)?))
    }

    fn checker(&self) -> Box<dyn Checker> {
        Box::new(Rules)
    }
}

/// Knows what no kernel takes.
struct Rules;

impl Checker for Rules {
    fn port(&mut self, port: &Port) -> Result<(), Refusal> {
        check_port(port)
    }

    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal> {
        meters::check(meter)
    }

    fn timeout_policy(&mut self, _: &TimeoutPolicy) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "the kernel's timeout policies are not set through tc".into() })
    }

    fn mirror(&mut self, _: &Mirror) -> Result<(), Refusal> {
        Ok(())
    }
}
