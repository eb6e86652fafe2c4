//! The rules that a flow needs.

use sluice_flow::backend::Handle;

use crate::backend::ledger::record::{Place, filter_id};
use crate::wire::filter::Filter;
use crate::wire::flower::Flower;

/// The rules of a flow, and where they are to be.
pub(super) struct Wanted {
    pub(super) place: Place,
    pub(super) flower: Flower,
    /// The guard in front.
    pub(super) guard: Option<Flower>,
}

impl Wanted {
    /// The rule, without the guard, under its name.
    pub(super) fn rule(self, handle: Handle) -> Filter {
        Filter { id: filter_id(self.place, handle), flower: self.flower }
    }

    /// The guard, if there is one, and the rule, under their names.
    pub(super) fn named(mut self, handle: Handle) -> (Option<Filter>, Filter) {
        let guard = self.guard.take().zip(self.place.in_front());
        let guard = guard.map(|(flower, place)| Filter { id: filter_id(place, handle), flower });
        (guard, self.rule(handle))
    }
}
