//! What happens to a device by itself, and how the agent hears of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Handle;
use crate::cause::Cause;
use crate::id::FlowId;
use crate::port::PortNumber;
use crate::time::Timestamp;

/// What happens to a device by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// Rules that were refused for a cause may be taken now.
    Changed {
        /// What has changed.
        cause: Cause,
    },
    /// A rule is gone.
    RuleLost(LostRule),
    /// The device behind a port has gone or has come, and may be another one of the same name. Rules that name the port, as
    /// where packets come from or where they go, must be made anew.
    PortChanged(PortNumber),
    /// The device is in an unknown state: everything must be compared and put in again.
    Reset {
        /// When.
        at: Timestamp,
    },
    /// The device is dead, in its own words.
    Failed(String),
}

/// A rule that went by itself. It is named by its handle, too, because the flow may have another rule by now. A backend does not use
/// a handle again before the loss of the rule that had it has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRule {
    /// The flow that it was for.
    pub flow: FlowId,
    /// The backend's name for it.
    pub handle: Handle,
}

/// Where a backend puts events, for a listener that it never waits for. Once the last clone is gone the stream ends.
#[derive(Clone)]
pub struct EventSender(Arc<Source>);

/// The events of a backend, in the order in which they were sent. All clones are one stream.
#[derive(Clone)]
pub struct EventStream(Arc<Shared>);

/// There are as many events already as are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// Nothing has happened yet.
    Yet,
    /// The backend has ended: nothing will.
    Ended,
}

struct Source(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    has_news: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    events: VecDeque<DeviceEvent>,
    has_ended: bool,
    waker: Option<Waker>,
}

impl EventStream {
    /// Makes a stream that keeps so many events, and what they are put in by.
    pub fn bounded(capacity: usize) -> (EventSender, Self) {
        let shared = Arc::new(Shared { state: Mutex::default(), has_news: Condvar::new(), capacity });
        (EventSender(Arc::new(Source(shared.clone()))), Self(shared))
    }

    /// Makes the stream of a device to which nothing happens: it is empty and does not end.
    pub fn silent() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), has_news: Condvar::new(), capacity: 0 }))
    }

    /// Returns the next event, and does not wait.
    pub fn try_next(&self) -> Result<DeviceEvent, NoEvent> {
        self.0.state.lock().take()
    }

    /// Returns the next event, and waits for it for so long at most.
    pub fn next_within(&self, patience: Duration) -> Result<DeviceEvent, NoEvent> {
        let deadline = Instant::now() + patience;
        let mut state = self.0.state.lock();
        loop {
            match state.take() {
                Err(NoEvent::Yet) if !self.0.has_news.wait_until(&mut state, deadline).timed_out() => {}
                taken => return taken,
            }
        }
    }

    /// Returns all events that there are, and does not wait.
    pub fn drain(&self) -> Vec<DeviceEvent> {
        std::mem::take(&mut self.0.state.lock().events).into()
    }

    /// Takes whom to wake, from any thread, once there is an event or the stream has ended, in place of who was to be woken before. Wakes
    /// at once if that is so already.
    pub fn set_waker(&self, waker: Waker) {
        let mut state = self.0.state.lock();
        if state.has_ended || !state.events.is_empty() {
            waker.wake_by_ref();
        }
        state.waker = Some(waker);
    }
}

impl EventSender {
    /// Puts an event in. Fails if there is no room for it.
    pub fn send(&self, event: DeviceEvent) -> Result<(), NoRoom> {
        let shared = &self.0.0;
        shared.change(|state| {
            if state.events.len() >= shared.capacity {
                return Err(NoRoom);
            }
            state.events.push_back(event);
            Ok(())
        })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.0.change(|state| state.has_ended = true);
    }
}

impl Shared {
    /// Changes the state, and wakes who waits for that.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let waker = state.waker.clone();
        drop(state);
        self.has_news.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
        changed
    }
}

impl State {
    fn take(&mut self) -> Result<DeviceEvent, NoEvent> {
        let none = if self.has_ended { NoEvent::Ended } else { NoEvent::Yet };
        self.events.pop_front().ok_or(none)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const EVENT: DeviceEvent = DeviceEvent::Changed { cause: Cause::Room };

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_was_sent_is_received_before_the_end() {
        let (sender, stream) = EventStream::bounded(2);
        assert_eq!(stream.try_next(), Err(NoEvent::Yet));
        sender.send(EVENT).unwrap();
        sender.send(DeviceEvent::PortChanged(PortNumber(7))).unwrap();
        assert_eq!(sender.send(EVENT), Err(NoRoom));
        drop(sender.clone());
        assert_eq!(stream.try_next(), Ok(EVENT), "there is another sender");
        drop(sender);
        assert_eq!(stream.next_within(Duration::ZERO), Ok(DeviceEvent::PortChanged(PortNumber(7))));
        assert_eq!((stream.try_next(), stream.drain()), (Err(NoEvent::Ended), vec![]));
    }

    #[test]
    fn who_waits_is_woken_by_an_event_and_by_the_end() {
        let (sender, stream) = EventStream::bounded(8);
        let bell = Arc::new(Bell::default());
        stream.set_waker(Waker::from(bell.clone()));
        assert_eq!(bell.0.load(Ordering::SeqCst), 0);
        sender.send(EVENT).unwrap();
        assert_eq!(bell.0.load(Ordering::SeqCst), 1);
        stream.set_waker(Waker::from(bell.clone()));
        assert_eq!(bell.0.load(Ordering::SeqCst), 2, "it has come already");
        let listener = std::thread::spawn(move || {
            let patience = Duration::from_secs(60);
            [stream.next_within(patience), stream.next_within(patience)]
        });
        drop(sender);
        assert_eq!(listener.join().unwrap(), [Ok(EVENT), Err(NoEvent::Ended)]);
        assert_eq!(bell.0.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_silent_stream_does_not_end() {
        assert_eq!(EventStream::silent().next_within(Duration::from_millis(1)), Err(NoEvent::Yet));
    }
}
