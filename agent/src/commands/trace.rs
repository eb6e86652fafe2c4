//! `sluice/trace`: the way of a packet through the installed flows, as `ofproto/trace` shows it.

use std::fmt::{self, Write as _};
use std::ops::ControlFlow;

use sluice_flow::field::{FIELDS, FieldSpec, KEY_WORDS};
use sluice_flow::key::{Key, MaskedKey, Match};
use sluice_flow::port::{PortMap, PortNames};
use sluice_flow::table::FlowView;
use sluice_flow::text::{self, Style};
use sluice_flow::trace::{ActionEffect, Lookup, Step, Trace, TraceEvent};
use sluice_flow::{FlowId, PortNumber};
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::flow_text;
use super::packets::Packets;
use crate::service::AgentView;

/// How many of the flows that a packet misses by least are named.
const NEAREST: usize = 3;
/// How many flows are compared with a packet that hits none.
const COMPARED: usize = 100_000;

/// `sluice/trace PORT FRAME...`
pub(super) fn trace(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let Packets { injector, port, frames } = Packets::parse(agent, arguments)?;
    let names = agent.ports();
    let mut tracer = injector.tracer();
    for (index, frame) in frames.iter().enumerate() {
        writeln!(out, "frame {index}: {} bytes into port {}", frame.len(), port_text(port, &names))?;
        match tracer.trace(port, frame) {
            Ok(trace) => Writer { agent, ports: &names, out }.trace(&trace)?,
            // The frames were checked, so that only a port can have gone meanwhile. An error in the middle of the answer would
            // have no place in it.
            Err(refusal) => writeln!(out, "  refused: {refusal}")?,
        }
    }
    Ok(())
}

struct Writer<'a> {
    agent: &'a AgentView,
    ports: &'a PortMap,
    out: &'a mut dyn Output,
}

impl Writer<'_> {
    fn trace(&mut self, trace: &Trace) -> fmt::Result {
        for step in &trace.steps {
            self.step(step)?;
        }
        let verdict = &trace.verdict;
        write!(self.out, "  result: {} hit, {} sent", verdict.hits.len(), verdict.sent.len())?;
        match verdict.missed {
            Some(chain) => {
                let policy = self.agent.capabilities();
                let policy = if chain.0 == 0 { policy.miss } else { policy.chain_miss };
                writeln!(self.out, ", missed in chain {chain}: {}", policy.describe())
            }
            None => writeln!(self.out),
        }
    }

    fn step(&mut self, Step { depth, event }: &Step) -> fmt::Result {
        let indent = "  ".repeat(depth + 1);
        match event {
            TraceEvent::Decapsulated(port) => {
                writeln!(self.out, "{indent}outer header off: from port {}", port_text(*port, self.ports))
            }
            TraceEvent::Mirrored(name) => writeln!(self.out, "{indent}mirror {name} copies it"),
            TraceEvent::Lookup(lookup) => self.lookup(lookup, &indent),
            TraceEvent::Action(effect) => self.action(effect, &indent),
            TraceEvent::Sent { port, frame } => {
                writeln!(self.out, "{indent}sent: {} bytes out of port {}", frame.len(), port_text(*port, self.ports))?;
                for line in frame.chunks(32) {
                    write!(self.out, "{indent}  ")?;
                    line.iter().try_for_each(|byte| write!(self.out, "{byte:02x}"))?;
                    writeln!(self.out)?;
                }
                Ok(())
            }
            TraceEvent::Dropped(reason) => writeln!(self.out, "{indent}dropped: {reason}"),
        }
    }

    fn lookup(&mut self, lookup: &Lookup, indent: &str) -> fmt::Result {
        writeln!(self.out, "{indent}packet: {}", key_text(&lookup.key, self.ports))?;
        writeln!(self.out, "{indent}chain {}:", lookup.chain)?;
        let last = lookup.tried.len().saturating_sub(1);
        for (index, subtable) in lookup.tried.iter().enumerate() {
            let result = if index == last && lookup.hit.is_some() { "hit" } else { "no" };
            let plural = if subtable.rules == 1 { "" } else { "s" };
            let (fields, rules) = (&subtable.fields, subtable.rules);
            let fields = if fields.is_empty() { "no field" } else { fields };
            writeln!(self.out, "{indent}  priority {}, {fields} ({rules} flow{plural}): {result}", subtable.priority)?;
        }
        match lookup.hit {
            Some(id) => self.hit(id, indent),
            None => self.nearest(lookup, indent),
        }
    }

    fn hit(&mut self, id: FlowId, indent: &str) -> fmt::Result {
        let Some(view) = self.agent.flow(id) else {
            return writeln!(self.out, "{indent}  hit: a flow that has gone since");
        };
        let (key, actions) = (flow_text::key_text(&view, self.ports), flow_text::actions_text(&view, self.ports));
        writeln!(self.out, "{indent}  hit: ufid:{}, {key}, actions:{actions}", view.flow.ufid)
    }

    /// The flows of the chain that differ from the packet in the fewest fields, and in which.
    fn nearest(&mut self, lookup: &Lookup, indent: &str) -> fmt::Result {
        writeln!(self.out, "{indent}  miss")?;
        let mut nearest: Vec<(Vec<String>, FlowView)> = Vec::new();
        let mut compared = 0;
        self.agent.visit(&mut |view| {
            if compared == COMPARED {
                return ControlFlow::Break(());
            }
            if view.flow.chain() == lookup.chain {
                compared += 1;
                let differences = differences(&view.flow.matching(), &lookup.key, self.ports);
                let at = nearest.partition_point(|(other, _)| other.len() <= differences.len());
                nearest.insert(at, (differences, view));
                nearest.truncate(NEAREST);
            }
            ControlFlow::Continue(())
        });
        for (differences, view) in nearest {
            let reason = if differences.is_empty() {
                format!("matches, but is {}", view.state)
            } else {
                format!("differs in {}", differences.join(", "))
            };
            writeln!(self.out, "{indent}  near: ufid:{} {reason}", view.flow.ufid)?;
        }
        Ok(())
    }

    fn action(&mut self, effect: &ActionEffect, indent: &str) -> fmt::Result {
        let mut action = String::new();
        text::write_action(&mut action, &effect.action, &self.style())?;
        write!(self.out, "{indent}{action}")?;
        let [before, after] = effect.keys.each_ref().map(Match::of_packet);
        let mut separator = ": ";
        for spec in FIELDS {
            let [(old, old_mask), (new, new_mask)] =
                [&before, &after].map(|packet| (packet.key.get(spec.field), packet.mask.get(spec.field)));
            let is_named = effect.keys.iter().any(|key| is_about(key, &spec));
            if (old, old_mask) == (new, new_mask) || !is_named {
                continue;
            }
            let [old, new] = [(old, old_mask), (new, new_mask)]
                .map(|(value, mask)| value_text(spec.field, value, mask, &self.style()));
            write!(self.out, "{}{} {old} -> {new}", std::mem::replace(&mut separator, ", "), spec.field)?;
        }
        let [old, new] = effect.lengths;
        if old != new {
            write!(self.out, "{separator}{old} -> {new} bytes")?;
        }
        writeln!(self.out)
    }

    fn style(&self) -> Style<'_> {
        Style { more: false, names: Some(self.ports) }
    }
}

