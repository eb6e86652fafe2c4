//! What can be said of objects and flows without a device.

use std::collections::BTreeMap;

use sluice_flow::Flow;
use sluice_flow::backend::Checker;
use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::TimeoutPolicy;

use crate::config::Config;
use crate::conntrack::no_timeout_policies;
use crate::mirrors;
use crate::ports;
use crate::translate::{UPLINK, Vports, meter_parameters, translate};

/// Checks objects by their kind, and flows by the translation. A physical port stands for the uplink, and each other port for a function.
pub(crate) struct Trial {
    known: Known,
}

impl Trial {
    pub(crate) fn new(config: &Config) -> Self {
        Self { known: Known { ports: BTreeMap::new(), has_connections: config.connections.is_some() } }
    }
}

impl Checker for Trial {
    fn port(&mut self, port: &Port) -> Result<(), Refusal> {
        ports::check(port)?;
        self.known.ports.insert(port.number, port.clone());
        Ok(())
    }

    fn meter(&mut self, meter: &Meter) -> Result<(), Refusal> {
        meter_parameters(meter).map(drop)
    }

    fn timeout_policy(&mut self, _: &TimeoutPolicy) -> Result<(), Refusal> {
        Err(no_timeout_policies())
    }

    fn mirror(&mut self, mirror: &Mirror) -> Result<(), Refusal> {
        mirrors::copying(mirror, &AnyVport).map(drop)
    }

    fn flow(&mut self, flow: &Flow) -> Result<(), Refusal> {
        translate(flow, &self.known).map(drop)
    }
}

/// The ports that have passed.
struct Known {
    ports: BTreeMap<PortNumber, Port>,
    has_connections: bool,
}

impl Vports for Known {
    fn vport(&self, number: PortNumber) -> Result<u16, Refusal> {
        let port = self.ports.get(&number).ok_or_else(|| Refusal::no_port(number))?;
        match port.kind {
            PortKind::Physical => Ok(UPLINK),
            PortKind::Tunnel(_) => Err(Refusal::Port {
                port: port.name.to_string(),
                number: Some(number),
                reason: ports::IS_A_TUNNEL.into(),
            }),
            // Which vport it is makes no difference to what a rule can be; numbers are those of the device's functions.
            _ => Ok(u16::try_from(number.0 % u32::from(UPLINK)).unwrap_or_default()),
        }
    }

    fn has_connections(&self) -> bool {
        self.has_connections
    }

    fn tunnel(&self, number: PortNumber) -> Option<Tunnel> {
        match &self.ports.get(&number)?.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel.clone()),
            _ => None,
        }
    }
}

/// Ports whose vports do not matter.
struct AnyVport;

impl Vports for AnyVport {
    fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
        u16::try_from(port.0).map_err(|_| Refusal::no_port(port))
    }
}
