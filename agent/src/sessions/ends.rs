//! How sessions end: when one of the two flows has gone, when both have, and who is told.
//!
//! ```text
//!                      other flow gone
//! one flow gone ---------------------------> closed --told--> forgotten
//!   |    \                                     ^
//!   |     other flow never comes to its end ---+
//!   +--- claimed by who deletes the session: told to nobody else
//! ```
//!
//! The events of the table come here as they happen, and not by the [history](crate::observe::history): that forgets what its readers are too
//! slow for, and costs all flows as soon as it has a reader. Here, flows that are of no session cost one comparison at their end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use sluice_flow::{Counters, EndReason, Event, Timestamp};
use tokio::sync::Notify;

use super::name::{Direction, SessionFlow, SessionId};

/// Closed sessions that are kept for who asks, at some hundred bytes each. With more, the first to end goes.
pub const CLOSED_KEPT: usize = 65_536;

/// How sessions end.
#[derive(Default)]
pub struct Ends {
    /// Whether there ever was a session in this run.
    is_used: AtomicBool,
    state: Mutex<State>,
    /// A flow of a session that is claimed has gone.
    claimed_changed: Condvar,
    news: Notify,
}

#[derive(Default)]
struct State {
    /// Sessions of which a flow is on its way out because of a timeout or the flow limit.
    leaving: HashSet<SessionId>,
    /// Sessions of which one flow has gone.
    halves: HashMap<SessionId, Ending>,
    /// Those of them whose other flow nobody has been told to delete.
    fresh: Vec<SessionId>,
    /// Sessions that somebody is deleting, who hears of their flows.
    claimed: HashMap<SessionId, Option<Ending>>,
    closed: VecDeque<Closed>,
    counts: Counts,
}

/// How many sessions have come to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that ended by themselves.
    pub closed: u64,
    /// Those of them that nobody asked for before there were too many.
    pub lost: u64,
}

/// What is known of a session whose flows end.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Why the first flow went.
    pub reason: EndReason,
    /// When the first flow went.
    pub began: Instant,
    /// When the last flow went of those that have gone.
    pub at: SystemTime,
    /// When the session was accepted.
    pub accepted: Timestamp,
    forward: Option<Counters>,
    reverse: Option<Counters>,
}

/// A session that has ended by itself.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Which one.
    pub session: SessionId,
    /// How.
    pub ending: Ending,
}

/// A session of which one flow has gone.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// The flow that is to follow.
    pub left: SessionFlow,
    /// Why the first flow went.
    pub reason: EndReason,
    /// When it went.
    pub began: Instant,
}

