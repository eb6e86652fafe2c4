//! Whether the machine has what the configured backend needs: `sluiced --preflight`, and a start that is refused.

use std::fs;

use sluice_flow::port::PortKind;
use sluice_host::run_dir::pidfile;
use sluice_preflight::{Check, Machine, Setup, Verdict, look};

use crate::config::Config;

/// Looks at the machine for what a configuration needs. Nothing is changed.
pub fn preflight(config: &Config) -> Vec<Check> {
    let ports = config.ports.iter().map(|port| (port.name.to_string(), matches!(port.kind, PortKind::Tunnel(_))));
    let setup = Setup {
        backend: config.backend.name(),
        device: &config.device,
        needs: config.backend.needs(),
        ports: ports.collect(),
        agent: running_agent(config),
    };
    look(&Machine::default(), &setup)
}

/// Notes in the log what stands in the way of a start that failed.
pub(crate) fn explain_failed_start(config: &Config) {
    for check in preflight(config).iter().filter(|check| check.verdict == Verdict::Refuses) {
        tracing::error!("preflight: {check}");
    }
}

/// The agent with this run folder, if one is running.
fn running_agent(config: &Config) -> Option<u32> {
    let pid = fs::read_to_string(pidfile(&config.run_dir)).ok()?.trim().parse::<u32>().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.trim() == "sluiced").then_some(pid)
}
