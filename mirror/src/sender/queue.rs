//! The queue of a class: batches that wait for credit, those that are under way, and those that the collector has not acknowledged yet.
//!
//! A batch keeps its memory until the collector has acknowledged it. So a batch is never sent twice in one connection, and after a lost
//! one all that were not acknowledged are sent again, with the sequence numbers that they had. A batch gets its number when it is first posted,
//! so that the collector does not miss one that never was.

use std::collections::VecDeque;

use crate::wire::{Cause, ClassGrant, Drops, HEADER, Layout};

/// Batches of one class, in the order of their sequence numbers. `B` is the memory of a batch.
#[derive(Debug)]
pub(super) struct ClassQueue<B> {
    /// The sequence number behind the last frame of all that were ever posted.
    next_sequence: u64,
    batches: VecDeque<Queued<B>>,
    /// How many at the front were posted in this connection.
    posted: usize,
    /// Whether an earlier connection has left batches without memory.
    has_lost: bool,
    /// Frames behind the last batch that have sequence numbers and were given up.
    given_up: u64,
    /// Credit of this connection, as totals.
    granted: ClassGrant,
    used_messages: u64,
    used_bytes: u64,
    drops: Drops,
}

#[derive(Debug)]
struct Queued<B> {
    facts: Facts,
    /// The number of its first frame, once it was posted.
    sequence: Option<u64>,
    /// Frames right before it that have sequence numbers and were given up.
    given_up: u64,
    /// Where it came from.
    source: usize,
    /// `None` while the device has it, and for ever if the device has not given it back at the end of a connection.
    memory: Option<B>,
}

/// What is known of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) frames: u32,
    pub(super) captured: u64,
    pub(super) layout: Layout,
    /// Bytes of the payload.
    pub(super) length: usize,
}

/// A batch that is to be posted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Posted<B> {
    /// The number of its first frame.
    pub(super) sequence: u64,
    pub(super) facts: Facts,
    /// Frames right before it that have sequence numbers and were given up.
    pub(super) given_up: u64,
    pub(super) memory: B,
}

impl<B> Queued<B> {
    /// The number behind its last frame, once it was posted.
    fn end(&self) -> Option<u64> {
        Some(self.sequence? + u64::from(self.facts.frames))
    }
}

impl<B> Default for ClassQueue<B> {
    fn default() -> Self {
        Self {
            next_sequence: 0,
            batches: VecDeque::new(),
            posted: 0,
            has_lost: false,
            given_up: 0,
            granted: ClassGrant::default(),
            used_messages: 0,
            used_bytes: 0,
            drops: Drops::default(),
        }
    }
}

impl<B> ClassQueue<B> {
    /// Puts a batch of a source at the end.
    pub(super) fn push(&mut self, source: usize, batch: NewBatch<B>) {
        let NewBatch { frames, captured, layout, length, memory } = batch;
        let facts = Facts { frames, captured, layout, length };
        let given_up = std::mem::take(&mut self.given_up);
        self.batches.push_back(Queued { facts, sequence: None, given_up, source, memory: Some(memory) });
    }

    /// Whether there is a batch that [`ClassQueue::post`] would take.
    pub(super) fn may_post(&self) -> bool {
        self.batches.get(self.posted).is_some_and(|batch| batch.memory.is_some() && self.has_credit(batch))
    }

    fn has_credit(&self, batch: &Queued<B>) -> bool {
        let bytes = self.used_bytes.saturating_add(message_bytes(batch.facts.length));
        self.used_messages < self.granted.messages && bytes <= self.granted.bytes
    }

    /// Takes the memory of the next batch that there is credit for, to be posted with its sequence number.
    pub(super) fn post(&mut self) -> Option<Posted<B>> {
        if !self.may_post() {
            return None;
        }
        let batch = self.batches.get_mut(self.posted)?;
        let bytes = message_bytes(batch.facts.length);
        let memory = batch.memory.take()?;
        self.used_messages += 1;
        self.used_bytes += bytes;
        self.posted += 1;
        let sequence = *batch.sequence.get_or_insert(self.next_sequence);
        self.next_sequence = self.next_sequence.max(sequence + u64::from(batch.facts.frames));
        Some(Posted { sequence, facts: batch.facts, given_up: batch.given_up, memory })
    }

