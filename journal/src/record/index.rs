//! Indexes: what the records before them are, and of which flows.

use sluice_flow::Ufid;

use super::fields::Fields;
use super::format::{KIND_END, KIND_INDEX, KIND_UNWANTED, KIND_WANTED};

/// What some records are, and of which flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    pub(super) first: u64,
    pub(super) entries: &'a [u8],
}

/// What an index says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indexed {
    Wanted(Ufid),
    Unwanted(Ufid),
    /// It says nothing of any flow by itself.
    Other,
}

impl Index<'_> {
    /// The records that it covers, by their numbers.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, Indexed)> {
        let mut entries = Fields(self.entries);
        (self.first..=u64::MAX).map_while(move |number| {
            let indexed = match entries.u8().ok()? {
                KIND_WANTED => Indexed::Wanted(Ufid(entries.u128().ok()?)),
                KIND_UNWANTED => Indexed::Unwanted(Ufid(entries.u128().ok()?)),
                _ => Indexed::Other,
            };
            Some((number, indexed))
        })
    }
}

/// An index that is not written yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenIndex {
    pub(super) first: u64,
    pub(super) entries: Vec<u8>,
    pub(super) records: usize,
    /// Records that are no index themselves.
    pub(super) news: usize,
}

impl OpenIndex {
    /// Of the records from this number on.
    pub(crate) fn from(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    pub(super) fn push(&mut self, kind: u8, ufid: Option<Ufid>) {
        self.entries.push(kind);
        if let Some(ufid) = ufid {
            self.entries.extend_from_slice(&ufid.0.to_le_bytes());
        }
        self.records += 1;
        self.news += usize::from(!matches!(kind, KIND_INDEX | KIND_END));
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::KIND_SHAPE;
    use super::*;

    #[test]
    fn an_index_of_more_records_than_there_are_numbers_ends_with_the_last_number() {
        let index = Index { first: u64::MAX, entries: &[KIND_SHAPE, KIND_SHAPE] };
        assert_eq!(index.records().collect::<Vec<_>>(), [(u64::MAX, Indexed::Other)]);
    }
}
