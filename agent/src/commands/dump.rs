//! Showing flows: one or all, as OVS does or as JSON.

use std::fmt;
use std::ops::ControlFlow;

use sluice_flow::backend::CountedApart;
use sluice_flow::field::{GENEVE_CHUNKS, TUNNEL_FLAGS};
use sluice_flow::table::FlowView;
use sluice_flow::text::{self, DumpLine, Extra, LineWriter, Offloaded, Style};
use sluice_flow::{Expiry, Field, FlowState, Origin, Priority};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::flow_json::{More, ObjectWriter};
use super::flow_mirrors::MirrorsByPort;
use super::flow_text::statistics;
use crate::backends::Configured;
use crate::service::{AgentView, Dump, FlowKind};

/// `dpctl/dump-flows`
pub(super) fn text(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let wanted = selection(agent, arguments)?;
    let ports = agent.ports();
    let style = Style { more: arguments.more, names: arguments.with_names().then_some(&*ports as _) };
    let mut lines = Lines::new(agent, &style);
    write_pages(agent, &wanted, out, &mut |view, page| lines.push(view, page))
}

/// `sluice/dump-flows`: an object a line. With `-m`, what hardware and software counted apart is asked of the device for each
/// flow, and which mirrors copy its packets is said.
pub(super) fn json(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let wanted = selection(agent, arguments)?;
    let ports = agent.ports();
    let mut writer = ObjectWriter::new(&ports);
    let mirrors = arguments.more.then(|| MirrorsByPort::new(agent));
    write_pages(agent, &wanted, out, &mut |view, page| {
        let more = mirrors.as_ref().map(|mirrors| more(view, agent.counted_apart(view), mirrors));
        writer.push(view, agent.now(), more.as_ref(), page);
    })
}

/// `dpctl/get-flow`
pub(super) fn one(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let view = wanted(agent, arguments)?;
    let ports = agent.ports();
    let style = Style { more: arguments.more, names: arguments.with_names().then_some(&*ports as _) };
    Ok(write_flow(agent, &view, &style, out)?)
}

/// `sluice/get-flow`: an object with all that there is to know.
pub(super) fn one_json(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let view = wanted(agent, arguments)?;
    Ok(out.write_str(&String::from_utf8_lossy(&whole(agent, &view, agent.counted_apart(&view))))?)
}

/// The same as a value.
pub(super) fn object(
    agent: &AgentView,
    view: &FlowView,
    apart: Option<CountedApart>,
) -> serde_json::Result<serde_json::Value> {
    serde_json::from_slice(&whole(agent, view, apart))
}

fn whole(agent: &AgentView, view: &FlowView, apart: Option<CountedApart>) -> Vec<u8> {
    let mut object = Vec::new();
    let mirrors = MirrorsByPort::new(agent);
    ObjectWriter::new(&agent.ports()).push(view, agent.now(), Some(&more(view, apart, &mirrors)), &mut object);
    object
}

fn more<'m>(view: &FlowView, apart: Option<CountedApart>, mirrors: &'m MirrorsByPort) -> More<'m> {
    More { apart, mirrors: mirrors.of(&view.flow).collect() }
}

fn wanted(agent: &AgentView, arguments: &Arguments) -> Result<FlowView, Failure> {
    let [ufid] = arguments.after_datapath(agent, 1)? else { return Err(Failure::new("one UFID is needed")) };
    let name = ufid.strip_prefix("ufid:").unwrap_or(ufid);
    let ufid = name.parse().map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    agent.named(ufid).ok_or_else(|| {
        Failure::os(format_args!("getting flow: there is no flow ufid:{ufid}"), "No such file or directory")
    })
}

/// Key, statistics and actions of a flow on one line.
fn write_flow(agent: &AgentView, view: &FlowView, style: &Style<'_>, out: &mut dyn Output) -> fmt::Result {
    let mut line = Vec::new();
    Lines::new(agent, style).push(view, &mut line);
    out.write_str(&String::from_utf8_lossy(&line))
}

/// Writes flows as lines.
struct Lines<'a> {
    agent: &'a AgentView,
    style: &'a Style<'a>,
    writer: LineWriter<'a>,
    mirrors: Option<MirrorsByPort>,
}

impl<'a> Lines<'a> {
    fn new(agent: &'a AgentView, style: &'a Style<'a>) -> Self {
        let mirrors = style.more.then(|| MirrorsByPort::new(agent));
        Self { agent, style, writer: LineWriter::new(style), mirrors }
    }

    fn push(&mut self, view: &FlowView, page: &mut Vec<u8>) {
        let described;
        let other = self.mirrors.as_ref().and_then(|mirrors| other(self.agent, view, mirrors));
        let extra = if !self.style.more && view.flow.priority != Priority::default() {
            // Without it the line would be read back as another flow.
            described = Extra { priority: view.flow.priority, ..Extra::default() }.to_string();
            &described
        } else if !self.style.more || is_ordinary(view) && other.is_none() {
            ""
        } else {
            described = Extra { priority: view.flow.priority, expiry: view.flow.expiry, other }.to_string();
            &described
        };
        let line = DumpLine {
            ufid: view.flow.ufid,
            matching: &view.flow.matching(),
            statistics: statistics(view, self.agent.now()),
            offloaded: offloaded(view),
            layer: if view.placement.is_some() { self.agent.capabilities().name } else { "" },
            actions: &view.flow.actions,
            extra,
        };
        self.writer.push_line(page, &line);
        page.push(b'\n');
    }
}

