//! `sluice/stats` and `sluice/show`: for programs, and for the CLI to make tables of. Keys are documented in `docs/json.md`.

use serde_json::{Map, Value, json};
use sluice_flow::Origin;
use sluice_flow::backend::{Facet, PortCounters};
use sluice_flow::port::{Port, PortKind};
use sluice_flow::source::SourceReport;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::mirroring::Shown;
use crate::service::AgentView;

/// `sluice/stats`: one object with everything that is counted.
pub(super) fn statistics(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    Ok(writeln!(out, "{}", counted(agent))?)
}

/// `sluice/show`: the same with lookups and ports.
pub(super) fn show(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
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

/// Words are put together here; numbers come from the table of measures.
fn counted(agent: &AgentView) -> Value {
    let rebalancing = agent.revalidation().published().rebalancing;
    let mut counted = json!({
        "datapath": agent.datapath(),
        "version": env!("CARGO_PKG_VERSION"),
        "backend": backend(agent),
        "rebalancing": { "off": rebalancing.state.off().map(|(_, why)| why) },
        "orphans": agent.others().iter().filter(|found| found.is_orphan()).map(ToString::to_string).collect::<Vec<_>>(),
        "damage_of_objects": agent.damage_of_objects(),
        "refused_objects": agent.refused_objects().sentences().collect::<Vec<_>>(),
        "mirroring": mirroring(agent),
        "sources": sources(agent),
        "journal": agent.journal().map(|journal| {
            json!({ "failure": journal.failure, "damage": journal.damage.map(|damage| damage.to_string()) })
        }),
    });
    agent.reading().add_to_stats(&mut counted);
    counted
}

/// What is mirrored to a collector; `null` if nothing is.
fn mirroring(agent: &AgentView) -> Value {
    let config = agent.config();
    let Some(mirroring) = &config.mirroring else { return Value::Null };
    let mirror = |shown: &Shown| {
        json!({
            "name": shown.name,
            "class": shown.class.name(),
            "port": shown.port.0,
            "to": shown.to,
            "refused": shown.refused.as_ref().map(ToString::to_string),
        })
    };
    json!({
        "collector": mirroring.collector.map(|address| address.to_string()),
        "mirrors": agent.mirroring().iter().map(mirror).collect::<Vec<_>>(),
    })
}

/// The words of sources of flows; their numbers are members by the name of the source.
fn sources(agent: &AgentView) -> Value {
    let word = |(origin, report): (Origin, SourceReport)| {
        let port = |(name, reason)| format!("{name}: {reason}");
        let ports: Vec<_> = report.ports_left_out.into_iter().map(port).collect();
        let reason = |(reason, count)| format!("{count}: {reason}");
        let reasons: Vec<_> = report.reasons.into_iter().map(reason).collect();
        let of_it = json!({
            "subject": report.subject,
            "trouble": report.trouble,
            "caveat": report.caveat,
            "chain_miss": report.chain_miss,
            "ports_left_out": ports,
            "reasons": reasons,
        });
        (origin.name().to_owned(), of_it)
    };
    json!({ "states": agent.sources().into_iter().map(word).collect::<Map<_, _>>() })
}

/// What the backend is set to, and what it can do.
fn backend(agent: &AgentView) -> Value {
    let (capabilities, config) = (agent.capabilities(), agent.config());
    json!({
        "name": capabilities.name,
        "settings": config.backend.settings(),
        "notes": agent.notes_of_device(),
        "facets": agent.facets().map(Facet::name).collect::<Vec<_>>(),
        "miss": capabilities.miss.describe(),
        "chain_miss": capabilities.chain_miss.describe(),
        "max_lag_seconds": capabilities.max_lag.as_secs_f64(),
        "modifies_in_place": capabilities.modifies_in_place,
        "listing": capabilities.listing.name(),
        "workers": capabilities.workers,
        "max_chain_depth": capabilities.max_chain_depth.min(config.chain_depth),
        "device_chain_depth": capabilities.max_chain_depth,
        "configured_chain_depth": config.chain_depth,
    })
}
