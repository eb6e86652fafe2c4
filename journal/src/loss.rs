//! What is missing in a log that is damaged, and which flows that concerns.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sluice_flow::Ufid;

use super::frame::{Damage, EVERYTHING};

/// A place in the files of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) at: usize,
}

/// What was found damaged so far.
#[derive(Default)]
pub(super) struct Losses {
    damages: Vec<FileDamage>,
    gaps: Vec<Gap>,
    /// Flows whose last record is missing.
    lost: HashSet<Ufid>,
    /// Flows that have ended behind a gap of which something is unknown.
    ended: HashSet<Ufid>,
    /// Records that may be missing at the end of what was read, beside those of a gap there.
    open_end: u64,
}

/// Records that are missing at a place, and of which no index has told yet.
struct Gap {
    place: Place,
    unknown: Vec<Range<u64>>,
}

/// Damage in one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDamage {
    pub(super) path: PathBuf,
    pub(super) at: usize,
    pub(super) bytes: usize,
    pub(super) records: u64,
    pub(super) reason: &'static str,
}

/// What a damaged log has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) damages: Vec<FileDamage>,
    /// Flows that were wanted, and of which it is not known what they were to do.
    pub(super) flows: Vec<Ufid>,
    /// Changes of which nothing is known: so many flows at most were accepted, changed or deleted by them.
    pub(super) changes: u64,
    /// Flows that are wanted again and that such a change may have deleted or changed.
    pub(super) doubtful: u64,
}

impl Losses {
    /// A file that holds everything makes up for what was missing before.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes damage that has cost so many records.
    pub(super) fn found(&mut self, path: &Path, at: usize, bytes: usize, records: u64, reason: &'static str) {
        self.damages.push(FileDamage { path: path.to_owned(), at, bytes, records, reason });
    }

    /// Notes damage between the frames of a file.
    pub(super) fn add(&mut self, path: &Path, place: Place, damage: Damage) {
        let Damage { at, bytes, missing, more, reason } = damage;
        self.open_end = more;
        self.found(path, at, bytes, missing.end - missing.start, reason);
        self.open(place, missing);
    }

    /// Notes that these records are missing.
    pub(super) fn gap(&mut self, path: &Path, place: Place, missing: Range<u64>, reason: &'static str) {
        self.found(path, place.at, 0, missing.end - missing.start, reason);
        self.open(place, missing);
    }

    /// The next file tells the number of its first record, so that it is known how many are missing before it.
    pub(super) fn end_is_known(&mut self) {
        self.open_end = 0;
    }

    fn open(&mut self, place: Place, missing: Range<u64>) {
        if !missing.is_empty() {
            self.gaps.push(Gap { place, unknown: vec![missing] });
        }
    }

    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Takes a record for known if it is missing; gives the place where it was.
    pub(super) fn close(&mut self, number: u64) -> Option<Place> {
        self.gaps.iter_mut().find_map(|gap| {
            let index = gap.unknown.iter().position(|range| range.contains(&number))?;
            let range = gap.unknown.swap_remove(index);
            let rest = [range.start..number, number + 1..range.end];
            gap.unknown.extend(rest.into_iter().filter(|range| !range.is_empty()));
            Some(gap.place)
        })
    }

    /// A record of a flow is there, so that none before it counts.
    pub(super) fn is_wanted(&mut self, ufid: Ufid) {
        if self.has_gaps() {
            self.lost.remove(&ufid);
            self.ended.remove(&ufid);
        }
    }

    /// The record of a flow's end is there.
    pub(super) fn has_ended(&mut self, ufid: Ufid) {
        if self.has_gaps() {
            self.lost.remove(&ufid);
            self.ended.insert(ufid);
        }
    }

    /// The last record of a flow that is wanted is missing.
    pub(super) fn lose(&mut self, ufid: Ufid) {
        self.lost.insert(ufid);
    }

    /// The same of a flow that is not known otherwise: it may have ended meanwhile.
    pub(super) fn lose_unless_ended(&mut self, ufid: Ufid) {
        if !self.ended.contains(&ufid) {
            self.lost.insert(ufid);
        }
    }

    /// The flow has ended in a record that is missing.
    pub(super) fn forget(&mut self, ufid: Ufid) {
        self.lost.remove(&ufid);
    }

    /// Before which place a flow's last record is in doubt. Where everything is held nothing is deleted or changed.
    pub(super) fn in_doubt_before(&self) -> Option<Place> {
        let is_unknown = |gap: &&Gap| gap.unknown.iter().any(|range| range.start < EVERYTHING);
        self.gaps.iter().filter(is_unknown).map(|gap| gap.place).max()
    }

    /// The sum of it.
    pub(super) fn loss(&self, doubtful: u64) -> Option<Loss> {
        let mut flows: Vec<_> = self.lost.iter().copied().collect();
        flows.sort_unstable();
        let unknown = self.gaps.iter().flat_map(|gap| &gap.unknown);
        let changes = unknown.map(|range| range.end - range.start).sum::<u64>() + self.open_end;
        let damages = self.damages.clone();
        (!damages.is_empty()).then_some(Loss { damages, flows, changes, doubtful })
    }
}
