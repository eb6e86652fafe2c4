//! From a configuration to a NIC.

use std::sync::Arc;

use sluice_flow::backend::{Backend, BackendConfig, Checker, Connections, Meters, Mirrors, OpenConfig};
use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::Port;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::MonotonicClock;
use sluice_flow::timeout::TimeoutPolicy;

use crate::backend::SoftNic;
use crate::config::Config;

impl BackendConfig for Config {
    /// Makes a new device. Any name is as good as another.
    fn open(&self, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
        Ok(Arc::new(SoftNic::configured(config, self)))
    }

    fn checker(&self) -> Box<dyn Checker> {
        Box::new(Trial(SoftNic::new(&OpenConfig::new("check", Arc::new(MonotonicClock::new())))))
    }
}

/// A NIC in software is made of nothing but memory: one that nobody uses is asked.
struct Trial(SoftNic);

impl Checker for Trial {
    fn port(&mut self, port: &Port) -> Result<(), Refusal> {
        self.0.attach_port(port)
    }

    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal> {
        self.0.set_meter(meter)
    }

    fn timeout_policy(&mut self, policy: &TimeoutPolicy) -> Result<(), Refusal> {
        self.0.set_timeout_policy(policy)
    }

    fn mirror(&mut self, mirror: &Mirror) -> Result<(), Refusal> {
        self.0.set_mirror(mirror)
    }
}
