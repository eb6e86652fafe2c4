//! What agents that no longer run have left in the device.

use sluice_flow::Refusal;
use sluice_flow::backend::{Adopter, Facet};
use sluice_host::lock::LockError;

use super::faces::AgentView;
use crate::upkeep::orphans::Found;

/// Why orphans were not removed.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// The device said no.
    #[error("{0}")]
    Device(#[from] Refusal),
    /// Whether owners live cannot be told.
    #[error("cannot tell whether an agent of the owner runs: {0}")]
    Locks(#[from] LockError),
    /// There is nothing of such an owner.
    #[error("owner {0:08x} has nothing in the device")]
    Unknown(u32),
    /// Its agent has a use for it.
    #[error("an agent of owner {0:08x} is running, and what it has in the device is left to it")]
    Alive(u32),
}

impl AgentView {
    /// What other owners had in the device when it was last looked.
    pub fn others(&self) -> Vec<Found> {
        self.agent().others()
    }

    /// Looks for what other owners have in the device.
    pub fn look_for_others(&self) -> Result<Vec<Found>, OrphanError> {
        let holdings = self.agent().backend.adoption().map_or(Ok(Vec::new()), Adopter::holdings)?;
        let found = holdings.into_iter().map(|holding| Found::of(holding, &self.config()));
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        self.agent().remember_others(&found);
        Ok(found)
    }

    /// Removes what owners that live no more have left: those that are named, or all if none is. Says of each how much it was.
    pub fn remove_orphans(&self, marks: &[u32]) -> Result<Vec<(u32, usize)>, OrphanError> {
        let others = self.look_for_others()?;
        for mark in marks {
            let found = others.iter().find(|found| found.holding.mark == *mark).ok_or(OrphanError::Unknown(*mark))?;
            if found.is_alive {
                return Err(OrphanError::Alive(*mark));
            }
        }
        let is_wanted = |found: &&Found| found.is_orphan() && (marks.is_empty() || marks.contains(&found.holding.mark));
        let mut removed = Vec::new();
        for Found { holding, .. } in others.iter().filter(is_wanted) {
            let adopter = Facet::Adoption.require(self.agent().backend.adoption())?;
            removed.push((holding.mark, adopter.remove_holding(holding.mark)?));
        }
        self.look_for_others()?;
        Ok(removed)
    }
}
