//! Samplers.

use crate::steering::domain::TableKind;
use crate::steering::failure::{Failure, Refusal};
use crate::steering::sampler::{Sampler, Sampling};
use crate::steering::state::Steering;

impl Steering {
    /// Makes a sampler between two tables of its kind, which stay until it is gone.
    pub(crate) fn create_sampler(&mut self, uid: u16, given: &Sampling) -> Result<u32, Failure> {
        let kind = TableKind::from_prm(given.table_type).ok_or(Refusal::Kind(given.table_type))?;
        if !matches!(kind, TableKind::Fdb | TableKind::NicReceive) {
            return Err(Refusal::Kind(given.table_type).into());
        }
        if given.ratio == 0 {
            return Err(Refusal::NotModelled { what: "sample_ratio", value: 0 }.into());
        }
        for id in [given.sample_table, given.default_table] {
            let table = self.tables.seen_by(uid, id)?;
            if table.domain.kind != kind {
                return Err(Refusal::CrossKind { table: id, is: table.domain.kind, from: kind }.into());
            }
            if table.level <= given.level && !given.ignores_level {
                return Err(Refusal::Level { table: id, from: given.level, to: table.level }.into());
            }
        }
        let (sample, default) = (given.sample_table, given.default_table);
        let id = self.samplers.add(uid, Sampler { ratio: given.ratio, seen: 0, sample, default })?;
        self.tables.hold(sample);
        self.tables.hold(default);
        Ok(id)
    }

    /// Whether there is one that a user context sees.
    pub(crate) fn check_sampler(&self, uid: u16, id: u32) -> Result<(), Failure> {
        Ok(self.samplers.seen_by(uid, id).map(|_| ())?)
    }

    /// The kind of the tables of a sampler that a user context sees.
    pub(super) fn sampler_kind(&self, uid: u16, id: u32) -> Result<Option<TableKind>, Refusal> {
        let sampler = self.samplers.seen_by(uid, id)?;
        Ok(self.tables.get(sampler.default).map(|table| table.domain.kind))
    }

    /// Takes a sampler away, and lets go of its tables.
    pub(crate) fn destroy_sampler(&mut self, uid: u16, id: u32) -> Result<(), Failure> {
        let sampler = self.samplers.remove(uid, id)?;
        self.tables.release(sampler.sample);
        self.tables.release(sampler.default);
        Ok(())
    }
}
