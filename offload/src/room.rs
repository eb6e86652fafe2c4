//! Waiting for room below the limit on unsettled flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_flow::FlowTable;

/// Where callers wait that give more flows than there is room for, and workers say that some have their outcomes.
pub(super) struct Room {
    table: Arc<FlowTable>,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    made: Condvar,
}

impl Room {
    pub(super) fn new(table: Arc<FlowTable>) -> Self {
        let (waiting, lock, made) = Default::default();
        Self { table, waiting, lock, made }
    }

    /// Returns when there may be room, or after so long.
    pub(super) fn wait(&self, at_most: Duration) {
        let mut guard = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // As one with that of `tell`: either this finds the outcome, or that finds who waits.
        fence(Ordering::SeqCst);
        if !self.table.census().has_room() {
            self.made.wait_for(&mut guard, at_most);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Some flows have their outcomes.
    pub(super) fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 && self.table.census().has_room() {
            let _guard = self.lock.lock();
            self.made.notify_all();
        }
    }
}
