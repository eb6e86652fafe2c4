//! The three backends, asked what they take before any device is.

use std::sync::Arc;

use sluice_flow::action::ActionList;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::{PortKind, PortNumber, Tunnel};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_offload_dv::translate::{UPLINK, Vports};
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use sluice_offload_tc::label::Room;
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::rule::Rule;
use sluice_offload_tc::translate;

use crate::lab::ports;
use crate::scenario::Scenario;
use crate::soft::Soft;

/// The only meter.
pub const METER: MeterId = MeterId(1);

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The NIC in software.
    Soft,
    /// The kernel's flower classifier.
    Tc,
    /// An mlx5 NIC.
    Dv,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Soft, Self::Tc, Self::Dv];

    /// Returns the name of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Tc => "tc",
            Self::Dv => "dv",
        }
    }

    /// Returns why it does not take a flow among the ports of the lab, if so.
    pub fn refusal(self, matching: &Match, actions: &ActionList) -> Option<Refusal> {
        match self {
            Self::Soft => {
                let scenario = Scenario::new("one flow").flow(*matching, Arc::clone(actions));
                Soft::set_up(&ports(), &scenario.meter(Meter::simple(METER, MeterUnit::Packets, 1, 1))).err()
            }
            Self::Tc => tc(matching, actions).err(),
            Self::Dv => sluice_offload_dv::translate::translate(&flow(matching, actions), &LabVports).err(),
        }
    }
}

/// Returns the rule of flower on the newest kernel.
pub fn tc(matching: &Match, actions: &ActionList) -> Result<Rule, Refusal> {
    let rules = translate::rules(&flow(matching, actions), AgentId(1), &NewKernel)?;
    Ok(Rule { priority: Priority::default(), ..rules.rule })
}

/// Returns a flow.
pub fn flow(matching: &Match, actions: &ActionList) -> Flow {
    let key = MaskedKey::new(matching);
    Flow::new(None, key, Arc::clone(actions), Priority::default(), Expiry::default(), &Seed([7; 16]))
}

/// A kernel that knows all keys, with the ports of the lab.
struct NewKernel;

impl Context for NewKernel {
    fn device(&self, number: PortNumber) -> Option<Device> {
        let kind = match ports().into_iter().find(|port| port.number == number)?.kind {
            PortKind::Tunnel(tunnel) => DeviceKind::Tunnel { udp_port: tunnel.udp_port },
            _ => DeviceKind::Wire,
        };
        Some(Device { interface: number.0, kind })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let number = PortNumber(interface);
        Some((number, self.device(number)?))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        (meter == METER).then_some(METER.0)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        (police == METER.0).then_some(METER)
    }

    fn features(&self) -> Features {
        Features::NEWEST
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        TunnelFlags::Exact
    }

    fn room(&self) -> Room {
        Room::Found
    }
}

/// The first port is the uplink, as are tunnels; the others are functions.
pub struct LabVports;

impl Vports for LabVports {
    fn vport(&self, number: PortNumber) -> Result<u16, Refusal> {
        let port = ports().into_iter().find(|port| port.number == number).ok_or_else(|| Refusal::no_port(number))?;
        match port.kind {
            PortKind::Tunnel(_) => Ok(UPLINK),
            _ if number == PortNumber(1) || is_underlay(number) => Ok(UPLINK),
            _ => u16::try_from(number.0).map_err(|_| Refusal::no_port(number)),
        }
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn tunnel(&self, number: PortNumber) -> Option<Tunnel> {
        match ports().into_iter().find(|port| port.number == number)?.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }
}

fn is_underlay(number: PortNumber) -> bool {
    ports().into_iter().any(|port| matches!(port.kind, PortKind::Tunnel(tunnel) if tunnel.underlay == number))
}