/// Whether a packet, or all that a flow matches, can have the header of a field.
fn is_about(key: &Key, spec: &&FieldSpec) -> bool {
    let exactly = Match { key: *key, mask: Key { words: [u64::MAX; KEY_WORDS] } };
    exactly.meets(spec.attribute.spec().requires)
}

/// The fields in which a packet is not what a flow matches.
fn differences(matching: &MaskedKey<'_>, packet: &Key, ports: &PortMap) -> Vec<String> {
    let (wanted, style) = (matching.expand(), Style { more: false, names: Some(ports) });
    // Headers that exclude each other share a place in the key: those that the flow is about give the names.
    let of_flow = |spec: &&FieldSpec| is_about(&wanted.key, spec);
    let mut found = Vec::new();
    let mut named = Key::ZERO;
    for spec in FIELDS.iter().filter(of_flow).chain(FIELDS) {
        let mask = wanted.mask.get(spec.field) & !named.get(spec.field);
        let (want, is) = (wanted.key.get(spec.field) & mask, packet.get(spec.field) & mask);
        named.set(spec.field, named.get(spec.field) | mask);
        if want != is {
            let value = value_text(spec.field, packet.get(spec.field), spec.field.full_mask(), &style);
            found.push(format!("{} ({value}, not {})", spec.field, value_text(spec.field, want, mask, &style)));
        }
    }
    found
}

fn value_text(field: sluice_flow::Field, value: u128, mask: u128, style: &Style<'_>) -> String {
    if mask == 0 {
        return "none".into();
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::write_field_value(&mut text, field, value, mask, style);
    text
}

fn key_text(key: &Key, ports: &PortMap) -> String {
    let mut text = String::new();
    let _ =
        text::write_key(&mut text, &MaskedKey::new(&Match::of_packet(key)), &Style { more: false, names: Some(ports) });
    text
}

fn port_text(number: PortNumber, ports: &PortMap) -> String {
    let mut text = number.to_string();
    if let Some(name) = ports.name(number) {
        let _ = write!(text, " ({name})");
    }
    text
}
