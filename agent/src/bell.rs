//! A waker for a thread that waits for several things.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Returns a waker, and the channel that has something in it once the waker was woken.
pub(crate) fn bell() -> (Waker, Receiver<()>) {
    let (ring, rung) = bounded(1);
    (Waker::from(Arc::new(Bell(ring))), rung)
}

struct Bell(Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // One that is full has been rung.
        let _ = self.0.try_send(());
    }
}
