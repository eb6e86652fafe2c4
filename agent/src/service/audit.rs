//! What the table says is in the device against what the device says.

use sluice_flow::Refusal;
use sluice_flow::backend::{MeterFault, MirrorFault};

use super::faces::AgentView;
use crate::upkeep::audit::{Audit, Mending, check_objects};

/// What an audit found, and what it has mended.
#[derive(Debug, Default)]
pub struct Audited {
    /// What differs, or still differs.
    pub found: Audit,
    /// What was done about rules.
    pub rules: Vec<Mending>,
    /// What was done about meters.
    pub meters: Vec<MeterFault>,
    /// What was done about mirrors.
    pub mirrors: Vec<MirrorFault>,
}

/// Why an audit was not finished.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The device does not list what it has.
    #[error("listing the rules of {datapath}: {refusal}")]
    Listing {
        /// The datapath.
        datapath: String,
        /// The device's reason.
        refusal: Refusal,
    },
    /// The device does not let differences be mended.
    #[error("mending the rules of {datapath}: {refusal}")]
    Mending {
        /// The datapath.
        datapath: String,
        /// The device's reason.
        refusal: Refusal,
    },
}

impl AgentView {
    /// Compares the table with the device, and with `mends` makes the device what the table says.
    pub fn audit(&self, mends: bool) -> Result<Audited, AuditError> {
        let (agent, datapath) = (self.agent(), self.datapath());
        let listing = |refusal| AuditError::Listing { datapath: datapath.clone(), refusal };
        let mending = |refusal| AuditError::Mending { datapath: datapath.clone(), refusal };
        let found = Audit::of(agent).map_err(listing)?;
        agent.note_audit(&found);
        if !mends || found.is_clean() {
            return Ok(Audited { found, ..Audited::default() });
        }
        let (meters, mirrors) = check_objects(&*agent.backend, true).map_err(mending)?;
        let rules = found.mend(agent).map_err(mending)?;
        let found = Audit::of(agent).map_err(listing)?;
        agent.note_audit(&found);
        Ok(Audited { found, rules, meters, mirrors })
    }
}

impl Audited {
    /// Whether table and device agree, and nothing resisted on the way there.
    pub fn is_clean(&self) -> bool {
        self.found.is_clean()
            && self.rules.iter().all(|mending| mending.result.is_ok())
            && self.meters.iter().all(MeterFault::is_mended)
            && self.mirrors.iter().all(MirrorFault::is_mended)
    }
}
