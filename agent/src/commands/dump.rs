//! Showing flows: one or all, as OVS does or as JSON.

use std::fmt;
use std::ops::ControlFlow;

use sluice_flow::backend::CountedApart;
use sluice_flow::field::TUNNEL_FLAGS;
use sluice_flow::port::PortMap;
use sluice_flow::table::FlowView;
use sluice_flow::text::{self, DumpLine, Extra, LineWriter, Offloaded, Statistics, Style};
use sluice_flow::{Expiry, Field, FlowState, Priority, Timestamp};

use super::Failure;
use super::arguments::Arguments;
use super::filter::Filter;
use super::object::ObjectWriter;
use crate::agent::Agent;
use crate::backends::Configured;
use sluice_unixctl::Output;

/// `dpctl/dump-flows`
pub(super) fn text(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let selection = Selection::parse(agent, arguments)?;
    let ports = agent.ports();
    let style = Style { more: arguments.more, names: arguments.with_names().then_some(&*ports as _) };
    let mut writer = LineWriter::new(&style);
    selection.visit(agent, out, &mut |view, page| push_flow(agent, view, &style, &mut writer, page))
}

/// `sluice/dump-flows`: an object a line. With `-m`, what hardware and software counted apart is asked of the device for each
/// flow.
pub(super) fn json(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let selection = Selection::parse(agent, arguments)?;
    let ports = agent.ports();
    let mut writer = ObjectWriter::new(&ports);
    selection.visit(agent, out, &mut |view, page| {
        let apart = arguments.more.then(|| counted_apart(agent, view));
        writer.push(view, agent.clock.now(), apart, page);
    })
}

/// `dpctl/get-flow`
pub(super) fn one(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let view = wanted(agent, arguments)?;
    let ports = agent.ports();
    let style = Style { more: arguments.more, names: arguments.with_names().then_some(&*ports as _) };
    Ok(write_flow(agent, &view, &style, out)?)
}

/// `sluice/get-flow`: an object with all that there is to know.
pub(super) fn one_json(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let view = wanted(agent, arguments)?;
    let mut object = Vec::new();
    let apart = Some(counted_apart(agent, &view));
    ObjectWriter::new(&agent.ports()).push(&view, agent.clock.now(), apart, &mut object);
    Ok(out.write_str(&String::from_utf8_lossy(&object))?)
}

/// The same as a value.
pub(super) fn object(agent: &Agent, view: &FlowView) -> serde_json::Result<serde_json::Value> {
    let mut object = Vec::new();
    let apart = Some(counted_apart(agent, view));
    ObjectWriter::new(&agent.ports()).push(view, agent.clock.now(), apart, &mut object);
    serde_json::from_slice(&object)
}

/// What hardware and software counted of a flow, each by itself; `None` where the device does not tell, or no longer.
pub(super) fn counted_apart(agent: &Agent, view: &FlowView) -> Option<CountedApart> {
    agent.backend.counted_apart(view.handle?).ok()?
}

fn wanted(agent: &Agent, arguments: &Arguments) -> Result<FlowView, Failure> {
    let [ufid] = arguments.after_datapath(agent, 1)? else { return Err(Failure::new("one UFID is needed")) };
    let name = ufid.strip_prefix("ufid:").unwrap_or(ufid);
    let ufid = name.parse().map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    let view = agent.table.find(ufid).and_then(|id| agent.table.view(id));
    view.ok_or_else(|| {
        Failure::os(format_args!("getting flow: there is no flow ufid:{ufid}"), "No such file or directory")
    })
}

/// Key, statistics and actions of a flow on one line.
pub(super) fn write_flow(agent: &Agent, view: &FlowView, style: &Style<'_>, out: &mut dyn Output) -> fmt::Result {
    let mut line = Vec::new();
    push_flow(agent, view, style, &mut LineWriter::new(style), &mut line);
    out.write_str(&String::from_utf8_lossy(&line))
}

