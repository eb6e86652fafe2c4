//! The rules of all parts.

use std::sync::Arc;

use sluice_flow::key::Mask;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Field, Flow, MaskedKey, Priority, text};
use sluice_offload_dv::translate::Vports;

pub(crate) const DEVICE: &str = "mlx5_0";
/// The vports of port 1, where packets come from, and of port 2, where they go: that of the function that manages the switch, and the wire.
pub(crate) const VPORTS: [u16; 2] = [0, 0xffff];

/// What rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The port, and a 5-tuple; packets go to another port.
    FiveTuple,
    /// The same with the port only for the first table, and nothing of the Ethernet type.
    WithoutPort,
    /// What `dpdk-test-flow-perf` can be asked for: the port, UDP over IPv4, and the source address; packets are dropped.
    FlowPerf,
}

/// Flows that share mask and actions, as those of the agent's table do.
pub(crate) fn flows(kind: Kind, number: usize) -> Vec<Flow> {
    let (key, actions) = match kind {
        Kind::FiveTuple => (FIVE_TUPLE, "2"),
        Kind::WithoutPort => (WITHOUT_PORT, "2"),
        Kind::FlowPerf => (FLOW_PERF, "drop"),
    };
    let mut matching = text::parse_key(key, &()).expect("a key").matching;
    let (mask, actions) = (Arc::new(Mask::new(&matching.mask)), text::parse_actions(actions, &()).expect("actions"));
    let flow = |index: usize| {
        matching.set_exact(Field::Ipv4Src, 0x0a00_0000 + index as u128);
        if kind != Kind::FlowPerf {
            matching.set_exact(Field::TcpSrc, 1024 + index as u128 % 60_000);
        }
        let key = MaskedKey::under(mask.clone(), &matching.key);
        Flow::new(None, key, actions.clone(), Priority::default(), Expiry::default(), &Seed([42; 16]))
    };
    (0..number).map(flow).collect()
}

const FIVE_TUPLE: &str =
    "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.0,dst=10.255.0.1,proto=6,frag=no),tcp(src=1,dst=80)";
const WITHOUT_PORT: &str = "eth_type(0x0800),ipv4(src=10.0.0.0,dst=10.255.0.1,proto=6,frag=no),tcp(src=1,dst=80)";
const FLOW_PERF: &str = "in_port(2),eth_type(0x0800),ipv4(src=10.0.0.0,proto=17)";

/// What the backend knows of its ports, for parts that go without it.
pub(crate) struct Ports;

impl Vports for Ports {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        Ok(VPORTS[port.0 as usize - 1])
    }
}
