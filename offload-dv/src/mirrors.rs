//! Mirrors: copies of packets before any flow sees them.

use sluice_flow::action::{Action, ActionList};
use sluice_flow::backend::{MirrorCounters, MirrorFault, Mirrors, Placement};
use sluice_flow::key::MaskedKey;
use sluice_flow::mirror::Mirror;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, Priority};

use crate::backend::DvNic;
use crate::switch::Copying;
use crate::translate::{Vports, translate};

/// Returns what a mirror is to the switch. What can be matched and sent is what a flow could.
pub(crate) fn copying(mirror: &Mirror, vports: &dyn Vports) -> Result<Copying, Refusal> {
    let actions: ActionList = mirror.copies.iter().map(|port| Action::Output(*port)).collect();
    let key = MaskedKey::new(&mirror.matching);
    let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
    let rule = translate(&flow, vports)?;
    Ok(Copying { matched: rule.matched, copies: rule.plan.outputs })
}

impl Mirrors for DvNic {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        let (name, copying) = (mirror.name.clone(), copying(mirror, self.ports())?);
        self.owner().call(move |desk| desk.rules.switch().set_mirror(&name, copying))?
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        let name = name.to_owned();
        self.owner().call(move |desk| desk.rules.switch().remove_mirror(&name))?
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        let name = name.to_owned();
        let count =
            self.owner().call(move |desk| desk.rules.switch().mirror_count(&name)).and_then(|count| count).ok()??;
        Some(MirrorCounters { packets: count.packets, bytes: count.bytes, placement: Placement::Hardware })
    }

    fn check_mirrors(&self, _: bool) -> Result<Vec<MirrorFault>, Refusal> {
        // What is in the tables of this process nobody else changes.
        Ok(Vec::new())
    }
}
