//! What the device counts beside flows: at ports, meters and mirrors, and of lookups.
//!
//! The poll asks the device and publishes the answers; who shows them reads what was published last. So a device that hangs hides
//! nothing but newer numbers, and how often somebody looks is nothing to the device.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::backend::{LookupCounters, MeterCounters, MirrorCounters, PortCounters};
use sluice_flow::meter::MeterId;
use sluice_flow::{Backend, PortNumber};

/// A reading takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the device counted, as of a poll. What it does not count is absent.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounters {
    /// What became of lookups.
    pub lookups: Option<LookupCounters>,
    ports: HashMap<PortNumber, PortCounters>,
    meters: HashMap<MeterId, MeterCounters>,
    mirrors: HashMap<String, MirrorCounters>,
}

impl DeviceCounters {
    /// Asks the device.
    pub fn read(
        backend: &dyn Backend,
        ports: impl IntoIterator<Item = PortNumber>,
        meters: impl IntoIterator<Item = MeterId>,
        mirrors: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            lookups: backend.lookup_counters(),
            ports: ports.into_iter().filter_map(|port| Some((port, backend.port_counters(port)?))).collect(),
            meters: meters
                .into_iter()
                .filter_map(|meter| Some((meter, backend.meters()?.meter_counters(meter)?)))
                .collect(),
            mirrors: mirrors
                .into_iter()
                .filter_map(|mirror| {
                    let counters = backend.mirrors()?.mirror_counters(&mirror)?;
                    Some((mirror, counters))
                })
                .collect(),
        }
    }

    /// At a port.
    pub fn port(&self, port: PortNumber) -> Option<PortCounters> {
        self.ports.get(&port).copied()
    }

    /// Of a meter.
    pub fn meter(&self, meter: MeterId) -> Option<&MeterCounters> {
        self.meters.get(&meter)
    }

    /// Of a mirror; `None` also where the device does not have it.
    pub fn mirror(&self, name: &str) -> Option<MirrorCounters> {
        self.mirrors.get(name).copied()
    }
}

/// Where the counters are published.
#[derive(Default)]
pub struct Published {
    counters: ArcSwap<DeviceCounters>,
    /// Readings follow each other, so that none that is older is published later.
    reading: Mutex<()>,
}

impl Published {
    /// What was read last.
    pub fn counters(&self) -> Arc<DeviceCounters> {
        self.counters.load_full()
    }

    /// Publishes the same without a meter that is gone.
    pub fn forget_meter(&self, meter: MeterId) {
        let _one_at_a_time = self.reading.try_lock_for(PATIENCE);
        let mut counters = DeviceCounters::clone(&self.counters.load());
        counters.meters.remove(&meter);
        self.counters.store(Arc::new(counters));
    }

    /// Reads and publishes. Gives up if a reading hangs meanwhile: its successor will do.
    pub fn renew(&self, read: impl FnOnce() -> DeviceCounters) {
        if let Some(_one_at_a_time) = self.reading.try_lock_for(PATIENCE) {
            self.counters.store(Arc::new(read()));
        }
    }
}
