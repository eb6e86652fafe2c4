//! What the device has that not every device has.

use std::sync::Arc;

use sluice_flow::backend::{
    Capacity, Connections, CopySink, HandsOut, Injector, MeterCounters, MeterFault, Meters, MirrorCounters,
    MirrorFault, Mirrors, Outlet, Room, Verdict,
};
use sluice_flow::cause::Cause;
use sluice_flow::connection::{Connection, Selection, ZoneLimits};
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::TimeoutPolicy;
use sluice_flow::trace::Tracer;

use crate::backend::SoftNic;
use crate::trace::Shadow;

impl Meters for SoftNic {
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal> {
        if self.0.meters.set(meter, self.0.clock.now())? {
            self.0.changed(Cause::Meter);
        }
        Ok(())
    }

    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal> {
        self.0.meters.remove(meter)
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        self.0.meters.counters(meter)
    }

    fn check_meters(&self, _: bool) -> Result<Vec<MeterFault>, Refusal> {
        // Nobody else can change them.
        Ok(Vec::new())
    }
}

impl Mirrors for SoftNic {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        self.0.mirrors.set(mirror, &self.0.ports.table(), &self.0.meters, &self.0.policies)
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        self.0.mirrors.remove(name)
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        self.0.mirrors.counters(name)
    }

    fn check_mirrors(&self, _: bool) -> Result<Vec<MirrorFault>, Refusal> {
        Ok(Vec::new())
    }

    fn outlet(&self) -> Outlet<'_> {
        Outlet::Sink(self)
    }
}

impl HandsOut for SoftNic {
    fn hand_to(&self, sink: Arc<dyn CopySink>) {
        self.0.mirrors.hand_to(sink);
    }
}

impl Connections for SoftNic {
    fn set_timeout_policy(&self, policy: &TimeoutPolicy) -> Result<(), Refusal> {
        if self.0.policies.set(policy)? {
            self.0.changed(Cause::TimeoutPolicy);
        }
        Ok(())
    }

    fn remove_timeout_policy(&self, name: &str) -> Result<(), Refusal> {
        self.0.policies.remove(name)
    }

    fn visit_connections(&self, zone: Option<u16>, visit: &mut dyn FnMut(Connection)) -> Result<(), Refusal> {
        self.0.conntrack.list(zone, self.0.clock.now(), visit);
        Ok(())
    }

    fn add_connection(&self, _: &Connection) -> Result<(), Refusal> {
        Err(Refusal::Device { reason: "it tracks connections itself".into() })
    }

    fn flush_connections(&self, of: &Selection) -> Result<usize, Refusal> {
        Ok(self.0.conntrack.flush(of, self.0.clock.now()))
    }

    fn connection_buckets(&self) -> Result<Vec<usize>, Refusal> {
        Ok(self.0.conntrack.buckets())
    }

    fn connection_count(&self) -> Result<usize, Refusal> {
        Ok(self.0.conntrack.buckets().iter().sum())
    }

    fn connection_limit(&self) -> Result<u32, Refusal> {
        Ok(self.0.conntrack.limit())
    }

    fn set_connection_limit(&self, limit: u32) -> Result<(), Refusal> {
        self.0.conntrack.set_limit(limit);
        Ok(())
    }

    fn set_zone_limit(&self, zone: Option<u16>, limit: u32) -> Result<(), Refusal> {
        self.0.conntrack.zones().set_limit(zone, limit);
        Ok(())
    }

    fn remove_zone_limit(&self, zone: Option<u16>) -> Result<(), Refusal> {
        self.0.conntrack.zones().remove_limit(zone);
        Ok(())
    }

    fn zone_limits(&self, zones: &[u16]) -> Result<ZoneLimits, Refusal> {
        Ok(self.0.conntrack.zones().limits(zones))
    }
}

impl Capacity for SoftNic {
    fn room(&self) -> Room {
        self.0.hardware.room()
    }

    fn limit(&self) -> Option<usize> {
        self.0.hardware.limit()
    }
}

impl Injector for SoftNic {
    fn check(&self, port: PortNumber, frame: &[u8]) -> Result<(), Refusal> {
        self.0.check_frame(port, frame)
    }

    fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal> {
        self.0.inject(port, frame)
    }

    fn tracer(&self) -> Box<dyn Tracer + '_> {
        Box::new(Shadow::new(&self.0))
    }
}
