//! Whether the machine has what the configured backend needs: `sluiced --preflight`, and what a start warns of.

use std::fs;

use sluice_flow::port::PortKind;
use sluice_host::run_dir::pidfile;
use sluice_preflight::{Check, FlowsOfOvs, Machine, Setup, Verdict, foreign_offload, look};

use crate::config::{Config, OvsSource};

/// Looks at the machine for what a configuration needs. Nothing is changed.
pub fn preflight(config: &Config) -> Vec<Check> {
    look(&Machine::default(), &setup(config))
}

/// Notes in the log whether an Open vSwitch offloads flows to the same NIC, which neither the kernel nor the device tells at the start.
pub(crate) fn warn_of_others(config: &Config) {
    if config.backend.needs().is_empty() {
        return;
    }
    let check = foreign_offload(&Machine::default(), &setup(config));
    if matches!(check.verdict, Verdict::Warn | Verdict::Refuses) {
        tracing::warn!("preflight: {check}");
    }
}

fn setup(config: &Config) -> Setup<'_> {
    let ports = config.ports.iter().map(|port| (port.name.to_string(), matches!(port.kind, PortKind::Tunnel(_))));
    Setup {
        backend: config.backend.name(),
        device: &config.device,
        needs: config.backend.needs(),
        ports: ports.collect(),
        flows_of_ovs: config.sources.ovs.as_ref().map_or(FlowsOfOvs::Left, taken_from_ovs),
        agent: running_agent(config),
    }
}

const fn taken_from_ovs(source: &OvsSource) -> FlowsOfOvs {
    if source.handed_over { FlowsOfOvs::HandedOver } else { FlowsOfOvs::Read }
}

/// The agent with this run folder, if one is running.
fn running_agent(config: &Config) -> Option<u32> {
    let pid = fs::read_to_string(pidfile(&config.run_dir)).ok()?.trim().parse::<u32>().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.trim() == "sluiced").then_some(pid)
}
