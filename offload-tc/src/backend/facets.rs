//! The facets of the classifier: what not every device has.

use sluice_flow::backend::{
    Adopter, Adoption, Auditor, Claims, Handle, Holding, InstalledRule, MeterCounters, MeterFault, Meters,
    MirrorCounters, MirrorFault, Mirrors, Outlet, ToInspect,
};
use sluice_flow::cause::Cause;
use sluice_flow::id::FlowId;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::mirror::Mirror;
use sluice_flow::refusal::Refusal;

use super::classifier::Classifier;

impl Meters for Classifier {
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal> {
        self.core.meters.set(meter)?;
        self.core.events.changed(Cause::Meter);
        Ok(())
    }

    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal> {
        self.core.meters.remove(meter)
    }

    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters> {
        self.core.meters.counters(meter, self.core.ports.link_header()).ok().flatten()
    }

    fn check_meters(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        self.core.meters.check(mends)
    }
}

impl Mirrors for Classifier {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        self.core.mirrors.set(mirror, &self.core.ports.load())
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        self.core.mirrors.remove(name)
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        self.core.mirrors.counters(name)
    }

    fn check_mirrors(&self, mends: bool) -> Result<Vec<MirrorFault>, Refusal> {
        self.core.mirrors.check(None, &self.core.ports.load(), mends)
    }

    fn outlet(&self) -> Outlet<'_> {
        Outlet::NetworkDevices
    }
}

impl Adopter for Classifier {
    fn adopt(&self, claims: &mut dyn Claims) -> Result<Adoption, Refusal> {
        let adoption = self.core.adopt(claims)?;
        self.core.mirrors.settle();
        // After the rules that sent to them.
        self.core.release_what_was_left()?;
        Ok(adoption)
    }

    fn holdings(&self) -> Result<Vec<Holding>, Refusal> {
        self.core.holdings()
    }

    fn remove_holding(&self, mark: u32) -> Result<usize, Refusal> {
        self.core.remove_holding(mark)
    }
}

impl Auditor for Classifier {
    fn to_inspect(&self) -> ToInspect {
        let (rules, is_round_over) = self.core.doubts.take(&self.core.ledger);
        if is_round_over {
            self.core.doubts.about_meters();
        }
        rules
    }

    fn read_back(&self, rules: &[Handle], visit: &mut dyn FnMut(FlowId, InstalledRule)) -> Result<(), Refusal> {
        self.core.read_back(rules, visit)
    }

    fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        self.core.foreign(visit)
    }

    fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        self.core.remove_stray(handle)
    }
}
