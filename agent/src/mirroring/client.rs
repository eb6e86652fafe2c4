//! What waits for one client of the mirror socket: a queue for each class, so that a flood of one class costs no other class a frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use sluice_control::mirror::{CLASSES, Class, Losses};

use super::counts::{Counts, Loss};

/// As many copies of a class as wait for a client at most.
const QUEUE_FRAMES: usize = 1024;

/// What waits for a client. Whoever puts something in never waits.
pub(super) struct Client {
    queues: [Queue; CLASSES],
    /// The plan that the client has not been told yet.
    plan: Mutex<Option<Arc<Vec<u8>>>>,
    /// Rung when there is something to be written.
    bell: Sender<()>,
    rung: Receiver<()>,
    counts: Arc<Counts>,
}

struct Queue {
    sender: Sender<Waiting>,
    receiver: Receiver<Waiting>,
    bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
}

/// A copy that waits. One that is dropped before it is [sent](Waiting::was_sent) counts as lost.
pub(super) struct Waiting {
    pub(super) message: Arc<Vec<u8>>,
    class: Class,
    is_sent: bool,
    bytes: Arc<AtomicUsize>,
    counts: Arc<Counts>,
}

impl Client {
    pub(super) fn new(plan: Arc<Vec<u8>>, counts: Arc<Counts>) -> Self {
        let (bell, rung) = bounded(1);
        let queue = || {
            let (sender, receiver) = bounded(QUEUE_FRAMES);
            Queue { sender, receiver, bytes: Arc::default(), lost: AtomicU64::new(0) }
        };
        let queues = std::array::from_fn(|_| queue());
        Self { queues, plan: Mutex::new(Some(plan)), bell, rung, counts }
    }

    /// Lets a copy wait, of at most `limit` bytes of its class.
    pub(super) fn put(&self, class: Class, message: &Arc<Vec<u8>>, limit: usize) {
        let queue = &self.queues[class.index()];
        let length = message.len();
        let is_full = || {
            queue.lost.fetch_add(1, Ordering::Relaxed);
            self.counts.count_loss(class, Loss::QueueFull);
        };
        if queue.bytes.fetch_add(length, Ordering::Relaxed) + length > limit {
            queue.bytes.fetch_sub(length, Ordering::Relaxed);
            return is_full();
        }
        let (bytes, counts) = (queue.bytes.clone(), self.counts.clone());
        let waiting = Waiting { message: message.clone(), class, is_sent: false, bytes, counts };
        if let Err(refused) = queue.sender.try_send(waiting) {
            // It is counted here, and not as one that went with its client.
            refused.into_inner().was_counted();
            return is_full();
        }
        self.ring();
    }

    /// Has the client be told this plan, and no earlier one that it has not been told yet.
    pub(super) fn tell(&self, plan: Arc<Vec<u8>>) {
        *self.plan.lock() = Some(plan);
        self.ring();
    }

    pub(super) fn take_plan(&self) -> Option<Arc<Vec<u8>>> {
        self.plan.lock().take()
    }

    /// Takes the copy of a class that has waited longest.
    pub(super) fn take(&self, class: Class) -> Option<Waiting> {
        self.queues[class.index()].receiver.try_recv().ok()
    }

    /// What the client did not get so far.
    pub(super) fn losses(&self) -> Losses {
        Losses(std::array::from_fn(|class| self.queues[class].lost.load(Ordering::Relaxed)))
    }

    /// Rings when something waits that did not before.
    pub(super) fn rung(&self) -> &Receiver<()> {
        &self.rung
    }

    fn ring(&self) {
        // One that is full has been rung.
        let _ = self.bell.try_send(());
    }
}

impl Waiting {
    pub(super) fn was_sent(mut self) {
        self.counts.count_sent(self.class);
        self.is_sent = true;
    }

    fn was_counted(mut self) {
        self.is_sent = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.message.len(), Ordering::Relaxed);
        if !self.is_sent {
            self.counts.count_loss(self.class, Loss::Disconnected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_is_full_costs_no_other_class_and_every_copy_is_counted() {
        let counts = Arc::new(Counts::default());
        let client = Client::new(Arc::default(), counts.clone());
        let message = Arc::new(vec![0; 1000]);
        for _ in 0..30 {
            client.put(Class::Arp, &message, 10_000);
        }
        client.put(Class::Bfd, &message, 10_000);
        assert_eq!((client.losses().of(Class::Arp), client.losses().of(Class::Bfd)), (20, 0));
        client.take(Class::Arp).unwrap().was_sent();
        client.take(Class::Bfd).unwrap().was_sent();
        client.put(Class::Arp, &message, 10_000);
        drop(client);
        let of = |loss| counts.lost(Class::Arp, loss);
        assert_eq!((counts.sent(Class::Arp), of(Loss::QueueFull), of(Loss::Disconnected)), (1, 20, 10));
        assert_eq!((counts.sent(Class::Bfd), counts.lost(Class::Bfd, Loss::Disconnected)), (1, 0));
    }

    #[test]
    fn no_more_frames_wait_than_there_is_room_for_whatever_their_size() {
        let counts = Arc::new(Counts::default());
        let client = Client::new(Arc::default(), counts.clone());
        let message = Arc::new(vec![0; 1]);
        (0..QUEUE_FRAMES + 5).for_each(|_| client.put(Class::Nd, &message, 1 << 20));
        assert_eq!(counts.lost(Class::Nd, Loss::QueueFull), 5);
    }
}
