//! The way to the thread that follows next hops.

use crossbeam_channel::{Receiver, Sender, unbounded};
use sluice_netdev::NextHopsWaker;

use crate::translate::Hop;

/// What becomes of a next hop.
pub(crate) enum Ask {
    /// A flow leads to it.
    Follow(Hop),
    /// No flow does any more.
    Forget(Hop),
}

/// The way to the thread. It ends when this is dropped.
pub(crate) struct Asks {
    asks: Option<Sender<Ask>>,
    waker: NextHopsWaker,
}

impl Asks {
    /// Returns the way, and its other end. `waker` wakes who waits there.
    pub(crate) fn new(waker: NextHopsWaker) -> (Self, Receiver<Ask>) {
        let (asks, asked) = unbounded();
        (Self { asks: Some(asks), waker }, asked)
    }

    /// Has a next hop be followed.
    pub(crate) fn follow(&self, hop: Hop) {
        self.send(Ask::Follow(hop));
    }

    /// No longer follows one.
    pub(crate) fn forget(&self, hop: Hop) {
        self.send(Ask::Forget(hop));
    }

    fn send(&self, ask: Ask) {
        // If it has ended, it has said so.
        let _ = self.asks.as_ref().map(|asks| asks.send(ask));
        self.waker.wake();
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.asks.take();
        self.waker.wake();
    }
}
