//! A switch with four ports, and flows as text.

use std::time::Duration;

use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, MaskedKey, Priority};
use sluice_offload_dv::mlx5::Library;
use sluice_offload_dv::switch::{RuleId, Switch};
use sluice_offload_dv::translate::{UPLINK, Vports, translate};

use crate::device::{Out, Ports};

/// Ports 1 to 4: the wire, the host's physical function and two of its virtual functions.
pub(crate) const PORTS: [(u16, &str); 4] = [(UPLINK, "wire"), (0, "vport-0"), (1, "vport-1"), (2, "vport-2")];

pub(crate) struct Vport;

impl Vports for Vport {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        let index = usize::try_from(port.0).unwrap_or_default().checked_sub(1);
        let found = index.and_then(|index| PORTS.get(index));
        found.map(|(vport, _)| *vport).ok_or_else(|| Refusal::no_port(port))
    }
}

pub(crate) fn flow(key: &str, actions: &str) -> Flow {
    let matching = parse_key(key, &()).unwrap().matching;
    let actions = parse_actions(actions, &()).unwrap();
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &Seed([3; 16]))
}

/// A device with our rules, and all ends of its wires.
pub(crate) struct Rig<'a> {
    pub(crate) switch: Switch,
    ports: &'a Ports,
    outs: Vec<Out>,
}

impl<'a> Rig<'a> {
    pub(crate) fn open(ports: &'a Ports) -> Self {
        let switch = Switch::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        Self { switch, ports, outs: PORTS.iter().map(|(_, name)| ports.out(name)).collect() }
    }

    pub(crate) fn add(&mut self, flow: &Flow) -> Result<RuleId, Refusal> {
        let rule = translate(flow, &Vport)?;
        let id = self.switch.install(&rule, flow.priority)?;
        self.switch.sync()?;
        Ok(id)
    }

    pub(crate) fn replace(&mut self, id: RuleId, flow: &Flow) -> Result<(), Refusal> {
        self.switch.replace(id, &translate(flow, &Vport)?, flow.priority)
    }

    /// Lets a frame in at a port, and returns where it comes out: number of the port and frame. `expected` is how many do.
    pub(crate) fn inject(&self, port: usize, frame: &[u8], expected: usize) -> Vec<(u32, Vec<u8>)> {
        const SOON: Duration = Duration::from_secs(5);
        const TOO_MANY: Duration = Duration::from_millis(10);
        self.ports.send(PORTS[port - 1].1, frame);
        let mut found = Vec::new();
        let mut wait = SOON;
        loop {
            if found.len() >= expected {
                wait = TOO_MANY;
            }
            let Some(next) = self.next(wait) else { break };
            found.push(next);
        }
        found.sort();
        found
    }

    fn next(&self, wait: Duration) -> Option<(u32, Vec<u8>)> {
        let until = std::time::Instant::now() + wait;
        loop {
            for (number, out) in (1..).zip(&self.outs) {
                if let Some(frame) = out.at_once() {
                    return Some((number, frame));
                }
            }
            if std::time::Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
