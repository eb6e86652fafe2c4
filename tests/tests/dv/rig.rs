//! A switch with six ports, and flows as text.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::connection::{Connection, Direction, State};
use sluice_flow::port::{PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, MaskedKey, Priority};
use sluice_offload_dv::mlx5::Library;
use sluice_offload_dv::switch::{RuleId, Switch};
use sluice_offload_dv::translate::{Templates, UPLINK, Vports};
use sluice_tests::mlx5::{Out, Ports, profile};
use sluice_tests::world::eventually;

use crate::frames::UDP;

/// A NIC in a host, whose physical function manages the eswitch.
pub(crate) const HOST: &str = "connectx-6-dx-vfs";
/// An older one, whose entries are of the first format.
pub(crate) const OLD_HOST: &str = "connectx-5-vfs";

/// Ports from 1 on: the wire, the host's physical function and some of its virtual functions.
pub(crate) const PORTS: [(u16, &str); 6] =
    [(UPLINK, "wire"), (0, "vport-0"), (1, "vport-1"), (2, "vport-2"), (3, "vport-3"), (4, "vport-4")];
/// The same in a host: the wire and virtual functions.
const PORTS_IN_HOST: [(u16, &str); 6] =
    [(UPLINK, "wire"), (1, "vport-1"), (2, "vport-2"), (3, "vport-3"), (4, "vport-4"), (5, "vport-5")];

/// Ports of tunnels that end at port 1.
pub(crate) const TUNNELS: [(u32, TunnelProtocol); 3] =
    [(10, TunnelProtocol::Vxlan), (11, TunnelProtocol::Geneve), (12, TunnelProtocol::Gre)];

pub(crate) struct Vport;

impl Vports for Vport {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        let index = usize::try_from(port.0).unwrap_or_default().checked_sub(1);
        let found = index.and_then(|index| ends().get(index));
        found.map(|(vport, _)| *vport).ok_or_else(|| Refusal::no_port(port))
    }

    fn tunnel(&self, port: PortNumber) -> Option<Tunnel> {
        let (_, protocol) = TUNNELS.into_iter().find(|(number, _)| *number == port.0)?;
        Some(Tunnel { protocol, udp_port: protocol.default_udp_port(), underlay: PortNumber(1) })
    }
}

/// Ports from 1 on of the device that there is: vport, and name of the far end.
pub(crate) fn ends() -> &'static [(u16, &'static str); 6] {
    if is_in_host() { &PORTS_IN_HOST } else { &PORTS }
}

/// The manager's own vport, by which packets come that no rule takes: the representor of the port that they came in at.
pub(crate) fn representor() -> &'static str {
    if is_in_host() { "vport-0" } else { "vport-65534" }
}

fn is_in_host() -> bool {
    profile().is_some_and(|profile| [HOST, OLD_HOST].contains(&profile.as_str()))
}

pub(crate) fn flow(key: &str, actions: &str) -> Flow {
    flow_at(0, key, actions)
}

pub(crate) fn flow_at(priority: u8, key: &str, actions: &str) -> Flow {
    let matching = parse_key(key, &()).unwrap().matching;
    let actions = parse_actions(actions, &()).unwrap();
    let priority = Priority::new(priority).unwrap();
    Flow::new(None, MaskedKey::new(&matching), actions, priority, Expiry::default(), &Seed([3; 16]))
}

/// A connection of UDP between port 1111 of 10.0.0.1 and port 2222 of 10.0.0.2.
pub(crate) fn connection(zone: u16) -> Connection {
    let [first, second] = [([10, 0, 0, 1].into(), 1111), ([10, 0, 0, 2].into(), 2222)];
    let direction = |(source, source_port), (destination, destination_port)| Direction {
        source,
        destination,
        protocol: UDP,
        source_port,
        destination_port,
    };
    Connection {
        zone,
        id: 1,
        original: direction(first, second),
        reply: direction(second, first),
        // Seen in both directions, assured, confirmed.
        status: 0b1110,
        mark: 0,
        label: 0,
        timeout: Duration::from_secs(100),
        state: State::Other,
        helper: None,
        parent: None,
    }
}

/// Opens the switch, to which packets of all its ports come.
pub(crate) fn open_switch() -> Switch {
    let mut switch = Switch::open(&Library::load().unwrap(), "mlx5_0").unwrap();
    switch.lead_from(ends().iter().map(|(vport, _)| *vport).collect()).unwrap();
    switch
}

/// A device with our rules, and all ends of its wires.
pub(crate) struct Rig<'a> {
    pub(crate) switch: Switch,
    templates: Templates,
    ports: &'a Ports,
    /// Of the representors first, and then of ports from 1 on.
    outs: Vec<Out>,
}

/// An address that no flow of a test is for.
pub(crate) const MARKER: [u8; 6] = [2, 0xff, 0xff, 0xff, 0xff, 0xff];

/// A frame to mark the end of others, which come in at the same port.
pub(crate) fn marker(to: [u8; 6]) -> Vec<u8> {
    [&to[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[0; 46]].concat()
}

/// Waits until a frame comes out; others are passed over.
pub(crate) fn wait_for(out: &Out, frame: &[u8]) {
    eventually("the frame comes out", || out.at_once().is_some_and(|found| found == frame));
}

impl<'a> Rig<'a> {
    pub(crate) fn open(ports: &'a Ports) -> Self {
        let names = std::iter::once(representor()).chain(ends().iter().map(|(_, name)| *name));
        let mut switch = open_switch();
        switch.set_vports(Arc::new(Vport));
        let templates = Templates::new();
        let mut rig = Self { switch, templates, ports, outs: names.map(|name| ports.out(name)).collect() };
        for port in 1..=ends().len() {
            // Port 1 is the wire, where nothing goes back.
            let out = if port == 1 { 2 } else { 1 };
            let key = format!("in_port({port}),eth(dst=02:ff:ff:ff:ff:ff)");
            rig.add(&flow_at(Priority::MAX, &key, &out.to_string())).unwrap();
        }
        rig
    }

    pub(crate) fn add(&mut self, flow: &Flow) -> Result<RuleId, Refusal> {
        let id = self.put(flow)?;
        self.switch.sync()?;
        Ok(id)
    }

    /// The same, without waiting until the device has it.
    pub(crate) fn put(&mut self, flow: &Flow) -> Result<RuleId, Refusal> {
        self.switch.install(self.templates.instance(flow.clone(), &Vport)?)
    }

    pub(crate) fn replace(&mut self, id: RuleId, flow: &Flow) -> Result<(), Refusal> {
        self.switch.replace(id, self.templates.instance(flow.clone(), &Vport)?)
    }

    /// Lets a frame in at a port, and returns where it comes out, in the order of ports: number of the port, 0 for its representor, and
    /// frame.
    pub(crate) fn inject(&self, port: usize, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let last = marker(MARKER);
        self.ports.send(ends()[port - 1].1, frame);
        self.ports.send(ends()[port - 1].1, &last);
        let mut found = Vec::new();
        eventually("the marker comes out", || {
            found.extend((0..).zip(&self.outs).filter_map(|(number, out)| Some((number, out.at_once()?))));
            let place = found.iter().position(|(_, frame)| *frame == last);
            place.inspect(|place| drop(found.remove(*place))).is_some()
        });
        // What came out before is there by now.
        for (number, out) in (0..).zip(&self.outs) {
            found.extend(std::iter::from_fn(|| out.at_once()).map(|frame| (number, frame)));
        }
        found.sort();
        found
    }
}
