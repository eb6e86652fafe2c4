//! Which packets come to our tables: those of the vports that are ports. A rule in the kernel's table leads each vport's to them.
//!
//! All others stay with the kernel, above all what its representors send: that comes from the vport of the eswitch's manager, and the
//! kernel's own tables, which are behind ours, know by the queue to which port it goes (`mlx5_eswitch_add_send_to_vport_rule`).

use std::collections::{BTreeMap, BTreeSet};

use crate::mlx5::{Action, CallError, Domain, Matcher, Rule};
use crate::translate::from_vport;

/// The rules that lead to one of our tables.
pub(super) struct Lead {
    rules: BTreeMap<u16, Rule>,
    matcher: Matcher,
    to: Action,
}

impl Lead {
    /// Leads packets of these vports. Where several leads take a vport, that of the lowest `order` acts.
    pub(super) fn open(domain: &Domain, order: u16, to: Action, vports: &BTreeSet<u16>) -> Result<Self, CallError> {
        let (mask, _) = from_vport(0);
        let mut lead = Self { rules: BTreeMap::new(), matcher: domain.table(0)?.matcher(order, &mask)?, to };
        lead.set(vports)?;
        Ok(lead)
    }

    /// Leads packets of these vports, and no others. On failure all is as it was.
    pub(super) fn set(&mut self, vports: &BTreeSet<u16>) -> Result<(), CallError> {
        let rule = |vport: u16| Ok((vport, self.matcher.rule(&from_vport(vport).1, [self.to.clone()].into())?));
        let is_new = |vport: &&u16| !self.rules.contains_key(*vport);
        let new = vports.iter().filter(is_new).map(|vport| rule(*vport)).collect::<Result<Vec<_>, CallError>>()?;
        self.rules.retain(|vport, _| vports.contains(vport));
        self.rules.extend(new);
        Ok(())
    }
}
