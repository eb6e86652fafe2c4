//! The process as a whole: `coverage/show` and `memory/show` in the layout of OVS (`lib/coverage.c`, `lib/memory.c`).

use std::fs;

use sluice_flow::backend::Connections;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::AgentView;

/// `coverage/show`: how often what happened, and how fast lately.
pub(super) fn coverage(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    Ok(agent.write_coverage(out)?)
}

/// `memory/show`: of what there is how much, by name.
pub(super) fn memory(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let census = agent.census();
    let parts = agent.parts();
    let connections = agent.connections().and_then(Connections::connection_count).ok();
    let objects = agent.objects();
    let counts = [
        ("action lists", Some(parts.action_lists())),
        ("connections", connections),
        ("flows", Some(census.live())),
        ("masks", Some(parts.masks())),
        ("meters", Some(objects.meters().len())),
        ("mirrors", Some(objects.mirrors().len())),
        ("ports", Some(agent.ports().iter().count())),
        ("resident kB", resident_kilobytes()),
        ("unsettled flows", Some(census.unsettled())),
    ];
    let known = counts.iter().filter_map(|(name, count)| Some(format!("{name}:{}", (*count)?)));
    Ok(writeln!(out, "{}", known.collect::<Vec<_>>().join(" "))?)
}

/// What of the process is in memory, if the system tells (`proc_pid_status(5)`).
fn resident_kilobytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