impl Ends {
    /// There are sessions from now on.
    pub fn begin(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Whether there ever was a session in this run.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// How many sessions have ended.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Hears of an event, under the lock of its flow.
    pub fn note(&self, event: &Event) {
        let is_end = matches!(event, Event::Aged { .. } | Event::Evicted { .. } | Event::Deleted { .. });
        let Some(named) = is_end.then(|| SessionFlow::of(event.flow())).flatten() else { return };
        self.begin();
        let SessionFlow { session, direction } = named;
        let Event::Deleted { reason, counters, accepted, .. } = event else {
            self.state.lock().leaving.insert(session);
            return;
        };
        let (began, at) = (Instant::now(), SystemTime::now());
        let gone = Ending { reason: *reason, began, at, accepted: *accepted, forward: None, reverse: None }
            .with(direction, *counters);
        let mut state = self.state.lock();
        if let Some(claimed) = state.claimed.get_mut(&session) {
            *claimed = Some(claimed.map_or(gone, |earlier| earlier.and(&gone)));
            self.claimed_changed.notify_all();
            return;
        }
        let ending = state.halves.remove(&session).map_or(gone, |earlier| earlier.and(&gone));
        if ending.is_whole() {
            state.close(session, ending);
            return;
        }
        state.halves.insert(session, ending);
        state.fresh.push(session);
        drop(state);
        self.news.notify_one();
    }

    /// Waits until the other flow of a session is to be deleted.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// The sessions of which a flow has gone since this was last asked, and another one may be there.
    pub fn take_halves(&self) -> Vec<Half> {
        let mut state = self.state.lock();
        let fresh = std::mem::take(&mut state.fresh);
        fresh.into_iter().filter_map(|session| Some(state.halves.get(&session)?.half(session))).collect()
    }

    /// The sessions of which a flow has gone so long ago, and the other one has not followed.
    pub fn overdue(&self, patience: Duration) -> Vec<Half> {
        let state = self.state.lock();
        let overdue = state.halves.iter().filter(|(_, ending)| ending.began.elapsed() > patience);
        overdue.map(|(session, ending)| ending.half(*session)).collect()
    }

    /// The other flow of this session never comes: it is closed as it is.
    pub fn close(&self, session: SessionId) {
        let mut state = self.state.lock();
        if let Some(ending) = state.halves.remove(&session) {
            state.close(session, ending);
        }
    }

    /// Whether a session is about to end, so that its id is not free.
    pub fn is_ending(&self, session: SessionId) -> bool {
        let State { leaving, halves, claimed, .. } = &*self.state.lock();
        leaving.contains(&session) || halves.contains_key(&session) || claimed.contains_key(&session)
    }

    /// What is known of a session of which one flow has gone.
    pub fn ending(&self, session: SessionId) -> Option<Ending> {
        self.state.lock().halves.get(&session).copied()
    }

    /// From now on nobody else is told how this session ends. Says whether that was not so already.
    pub fn claim(&self, session: SessionId) -> bool {
        let mut state = self.state.lock();
        if state.claimed.contains_key(&session) {
            return false;
        }
        let half = state.halves.remove(&session);
        state.claimed.insert(session, half);
        true
    }

    /// Ends a claim, once both flows of the session have gone or so long after. Returns what is known.
    pub fn release(&self, session: SessionId, patience: Duration) -> Option<Ending> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            let known = state.claimed.get(&session).copied().flatten();
            let is_over = known.is_some_and(|ending| ending.is_whole());
            if is_over || self.claimed_changed.wait_until(&mut state, until).timed_out() {
                state.leaving.remove(&session);
                return state.claimed.remove(&session).flatten();
            }
        }
    }

    /// Takes closed sessions that were not told, the first to end first.
    pub fn take_closed(&self, most: usize) -> Vec<Closed> {
        let mut state = self.state.lock();
        let most = most.min(state.closed.len());
        state.closed.drain(..most).collect()
    }

    /// Takes sessions back that were not told after all.
    pub fn give_back(&self, closed: Vec<Closed>) {
        let mut state = self.state.lock();
        for closed in closed.into_iter().rev() {
            state.closed.push_front(closed);
        }
        state.forget_surplus();
    }
}

impl State {
    fn close(&mut self, session: SessionId, ending: Ending) {
        self.counts.closed += 1;
        self.leaving.remove(&session);
        self.closed.push_back(Closed { session, ending });
        self.forget_surplus();
    }

    fn forget_surplus(&mut self) {
        let surplus = self.closed.len().saturating_sub(CLOSED_KEPT);
        self.closed.drain(..surplus);
        self.counts.lost += surplus as u64;
    }
}

impl Ending {
    /// What a flow counted; `None` if it is not known to have gone.
    pub const fn counters(&self, direction: Direction) -> Option<Counters> {
        match direction {
            Direction::Forward => self.forward,
            Direction::Reverse => self.reverse,
        }
    }

    const fn is_whole(&self) -> bool {
        self.forward.is_some() && self.reverse.is_some()
    }

    fn with(mut self, direction: Direction, counters: Counters) -> Self {
        match direction {
            Direction::Forward => self.forward = Some(counters),
            Direction::Reverse => self.reverse = Some(counters),
        }
        self
    }

    /// What is known once another flow has gone, too.
    fn and(self, later: &Self) -> Self {
        let sum = |one: Option<Counters>, other: Option<Counters>| match (one, other) {
            // Two lives of one name: the second was deleted before it could count.
            (Some(one), Some(other)) => Some(Counters {
                packets: one.packets.saturating_add(other.packets),
                bytes: one.bytes.saturating_add(other.bytes),
                used: one.used.max(other.used),
                tcp_flags: one.tcp_flags | other.tcp_flags,
            }),
            (one, other) => one.or(other),
        };
        Self {
            at: later.at,
            accepted: self.accepted.min(later.accepted),
            forward: sum(self.forward, later.forward),
            reverse: sum(self.reverse, later.reverse),
            ..self
        }
    }

