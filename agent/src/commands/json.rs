//! `sluice/stats` and `sluice/show`: for programs, and for the CLI to make tables of. Keys are documented in `docs/json.md`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};
use sluice_flow::backend::{Facet, Placement, PortCounters};
use sluice_flow::port::{Port, PortKind};
use sluice_flow::{EndReason, FlowState, Refusal};

use super::Failure;
use super::arguments::Arguments;
use crate::agent::Agent;
use crate::backends;
use crate::rebalancing::State;
use crate::unixctl::Output;

/// `sluice/stats`: one object with everything that is counted.
pub(super) fn statistics(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    Ok(writeln!(out, "{}", counted(agent))?)
}

/// `sluice/show`: the same with lookups and ports.
pub(super) fn show(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let mut shown = counted(agent);
    let device = agent.device_counters();
    shown["lookups"] = device.lookups.map_or(Value::Null, |lookups| {
        json!({
            "hits": lookups.hits,
            "misses": lookups.misses,
            "chain_misses": lookups.chain_misses,
            "lost": lookups.lost,
        })
    });
    shown["ports"] = agent.ports().iter().map(|port| of_port(port, device.port(port.number))).collect();
    Ok(writeln!(out, "{shown}")?)
}

fn of_port(port: &Port, counters: Option<PortCounters>) -> Value {
    let tunnel = match &port.kind {
        PortKind::Tunnel(tunnel) => Some(tunnel),
        _ => None,
    };
    json!({
        "number": port.number.0,
        "name": &*port.name,
        "kind": port.kind.name(),
        "udp_port": tunnel.and_then(|tunnel| tunnel.udp_port),
        "underlay": tunnel.map(|tunnel| tunnel.underlay.0),
        "rx_packets": counters.map(|counters| counters.rx_packets),
        "rx_bytes": counters.map(|counters| counters.rx_bytes),
        "tx_packets": counters.map(|counters| counters.tx_packets),
        "tx_bytes": counters.map(|counters| counters.tx_bytes),
    })
}

fn counted(agent: &Agent) -> Value {
    let capabilities = agent.backend.capabilities();
    let census = agent.table.census();
    let counts = agent.events.counts();
    let published = agent.revalidation.published();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let places: Map<_, _> =
        Placement::ALL.iter().map(|(place, name)| ((*name).to_owned(), census.placed(*place).into())).collect();
    let states: Map<_, _> =
        FlowState::ALL.iter().map(|state| (state.name().to_owned(), census.in_state(*state).into())).collect();
    let refused: Map<_, _> =
        Refusal::LABELS.iter().zip(&counts.refused).map(|(label, n)| ((*label).to_owned(), count(n).into())).collect();
    let ended: Map<_, _> =
        EndReason::ALL.iter().zip(&counts.ended).map(|(end, n)| (end.name().to_owned(), count(n).into())).collect();
    let workers: Vec<Value> = agent
        .queue
        .reports()
        .iter()
        .map(|worker| {
            json!({
                "queued": worker.queued,
                "in_flight": worker.in_flight,
                "installed": worker.installed,
                "stray_completions": worker.strays,
                "latency_average_seconds": worker.latency_average,
            })
        })
        .collect();
    let rebalancing = &published.rebalancing;
    let room = match rebalancing.state {
        State::On(room) => Some(room),
        _ => None,
    };
    let (masks, action_lists) = agent.table.shared_parts();
    json!({
        "datapath": agent.datapath(),
        "version": env!("CARGO_PKG_VERSION"),
        "backend": {
            "name": capabilities.name,
            "policy": backends::has_policy(capabilities.name).then(|| agent.config().policy.name()),
            "facets": Facet::all_of(&*agent.backend).map(Facet::name).collect::<Vec<_>>(),
            "miss": capabilities.miss.describe(),
            "chain_miss": capabilities.chain_miss.describe(),
            "max_lag_seconds": capabilities.max_lag.as_secs_f64(),
            "modifies_in_place": capabilities.modifies_in_place,
            "listing": capabilities.listing.name(),
            "workers": capabilities.workers,
            "max_chain_depth": capabilities.max_chain_depth.min(agent.config().chain_depth),
            "device_chain_depth": capabilities.max_chain_depth,
            "configured_chain_depth": agent.config().chain_depth,
        },
        "flows": {
            "live": census.live(),
            "limit": census.flow_limit(),
            "unsettled": census.unsettled(),
            "unsettled_limit": agent.config().dirty_limit,
            "states": states,
            "placements": places,
            "masks": masks,
            "action_lists": action_lists,
        },
        "events": {
            "accepted": count(&counts.accepted),
            "installed": count(&counts.installed),
            "adopted": count(&counts.adopted),
            "modified": count(&counts.modified),
            "moved_up": count(&counts.moved_up),
            "moved_down": count(&counts.moved_down),
            "refused": refused,
            "ended": ended,
            "ended_packets": count(&counts.ended_packets),
            "ended_bytes": count(&counts.ended_bytes),
            "unwatched": count(&counts.unwatched),
        },
        "revalidator": {
            "rounds": published.rounds,
            "paused": published.paused,
            "poll_seconds": published.last.poll.as_secs_f64(),
            "round_seconds": published.last.duration.as_secs_f64(),
            "period_seconds": published.last.period.as_secs_f64(),
            "readings": published.last.readings,
            "idle_timeout_seconds": published.config.and_then(|c| c.idle_timeout).map(|span| span.as_secs_f64()),
            "hard_timeout_seconds": published.config.and_then(|c| c.hard_timeout).map(|span| span.as_secs_f64()),
            "failures": published.failures,
            "backwards": published.backwards,
        },
        "rebalancing": {
            "off": rebalancing.state.off().map(|(_, why)| why),
            "waiting": room.map(|room| room.waiting),
            "passes": rebalancing.passes,
            "last_candidates": rebalancing.last.candidates,
            "last_up": rebalancing.last.up,
            "last_down": rebalancing.last.down,
            "last_pass_seconds": rebalancing.last.duration.as_secs_f64(),
            "hardware_share": rebalancing.last.hardware_share(),
        },
        "workers": workers,
        "orphans": agent.others().iter().filter(|found| found.is_orphan()).map(ToString::to_string).collect::<Vec<_>>(),
        "damage_of_objects": agent.damage_of_objects(),
        "journal": agent.journal.as_ref().map(|journal| {
            let report = journal.report();
            json!({
                "records": report.records,
                "written": report.written,
                "failure": report.failure,
                "write_lag_seconds": report.lag.write.as_secs_f64(),
                "sync_lag_seconds": report.lag.sync.as_secs_f64(),
                "damage": report.damage.map(|damage| damage.to_string()),
                "restored_flows": report.restored.flows,
                "lost_flows": report.restored.turned_away + report.restored.damage.lost_flows,
                "lost_changes": report.restored.damage.lost_changes,
                "doubtful_flows": report.restored.damage.doubtful_flows,
            })
        }),
    })
}
