//! Strays: rules of this agent that no flow has, as listings have shown them.

use std::collections::BTreeMap;

use sluice_flow::backend::Handle;

use crate::wire::filter::FilterId;

/// The upper half of a stray's handle: no slot has that many lives.
const STRAY: u64 = u64::MAX << 32;

/// Strays and the names that they were listed under.
#[derive(Default)]
pub(crate) struct Strays {
    names: BTreeMap<u64, FilterId>,
    numbers: BTreeMap<FilterId, u64>,
    last: u64,
}

impl Strays {
    pub(crate) fn handle(&mut self, id: FilterId) -> Handle {
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.names.insert(number, id);
        Handle(STRAY | number)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<FilterId> {
        self.names.get(&(handle.0 & !STRAY)).copied().filter(|_| handle.0 & STRAY == STRAY)
    }

    pub(crate) fn remove(&mut self, id: &FilterId) {
        if let Some(number) = self.numbers.remove(id) {
            self.names.remove(&number);
        }
    }
}
