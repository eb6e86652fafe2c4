//! What was read a short while ago and is likely to come again: most flows have a mask and actions that others have, too.
//!
//! Each thing has one place, picked by its hash, where the newest of those that share it is. That bounds the memory and the
//! time, whatever is read.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::action::ActionList;
use crate::flow::{Expiry, Terms};
use crate::key::{Key, Mask, WordIndexes};
use crate::origin::Origin;
use crate::priority::Priority;

const PLACES: usize = 64;

/// Actions by their text.
#[derive(Default)]
pub(super) struct RecentActions {
    places: Vec<Option<(Box<str>, ActionList)>>,
    hasher: RandomState,
}

impl RecentActions {
    /// Longer texts are not worth the memory: what many flows do is said in short.
    const LONGEST: usize = 512;

    pub(super) fn get(&self, text: &str) -> Option<ActionList> {
        let (known, actions) = self.places.get(self.place(text))?.as_ref()?;
        (**known == *text).then(|| actions.clone())
    }

    pub(super) fn keep(&mut self, text: &str, actions: &ActionList) {
        if text.len() > Self::LONGEST {
            return;
        }
        let place = self.place(text);
        self.places.resize_with(PLACES, || None);
        self.places[place] = Some((text.into(), actions.clone()));
    }

    fn place(&self, text: &str) -> usize {
        place(self.hasher.hash_one(text))
    }
}

/// Masks by their full form.
#[derive(Default)]
pub(super) struct RecentMasks(Vec<Option<(Key, Arc<Mask>)>>);

impl RecentMasks {
    /// The compact form of a full mask. `written` are the words that it may touch.
    pub(super) fn share(&mut self, full: &Key, written: u128) -> Arc<Mask> {
        self.0.resize_with(PLACES, || None);
        let recent = &mut self.0[place(hash_of(full, written))];
        match recent {
            Some((known, mask)) if known == full => mask.clone(),
            _ => recent.insert((*full, Arc::new(Mask::new(full)))).1.clone(),
        }
    }
}

/// Terms by the mask and the actions of which they are: not by equal ones, for those that were read lately are the same.
#[derive(Default)]
pub(super) struct RecentTerms {
    places: Vec<Option<Arc<Terms>>>,
    hasher: RandomState,
}

impl RecentTerms {
    /// The terms of a mask and actions with a priority, an expiry, an owner, and the word whether the flow's UFID is a given one.
    pub(super) fn share(
        &mut self,
        mask: &Arc<Mask>,
        actions: &ActionList,
        rest: (Priority, Expiry, Origin, bool),
    ) -> Arc<Terms> {
        self.places.resize_with(PLACES, || None);
        let addresses = (Arc::as_ptr(mask).addr(), Arc::as_ptr(actions).addr());
        let recent = &mut self.places[place(self.hasher.hash_one(addresses))];
        match recent {
            Some(known) if known.are_of(mask, actions, rest) => known.clone(),
            _ => recent.insert(Arc::new(Terms::new(mask.clone(), actions.clone(), rest))).clone(),
        }
    }
}

/// A hash of what is not zero, which is little. Masks that were made to collide are made each time, and no more.
fn hash_of(mask: &Key, written: u128) -> u64 {
    let numbers = WordIndexes(written).filter(|number| mask.words[*number] != 0);
    numbers.fold(1, |hash: u64, number| {
        (hash ^ mask.words[number] ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

fn place(hash: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a place")]
    let hash = hash as usize;
    hash % PLACES
}
