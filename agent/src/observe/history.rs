//! The last events, for watchers who read at their own pace and may come back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::events::Seen;

/// As many events as are kept.
const KEPT: usize = 65_536;

/// How long events are kept after the last reader has left, who may come back.
const LINGER: Duration = Duration::from_secs(60);

/// The last events, if anybody has asked for them lately. Readers are told apart by nothing but where they are, so that one who does not read
/// costs nothing.
#[derive(Default)]
pub struct History {
    is_kept: AtomicBool,
    readers: AtomicUsize,
    ring: Mutex<Ring>,
    is_awaited: AtomicBool,
    news: Notify,
}

#[derive(Default)]
struct Ring {
    /// The number of the event at the front.
    first: u64,
    events: VecDeque<Arc<Seen>>,
    left: Option<Instant>,
}

/// Events that were read, and where the next ones are.
#[derive(Debug, Default)]
pub struct Page {
    /// The events.
    pub events: Vec<Arc<Seen>>,
    /// So many before them are gone.
    pub lost: u64,
    /// The number of the event after them.
    pub next: u64,
}

/// A reader. Dropping it ends it.
pub struct Reader<'a>(&'a History);

impl History {
    /// Begins to read. Says the number of the next event.
    pub fn read(&self) -> (Reader<'_>, u64) {
        let mut ring = self.ring.lock();
        self.readers.fetch_add(1, Ordering::Relaxed);
        ring.left = None;
        self.is_kept.store(true, Ordering::Release);
        (Reader(self), ring.next())
    }

    /// Whether events are to be noted.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub(super) fn note(&self, seen: Arc<Seen>) {
        let mut ring = self.ring.lock();
        if ring.left.is_some_and(|left| left.elapsed() > LINGER) {
            // Where a reader was tells it that this is lost.
            ring.first = ring.next() + 1;
            ring.events = VecDeque::new();
            self.is_kept.store(false, Ordering::Release);
            return;
        }
        if ring.events.len() >= KEPT {
            ring.events.pop_front();
            ring.first += 1;
        }
        ring.events.push_back(seen);
        drop(ring);
        if self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst) {
            self.news.notify_waiters();
        }
    }
}

impl Ring {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Reader<'_> {
    /// The events from a number on, `most` at the most. A number that is still to come yields none, and is left as it is.
    pub fn page(&self, from: u64, most: usize) -> Page {
        let ring = self.0.ring.lock();
        let begin = from.max(ring.first);
        let skip = usize::try_from(begin - ring.first).unwrap_or(usize::MAX);
        let events: Vec<_> = ring.events.iter().skip(skip).take(most).cloned().collect();
        Page { next: begin + events.len() as u64, lost: begin - from, events }
    }

    /// Waits until there is an event of this number or a later one.
    pub async fn wait(&self, number: u64) {
        loop {
            let news = self.0.news.notified();
            tokio::pin!(news);
            // From here on no news are missed.
            news.as_mut().enable();
            self.0.is_awaited.store(true, Ordering::SeqCst);
            if self.0.ring.lock().next() > number {
                return;
            }
            news.await;
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut ring = self.0.ring.lock();
        if self.0.readers.fetch_sub(1, Ordering::Relaxed) == 1 {
            ring.left = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use sluice_flow::ufid::Seed;
    use sluice_flow::{ActionList, Event, Expiry, Flow, MaskedKey, Match, Priority};

    use super::*;

    fn seen() -> Arc<Seen> {
        let matching = MaskedKey::new(&Match::default());
        let flow =
            Flow::new(None, matching, ActionList::default(), Priority::default(), Expiry::default(), &Seed([0; 16]));
        Arc::new(Seen { at: SystemTime::now(), event: Event::Accepted(flow) })
    }

    #[test]
    fn a_reader_reads_at_its_own_pace_and_is_told_what_it_has_missed() {
        let history = History::default();
        assert!(!history.is_kept(), "nobody reads");
        let (reader, from) = history.read();
        assert!(history.is_kept());
        (0..10).for_each(|_| history.note(seen()));
        let page = reader.page(from, 4);
        assert_eq!((page.events.len(), page.lost, page.next), (4, 0, from + 4));
        (0..KEPT).for_each(|_| history.note(seen()));
        let page = reader.page(from + 4, usize::MAX);
        assert_eq!((page.events.len(), page.lost, page.next), (KEPT, 6, from + 10 + KEPT as u64));
        assert!(reader.page(page.next, 1).events.is_empty());
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_the_next_event() {
        let history = Arc::new(History::default());
        let (reader, from) = history.read();
        let noting = history.clone();
        let later = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            noting.note(seen());
        });
        reader.wait(from).await;
        assert_eq!(reader.page(from, 9).events.len(), 1);
        later.await.unwrap();
    }
}
