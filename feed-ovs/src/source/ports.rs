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
    /// The tunnels that the datapath has, by number. Each refers to its underlay, which may come later than they do, or go and come back.
    tunnels: BTreeMap<u32, Vport>,
    /// Ports of an earlier ovs-vswitchd of which this one has not told, and when it began.
    earlier: Option<(Instant, BTreeSet<PortNumber>)>,
    /// The network devices, while one port after the other is told of.
    devices: Devices,
}

impl Ports {
    /// None yet, of an ovs-vswitchd that begins. Those that were there before stay, until it is clear that it has no such ports.
    pub(super) fn begin(intake: &dyn Intake) -> Self {
        let numbers = intake.ports().iter().map(|port| port.number).collect();
        Self { earlier: Some((Instant::now(), numbers)), ..Self::default() }
    }

    /// Takes away those of an earlier ovs-vswitchd of which this one has not told, once it has had time to.
    pub(super) fn end_earlier(&mut self, underlay: Option<&str>, intake: &dyn Intake) {
        let Some((_, earlier)) = self.earlier.take_if(|(begun, _)| begun.elapsed() >= TELLS_PORTS) else { return };
        intake
            .ports()
            .iter()
            .filter(|port| earlier.contains(&port.number))
            .for_each(|port| detach(port, underlay, intake));
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
                detach(&port, underlay, intake);
            }
        }
        self.left_out.retain(|name, _| vports.iter().any(|vport| vport.name == *name));
        let (tunnels, others): (Vec<_>, Vec<_>) = vports.iter().partition(|vport| is_tunnel(vport));
        others.into_iter().for_each(|vport| self.bring(vport, underlay, intake));
        self.tunnels = tunnels.into_iter().map(|vport| (vport.number, vport.clone())).collect();
        self.bring_tunnels(underlay, intake);
    }

    /// Lets go of what is known of network devices, which costs nothing while no port is told of, and to follow them would.
    pub(super) fn rest(&mut self) {
        self.devices = Devices::default();
    }

    /// Brings in a port.
    pub(super) fn appear(&mut self, vport: &Vport, underlay: Option<&str>, intake: &dyn Intake) {
        if is_tunnel(vport) {
            self.tunnels.insert(vport.number, vport.clone());
        }
        self.bring(vport, underlay, intake);
        if underlay == Some(&vport.name) {
            self.bring_tunnels(underlay, intake);
        }
    }

    fn bring_tunnels(&mut self, underlay: Option<&str>, intake: &dyn Intake) {
        self.tunnels.clone().values().for_each(|vport| self.bring(vport, underlay, intake));
    }

    fn bring(&mut self, vport: &Vport, underlay: Option<&str>, intake: &dyn Intake) {
        if vport.number == LOCAL {
            return;
        }
        let attach = |port: Port| {
            let before = intake.ports().into_iter().find(|before| before.name == port.name && *before != port);
            if let Some(before) = before {
                detach(&before, underlay, intake);
            }
            intake.attach(port)
        };
        let is_representor = || self.devices.is_representor(&vport.name);
        match port(vport, is_representor, underlay, intake).and_then(attach) {
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
    pub(super) fn vanish(&mut self, vport: &Vport, underlay: Option<&str>, intake: &dyn Intake) {
        self.left_out.remove(&vport.name);
        self.tunnels.remove(&vport.number);
        self.is_told(vport.number);
        if let Some(port) = intake.ports().iter().find(|port| port.number.0 == vport.number) {
            detach(port, underlay, intake);
        }
        if underlay == Some(&vport.name) {
            // They say what they wait for.
            self.bring_tunnels(underlay, intake);
        }
    }

    /// Returns those that are left out.
    pub(super) fn left_out(&self) -> Vec<(String, String)> {
        self.left_out.clone().into_iter().collect()
    }
}

/// Takes a port of the source away; if it is the underlay, its tunnels before it.
fn detach(port: &Port, underlay: Option<&str>, intake: &dyn Intake) {
    let ports = if underlay == Some(&*port.name) { intake.ports() } else { vec![] };
    let tunnels = ports.iter().filter(|port| matches!(port.kind, PortKind::Tunnel(_)));
    tunnels.chain([port]).for_each(|port| intake.detach(port.number));
}

fn is_tunnel(vport: &Vport) -> bool {
    tunnel_of_device(&vport.name).is_some()
}

/// The network devices of the namespace, as far as the kernel tells of them.
#[derive(Default)]
struct Devices(Option<Monitor>);

impl Devices {
    /// Whether a device is a representor, if the kernel tells.
    fn is_representor(&mut self, name: &str) -> Option<bool> {
        // Read once, and followed from there.
        let known = match &mut self.0 {
            Some(monitor) => monitor.poll(Duration::ZERO).map(|_| ()),
            None => Monitor::open(MonitorOptions::default()).map(|monitor| self.0 = Some(monitor)),
        };
        if let Err(error) = known {
            tracing::debug!("network devices are not known: {error}");
            self.0 = None;
        }
        let known = self.0.as_ref()?.links().named(name);
        Some(known.is_some_and(|known| matches!(known.device.role, Role::Representor(_))))
    }
}

fn port(
    vport: &Vport,
    is_representor: impl FnOnce() -> Option<bool>,
    underlay: Option<&str>,
    intake: &dyn Intake,
) -> Result<Port, String> {
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
        None => match is_representor() {
            Some(true) => PortKind::Representor,
            Some(false) => PortKind::Physical,
            None => as_known().map_or(PortKind::Physical, |known| known.kind),
        },
    };
    Ok(Port { number, name, kind })
}
