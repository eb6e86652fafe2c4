//! Refused flows that are tried again: a few at a time, behind everything that is new.
//!
//! A pass walks the table once for all causes that have changed by then. It stops when enough flows are being tried and goes on
//! as they get their outcomes, on the thread of whichever worker sees that. What changes meanwhile waits for the next pass.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_flow::{Cause, Clock, FlowTable};

use super::inbox::Inboxes;

/// Flows that are tried at a time at most.
const AT_A_TIME: usize = 64;

/// See the [module](self).
pub(super) struct Retries {
    table: Arc<FlowTable>,
    clock: Arc<dyn Clock>,
    inboxes: Arc<Inboxes>,
    /// Whether there is a pass; spares workers the lock.
    is_under_way: AtomicBool,
    /// Taken before any lock of the table, and only while there is a pass.
    passes: Mutex<Passes>,
}

#[derive(Default)]
struct Passes {
    current: Option<Pass>,
    /// What the next pass is for.
    next: BTreeSet<Cause>,
}

struct Pass {
    causes: Vec<Cause>,
    /// The slot to go on from.
    from: u32,
}

impl Retries {
    pub(super) fn new(table: Arc<FlowTable>, clock: Arc<dyn Clock>, inboxes: Arc<Inboxes>) -> Self {
        let (is_under_way, passes) = Default::default();
        Self { table, clock, inboxes, is_under_way, passes }
    }

    /// Has flows tried again that wait for one of these causes.
    pub(super) fn begin(&self, causes: impl IntoIterator<Item = Cause>) {
        let mut passes = self.passes.lock();
        passes.next.extend(causes);
        self.is_under_way.store(true, Ordering::Relaxed);
        self.walk(&mut passes);
    }

    /// Goes on if flows that were being tried have their outcomes. To be called after each that a worker brings about.
    #[inline]
    pub(super) fn go_on(&self) {
        if self.is_under_way.load(Ordering::Relaxed) && self.table.census().retries() <= AT_A_TIME / 2 {
            self.walk(&mut self.passes.lock());
        }
    }

    fn walk(&self, passes: &mut Passes) {
        while let Some(pass) = passes.current.take().or_else(|| passes.take_next()) {
            let enqueue = &mut |accepted| self.inboxes.hand_over(accepted);
            let from = self.table.retry(&pass.causes, pass.from, AT_A_TIME, self.clock.now(), enqueue);
            passes.current = from.map(|from| Pass { from, ..pass });
            if passes.current.is_some() {
                return;
            }
        }
        self.is_under_way.store(false, Ordering::Relaxed);
    }
}

impl Passes {
    fn take_next(&mut self) -> Option<Pass> {
        let causes: Vec<_> = std::mem::take(&mut self.next).into_iter().collect();
        (!causes.is_empty()).then_some(Pass { causes, from: 0 })
    }
}
