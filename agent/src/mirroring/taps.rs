//! Where copies come out of the device: ports that the agent attaches for itself, beside those of the configuration.

use std::collections::BTreeMap;

use sluice_control::mirror::Class;
use sluice_flow::backend::Outlet;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::{Backend, Refusal};

use super::handout::Handout;

/// What a tap is for: with a sink, for a class; with network devices, for the port whose packets are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Class(Class),
    Port(PortNumber),
}

/// The taps that are attached.
pub(super) struct Taps {
    mark: u32,
    attached: BTreeMap<Purpose, Port>,
}

/// Where the copies of a mirror go.
pub(super) struct Destination {
    pub(super) port: PortNumber,
    /// The network device that sends them.
    pub(super) netdev: Option<String>,
}

impl Taps {
    /// There are none yet. `mark` is part of the names of network devices, so that two agents of a host have different ones.
    pub(super) fn new(mark: u32) -> Self {
        Self { mark, attached: BTreeMap::new() }
    }

    /// Returns where copies of a class go that come from a port, and makes it if need be. `to` is the port that the configuration names.
    pub(super) fn destination(
        &mut self,
        backend: &dyn Backend,
        outlet: &Outlet<'_>,
        (class, port): (Class, PortNumber),
        to: Option<PortNumber>,
    ) -> Result<Destination, Refusal> {
        let purpose = match outlet {
            Outlet::Sink(_) => Purpose::Class(class),
            Outlet::NetworkDevices => Purpose::Port(port),
            Outlet::Ports => {
                let missing = || Refusal::Device { reason: "[mirror] names no port that copies go to".into() };
                return Ok(Destination { port: to.ok_or_else(missing)?, netdev: None });
            }
        };
        let tap = self.ensure(backend, purpose)?;
        let netdev = matches!(purpose, Purpose::Port(_)).then(|| tap.name.to_string());
        Ok(Destination { port: tap.number, netdev })
    }

    /// Detaches the taps that none of these mirrors needs.
    pub(super) fn retain(&mut self, backend: &dyn Backend, mirrors: &[(Class, PortNumber)]) {
        let is_needed = |purpose: &Purpose| {
            mirrors.iter().any(|(class, port)| [Purpose::Class(*class), Purpose::Port(*port)].contains(purpose))
        };
        let gone: Vec<_> = self.attached.keys().filter(|purpose| !is_needed(purpose)).copied().collect();
        for purpose in gone {
            if let Some(tap) = self.attached.remove(&purpose)
                && let Err(refusal) = backend.detach_port(tap.number)
            {
                tracing::warn!("tap {} of a mirror is left: {refusal}", tap.name);
            }
        }
    }

    fn ensure(&mut self, backend: &dyn Backend, purpose: Purpose) -> Result<&Port, Refusal> {
        if let Some(tap) = self.attached.get(&purpose)
            && backend.is_absent(tap.number)
        {
            // Somebody has removed its network device.
            let _ = backend.detach_port(tap.number);
            self.attached.remove(&purpose);
        }
        if !self.attached.contains_key(&purpose) {
            let tap = self.tap(purpose)?;
            backend.attach_port(&tap)?;
            self.attached.insert(purpose, tap);
        }
        self.attached.get(&purpose).ok_or_else(|| Refusal::Device { reason: "a tap is gone".into() })
    }

    fn tap(&self, purpose: Purpose) -> Result<Port, Refusal> {
        let (number, name) = match purpose {
            Purpose::Class(class) => (Handout::tap(class), format!("~{class}")),
            Purpose::Port(port) => (self.free(), format!("slm{:04x}-{:x}", self.mark & 0xffff, port.0)),
        };
        // A name of a network device has 15 bytes, which leaves seven digits for the port.
        let name = name.parse().ok().filter(|_| name.len() <= 15);
        let name = name.ok_or_else(|| Refusal::Device {
            reason: format!("a port with a number beyond {:#x} cannot be mirrored", 0x0fff_ffff).into(),
        })?;
        Ok(Port { number, name, kind: PortKind::Mirror })
    }

    /// Returns a number that no tap has.
    fn free(&self) -> PortNumber {
        let is_free = |number: &PortNumber| self.attached.values().all(|tap| tap.number != *number);
        let mut numbers = (PortNumber::FIRST_TAP.0..u32::MAX).map(PortNumber);
        numbers.find(is_free).unwrap_or(PortNumber::FIRST_TAP)
    }
}
