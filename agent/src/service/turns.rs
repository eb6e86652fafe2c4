//! Who may replace the flows of an owner: the last one who began.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_flow::Origin;

/// The turns of all owners.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<Origin, Weak<Mutex<u64>>>>);

/// The turn of one who replaces the flows of an owner. It is over once another one begins.
#[derive(Clone)]
pub(super) struct Turn {
    /// The number of the last turn of this owner.
    last: Arc<Mutex<u64>>,
    number: u64,
}

impl Turns {
    /// Begins a turn, and ends the one before.
    pub(super) fn begin(&self, owner: Origin) -> Turn {
        let last = self.of(owner);
        let mut number = last.lock();
        *number += 1;
        Turn { number: *number, last: last.clone() }
    }

    fn of(&self, owner: Origin) -> Arc<Mutex<u64>> {
        let mut owners = self.0.lock();
        if let Some(last) = owners.get(&owner).and_then(Weak::upgrade) {
            return last;
        }
        // There may be any number of owners in time, and few at a time.
        owners.retain(|_, last| last.strong_count() > 0);
        let last = Arc::default();
        owners.insert(owner, Arc::downgrade(&last));
        last
    }
}

impl Turn {
    /// Does something that is quick, unless the turn is over. Nobody else begins meanwhile.
    pub(super) fn act<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let last = self.last.lock();
        (*last == self.number).then(act)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_once_another_one_of_the_owner_begins_and_nothing_is_left_of_those_that_are_over() {
        let turns = Turns::default();
        let owner = |number: u32| Origin::Controller(format!("controller{number}").parse().unwrap());
        let (first, other) = (turns.begin(owner(1)), turns.begin(owner(2)));
        assert_eq!(first.act(|| 7), Some(7));
        let second = turns.begin(owner(1));
        assert_eq!((first.act(|| 7), second.act(|| 8), other.act(|| 9)), (None, Some(8), Some(9)));
        drop(second);
        assert_eq!(first.act(|| 7), None, "a turn that is over does not come back");
        (3..1_000).for_each(|number| drop(turns.begin(owner(number))));
        assert!(turns.0.lock().len() <= 3);
    }
}