/// Whether there is nothing to say of a flow for which OVS has no word, which is so for nearly all.
fn is_ordinary(view: &FlowView) -> bool {
    let is_there = matches!(view.state, FlowState::Offloaded | FlowState::Partial);
    is_there && view.flow.priority == Priority::default() && view.flow.expiry == Expiry::default()
}

fn offloaded(view: &FlowView) -> Option<Offloaded> {
    match view.state {
        FlowState::Offloaded => Some(Offloaded::Yes),
        FlowState::Partial => Some(Offloaded::Partial),
        FlowState::Pending | FlowState::Refused | FlowState::Deleting => None,
    }
}

/// What the flow matches of the outer header and its rule does not, which takes more packets for that: flags, and which option of Geneve.
fn left_out(agent: &AgentView, view: &FlowView) -> Option<String> {
    let looks_at = agent.looks_at(&view.flow)?.matching;
    let bits = |field| view.flow.matching().get(field).1 & !looks_at.mask.get(field);
    let flags = bits(Field::TunnelFlags);
    let names = TUNNEL_FLAGS.iter().filter(|(_, bit)| flags & u128::from(*bit) != 0).map(|(name, _)| *name);
    let option = GENEVE_CHUNKS.into_iter().any(|chunk| bits(chunk) != 0).then_some("geneve");
    let names: Vec<_> = names.chain(option).collect();
    (view.placement.is_some() && !names.is_empty()).then(|| text::bracketed("wider", &names.join(" ")))
}

/// What there is to say of a flow for which OVS has no word: who wants it, why it is not in the device, and who copies its packets.
fn other(agent: &AgentView, view: &FlowView, mirrors: &MirrorsByPort) -> Option<String> {
    let origin = match view.flow.origin {
        Origin::Command => None,
        Origin::Controller(name) => Some(text::bracketed("owner", &name)),
        source => Some(text::bracketed("source", source.name())),
    };
    let state = match (view.state, &view.refusal) {
        (FlowState::Refused, Some(refusal)) => Some(text::bracketed("refused", &refusal.to_string())),
        (FlowState::Pending | FlowState::Deleting, _) => Some(view.state.name().to_owned()),
        _ => left_out(agent, view),
    };
    let mirrors: Vec<_> = mirrors.of(&view.flow).collect();
    let mirrors = (!mirrors.is_empty()).then(|| text::bracketed("mirrors", &mirrors.join(" ")));
    let parts: Vec<_> = [origin, state, mirrors].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Which flows are shown.
fn selection(agent: &AgentView, arguments: &Arguments) -> Result<Dump, Failure> {
    let mut wanted = Dump::default();
    let mut rest = Vec::new();
    for arg in &arguments.rest {
        if let Some(text) = arg.strip_prefix("filter=") {
            let parsed = text::parse_openflow_match(text, &*agent.ports());
            wanted.filter =
                Some(parsed.map_err(|e| Failure::new(format_args!("Failed to parse filter ({text}: {e})")))?);
        } else if let Some(kinds) = arg.strip_prefix("type=") {
            wanted.kinds = kinds.split(',').map(flow_kind).collect::<Result<_, _>>()?;
        } else if arg.starts_with("pmd=") {
            // No threads own flows here; OVS without PMD threads shows all, too.
        } else {
            rest.push(arg.clone());
        }
    }
    let rest = Arguments { rest, ..Arguments::default() };
    match rest.after_datapath(agent, 0)? {
        [] => Ok(wanted),
        [unknown, ..] => Err(Failure::new(format_args!("{unknown}: neither filter= nor type="))),
    }
}

/// Writes flows a page at a time. What a slow client holds is that page: no lock, and one flow.
fn write_pages(
    agent: &AgentView,
    wanted: &Dump,
    out: &mut dyn Output,
    show: &mut dyn FnMut(&FlowView, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut page = Vec::with_capacity(PAGE);
    let mut result = Ok(());
    agent.dump(wanted, &mut |view| {
        show(view, &mut page);
        if page.len() >= PAGE {
            result = turn(&mut page, out);
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    Ok(result.and_then(|()| turn(&mut page, out))?)
}

/// Bytes of flows that are written at once.
const PAGE: usize = 32 << 10;

/// Writes a page, and takes an empty one.
fn turn(page: &mut Vec<u8>, out: &mut dyn Output) -> fmt::Result {
    let result = out.write_str(&String::from_utf8_lossy(page));
    page.clear();
    result
}

fn flow_kind(word: &str) -> Result<FlowKind, Failure> {
    Ok(match word {
        "all" => FlowKind::All,
        "offloaded" => FlowKind::Offloaded,
        "non-offloaded" => FlowKind::NotOffloaded,
        "partially-offloaded" => FlowKind::PartlyOffloaded,
        // Those of OVS, and ours.
        "ovs" | "tc" | "dpdk" => FlowKind::InBackend(word.to_owned()),
        _ if Configured::named(word).is_ok() => FlowKind::InBackend(word.to_owned()),
        _ => return Err(Failure::os(format_args!("Failed to parse type ({word})"), "Invalid argument")),
    })
}
