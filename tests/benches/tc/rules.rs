//! The same rules for all: a 5-tuple and both MACs, to one port.

use std::fmt::Write as _;

use sluice_flow::port::PortNumber;
use sluice_flow::text::LineReader;
use sluice_flow::ufid::Seed;
use sluice_flow::{Flow, Refusal};
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features};
use sluice_offload_tc::install::{Request, flags};
use sluice_offload_tc::label;
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::templates::{Lookup, Templates};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId};

/// The tc priority of all of them.
pub(crate) const PRIORITY: u16 = 61_000;
const AGENT: AgentId = AgentId(0x5eed);
const SEED: Seed = Seed([42; 16]);

/// Two ports.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) receiver: u32,
    pub(crate) sender: u32,
}

impl Context for Ports {
    fn device(&self, port: PortNumber) -> Option<Device> {
        let interface = match port.0 {
            1 => self.receiver,
            2 => self.sender,
            _ => return None,
        };
        Some(Device { interface, kind: DeviceKind::Wire })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let number = if interface == self.receiver { 1 } else { 2 };
        Some((PortNumber(number), Device { interface, kind: DeviceKind::Wire }))
    }

    fn police(&self, _: sluice_flow::meter::MeterId) -> Option<u32> {
        None
    }

    fn meter(&self, _: u32) -> Option<sluice_flow::meter::MeterId> {
        None
    }

    fn features(&self) -> Features {
        Features::default()
    }
}

/// Flows as OVS's `add-flows` has them, between ports of these numbers.
pub(crate) fn flow_lines(count: usize, from: u32, to: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let [_, a, b, c] = address(number);
        let _ = writeln!(
            text,
            "recirc_id(0),in_port({from}),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=10.{a}.{b}.{c},dst=10.255.0.1,proto=6,frag=no),tcp(src={},dst=80) {to}",
            source(number)
        );
    }
    text
}

/// The same for `tc -batch`.
pub(crate) fn batch_lines(count: usize, from: &str, to: &str) -> String {
    let mut text = String::new();
    for number in 0..count {
        let [_, a, b, c] = address(number);
        let handle = number + 1;
        let _ = writeln!(
            text,
            "filter add dev {from} ingress chain 0 protocol ip pref {PRIORITY} handle {handle} flower skip_hw \
             src_mac 02:00:00:00:00:01 dst_mac 02:00:00:00:00:02 ip_proto tcp src_ip 10.{a}.{b}.{c} dst_ip 10.255.0.1 \
             src_port {} dst_port 80 ip_flags nofrag action mirred egress redirect dev {to} cookie {handle:032x}",
            source(number)
        );
    }
    text
}

fn address(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("few rules").to_be_bytes()
}

fn source(number: usize) -> usize {
    1024 + number % 60_000
}

/// Makes requests of lines as the agent does: text, flow, rule.
pub(crate) struct Maker<'a> {
    reader: LineReader<'a>,
    templates: Templates,
    ports: Ports,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(ports: Ports) -> Self {
        Self { reader: LineReader::new(&()), templates: Templates::new(), ports }
    }

    pub(crate) fn request(&mut self, line: &str, handle: u32) -> Result<Request, Refusal> {
        let flow = self.flow(line);
        self.request_of(&flow, handle)
    }

    pub(crate) fn request_of(&mut self, flow: &Flow, handle: u32) -> Result<Request, Refusal> {
        let name = |hook, chain, protocol| FilterId { hook, chain, priority: PRIORITY, protocol, handle };
        let found = self.templates.look_up(flow, &self.ports);
        if let Lookup::Hit(template) = found {
            let id = name(template.hook, template.chain, template.protocol);
            return Ok(Request::AddInstance(template.instance(flow.clone(), id)));
        }
        let mut rule = translate::rule(flow, AGENT, &self.ports)?;
        rule.flower.flags = flags(OffloadPolicy::SkipHardware);
        label::sign(&mut rule.flower);
        let filter = Filter { id: name(rule.hook, rule.chain, rule.protocol), flower: rule.flower };
        if let Lookup::Learn(vacancy) = found {
            self.templates.learn(vacancy, flow, &filter, &self.ports);
        }
        Ok(Request::Add(filter))
    }

    pub(crate) fn flow(&mut self, line: &str) -> Flow {
        self.reader.read(line).expect("a flow");
        self.reader.flow(&SEED)
    }
}
