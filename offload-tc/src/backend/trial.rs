//! What can be said of objects and flows without a kernel.

use std::collections::{BTreeMap, BTreeSet};

use sluice_flow::backend::Checker;
use sluice_flow::flow::Flow;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::TimeoutPolicy;

use super::ports::device::check_port;
use crate::config::{Config, OffloadPolicy, TunnelFlags};
use crate::context::{Context, Device, DeviceKind, Features};
use crate::label::Room;
use crate::marks::AgentId;
use crate::meters;
use crate::translate;

/// Checks objects against what no kernel takes, and flows by the translation, for the newest kernel.
pub(super) struct Trial {
    known: Known,
}

impl Trial {
    pub(super) fn new(config: &Config) -> Self {
        let Config { policy, tunnel_flags, .. } = *config;
        Self { known: Known { devices: BTreeMap::new(), meters: BTreeSet::new(), policy, tunnel_flags } }
    }
}

impl Checker for Trial {
    fn port(&mut self, port: &Port) -> Result<(), Refusal> {
        check_port(port)?;
        let kind = match &port.kind {
            PortKind::Internal => DeviceKind::Internal,
            PortKind::Tunnel(tunnel) => DeviceKind::Tunnel { udp_port: tunnel.udp_port },
            PortKind::Physical | PortKind::Representor | PortKind::Mirror => DeviceKind::Wire,
        };
        self.known.devices.insert(port.number, kind);
        Ok(())
    }

    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal> {
        meters::check(meter)?;
        self.known.meters.insert(meter.id);
        Ok(())
    }

    fn timeout_policy(&mut self, _: &TimeoutPolicy) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "the kernel's timeout policies are not set through tc".into() })
    }

    fn mirror(&mut self, _: &Mirror) -> Result<(), Refusal> {
        Ok(())
    }

    fn flow(&mut self, flow: &Flow) -> Result<(), Refusal> {
        translate::rules(flow, AgentId(0), &self.known).map(drop)
    }
}

/// The ports and meters that have passed, on a kernel with all features.
struct Known {
    devices: BTreeMap<PortNumber, DeviceKind>,
    meters: BTreeSet<MeterId>,
    policy: OffloadPolicy,
    tunnel_flags: TunnelFlags,
}

impl Context for Known {
    fn device(&self, port: PortNumber) -> Option<Device> {
        // No device has the index 0.
        let interface = port.0.checked_add(1)?;
        Some(Device { interface, kind: *self.devices.get(&port)? })
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let port = PortNumber(interface.checked_sub(1)?);
        Some((port, self.device(port)?))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        self.meters.contains(&meter).then_some(meter.0)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        let meter = MeterId(police);
        self.meters.contains(&meter).then_some(meter)
    }

    fn features(&self) -> Features {
        Features::NEWEST
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
    }

    fn is_hardware_alone(&self) -> bool {
        self.policy == OffloadPolicy::SkipSoftware
    }

    fn room(&self) -> Room {
        Room::under(self.policy)
    }
}
