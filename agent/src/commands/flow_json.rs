//! A flow as a JSON object.

use std::time::Duration;

use sluice_control::escape;
use sluice_flow::backend::CountedApart;
use sluice_flow::port::PortMap;
use sluice_flow::table::FlowView;
use sluice_flow::text::{LineWriter, Statistics, Style};
use sluice_flow::{Counters, Origin, Timestamp};

use super::flow_text::statistics;

/// Writes flows as objects, an object a line, members in alphabetical order. Written by hand: a tree of values for each flow, as
/// `serde_json` has it, would take most of the time of a dump.
pub(super) struct ObjectWriter<'a> {
    writer: LineWriter<'a>,
    /// A key or actions, before they are escaped.
    text: Vec<u8>,
}

/// What is asked for a flow apart from the table.
pub(super) struct More<'m> {
    /// What hardware and software counted of it, if the device tells.
    pub(super) apart: Option<CountedApart>,
    /// The names of the mirrors that may copy its packets.
    pub(super) mirrors: Vec<&'m str>,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(ports: &'a PortMap) -> Self {
        Self { writer: LineWriter::new(&Style { more: false, names: Some(ports) }), text: Vec::new() }
    }

    /// Appends a flow, and what else there is to say if it is given.
    pub(super) fn push(&mut self, view: &FlowView, now: Timestamp, more: Option<&More<'_>>, out: &mut Vec<u8>) {
        let Statistics { packets, bytes, used, tcp_flags } = statistics(view, now);
        let flow = &view.flow;
        out.extend_from_slice(b"{\"actions\":");
        self.push_text(out, |writer, text| writer.push_actions(text, &flow.actions));
        push_number(out, "bytes", bytes);
        push_seconds(out, "hard_timeout_seconds", flow.expiry.hard);
        if let Some(More { apart, .. }) = more {
            push_counters(out, "hardware", apart.map(|apart| apart.hardware));
        }
        push_seconds(out, "idle_timeout_seconds", flow.expiry.idle);
        push_name(out, "key");
        self.push_text(out, |writer, text| writer.push_key(text, &flow.matching()));
        if let Some(More { mirrors, .. }) = more {
            push_name(out, "mirrors");
            push_strings(out, mirrors);
        }
        push_name(out, "owner");
        push_string(out, &flow.origin.to_string());
        push_number(out, "packets", packets);
        push_name(out, "permanent");
        out.extend_from_slice(if flow.expiry.permanent { b"true" } else { b"false" });
        push_name(out, "placement");
        match view.placement {
            Some(placement) => push_string(out, &placement.to_string()),
            None => out.extend_from_slice(b"null"),
        }
        push_number(out, "priority", u64::from(flow.priority.get()));
        push_number(out, "recirc_id", u64::from(flow.chain().0));
        push_name(out, "refusal");
        match &view.refusal {
            Some(refusal) => {
                out.extend_from_slice(b"{\"label\":");
                push_string(out, refusal.label());
                push_name(out, "reason");
                push_string(out, &refusal.to_string());
                out.push(b'}');
            }
            None => out.extend_from_slice(b"null"),
        }
        if let Some(More { apart, .. }) = more {
            push_counters(out, "software", apart.map(|apart| apart.software));
        }
        push_name(out, "source");
        match flow.origin {
            Origin::Command | Origin::Controller(_) => out.extend_from_slice(b"null"),
            source => push_string(out, source.name()),
        }
        push_name(out, "state");
        push_string(out, view.state.name());
        push_number(out, "tcp_flags", u64::from(tcp_flags));
        push_name(out, "ufid");
        out.push(b'"');
        LineWriter::push_ufid(out, flow.ufid);
        out.push(b'"');
        push_seconds(out, "used_seconds", used);
        out.extend_from_slice(b"}\n");
    }

    fn push_text(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut LineWriter<'a>, &mut Vec<u8>)) {
        self.text.clear();
        write(&mut self.writer, &mut self.text);
        push_string(out, &String::from_utf8_lossy(&self.text));
    }
}

/// The name of a member that is not the first.
fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escape(text, out);
    out.push(b'"');
}

fn push_strings(out: &mut Vec<u8>, texts: &[&str]) {
    out.push(b'[');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_string(out, text);
    }
    out.push(b']');
}

fn push_number(out: &mut Vec<u8>, name: &str, number: u64) {
    push_name(out, name);
    LineWriter::push_number(out, number);
}

fn push_counters(out: &mut Vec<u8>, name: &str, counters: Option<Counters>) {
    push_name(out, name);
    let Some(counters) = counters else { return out.extend_from_slice(b"null") };
    out.extend_from_slice(b"{\"bytes\":");
    LineWriter::push_number(out, counters.bytes);
    push_number(out, "packets", counters.packets);
    out.push(b'}');
}

/// Seconds as a decimal fraction of as many digits as there are, one at least.
fn push_seconds(out: &mut Vec<u8>, name: &str, span: Option<Duration>) {
    push_name(out, name);
    let Some(span) = span else { return out.extend_from_slice(b"null") };
    LineWriter::push_number(out, span.as_secs());
    let mut digits = [b'.'; 10];
    let mut rest = span.subsec_nanos();
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    out.extend_from_slice(&digits[..(digits.len() - zeros).max(2)]);
}
