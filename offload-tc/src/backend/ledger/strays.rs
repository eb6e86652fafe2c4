//! Strays: rules of this agent that no flow has, as listings have shown them.

use std::collections::BTreeMap;

use sluice_flow::backend::Handle;

use crate::wire::filter::FilterId;

/// The upper half of a stray's handle: no slot has that many lives.
const STRAY: u64 = u64::MAX << 32;
/// A stray that so many listings have not shown is forgotten. An audit lists twice before it removes one, and two audits may be under way.
const LISTINGS: u64 = 4;

/// Strays and the names that they were listed under.
#[derive(Default)]
pub(crate) struct Strays {
    names: BTreeMap<u64, FilterId>,
    numbers: BTreeMap<FilterId, Stray>,
    last: u64,
    /// The number of listings that have begun.
    listings: u64,
}

#[derive(Clone, Copy)]
struct Stray {
    number: u64,
    /// The last listing that showed it.
    seen: u64,
}

impl Strays {
    /// A listing of all rules begins. Forgets the strays that the last listings have not shown: a rule that a worker deletes meanwhile shows as
    /// one, too.
    pub(crate) fn begin_listing(&mut self) {
        self.listings += 1;
        let (names, oldest) = (&mut self.names, self.listings.saturating_sub(LISTINGS));
        self.numbers.retain(|_, stray| {
            let is_kept = stray.seen >= oldest;
            if !is_kept {
                names.remove(&stray.number);
            }
            is_kept
        });
    }

    pub(crate) fn handle(&mut self, id: FilterId) -> Handle {
        let stray = self.numbers.entry(id).or_insert_with(|| {
            self.last += 1;
            Stray { number: self.last, seen: 0 }
        });
        stray.seen = self.listings;
        self.names.insert(stray.number, id);
        Handle(STRAY | stray.number)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<FilterId> {
        self.names.get(&(handle.0 & !STRAY)).copied().filter(|_| handle.0 & STRAY == STRAY)
    }

    pub(crate) fn remove(&mut self, id: &FilterId) {
        if let Some(stray) = self.numbers.remove(id) {
            self.names.remove(&stray.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::filter::Hook;

    #[test]
    fn a_stray_keeps_its_handle_while_listings_show_it_and_is_forgotten_afterwards() {
        let id = |handle| FilterId {
            hook: Hook::Ingress { interface: 3 },
            chain: 0,
            priority: 61_004,
            protocol: 0x0800,
            handle,
        };
        let mut strays = Strays::default();
        strays.begin_listing();
        let [stays, goes] = [1, 2].map(|handle| strays.handle(id(handle)));
        for _ in 0..LISTINGS {
            strays.begin_listing();
            assert_eq!((strays.handle(id(1)), strays.get(goes)), (stays, Some(id(2))));
        }
        strays.begin_listing();
        assert_eq!((strays.get(stays), strays.get(goes)), (Some(id(1)), None));
        assert_eq!((strays.names.len(), strays.numbers.len()), (1, 1), "nothing is left of it");
        assert_ne!(strays.handle(id(2)), goes, "it is another one");
    }
}
