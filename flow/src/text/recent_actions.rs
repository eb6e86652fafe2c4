//! Actions that were read a short while ago and are likely to come again.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::action::ActionList;
use crate::recent::{PLACES, place};

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
