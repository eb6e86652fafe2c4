//! One event, many readers: counts for metrics, lines for the log, streams for `watch`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::{Mutex, RwLock};
use sluice_flow::{Event, EventSink, Origin, Refusal, Ufid};

use super::event_counts::EventCounts;
use super::history::History;
use crate::sessions::ends::Ends;

/// Events that a slow watcher may lag behind before it loses some.
const WATCH_BACKLOG: usize = 4_096;

/// How much of what people should know of is kept.
const NOTED: usize = 50;

/// Hears every event of the table and passes it on.
#[derive(Default)]
pub struct Events {
    counts: EventCounts,
    watchers: RwLock<Vec<Watcher>>,
    next_watcher: AtomicU64,
    /// How many there are, so that nobody takes a lock to find that there is none.
    watching: AtomicUsize,
    noted: Mutex<VecDeque<Noted>>,
    history: History,
    session_ends: Ends,
    /// What hears of refused flows of each source, if it wants to.
    refusals: [OnceLock<HearRefusal>; Origin::SOURCES.len()],
}

/// Hears of a refused flow.
struct HearRefusal(Box<dyn Fn(Ufid) + Send + Sync>);

/// An event, and when it happened by the wall clock.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub at: SystemTime,
    /// What.
    pub event: Event,
}

/// Something that people should know of.
#[derive(Clone, Debug)]
pub struct Noted {
    /// When.
    pub at: SystemTime,
    /// What.
    pub what: What,
}

/// What people should know of.
#[derive(Clone, Debug)]
pub enum What {
    /// A flow was refused or evicted.
    Flow(Box<Event>),
    /// Something happened to the agent.
    Agent(String),
}

struct Watcher {
    id: u64,
    sender: Sender<Arc<Seen>>,
    lost: Arc<AtomicU64>,
}

/// All events from a moment on. Dropping it ends it.
pub struct Watch {
    /// The events.
    pub events: Receiver<Arc<Seen>>,
    /// How many did not get into the backlog because the reader lagged.
    pub lost: Arc<AtomicU64>,
}

impl Events {
    /// The counts so far.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    /// Counts the refusal of a request that was not even taken on.
    pub fn count_refusal(&self, refusal: &Refusal) {
        self.counts.count_refusal(refusal);
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

    /// The last events, for watchers who may come back.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How sessions end.
    pub fn session_ends(&self) -> &Ends {
        &self.session_ends
    }

    /// Has a source hear of each flow of its own that is refused, from now on. Nobody else's, and not another time.
    pub fn tell_refusals_of(&self, source: Origin, hear: Box<dyn Fn(Ufid) + Send + Sync>) {
        if let Some(place) = self.refusals_of(source) {
            // A source runs once.
            place.get_or_init(|| HearRefusal(hear));
        }
    }

    fn refusals_of(&self, source: Origin) -> Option<&OnceLock<HearRefusal>> {
        self.refusals.get(Origin::SOURCES.iter().position(|known| *known == source)?)
    }

    /// Notes something that happened to the agent.
    pub fn note(&self, words: impl Into<String>) {
        self.add_note(&mut self.noted.lock(), What::Agent(words.into()));
    }

    /// What people should know of, the newest first.
    pub fn noted(&self) -> Vec<Noted> {
        self.noted.lock().iter().cloned().collect()
    }

    fn add_note(&self, noted: &mut VecDeque<Noted>, what: What) {
        noted.truncate(NOTED - 1);
        noted.push_front(Noted { at: SystemTime::now(), what });
    }

    fn tell_watchers(&self, event: &Event) {
        let (is_watched, is_kept) = (self.watching.load(Ordering::Acquire) > 0, self.history.is_kept());
        if !is_watched && !is_kept {
            return;
        }
        let event = Arc::new(Seen { at: SystemTime::now(), event: event.clone() });
        if is_kept {
            self.history.note(event.clone());
        }
        if !is_watched {
            return;
        }
        let watchers = self.watchers.read();
        let mut gone = Vec::new();
        for Watcher { id, sender, lost } in &*watchers {
            match sender.try_send(event.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => {
                    self.counts.unwatched.fetch_add(1, Ordering::Relaxed);
                    lost.fetch_add(1, Ordering::Relaxed);
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
        self.counts.count(event);
        self.session_ends.note(event);
        if matches!(event, Event::Refused { .. } | Event::Evicted { .. }) {
            tracing::info!(target: "sluice::flow", "{event}");
            // Where several come at once, one of them is enough: nobody waits for the others here.
            if let Some(mut noted) = self.noted.try_lock() {
                self.add_note(&mut noted, What::Flow(Box::new(event.clone())));
            }
        }
        if let Event::Refused { flow, .. } = event
            && let Some(HearRefusal(hear)) = self.refusals_of(flow.origin).and_then(OnceLock::get)
        {
            hear(flow.ufid);
        }
        tracing::debug!(target: "sluice::event", "{event}");
        self.tell_watchers(event);
    }
}