fn push_flow(agent: &Agent, view: &FlowView, style: &Style<'_>, writer: &mut LineWriter<'_>, page: &mut Vec<u8>) {
    let described;
    let left_out = if style.more { left_out(agent, view) } else { None };
    let extra = if !style.more && view.flow.priority != Priority::default() {
        // Without it the line would be read back as another flow.
        described = Extra { priority: view.flow.priority, ..Extra::default() }.to_string();
        &described
    } else if !style.more || is_ordinary(view) && left_out.is_none() {
        ""
    } else {
        described = extra(view, left_out).to_string();
        &described
    };
    let line = DumpLine {
        ufid: view.flow.ufid,
        matching: &view.flow.matching(),
        statistics: statistics(view, agent.clock.now()),
        offloaded: offloaded(view),
        layer: if view.placement.is_some() { agent.backend.capabilities().name } else { "" },
        actions: &view.flow.actions,
        extra,
    };
    writer.push_line(page, &line);
    page.push(b'\n');
}

/// Whether there is nothing to say of a flow for which OVS has no word, which is so for nearly all.
fn is_ordinary(view: &FlowView) -> bool {
    let is_there = matches!(view.state, FlowState::Offloaded | FlowState::Partial);
    is_there && view.flow.priority == Priority::default() && view.flow.expiry == Expiry::default()
}

/// The statistics alone, as `-s` of a change prints them.
pub(super) fn write_statistics(agent: &Agent, view: &FlowView, out: &mut dyn Output) -> fmt::Result {
    let Statistics { packets, bytes, used, .. } = statistics(view, agent.clock.now());
    let used = used.map_or("never".to_owned(), |ago| format!("{:.3}s", ago.as_secs_f64()));
    writeln!(out, "packets:{packets}, bytes:{bytes}, used:{used}")
}

/// What a `key(…)` text says of a flow's match.
pub(super) fn key_text(view: &FlowView, ports: &PortMap) -> String {
    let mut text = String::new();
    let style = Style { more: false, names: Some(ports) };
    // Writing to a string does not fail.
    let _ = text::write_key(&mut text, &view.flow.matching(), &style);
    text
}

/// What an actions text says.
pub(super) fn actions_text(view: &FlowView, ports: &PortMap) -> String {
    let mut text = String::new();
    let style = Style { more: false, names: Some(ports) };
    let _ = text::write_actions(&mut text, &view.flow.actions, &style);
    text
}

pub(super) fn statistics(view: &FlowView, now: Timestamp) -> Statistics {
    Statistics {
        packets: view.counters.packets,
        bytes: view.counters.bytes,
        used: view.counters.used.map(|used| now.since(used)),
        tcp_flags: view.counters.tcp_flags,
    }
}

fn offloaded(view: &FlowView) -> Option<Offloaded> {
    match view.state {
        FlowState::Offloaded => Some(Offloaded::Yes),
        FlowState::Partial => Some(Offloaded::Partial),
        FlowState::Pending | FlowState::Refused | FlowState::Deleting => None,
    }
}

/// Flags of the outer header that the flow matches and its rule does not, which takes more packets for that.
fn left_out(agent: &Agent, view: &FlowView) -> Option<String> {
    let looks_at = agent.backend.looks_at(&view.flow)?.matching;
    let bits = view.flow.matching().get(Field::TunnelFlags).1 & !looks_at.mask.get(Field::TunnelFlags);
    let names = TUNNEL_FLAGS.iter().filter(|(_, bit)| bits & u128::from(*bit) != 0).map(|(name, _)| *name);
    let names: Vec<_> = names.collect();
    (view.placement.is_some() && !names.is_empty()).then(|| text::bracketed("wider", &names.join(" ")))
}

fn extra(view: &FlowView, left_out: Option<String>) -> Extra {
    let other = match (view.state, &view.refusal) {
        (FlowState::Refused, Some(refusal)) => Some(text::bracketed("refused", &refusal.to_string())),
        (FlowState::Pending | FlowState::Deleting, _) => Some(view.state.name().to_owned()),
        _ => left_out,
    };
    Extra { priority: view.flow.priority, expiry: view.flow.expiry, other }
}

