//! The answers to a sender, which are grants. Whoever has done something for it gives the answer: the thread that writes after a batch, so
//! that nobody else is woken for it, and the session after a heartbeat, also while that thread stands still in a slow output.

use parking_lot::Mutex;
use sluice_control::mirror::{CLASSES, Class};
use tokio::sync::Notify;

use super::metrics::CollectorMetrics;
use super::writer::Message;
use crate::connection::Local;
use crate::verbs::{Buffer, CallError, Operation, Payload, QueuePair, ReceiveRequest, SendRequest, Sent};
use crate::wire::{ClassGrant, GRANT, Grant};

/// Grants that the device has at a time: what is to be granted meanwhile goes with the next one.
pub(super) const GRANTS: u32 = 4;

/// The answers to the sender of one connection.
pub(super) struct Answers {
    /// `None` once the connection is over.
    open: Mutex<Option<Open>>,
    /// Tells the session that it is to look at what the other thread has left.
    nudge: Notify,
}

struct Open {
    pair: QueuePair,
    metrics: CollectorMetrics,
    /// All that is granted, and as much of it as the sender was told.
    grant: Grant,
    told: Grant,
    /// Messages and bytes of each class that a sender may have under way.
    credit: (u64, u64),
    used: [ClassGrant; CLASSES],
    is_welcome: bool,
    /// A hello waits for its answer.
    is_greeting: bool,
    /// Hellos and batches that wait to be done.
    waiting: usize,
    free: Vec<Buffer>,
    /// What has failed in the other thread.
    error: Option<CallError>,
}

impl Answers {
    /// With the queue pair of a connection, which is destroyed when these are [closed](Self::close).
    pub(super) fn new(
        local: &Local,
        pair: QueuePair,
        longest: u32,
        metrics: CollectorMetrics,
    ) -> Result<Self, CallError> {
        const SPACED: usize = GRANT.next_multiple_of(64);
        let mut memory = local.domain().buffer(GRANTS as usize * SPACED)?;
        let free = (0..GRANTS).map(|_| {
            let mut buffer = memory.split_to(SPACED);
            buffer.truncate(GRANT);
            buffer
        });
        let open = Open {
            pair,
            metrics,
            grant: Grant { longest, ..Grant::default() },
            told: Grant::default(),
            credit: (0, 0),
            used: Default::default(),
            is_welcome: false,
            is_greeting: false,
            waiting: 0,
            free: free.collect(),
            error: None,
        };
        Ok(Self { open: Mutex::new(Some(open)), nudge: Notify::new() })
    }

    /// Those of a connection that is over.
    #[cfg(test)]
    pub(super) fn closed() -> Self {
        Self { open: Mutex::new(None), nudge: Notify::new() }
    }

    /// Ends the connection. What is still being done for it has no answer.
    pub(super) fn close(&self) {
        let open = self.open.lock().take();
        // Not under the lock, for a queue pair waits until all that it has comes back.
        drop(open);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.lock().is_none()
    }

    /// Does something unless the connection is over.
    fn with<T: Default>(&self, act: impl FnOnce(&mut Open) -> T) -> T {
        self.open.lock().as_mut().map(act).unwrap_or_default()
    }

    fn call(&self, act: impl FnOnce(&mut Open) -> Result<(), CallError>) -> Result<(), CallError> {
        self.open.lock().as_mut().map_or(Ok(()), act)
    }

    /// Waits until the other thread has left something to be looked at. Nothing is lost if this is dropped before it is done.
    pub(super) async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Sends an answer if one is due.
    pub(super) fn answer(&self) -> Result<(), CallError> {
        self.call(|open| open.error.take().map_or_else(|| open.answer(), Err))
    }

    /// Whether a grant may be due before another message comes, and no memory is left for it.
    pub(super) fn wants_memory(&self) -> bool {
        self.with(|open| open.free.is_empty())
    }

    /// Whether something waits to be done.
    pub(super) fn owes(&self) -> bool {
        self.with(|open| open.waiting > 0)
    }

    /// Takes the memory of grants back that were sent.
    pub(super) fn sent(&self, sent: Vec<Sent>) {
        self.with(|open| open.free.extend(sent.into_iter().flat_map(|sent| sent.buffers)));
    }

    /// Posts the receive request of a message again.
    pub(super) fn again(&self, message: Message) -> Result<(), CallError> {
        self.call(|open| open.again(message))
    }

