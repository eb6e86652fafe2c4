//! What OVS prints of a datapath, line by line.

use sluice_flow::port::PortNumber;
use sluice_flow::text::LineReader;

use super::observer::{Observer, SEED};
use super::ports::Ports;

/// What lines of `dpctl/show` and `dpctl/dump-dps` begin with that tell nothing here, and headings of a dump by threads.
const PASSED_OVER: [&str; 12] = [
    "lookups:",
    "flows:",
    "masks:",
    "caches:",
    "cache:",
    "masks-cache:",
    "RX packets:",
    "RX bytes:",
    "TX packets:",
    "TX bytes:",
    "collisions:",
    "flow-dump from",
];

/// Reads lines.
pub(super) struct DumpReader<'n> {
    ports: &'n Ports,
    reader: LineReader<'n>,
}

impl<'n> DumpReader<'n> {
    pub(super) fn new(ports: &'n Ports) -> Self {
        Self { ports, reader: LineReader::new(ports) }
    }

    /// Tells the observer what a line says.
    pub(super) fn line(&mut self, line: &str, observer: &mut Observer) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || PASSED_OVER.iter().any(|start| line.starts_with(start)) {
            return;
        }
        if let Some(port) = Shown::read(line) {
            return self.ports.show(port.number, port.name, port.kind);
        }
        if line.ends_with(':') && line.contains('@') {
            // The name of the datapath.
            return;
        }
        match self.reader.read(line) {
            Ok(read) => {
                let is_offloaded = read.offloaded.is_some() || read.layer.as_deref() == Some("tc");
                let statistics = read.statistics;
                let flow = self.reader.flow(&SEED);
                observer.flow(&flow, &statistics, is_offloaded);
            }
            Err(error) => observer.unread(line, error.to_string()),
        }
    }
}

/// A line of `dpctl/show` such as `port 3: genev_sys_6081 (geneve: packet_type=ptap)`.
struct Shown<'a> {
    number: PortNumber,
    name: &'a str,
    kind: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (number, rest) = line.strip_prefix("port ")?.split_once(": ")?;
        let (name, about) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = about.strip_prefix('(').and_then(|about| about.split([':', ')', ' ']).next());
        Some(Self { number: PortNumber(number.parse().ok()?), name, kind })
    }
}