    const fn half(&self, session: SessionId) -> Half {
        let direction = if self.forward.is_none() { Direction::Forward } else { Direction::Reverse };
        Half { left: SessionFlow { session, direction }, reason: self.reason, began: self.began }
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::ufid::Seed;
    use sluice_flow::{ActionList, Expiry, Flow, MaskedKey, Match, Origin, Priority};

    use super::*;
    use crate::sessions::name::OWNER;

    /// The end of a flow that has counted so many packets.
    fn end(session: u64, direction: Direction, packets: u64, origin: Origin) -> Event {
        let ufid = SessionFlow { session: SessionId(session), direction }.ufid();
        let matching = MaskedKey::new(&Match::default());
        let (priority, expiry) = (Priority::default(), Expiry::default());
        let flow = Flow::new(Some(ufid), matching, ActionList::default(), priority, expiry, &Seed([0; 16]));
        let counters = Counters { packets, bytes: packets * 100, ..Counters::default() };
        let accepted = Timestamp(session);
        Event::Deleted { flow: flow.with_origin(origin), reason: EndReason::Idle, counters, accepted }
    }

    fn packets(ending: &Ending) -> [Option<u64>; 2] {
        Direction::BOTH.map(|direction| ending.counters(direction).map(|counters| counters.packets))
    }

    #[test]
    fn a_session_is_closed_once_both_flows_have_gone_and_told_once() {
        let ends = Ends::default();
        ends.note(&end(7, Direction::Reverse, 3, OWNER));
        let halves = ends.take_halves();
        assert_eq!(halves[0].left, SessionFlow { session: SessionId(7), direction: Direction::Forward });
        assert!(ends.take_halves().is_empty(), "its other flow is to be deleted once");
        assert_eq!(packets(&ends.ending(SessionId(7)).unwrap()), [None, Some(3)]);
        assert!(ends.take_closed(9).is_empty());
        ends.note(&end(7, Direction::Forward, 5, OWNER));
        let closed = ends.take_closed(9);
        assert_eq!(
            (closed.len(), closed[0].session, packets(&closed[0].ending)),
            (1, SessionId(7), [Some(5), Some(3)])
        );
        assert!(ends.take_closed(9).is_empty());
        ends.give_back(closed);
        assert_eq!(ends.take_closed(9).len(), 1, "it was not told after all");
        ends.note(&end(7, Direction::Forward, 5, Origin::Command));
        assert!(ends.take_halves().is_empty(), "the flow of somebody else");
    }

    #[test]
    fn an_id_is_free_once_nothing_of_the_session_is_on_its_way_out() {
        let ends = Ends::default();
        let gone = end(7, Direction::Forward, 5, OWNER);
        let aged = Event::Aged { flow: gone.flow().clone(), reason: EndReason::Idle };
        assert!(!ends.is_used() && !ends.is_ending(SessionId(7)));
        ends.note(&aged);
        assert!(ends.is_used() && ends.is_ending(SessionId(7)));
        ends.note(&gone);
        assert!(ends.is_ending(SessionId(7)));
        ends.note(&end(7, Direction::Reverse, 3, OWNER));
        assert!(!ends.is_ending(SessionId(7)));
        ends.note(&aged);
        assert!(ends.claim(SessionId(7)) && ends.is_ending(SessionId(7)));
        ends.release(SessionId(7), Duration::ZERO);
        assert!(!ends.is_ending(SessionId(7)));
    }

    #[test]
    fn a_flow_that_is_left_alone_for_good_is_closed_as_it_is() {
        let ends = Ends::default();
        ends.note(&end(7, Direction::Forward, 5, OWNER));
        assert!(ends.overdue(Duration::from_secs(60)).is_empty());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(ends.overdue(Duration::from_millis(1)).len(), 1);
        ends.close(SessionId(7));
        assert_eq!(packets(&ends.take_closed(9)[0].ending), [Some(5), None]);
    }

    #[test]
    fn who_deletes_a_session_hears_alone_how_it_ends() {
        let ends = Ends::default();
        ends.note(&end(7, Direction::Forward, 5, OWNER));
        assert!(ends.claim(SessionId(7)), "the first flow went by itself");
        assert!(!ends.claim(SessionId(7)), "by one at a time");
        assert!(ends.take_halves().is_empty());
        ends.note(&end(7, Direction::Reverse, 3, OWNER));
        let known = ends.release(SessionId(7), Duration::from_secs(60)).unwrap();
        assert_eq!(packets(&known), [Some(5), Some(3)]);
        assert!(ends.take_closed(9).is_empty());
        assert!(ends.claim(SessionId(7)));
        assert!(ends.release(SessionId(7), Duration::ZERO).is_none(), "nothing of it has gone");
    }

    #[test]
    fn the_first_to_end_go_and_are_counted_if_nobody_asks() {
        let ends = Ends::default();
        for session in 0..CLOSED_KEPT as u64 + 10 {
            Direction::BOTH.iter().for_each(|direction| ends.note(&end(session, *direction, 1, OWNER)));
        }
        assert_eq!(ends.counts(), Counts { closed: CLOSED_KEPT as u64 + 10, lost: 10 });
        let closed = ends.take_closed(usize::MAX);
        assert_eq!((closed.len(), closed[0].session), (CLOSED_KEPT, SessionId(10)));
    }
}
