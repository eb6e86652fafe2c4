//! Counts flows, and has backends judge them.

use std::io::BufRead;
use std::rc::Rc;

use sluice_control::parts::{Parts as TextParts, PartsError};
use sluice_flow::field::Field;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::MaskedKey;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::text::{DumpLine, Statistics, Style, write_line};
use sluice_flow::ufid::Seed;

use super::chains::Targets;
use super::dump::DumpReader;
use super::judge::{Backend, Judge};
use super::ports::{self, Ports};
use super::report::{Count, DatapathReport, Report, Unread};
use crate::wire::{FlowMessage, VPORT_INTERNAL, Vport};

/// Flows get UFIDs where OVS gives none. Nobody looks for them.
pub(super) const SEED: Seed = Seed([0; 16]);
/// How much is shown of what is not understood.
const EXAMPLE: usize = 2_000;

/// What it takes that a packet that misses in a later chain of tc goes on in Open vSwitch from there.
const RECIRC_SHARING: &str = "A packet that misses in a later chain of tc goes on in Open vSwitch at that chain only with a kernel that has \
    CONFIG_NET_TC_SKB_EXT, as those of RHEL and of BlueField do. With other kernels, such as Debian's, it starts again in the first chain: \
    flows that change it before then cannot be offloaded beside Open vSwitch.";

/// Takes the flows of one datapath after the other, counts them and has backends judge them. Its memory is bounded, however many there are.
pub struct Observer {
    judges: Vec<Judge>,
    ports: Rc<Ports>,
    targets: Targets,
    report: Report,
}

impl Observer {
    /// Creates an observer that asks these backends.
    pub fn new(backends: Vec<Backend>) -> Self {
        let judges = backends.into_iter().map(Judge::new).collect();
        Self { judges, ports: Rc::default(), targets: Targets::default(), report: Report::default() }
    }

    /// Begins a datapath, which has ports and chains of its own.
    pub fn begin(&mut self, datapath: &str) {
        self.end();
        self.report.datapaths.push(DatapathReport { name: datapath.to_owned(), flows: 0 });
    }

    /// Reads a dump: what `ovs-appctl dpctl/dump-flows` or `ovs-dpctl dump-flows` print, with or without `-m`, and in front of it what
    /// `dpctl/show` prints, which tells the kinds of ports. A line that is not understood is counted. Fails if the text cannot be read.
    pub fn text(&mut self, text: impl BufRead + 'static) -> Result<(), PartsError> {
        let ports = Rc::clone(&self.ports);
        let mut reader = DumpReader::new(&ports);
        let mut parts = TextParts::over(Box::new(text));
        while let Some(part) = parts.next_part()? {
            part.text.lines().for_each(|line| reader.line(line, self));
        }
        Ok(())
    }

    /// Takes a port of the kernel's datapath.
    pub fn vport(&mut self, vport: &Vport) {
        let kind = (vport.kind == VPORT_INTERNAL).then_some("internal");
        self.ports.show(PortNumber(vport.number), &vport.name, kind);
    }

    /// Takes a flow of the kernel's datapath.
    pub fn message(&mut self, message: &FlowMessage) {
        let FlowMessage { ufid, matching, actions, statistics, .. } = message;
        let (Some(matching), Some(actions)) = (matching, actions) else {
            return self.unread("a flow of the kernel", "the kernel left its key or its actions out".to_owned());
        };
        let matching = MaskedKey::new(matching);
        let flow = Flow::new(*ufid, matching, actions.clone(), Priority::default(), Expiry::default(), &SEED);
        self.flow(&flow, statistics, false);
    }

    /// Adds a sentence to the report.
    pub fn note(&mut self, note: impl Into<String>) {
        self.report.notes.push(note.into());
    }

    /// Ends the observation and returns what was found.
    pub fn report(mut self) -> Report {
        self.end();
        let backends: Vec<_> = self.judges.drain(..).map(Judge::report).collect();
        if backends.iter().any(|backend| backend.needs_recirc_sharing.flows > 0) {
            self.note(RECIRC_SHARING);
        }
        Report { backends, ..self.report }
    }

    /// The ports of the datapath.
    pub(super) fn ports(&self) -> &Rc<Ports> {
        &self.ports
    }

    /// Takes what is no flow that is understood.
    pub(super) fn unread(&mut self, text: &str, reason: String) {
        let Unread { flows, example, reason: first } = &mut self.report.unread;
        *flows += 1;
        if example.is_none() {
            let end = text.floor_char_boundary(EXAMPLE);
            (*example, *first) = (Some(text[..end].to_owned()), Some(reason));
        }
    }

    /// Takes a flow, and whether OVS says that hardware or tc has it.
    pub(super) fn flow(&mut self, flow: &Flow, statistics: &Statistics, is_offloaded: bool) {
        if flow.matching().get(Field::InPort).1 != Field::InPort.full_mask() {
            // No flow of a datapath is without, and the agent takes none.
            return self.unread(&written(flow, statistics, &self.ports), "in_port() is missing".to_owned());
        }
        let count = Count::one(statistics);
        let report = &mut self.report;
        report.all += count;
        if is_offloaded {
            report.offloaded += count;
        }
        if self.targets.add(flow) {
            report.recirculating += count;
        }
        if let Some(datapath) = report.datapaths.last_mut() {
            datapath.flows += 1;
        }
        let named = ports::named_by(flow);
        for (port, protocol) in &named {
            if let Some(protocol) = protocol {
                self.ports.learn(*port, *protocol);
            }
        }
        let ports = &*self.ports;
        let write = |flow: &Flow, statistics: &Statistics| written(flow, statistics, ports);
        self.judges.iter_mut().for_each(|judge| judge.flow(flow, statistics, (ports, &named), &write));
    }

    fn end(&mut self) {
        let (ports, targets) = (std::mem::take(&mut self.ports), std::mem::take(&mut self.targets));
        let write = |flow: &Flow, statistics: &Statistics| written(flow, statistics, &ports);
        self.judges.iter_mut().for_each(|judge| judge.end(&targets, &write));
    }
}

/// A flow as OVS prints it without `-m`.
fn written(flow: &Flow, statistics: &Statistics, ports: &Ports) -> String {
    ports.named(|names| {
        let line = DumpLine {
            ufid: flow.ufid,
            matching: &flow.matching(),
            statistics: *statistics,
            offloaded: None,
            layer: "",
            actions: &flow.actions,
            extra: "",
        };
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_line(&mut text, &line, &Style { more: false, names: Some(names) });
        text
    })
}