    /// Takes the memory of a batch back from the device: the batch has arrived, or it was lost with the connection. The batch is still
    /// here, since it stays for as long as the device has its memory.
    pub(super) fn returned(&mut self, sequence: u64, memory: B) {
        let place = self.batches.partition_point(|batch| batch.sequence.is_some_and(|known| known < sequence));
        if let Some(batch) = self.batches.get_mut(place).filter(|batch| batch.sequence == Some(sequence)) {
            batch.memory = Some(memory);
        }
    }

    /// Takes what the collector grants. By the first grant of a connection it is known of batches without memory whether they have arrived in
    /// an earlier one: those that have not cannot be sent again, and are counted as dropped.
    pub(super) fn grant(&mut self, grant: ClassGrant) -> Result<(), GrantError> {
        if grant.acknowledged > self.next_sequence {
            return Err(GrantError { acknowledged: grant.acknowledged, highest: self.next_sequence });
        }
        self.granted = grant;
        if std::mem::take(&mut self.has_lost) {
            let is_lost =
                |batch: &Queued<B>| batch.memory.is_none() && batch.end().is_some_and(|end| end > grant.acknowledged);
            while let Some(place) = self.batches.iter().position(is_lost) {
                self.give_up(place, Cause::ConnectionLost);
            }
        }
        Ok(())
    }

    /// Takes the next batch out that was acknowledged, and that the device does not have: its frames, source and memory, if that is left.
    pub(super) fn acknowledged(&mut self) -> Option<(Facts, usize, Option<B>)> {
        if self.is_held_by_device() || !self.is_first_acknowledged() {
            return None;
        }
        let batch = self.batches.pop_front()?;
        self.posted = self.posted.saturating_sub(1);
        Some((batch.facts, batch.source, batch.memory))
    }

    fn is_first_acknowledged(&self) -> bool {
        let end = self.batches.front().and_then(Queued::end);
        end.is_some_and(|end| end <= self.granted.acknowledged)
    }

    /// Whether the next batch was acknowledged, and is not [given back](Self::acknowledged) before the device is done with it.
    pub(super) fn is_held_by_device(&self) -> bool {
        let is_with_device = self.posted > 0 && self.batches.front().is_some_and(|first| first.memory.is_none());
        is_with_device && self.is_first_acknowledged()
    }

    /// Takes the next batch out that was not posted in this connection and whose message would be longer than this.
    pub(super) fn too_long(&mut self, longest: u64) -> Option<(usize, B)> {
        let fits = |batch: &Queued<B>| message_bytes(batch.facts.length) <= longest;
        if self.batches.get(self.posted).is_none_or(fits) {
            return None;
        }
        let batch = self.give_up(self.posted, Cause::TooLong)?;
        Some((batch.source, batch.memory?))
    }

    /// Takes a batch out and counts it as dropped. If it has a sequence number, the collector is told with the next batch that it will not
    /// come, and does not count it as missing, too.
    fn give_up(&mut self, place: usize, cause: Cause) -> Option<Queued<B>> {
        let batch = self.batches.remove(place)?;
        let frames = u64::from(batch.facts.frames);
        self.drops[cause] += frames;
        let given_up = self.batches.get_mut(place).map_or(&mut self.given_up, |next| &mut next.given_up);
        *given_up += batch.given_up + if batch.sequence.is_some() { frames } else { 0 };
        Some(batch)
    }

    /// Notes that the connection is lost, once all memory that the device has given back is here. All batches that were not acknowledged are
    /// to be sent again.
    pub(super) fn disconnected(&mut self) {
        self.has_lost |= self.batches.iter().any(|batch| batch.memory.is_none());
        self.posted = 0;
        self.granted = ClassGrant { messages: 0, bytes: 0, ..self.granted };
        (self.used_messages, self.used_bytes) = (0, 0);
    }

    /// Gives up all batches, which are counted as dropped.
    pub(super) fn stop(&mut self) {
        for batch in self.batches.drain(..) {
            self.drops[Cause::Stopped] += u64::from(batch.facts.frames);
        }
        self.posted = 0;
    }

    /// Returns how many frames are in the queue.
    pub(super) fn frames(&self) -> u64 {
        self.batches.iter().map(|batch| u64::from(batch.facts.frames)).sum()
    }

    /// Returns how many batches are with the collector, and not acknowledged.
    pub(super) fn under_way(&self) -> usize {
        self.posted
    }

    /// Whether batches wait that were not posted in this connection.
    pub(super) fn is_waiting(&self) -> bool {
        self.posted < self.batches.len()
    }

    /// Returns the credit that is left: messages and bytes.
    pub(super) fn credit(&self) -> (u64, u64) {
        (self.granted.messages.saturating_sub(self.used_messages), self.granted.bytes.saturating_sub(self.used_bytes))
    }

