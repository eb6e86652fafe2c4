//! Samplers: of all packets that come to one, each goes on in a table, and some also in another.

use super::Steering;
use super::failure::{Failure, Refusal};
use super::table::{TableKind, Target};

/// Samplers that there are, as a power of two: ours, since it is not known what a ConnectX says.
pub(crate) const LOG_ALL: u64 = 16;

/// A sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// One of so many packets is taken. The device takes them at random, on average so many; here it is each so many-th.
    ratio: u32,
    seen: u32,
    /// Where those that are taken go.
    sample: u32,
    /// Where all go.
    default: u32,
}

/// What a sampler is made of, as a command says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) table_type: u8,
    pub(crate) level: u8,
    pub(crate) ignores_level: bool,
    pub(crate) ratio: u32,
    pub(crate) sample_table: u32,
    pub(crate) default_table: u32,
}

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

    /// Where a packet that comes to a sampler goes; None if there is no such sampler.
    pub(super) fn sample(&mut self, id: u32) -> Option<Vec<Target>> {
        let sampler = self.samplers.seen_by_mut(0, id).ok()?;
        sampler.seen = (sampler.seen + 1) % sampler.ratio;
        let taken = sampler.seen == 0;
        let (default, sample) = (Target::Table(sampler.default), Target::Table(sampler.sample));
        Some(if taken { vec![sample, default] } else { vec![default] })
    }
}