/// Which flows are shown.
struct Selection {
    filter: Option<Filter>,
    types: Vec<FlowType>,
}

enum FlowType {
    All,
    Offloaded,
    NotOffloaded,
    PartlyOffloaded,
    Layer(String),
}

impl Selection {
    fn parse(agent: &Agent, arguments: &Arguments) -> Result<Self, Failure> {
        let mut selection = Self { filter: None, types: Vec::new() };
        let mut rest = Vec::new();
        for arg in &arguments.rest {
            if let Some(filter) = arg.strip_prefix("filter=") {
                let parsed = Filter::parse(filter, &*agent.ports());
                selection.filter =
                    Some(parsed.map_err(|e| Failure::new(format_args!("Failed to parse filter ({filter}: {e})")))?);
            } else if let Some(types) = arg.strip_prefix("type=") {
                selection.types = types.split(',').map(flow_type).collect::<Result<_, _>>()?;
            } else if arg.starts_with("pmd=") {
                // No threads own flows here; OVS without PMD threads shows all, too.
            } else {
                rest.push(arg.clone());
            }
        }
        let rest = Arguments { rest, ..Arguments::default() };
        match rest.after_datapath(agent, 0)? {
            [] => Ok(selection),
            [unknown, ..] => Err(Failure::new(format_args!("{unknown}: neither filter= nor type="))),
        }
    }

    /// Shows the flows that are wanted, a page at a time. What a slow client holds is that page: no lock, and one flow.
    fn visit(
        &self,
        agent: &Agent,
        out: &mut dyn Output,
        show: &mut dyn FnMut(&FlowView, &mut Vec<u8>),
    ) -> Result<(), Failure> {
        let layer = agent.backend.capabilities().name;
        let mut page = Vec::with_capacity(PAGE);
        let mut result = Ok(());
        agent.table.visit(&mut |view| {
            if self.wants(&view, layer) {
                show(&view, &mut page);
            }
            if page.len() >= PAGE {
                result = turn(&mut page, out);
            }
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        Ok(result.and_then(|()| turn(&mut page, out))?)
    }

    fn wants(&self, view: &FlowView, layer: &str) -> bool {
        let typed = |flow_type: &FlowType| match flow_type {
            FlowType::All => true,
            FlowType::Offloaded => view.state == FlowState::Offloaded,
            FlowType::NotOffloaded => !matches!(view.state, FlowState::Offloaded | FlowState::Partial),
            FlowType::PartlyOffloaded => view.state == FlowState::Partial,
            FlowType::Layer(name) => view.placement.is_some() && name == layer,
        };
        (self.types.is_empty() || self.types.iter().any(typed))
            && self.filter.as_ref().is_none_or(|filter| filter.agrees_with(&view.flow.matching()))
    }
}

/// Bytes of flows that are written at once.
const PAGE: usize = 32 << 10;

/// Writes a page, and takes an empty one.
fn turn(page: &mut Vec<u8>, out: &mut dyn Output) -> fmt::Result {
    let result = out.write_str(&String::from_utf8_lossy(page));
    page.clear();
    result
}

fn flow_type(word: &str) -> Result<FlowType, Failure> {
    Ok(match word {
        "all" => FlowType::All,
        "offloaded" => FlowType::Offloaded,
        "non-offloaded" => FlowType::NotOffloaded,
        "partially-offloaded" => FlowType::PartlyOffloaded,
        // Those of OVS, and ours.
        "ovs" | "tc" | "dpdk" => FlowType::Layer(word.to_owned()),
        _ if Configured::named(word).is_ok() => FlowType::Layer(word.to_owned()),
        _ => return Err(Failure::os(format_args!("Failed to parse type ({word})"), "Invalid argument")),
    })
}
