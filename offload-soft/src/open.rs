//! From a configuration to a NIC.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_flow::backend::{Backend, BackendConfig, Checker, Connections, Meters, Mirrors, OpenConfig};
use sluice_flow::flow::Flow;
use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortNumber};
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
        let nic = SoftNic::new(&OpenConfig::new("check", Arc::new(MonotonicClock::new())));
        Box::new(Trial { nic, ports: BTreeSet::new() })
    }
}

/// A NIC in software is made of nothing but memory: one that nobody uses is asked.
struct Trial {
    nic: SoftNic,
    ports: BTreeSet<PortNumber>,
}

impl Checker for Trial {
    fn port(&mut self, port: &Port) -> Result<(), Refusal> {
        if self.ports.contains(&port.number) {
            self.nic.detach_port(port.number)?;
        }
        self.nic.attach_port(port)?;
        self.ports.insert(port.number);
        Ok(())
    }

    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal> {
        self.nic.set_meter(meter)
    }

    fn timeout_policy(&mut self, policy: &TimeoutPolicy) -> Result<(), Refusal> {
        self.nic.set_timeout_policy(policy)
    }

    fn mirror(&mut self, mirror: &Mirror) -> Result<(), Refusal> {
        self.nic.set_mirror(mirror)
    }

    fn flow(&mut self, flow: &Flow) -> Result<(), Refusal> {
        self.nic.explain(flow).map(drop)
    }
}
