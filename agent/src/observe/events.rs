//! One event, many readers: counts for metrics, lines for the log, streams for `watch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use crossbeam_utils::CachePadded;
use parking_lot::RwLock;
use sluice_flow::backend::Placement;
use sluice_flow::{EndReason, Event, EventSink, Refusal};

/// Events that a slow watcher may lag behind before it loses some.
const WATCH_BACKLOG: usize = 4_096;

/// Hears every event of the table and passes it on.
#[derive(Default)]
pub struct Events {
    counts: EventCounts,
    watchers: RwLock<Vec<Watcher>>,
    next_watcher: AtomicU64,
    /// How many there are, so that nobody takes a lock to find that there is none.
    watching: AtomicUsize,
}

/// How often what happened.
#[derive(Debug, Default)]
pub struct EventCounts {
    /// Requests taken on. Counted by callers, as the rest is by workers: apart, so that neither waits for the other.
    pub accepted: CachePadded<AtomicU64>,
    /// Rules put in.
    pub installed: AtomicU64,
    /// Rules of an earlier run taken over.
    pub adopted: AtomicU64,
    /// Rules changed.
    pub modified: AtomicU64,
    /// Rules moved from software to hardware.
    pub moved_up: AtomicU64,
    /// Rules moved from hardware to software.
    pub moved_down: AtomicU64,
    /// Refusals, by [`Refusal::LABELS`].
    pub refused: [AtomicU64; Refusal::LABELS.len()],
    /// Ends of flows, by [`EndReason::ALL`].
    pub ended: [AtomicU64; EndReason::ALL.len()],
    /// Packets of flows that have ended.
    pub ended_packets: AtomicU64,
    /// Bytes of flows that have ended.
    pub ended_bytes: AtomicU64,
    /// Events that a slow watcher did not get.
    pub unwatched: AtomicU64,
}

struct Watcher {
    id: u64,
    sender: Sender<Arc<Event>>,
    lost: Arc<AtomicU64>,
}

/// All events from a moment on. Dropping it ends it.
pub struct Watch {
    /// The events.
    pub events: Receiver<Arc<Event>>,
    /// How many did not get into the backlog because the reader lagged.
    pub lost: Arc<AtomicU64>,
}

impl Events {
    /// The counts so far.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// Counts a refusal: by the device, or of a request that was not even taken on.
    pub fn count_refusal(&self, refusal: &Refusal) {
        let label = Refusal::LABELS.iter().position(|label| *label == refusal.label());
        label.into_iter().for_each(|index| add(&self.counts.refused[index], 1));
    }

    /// All events from now on.
    pub fn watch(&self) -> Watch {
        let (sender, events) = bounded(WATCH_BACKLOG);
        let id = self.next_watcher.fetch_add(1, Ordering::Relaxed);
        let lost = Arc::<AtomicU64>::default();
        let mut watchers = self.watchers.write();
        watchers.push(Watcher { id, sender, lost: lost.clone() });
        self.watching.store(watchers.len(), Ordering::Release);
        Watch { events, lost }
    }

    fn tell_watchers(&self, event: &Event) {
        if self.watching.load(Ordering::Acquire) == 0 {
            return;
        }
        let watchers = self.watchers.read();
        let event = Arc::new(event.clone());
        let mut gone = Vec::new();
        for Watcher { id, sender, lost } in &*watchers {
            match sender.try_send(event.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => {
                    add(&self.counts.unwatched, 1);
                    add(lost, 1);
                }
                Err(TrySendError::Disconnected(_)) => gone.push(*id),
            }
        }
        drop(watchers);
        if !gone.is_empty() {
            let mut watchers = self.watchers.write();
            watchers.retain(|watcher| !gone.contains(&watcher.id));
            self.watching.store(watchers.len(), Ordering::Release);
        }
    }
}

impl EventSink for Events {
    fn event(&self, event: &Event) {
        let counts = &self.counts;
        match event {
            Event::Accepted(_) => add(&counts.accepted, 1),
            Event::Installed { .. } => add(&counts.installed, 1),
            Event::Adopted { .. } => add(&counts.adopted, 1),
            Event::Modified { .. } => add(&counts.modified, 1),
            Event::Moved { placement: Placement::Hardware | Placement::Both, .. } => add(&counts.moved_up, 1),
            Event::Moved { .. } => add(&counts.moved_down, 1),
            Event::Refused { refusal, .. } => {
                self.count_refusal(refusal);
                tracing::info!(target: "sluice::flow", "{event}");
            }
            Event::Deleted { reason, counters, .. } => {
                add(&counts.ended[*reason as usize], 1);
                add(&counts.ended_packets, counters.packets);
                add(&counts.ended_bytes, counters.bytes);
            }
            Event::Evicted { .. } => tracing::info!(target: "sluice::flow", "{event}"),
            _ => {}
        }
        tracing::debug!(target: "sluice::event", "{event}");
        self.tell_watchers(event);
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
