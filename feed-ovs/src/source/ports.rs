//! The ports of a datapath on their way to the agent.

use std::collections::BTreeMap;

use sluice_flow::port::{PortKind, Tunnel};
use sluice_flow::source::Intake;
use sluice_flow::{Port, PortNumber};
use sluice_netdev::{Monitor, MonitorOptions, Role};

use crate::tunnel_name::tunnel_of_device;
use crate::wire::{VPORT_INTERNAL, Vport};

/// The local port of the datapath itself (`OVSP_LOCAL`), which no flow names: bridges have ports of their own.
const LOCAL: u32 = 0;

/// The ports that the agent does not take, by name, with the reason.
#[derive(Default)]
pub(super) struct Ports {
    left_out: BTreeMap<String, String>,
}

impl Ports {
    /// Brings in the ports that there are, and takes away all others of this source.
    pub(super) fn compare(&mut self, vports: &[Vport], underlay: Option<&str>, intake: &dyn Intake) {
        for port in intake.ports() {
            if !vports.iter().any(|vport| vport.number == port.number.0 && vport.name == *port.name) {
                intake.detach(port.number);
            }
        }
        self.left_out.retain(|name, _| vports.iter().any(|vport| vport.name == *name));
        let (tunnels, others): (Vec<_>, Vec<_>) =
            vports.iter().partition(|vport| tunnel_of_device(&vport.name).is_some());
        let devices = Devices::read();
        // A tunnel refers to its underlay.
        others.into_iter().chain(tunnels).for_each(|vport| self.bring(vport, &devices, underlay, intake));
    }

    /// Brings in a port.
    pub(super) fn appear(&mut self, vport: &Vport, underlay: Option<&str>, intake: &dyn Intake) {
        self.bring(vport, &Devices::read(), underlay, intake);
    }

    fn bring(&mut self, vport: &Vport, devices: &Devices, underlay: Option<&str>, intake: &dyn Intake) {
        if vport.number == LOCAL {
            return;
        }
        match port(vport, devices, underlay, intake).and_then(|port| intake.attach(port)) {
            Ok(()) => _ = self.left_out.remove(&vport.name),
            Err(reason) => {
                if self.left_out.get(&vport.name) != Some(&reason) {
                    tracing::warn!(port = vport.name, "a port is left to Open vSwitch: {reason}");
                }
                self.left_out.insert(vport.name.clone(), reason);
            }
        }
    }

    /// Takes a port away.
    pub(super) fn vanish(&mut self, vport: &Vport, intake: &dyn Intake) {
        self.left_out.remove(&vport.name);
        if intake.ports().iter().any(|port| port.number.0 == vport.number) {
            intake.detach(PortNumber(vport.number));
        }
    }

    /// Returns those that are left out.
    pub(super) fn left_out(&self) -> Vec<(String, String)> {
        self.left_out.clone().into_iter().collect()
    }
}

/// The network devices of the namespace, as far as the kernel tells of them.
struct Devices(Option<Monitor>);

impl Devices {
    fn read() -> Self {
        let monitor = Monitor::open(MonitorOptions::default());
        Self(monitor.inspect_err(|error| tracing::debug!("network devices are not known: {error}")).ok())
    }

    fn is_representor(&self, name: &str) -> bool {
        let known = self.0.as_ref().and_then(|monitor| monitor.links().named(name));
        known.is_some_and(|known| matches!(known.device.role, Role::Representor(_)))
    }
}

fn port(vport: &Vport, devices: &Devices, underlay: Option<&str>, intake: &dyn Intake) -> Result<Port, String> {
    let name = vport.name.parse().map_err(|error: sluice_flow::NameError| error.to_string())?;
    let kind = match tunnel_of_device(&vport.name) {
        Some((protocol, udp_port)) => {
            let underlay =
                underlay.ok_or("a tunnel needs `underlay` in [source.ovs], the port that its packets take")?;
            let underlay =
                intake.port(underlay).ok_or_else(|| format!("there is no port \"{underlay}\" to be the underlay"))?;
            PortKind::Tunnel(Tunnel { protocol, udp_port, underlay })
        }
        None if vport.kind == VPORT_INTERNAL => PortKind::Internal,
        None if devices.is_representor(&vport.name) => PortKind::Representor,
        None => PortKind::Physical,
    };
    Ok(Port { number: PortNumber(vport.number), name, kind })
}