    /// Returns the frames that were dropped here.
    pub(super) fn drops(&self) -> Drops {
        self.drops
    }
}

/// A batch without a place in the order yet.
#[derive(Debug)]
pub(super) struct NewBatch<B> {
    pub(super) frames: u32,
    pub(super) captured: u64,
    pub(super) layout: Layout,
    pub(super) length: usize,
    pub(super) memory: B,
}

/// A collector acknowledges what it was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the collector acknowledges frames up to {acknowledged}, where {highest} were sent")]
pub(super) struct GrantError {
    acknowledged: u64,
    highest: u64,
}

/// Bytes of a message with a payload of that length.
fn message_bytes(length: usize) -> u64 {
    u64::try_from(HEADER + length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(frames: u32) -> NewBatch<u32> {
        NewBatch { frames, captured: 0, layout: Layout::Frames, length: 100, memory: frames }
    }

    fn credit(messages: u64, acknowledged: u64) -> ClassGrant {
        ClassGrant { messages, bytes: u64::MAX, acknowledged }
    }

    #[test]
    fn nothing_is_posted_beyond_the_credit_in_messages_or_in_bytes() {
        let mut queue = ClassQueue::default();
        (1..=4).for_each(|frames| queue.push(0, batch(frames)));
        assert!(queue.post().is_none(), "there is no credit yet");
        queue.grant(credit(2, 0)).unwrap();
        assert_eq!(queue.post().map(|posted| (posted.sequence, posted.memory)), Some((0, 1)));
        assert_eq!(queue.post().map(|posted| (posted.sequence, posted.memory)), Some((1, 2)));
        assert!(queue.post().is_none());
        let bytes = 3 * message_bytes(100);
        queue.grant(ClassGrant { messages: 9, bytes, acknowledged: 0 }).unwrap();
        assert_eq!(queue.post().map(|posted| posted.sequence), Some(3));
        assert!(queue.post().is_none());
        assert_eq!((queue.credit(), queue.is_waiting(), queue.under_way()), ((6, 0), true, 3));
    }

    #[test]
    fn memory_is_given_back_once_the_batch_is_acknowledged_and_the_device_is_done_with_it() {
        let mut queue = ClassQueue::default();
        (1..=2).for_each(|frames| queue.push(5, batch(frames)));
        queue.grant(credit(2, 0)).unwrap();
        let (first, second) = (queue.post().unwrap(), queue.post().unwrap());
        queue.returned(second.sequence, second.memory);
        queue.grant(credit(2, 3)).unwrap();
        assert!(queue.acknowledged().is_none(), "the device still has the first one");
        assert!(queue.is_held_by_device());
        queue.returned(first.sequence, first.memory);
        assert!(!queue.is_held_by_device());
        assert_eq!(queue.acknowledged().map(|(_, source, memory)| (source, memory)), Some((5, Some(1))));
        assert_eq!(queue.acknowledged().map(|(_, source, memory)| (source, memory)), Some((5, Some(2))));
        assert!(queue.acknowledged().is_none());
    }

    #[test]
    fn what_was_never_sent_cannot_be_acknowledged() {
        let mut queue = ClassQueue::default();
        queue.push(0, batch(5));
        assert_eq!(queue.grant(credit(1, 1)), Err(GrantError { acknowledged: 1, highest: 0 }));
        queue.grant(credit(1, 0)).unwrap();
        queue.post().unwrap();
        queue.grant(credit(1, 5)).unwrap();
    }

    #[test]
    fn a_batch_that_no_collector_takes_is_dropped_and_those_behind_it_go_on_as_if_it_had_not_been_there() {
        let mut queue = ClassQueue::default();
        queue.push(0, NewBatch { length: 10_000, ..batch(7) });
        queue.push(0, batch(1));
        assert_eq!(queue.too_long(5_000), Some((0, 7)));
        assert_eq!(queue.too_long(5_000), None);
        queue.grant(credit(1, 0)).unwrap();
        let posted = queue.post().map(|posted| (posted.sequence, posted.given_up));
        assert_eq!(posted, Some((0, 0)), "the collector would miss them");
        assert_eq!(queue.drops()[Cause::TooLong], 7, "of which it is told");
    }

    /// Three batches of 1, 2 and 3 frames that were posted when the connection was lost, and the places of those that the device has kept.
    fn lost(kept: &[usize]) -> ClassQueue<u32> {
        let mut queue = ClassQueue::default();
        (1..=3).for_each(|frames| queue.push(0, batch(frames)));
        queue.grant(credit(3, 0)).unwrap();
        for (place, posted) in [(); 3].map(|()| queue.post().unwrap()).into_iter().enumerate() {
            if !kept.contains(&place) {
                queue.returned(posted.sequence, posted.memory);
            }
        }
        queue.disconnected();
        queue
    }

    fn posted(queue: &mut ClassQueue<u32>) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| queue.post()).map(|posted| (posted.sequence, posted.given_up)).collect()
    }

    #[test]
    fn the_collector_is_told_of_frames_that_cannot_be_sent_again_with_the_next_batch() {
        let mut queue = lost(&[1]);
        queue.grant(credit(9, 0)).unwrap();
        assert_eq!(posted(&mut queue), [(0, 0), (3, 2)]);
        assert_eq!(queue.drops()[Cause::ConnectionLost], 2);

        let mut queue = lost(&[0, 1, 2]);
        queue.grant(credit(9, 0)).unwrap();
        assert!(posted(&mut queue).is_empty());
        queue.push(0, batch(4));
        assert_eq!(posted(&mut queue), [(6, 6)], "as soon as there is one");
        queue.push(0, batch(4));
        assert_eq!(posted(&mut queue), [(10, 0)], "and once");
        assert_eq!(queue.drops()[Cause::ConnectionLost], 6);
    }

    #[test]
    fn a_batch_that_the_next_collector_finds_too_long_leaves_no_gap_that_is_not_told_of() {
        let mut queue = lost(&[]);
        queue.batches[1].facts.length = 10_000;
        queue.grant(credit(9, 0)).unwrap();
        let first = queue.post().unwrap();
        assert_eq!((first.sequence, queue.too_long(5_000)), (0, Some((0, 2))));
        assert_eq!(posted(&mut queue), [(3, 2)]);
    }

    #[test]
    fn a_batch_has_arrived_if_the_next_grant_says_so_whatever_has_become_of_its_memory() {
        let mut queue = lost(&[0, 1]);
        queue.grant(credit(9, 1)).unwrap();
        assert_eq!(queue.acknowledged().map(|(facts, _, memory)| (facts.frames, memory)), Some((1, None)));
        assert!(queue.acknowledged().is_none());
        assert_eq!((queue.drops().total(), posted(&mut queue)), (2, vec![(3, 2)]));
    }

    /// What happens to a queue.
    #[derive(Debug, Clone)]
    enum Event {
        Push(u32),
        Credit(u64),
        Post,
        Returned,
        /// With so many of the batches that the device has lost for ever.
        Lost(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (1_u32..5).prop_map(Event::Push),
            (1_u64..3).prop_map(Event::Credit),
            Just(Event::Post),
            Just(Event::Post),
            Just(Event::Returned),
            (0_usize..2).prop_map(Event::Lost),
        ]
    }

    proptest! {
        /// A collector that has taken nothing twice has, with what is counted as dropped, everything in the end, and knows of each gap in what
        /// comes that nothing will fill it.
        #[test]
        fn each_frame_is_acknowledged_waits_or_is_counted_once(events in prop::collection::vec(event(), 0..120)) {
            let mut queue = ClassQueue::default();
            let (mut pushed, mut given_back, mut messages) = (0_u64, 0_u64, 0);
            let mut device = VecDeque::new();
            // Up to where the collector has taken everything that came.
            let mut taken = 0;
            for event in events {
                match event {
                    Event::Push(frames) => {
                        queue.push(0, batch(frames));
                        pushed += u64::from(frames);
                    }
                    Event::Credit(more) => {
                        messages += more;
                        queue.grant(credit(messages, taken)).unwrap();
                        while let Some((facts, ..)) = queue.acknowledged() {
                            given_back += u64::from(facts.frames);
                        }
                    }
                    Event::Post => device.extend(queue.post()),
                    Event::Returned => {
                        if let Some(Posted { sequence, facts, given_up, memory }) = device.pop_front() {
                            prop_assert!(sequence <= taken + given_up, "{taken} to {sequence}, but for {given_up}");
                            taken = taken.max(sequence + u64::from(facts.frames));
                            queue.returned(sequence, memory);
                        }
                    }
                    Event::Lost(lost) => {
                        for Posted { sequence, memory, .. } in device.drain(..).skip(lost) {
                            queue.returned(sequence, memory);
                        }
                        queue.disconnected();
                        messages = 0;
                    }
                }
                prop_assert_eq!(given_back + queue.frames() + queue.drops().total(), pushed);
            }
        }
    }
}
