//! Samplers: of all packets that come to one, each goes on in a table, and some also in another.

use super::domain::Target;

/// Samplers that there are, as a power of two: ours, since it is not known what a ConnectX says.
pub(crate) const LOG_ALL: u64 = 16;

/// A sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// One of `ratio` packets is taken. The device takes them at random, that many on average; here it is each N-th.
    pub(super) ratio: u32,
    pub(super) seen: u32,
    /// Where those that are taken go.
    pub(super) sample: u32,
    /// Where all go.
    pub(super) default: u32,
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

impl Sampler {
    /// Where a packet goes that comes to it.
    pub(super) fn pass(&mut self) -> Vec<Target> {
        self.seen = (self.seen + 1) % self.ratio;
        let taken = self.seen == 0;
        let (default, sample) = (Target::Table(self.default), Target::Table(self.sample));
        if taken { vec![sample, default] } else { vec![default] }
    }
}
