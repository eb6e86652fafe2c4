//! The ports of a datapath on their way to the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_flow::port::{PortKind, Tunnel};
use sluice_flow::source::Intake;
use sluice_flow::{Port, PortNumber};
use sluice_netdev::{Monitor, MonitorOptions, Role};

use crate::tunnel_name::tunnel_of_device;
use crate::wire::{VPORT_INTERNAL, Vport};

/// The local port of the datapath itself (`OVSP_LOCAL`), which no flow names: bridges have ports of their own.
const LOCAL: u32 = 0;
/// How long an ovs-vswitchd that begins may take to tell of its ports.
const TELLS_PORTS: Duration = Duration::from_secs(5);

/// The ports that the agent does not take, by name, with the reason.
#[derive(Default)]
pub(super) struct Ports {
    left_out: BTreeMap<String, String>,
    /// Ports of an earlier ovs-vswitchd of which this one has not told, and when it began.
    earlier: Option<(Instant, BTreeSet<PortNumber>)>,
}

impl Ports {
    /// None yet, of an ovs-vswitchd that begins. Those that were there before stay, until it is clear that it has no such ports.
    pub(super) fn begin(intake: &dyn Intake) -> Self {
        let numbers = intake.ports().iter().map(|port| port.number).collect();
        Self { left_out: BTreeMap::new(), earlier: Some((Instant::now(), numbers)) }
    }

    /// Takes away those of an earlier ovs-vswitchd of which this one has not told, once it has had time to.
    pub(super) fn end_earlier(&mut self, intake: &dyn Intake) {
        let Some((_, earlier)) = self.earlier.take_if(|(begun, _)| begun.elapsed() >= TELLS_PORTS) else { return };
        let left = intake.ports().into_iter().map(|port| port.number).filter(|number| earlier.contains(number));
        left.for_each(|number| intake.detach(number));
    }

    /// This ovs-vswitchd has told of a port.
    fn is_told(&mut self, number: u32) {
        if let Some((_, earlier)) = &mut self.earlier {
            earlier.remove(&PortNumber(number));
        }
    }

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
            Ok(()) => {
                self.left_out.remove(&vport.name);
                self.is_told(vport.number);
            }
            Err(reason) => {
                let is_known = self.left_out.get(&vport.name) == Some(&reason);
                if !is_known && vport.kind == VPORT_INTERNAL {
                    // Every bridge has one, which few devices take.
                    tracing::info!(port = vport.name, "an internal port is left to Open vSwitch: {reason}");
                } else if !is_known {
                    tracing::warn!(port = vport.name, "a port is left to Open vSwitch: {reason}");
                }
                self.left_out.insert(vport.name.clone(), reason);
            }
        }
    }

    /// Takes a port away.
    pub(super) fn vanish(&mut self, vport: &Vport, intake: &dyn Intake) {
        self.left_out.remove(&vport.name);
        self.is_told(vport.number);
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

    /// Whether a device is a representor, if the kernel tells.
    fn is_representor(&self, name: &str) -> Option<bool> {
        let known = self.0.as_ref()?.links().named(name);
        Some(known.is_some_and(|known| matches!(known.device.role, Role::Representor(_))))
    }
}

fn port(vport: &Vport, devices: &Devices, underlay: Option<&str>, intake: &dyn Intake) -> Result<Port, String> {
    let name = vport.name.parse().map_err(|error: sluice_flow::NameError| error.to_string())?;
    let number = PortNumber(vport.number);
    let as_known = || intake.ports().into_iter().find(|known| known.number == number && known.name == name);
    let kind = match tunnel_of_device(&vport.name) {
        Some((protocol, udp_port)) => {
            let underlay =
                underlay.ok_or("a tunnel needs `underlay` in [source.ovs], the port that its packets take")?;
            let underlay =
                intake.port(underlay).ok_or_else(|| format!("there is no port \"{underlay}\" to be the underlay"))?;
            PortKind::Tunnel(Tunnel { protocol, udp_port, underlay })
        }
        None if vport.kind == VPORT_INTERNAL => PortKind::Internal,
        None => match devices.is_representor(&vport.name) {
            Some(true) => PortKind::Representor,
            Some(false) => PortKind::Physical,
            None => as_known().map_or(PortKind::Physical, |known| known.kind),
        },
    };
    Ok(Port { number, name, kind })
}
