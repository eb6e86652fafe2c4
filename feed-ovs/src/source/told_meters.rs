//! The meters that an ovs-vswitchd sets in the kernel's datapath, as the library that is loaded into it tells of them.

use std::collections::BTreeMap;

use sluice_feedback::{MeterCount, Setting, SettingKind};
use sluice_flow::meter::{Meter, MeterId};

use super::feedback::{Feedback, Teller};
use super::follower::Follower;

/// What was told of the meters of a datapath so far.
#[derive(Default)]
pub(super) struct ToldMeters {
    /// Who told when it was last looked; `None` if that is not known yet.
    teller: Option<Teller>,
    /// Those that are known, whether the agent has taken them on or not.
    settings: BTreeMap<MeterId, Setting>,
}

impl ToldMeters {
    /// Takes what has changed on to the agent. Costs next to nothing if nothing has.
    ///
    /// ovs-vswitchd has the kernel's answer about a meter before it makes flows that name it, and the library has told of it by then.
    pub(super) fn follow(&mut self, follower: &mut Follower<'_>) {
        let feedback = follower.feedback.as_deref();
        let teller = feedback.map_or(Some(Teller::Nobody), |feedback| feedback.meter_teller(self.teller));
        if teller == self.teller {
            return;
        }
        let told = match teller {
            Some(Teller::Library(_)) => feedback.and_then(Feedback::meters),
            Some(Teller::Nobody) | None => Some(vec![]),
        };
        let Some(told) = told else { return };
        self.teller = teller;
        let is_of_datapath = |(_, setting): &(u32, Setting)| setting.datapath == follower.datapath;
        let told = told.into_iter().filter(is_of_datapath).map(|(meter, setting)| (MeterId(meter), setting)).collect();
        self.take(told, follower);
    }

    fn take(&mut self, told: BTreeMap<MeterId, Setting>, follower: &mut Follower<'_>) {
        let before = std::mem::replace(&mut self.settings, told);
        let is_another = |id: &MeterId| match (before.get(id), self.settings.get(id)) {
            (_, None) => true,
            (Some(before), Some(now)) => before.life != now.life,
            // The agent has it from an earlier run, and this is the first that is heard of it.
            (None, Some(_)) => false,
        };
        let gone: Vec<_> = follower.meters.taken().filter(is_another).collect();
        for id in gone {
            follower.meters.end(id, follower.feedback.as_deref_mut(), follower.intake);
        }
        for (id, setting) in self.settings.iter().filter(|(id, setting)| before.get(id) != Some(setting)) {
            let SettingKind::Band { unit, rate, burst } = setting.kind else {
                tracing::warn!("flows with meter {id} are left to Open vSwitch: it is not one band that drops");
                follower.meters.end(*id, follower.feedback.as_deref_mut(), follower.intake);
                continue;
            };
            // Flows that name it have been left out.
            follower.must_compare |= !follower.meters.has(*id);
            follower.meters.set(Meter::simple(*id, unit, rate.into(), burst.into()), follower.intake);
        }
        if let (true, Some(feedback)) = (before.is_empty(), &mut follower.feedback) {
            // Of meters that were gone when the agent came.
            let is_known = |meter| self.settings.contains_key(&MeterId(meter));
            feedback.retain(|name| MeterCount::meter_of(name).is_none_or(is_known));
        }
    }
}
