//! The mirror of control traffic: copies of ARP, LLDP, BGP and the like for a collector.
//!
//! ```text
//! [mirror] + ports --wanted--> Stage --set_mirror--> device --copies--+--> Handout --> mirror.sock --> sluice-mirror send
//!                                |                                    +--> a silent network device for each port (tc)
//!                                +--> taps: where copies come out     +--> a port of the device (dv)
//! ```
//!
//! - `wanted` says which mirrors there are to be: one for each port and class, none of which changes what becomes of a packet.
//! - The stage has them made, keeps the reason of each that the device refuses, and makes the plan for the sender.
//! - [`Handout`] takes copies from the NIC in software and hands them to the clients of the mirror socket. It never waits for one.
//! - [`server`] accepts clients and writes to them.

mod client;
mod copied;
mod counts;
mod handout;
pub mod server;
mod stage;
mod taps;
mod wanted;

pub use self::copied::CopiedByDevice;
pub use self::counts::{Counts, Loss};
pub use self::handout::Handout;
pub use self::stage::Shown;

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_flow::Backend;
use sluice_flow::backend::{Facet, Outlet};
use sluice_flow::port::PortMap;

use self::stage::Stage;
use crate::config::{self, Config};

/// The mirror of control traffic of one agent.
pub struct Mirroring {
    backend: Arc<dyn Backend>,
    handout: Arc<Handout>,
    copied: CopiedByDevice,
    /// Held while the device makes a change.
    stage: Mutex<Stage>,
}

impl Mirroring {
    /// Nothing is mirrored before the first [`renew`](Self::renew). `mark` tells the taps of this agent from those of another one.
    pub fn new(backend: Arc<dyn Backend>, mark: u32) -> Self {
        let handout = Arc::new(Handout::default());
        if let Some(Outlet::Sink(device)) = backend.mirrors().map(|mirrors| mirrors.outlet()) {
            device.hand_to(handout.clone());
        }
        Self { backend, handout, copied: CopiedByDevice::default(), stage: Mutex::new(Stage::new(mark)) }
    }

    /// How much the device has copied, as of the last poll.
    pub const fn copied(&self) -> &CopiedByDevice {
        &self.copied
    }

    /// Where copies of the NIC in software go, and what became of them.
    pub fn handout(&self) -> &Arc<Handout> {
        &self.handout
    }

    /// Has the device mirror what the configuration wants of the ports that there are, and tells the clients. A mirror that the device
    /// refuses is tried again by the next call. May wait for the device. `now` reads both: of several calls at a time the last one to be done
    /// has read them last.
    pub fn renew(&self, now: impl FnOnce() -> (Arc<Config>, Arc<PortMap>)) {
        let mut stage = self.stage.lock();
        let (config, ports) = now();
        self.make(&mut stage, config.mirroring.as_ref(), &ports);
    }

    /// Takes all of it out of the device again, as far as the device lets it.
    pub fn end(&self) {
        self.make(&mut self.stage.lock(), None, &PortMap::default());
    }

    fn make(&self, stage: &mut Stage, wanted: Option<&config::Mirroring>, ports: &PortMap) {
        let plan = match Facet::Mirrors.require(self.backend.mirrors()) {
            Ok(mirrors) => stage.renew(&*self.backend, mirrors, wanted, ports),
            Err(refusal) => stage.refuse_all(&refusal, wanted, ports),
        };
        self.handout.publish(plan, wanted);
    }

    /// What is mirrored, and why not what is wanted and is not, in the order of ports and classes.
    pub fn shown(&self) -> Arc<Vec<Shown>> {
        self.handout.shown()
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::OpenConfig;
    use sluice_flow::time::MonotonicClock;
    use sluice_offload_soft::SoftNic;

    use super::*;

    #[test]
    fn ports_are_read_by_one_renewal_at_a_time() {
        let backend = Arc::new(SoftNic::new(&OpenConfig::new("test", Arc::new(MonotonicClock::new()))));
        let mirroring = Mirroring::new(backend, 7);
        mirroring.renew(|| {
            assert!(mirroring.stage.is_locked(), "another one could put older ports into force after these");
            Default::default()
        });
    }
}