    /// Grants so many messages and bytes of each class at first.
    pub(super) fn begin(&self, messages: u64, bytes: u64) {
        self.with(|open| {
            open.credit = (messages, bytes);
            for class in &mut open.grant.classes {
                (class.messages, class.bytes) = (messages, bytes);
            }
            Class::ALL.into_iter().for_each(|class| open.metrics.granted(class, messages));
        });
    }

    /// Notes that a hello waits for its answer. Returns false if one waits already: hellos take no credit, so that this alone bounds how many
    /// wait for an output that stands still.
    pub(super) fn greeted(&self) -> bool {
        self.with(|open| {
            let is_first = !std::mem::replace(&mut open.is_greeting, true);
            open.waiting += usize::from(is_first);
            is_first
        })
    }

    /// Notes that the sender is known, and up to where each class was taken over.
    pub(super) fn welcome(&self, acknowledged: [u64; CLASSES]) {
        self.done(|open| {
            (open.is_welcome, open.is_greeting) = (true, false);
            open.grant.controls += 1;
            for (class, acknowledged) in open.grant.classes.iter_mut().zip(acknowledged) {
                class.acknowledged = acknowledged;
            }
            Ok(())
        });
    }

    /// Notes that a heartbeat was taken.
    pub(super) fn beaten(&self) {
        self.with(|open| open.grant.controls += 1);
    }

    /// Notes that a batch of so many bytes waits to be done. Returns false if there is no credit for it.
    pub(super) fn came(&self, class: Class, bytes: u64) -> bool {
        self.with(|open| {
            let (granted, used) = (&open.grant.classes[class.index()], &mut open.used[class.index()]);
            used.messages += 1;
            used.bytes += bytes;
            open.waiting += 1;
            open.is_welcome && used.messages <= granted.messages && used.bytes <= granted.bytes
        })
    }

    /// Notes that a batch was taken over, up to that sequence number. The memory of its message is free.
    pub(super) fn written(&self, class: Class, acknowledged: u64, message: Message) {
        self.done(|open| {
            let grant = &mut open.grant.classes[class.index()];
            grant.messages += 1;
            grant.bytes += message.length as u64;
            grant.acknowledged = acknowledged;
            open.metrics.granted(class, 1);
            // Before the sender can hear of it.
            open.again(message)
        });
    }

    /// Answers for the thread that writes.
    fn done(&self, note: impl FnOnce(&mut Open) -> Result<(), CallError>) {
        let is_to_look = self.with(|open| {
            open.waiting -= 1;
            if let Err(error) = note(open).and_then(|()| open.answer()) {
                open.error = Some(error);
            }
            open.error.is_some() || open.free.is_empty()
        });
        if is_to_look {
            self.nudge.notify_one();
        }
    }
}

impl Open {
    fn again(&mut self, message: Message) -> Result<(), CallError> {
        let Message { tag, buffers, .. } = message;
        self.pair.receive(vec![ReceiveRequest { tag, buffers }]).map_err(|refused| refused.error)
    }

    fn answer(&mut self) -> Result<(), CallError> {
        if !self.is_welcome || !self.is_due() {
            return Ok(());
        }
        let Some(mut buffer) = self.free.pop() else { return Ok(()) };
        buffer.copy_from_slice(&self.grant.bytes());
        self.told = self.grant;
        let request = SendRequest {
            tag: 0,
            operation: Operation::Send,
            immediate: None,
            payload: Payload::Buffers(vec![buffer]),
            is_signalled: true,
            is_solicited: true,
        };
        self.pair.send(vec![request]).map_err(|refused| refused.error)
    }

    /// What is granted goes together as long as more of the sender is being done, unless it waits for the answer to a hello or heartbeat, or
    /// half of what it may have under way of a class is to be granted again.
    fn is_due(&self) -> bool {
        let (messages, bytes) = self.credit;
        let is_half = |(grant, told): (&ClassGrant, &ClassGrant)| {
            2 * (grant.messages - told.messages) >= messages || (grant.bytes - told.bytes).saturating_mul(2) >= bytes
        };
        let is_asked = self.grant.controls != self.told.controls;
        let is_last = self.waiting == 0 && self.grant != self.told;
        is_asked || is_last || self.grant.classes.iter().zip(&self.told.classes).any(is_half)
    }
}
