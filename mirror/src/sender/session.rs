//! One connection of a sender.

use std::time::Duration;

use sluice_control::mirror::Class;
use tokio::time::Instant;

use super::queue::{ClassQueue, Facts, GrantError, Posted};
use crate::connection::{Connection, Left, Local};
use crate::verbs::{
    Buffer, CallError, Completion, Failure, Operation, Outcome, Payload, ReceiveRequest, Received, Remote, SendRequest,
    Sent,
};
use crate::wire::{
    CLASSES, Drops, GIVEN_UP, Grant, HEADER, HEARTBEAT, Header, Hello, Kind, PROBE, SOLICITED, WireError,
    write_heartbeat,
};

/// For how long a collector may leave a heartbeat without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a hello at most, header included: collectors have room for as many.
pub(crate) const CONTROL: usize = 32 << 10;

/// Messages of a class that the device has at a time: one beside which another is prepared, or as many as are short. More would only stand in
/// the way of other classes.
const IN_FLIGHT: InFlight = InFlight { messages: 2, bytes: 64 << 10 };

/// Of a request's tag: the lowest bit, above the sequence number, of the class.
const CLASS_SHIFT: u32 = 56;

/// Tag of a hello or heartbeat.
const CONTROL_TAG: u64 = u64::MAX;

/// Tag of a probe.
const PROBE_TAG: u64 = u64::MAX - 1;

/// A connection with all that is under way on it.
pub(super) struct Session {
    connection: Connection,
    sender: u64,
    /// Requests that are to be posted together.
    chain: Vec<SendRequest<'static>>,
    /// Free buffers for headers.
    headers: Vec<Buffer>,
    /// The buffer for hellos and heartbeats, while it is free.
    control: Option<Buffer>,
    controls: u64,
    answered: u64,
    asked: Instant,
    is_probing: bool,
    in_flight: [InFlight; CLASSES],
    returned: Vec<(Class, u64, Buffer)>,
    granted: Option<Grant>,
    longest: Option<u64>,
    completions: Vec<Completion>,
    grants: u32,
    /// Something waits until the device is done with what it has.
    wants_completions: bool,
}

/// Messages of a class that the device has, and the bytes of their batches.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    messages: u32,
    bytes: usize,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("a message was not sent: {0}")]
    Send(Failure),
    #[error("a grant was not received: {0}")]
    Receive(Failure),
    #[error(transparent)]
    Left(#[from] Left),
    #[error("the collector sent what is no grant: {0}")]
    Wire(#[from] WireError),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("the collector has not answered a heartbeat within {} seconds", PATIENCE.as_secs())]
    Silence,
}

impl Session {
    pub(super) fn new(local: &Local, connection: Connection, sender: u64) -> Result<Self, CallError> {
        let room = connection.pair.room();
        let count = usize::try_from(room.sends).unwrap_or(usize::MAX);
        const SPACED: usize = HEADER.next_multiple_of(64);
        let mut memory = local.domain().buffer(count * SPACED)?;
        let headers = (0..count).map(|_| {
            let mut header = memory.split_to(SPACED);
            header.truncate(HEADER);
            header
        });
        let headers = headers.collect();
        Ok(Self {
            connection,
            sender,
            chain: Vec::new(),
            headers,
            control: Some(local.domain().buffer(CONTROL)?),
            controls: 0,
            answered: 0,
            asked: Instant::now(),
            is_probing: false,
            in_flight: Default::default(),
            returned: Vec::new(),
            granted: None,
            longest: None,
            completions: Vec::new(),
            grants: local.capacity().receives,
            wants_completions: false,
        })
    }

    pub(super) fn peer(&self) -> &str {
        &self.connection.peer
    }

    /// For how many grants there are receive requests.
    pub(super) fn grants(&self) -> u32 {
        self.grants
    }

    /// Waits until the device or the other end tells of something, and takes it. Nothing is lost if this is dropped before it is done.
    pub(super) async fn happened(&mut self) -> Result<(), SessionError> {
        let Connection { completions, gone, agreed, .. } = &mut self.connection;
        let told = &mut self.completions;
        // That a batch was sent need not be known before it is acknowledged, unless something waits for that.
        let is_any_wanted = agreed.terms.features & SOLICITED == 0 || self.wants_completions || self.is_probing;
        let next =
            async { if is_any_wanted { completions.next(told).await } else { completions.next_solicited(told).await } };
        tokio::select! {
            told = next => {
                told?;
            }
            why = gone => return Err(why.into()),
        }
        let mut told = std::mem::take(&mut self.completions);
        let mut outcome = Ok(());
        for Completion { outcome: told, .. } in told.drain(..) {
            // All buffers come back, whatever has failed.
            outcome = outcome.and(self.take(told));
        }
        self.completions = told;
        outcome
    }

    fn take(&mut self, outcome: Outcome) -> Result<(), SessionError> {
        match outcome {
            Outcome::Sent(sent) => {
                sent.into_iter().for_each(|sent| self.sent(sent));
                Ok(())
            }
            Outcome::SendFailed { before, failed, failure } => {
                before.into_iter().chain([failed]).for_each(|sent| self.sent(sent));
                Err(SessionError::Send(failure))
            }
            Outcome::Received(received) => self.received(received),
            Outcome::ReceiveFailed { failure, .. } => Err(SessionError::Receive(failure)),
        }
    }

    fn sent(&mut self, sent: Sent) {
        let mut buffers = sent.buffers.into_iter();
        match sent.tag {
            CONTROL_TAG => {
                self.control = buffers.next();
                return;
            }
            PROBE_TAG => {
                self.is_probing = false;
                return;
            }
            _ => {}
        }
        let code = u8::try_from(sent.tag >> CLASS_SHIFT).unwrap_or(u8::MAX);
        let (Some(class), Some(header), Some(payload)) = (Class::of_code(code), buffers.next(), buffers.next()) else {
            return;
        };
        self.headers.push(header);
        let in_flight = &mut self.in_flight[class.index()];
        in_flight.messages -= 1;
        in_flight.bytes -= payload.len();
        self.returned.push((class, sent.tag & ((1 << CLASS_SHIFT) - 1), payload));
    }

    fn received(&mut self, received: Received) -> Result<(), SessionError> {
        let Received { tag, buffers, length, .. } = received;
        let grant = Grant::parse(buffers.first().and_then(|buffer| buffer.get(..length)).unwrap_or_default())?;
        self.connection.pair.receive(vec![ReceiveRequest { tag, buffers }]).map_err(|refused| refused.error)?;
        self.answered = grant.controls;
        self.longest = Some(grant.longest.into());
        self.granted = Some(grant);
        Ok(())
    }

    /// Returns the payloads of batches that the device is done with, by their class and sequence number.
    pub(super) fn returned(&mut self) -> Vec<(Class, u64, Buffer)> {
        std::mem::take(&mut self.returned)
    }

    /// Returns the latest grant, once.
    pub(super) fn granted(&mut self) -> Option<Grant> {
        self.granted.take()
    }

    /// Returns how long a message may be; `None` before the first grant.
    pub(super) fn longest(&self) -> Option<u64> {
        self.longest
    }

    /// Whether the device can take another batch of a class.
    pub(super) fn has_room(&self, class: Class) -> bool {
        let in_flight = self.in_flight[class.index()];
        let is_short = in_flight.messages < IN_FLIGHT.messages || in_flight.bytes < IN_FLIGHT.bytes;
        is_short && !self.headers.is_empty()
    }

    /// Notes whether something waits until the device is done with what it has.
    pub(super) fn want_completions(&mut self, wants_completions: bool) {
        self.wants_completions = wants_completions;
    }

    /// Adds a batch to what is to be posted.
    pub(super) fn batch(&mut self, class: Class, posted: Posted<Buffer>, drops: Drops) {
        let Some(mut header) = self.headers.pop() else { return };
        let Posted { sequence, facts: Facts { frames, captured, layout, length }, given_up, memory: payload } = posted;
        let given_up = if self.connection.agreed.terms.features & GIVEN_UP == 0 { 0 } else { given_up };
        let given_up = u32::try_from(given_up).unwrap_or(u32::MAX);
        let kind = Kind::Batch { class, layout, frames, sequence, captured, given_up, drops };
        Header { sender: self.sender, length: u32::try_from(length).unwrap_or(u32::MAX), kind }.write(&mut header);
        let in_flight = &mut self.in_flight[class.index()];
        in_flight.messages += 1;
        in_flight.bytes += payload.len();
        self.chain.push(SendRequest {
            tag: u64::from(class.code()) << CLASS_SHIFT | sequence,
            operation: Operation::Send,
            immediate: None,
            payload: Payload::Buffers(vec![header, payload]),
            is_signalled: false,
            is_solicited: true,
        });
    }

    /// Whether the last hello or heartbeat was answered.
    pub(super) fn may_send_control(&self) -> bool {
        self.control.is_some() && self.answered == self.controls
    }

    /// Fails if the collector owes an answer for too long.
    pub(super) fn check_answer(&self) -> Result<(), SessionError> {
        if self.answered == self.controls || self.asked.elapsed() < PATIENCE {
            Ok(())
        } else {
            Err(SessionError::Silence)
        }
    }

    /// Has the device of the other end answer, whatever the collector does: without it, a cut link would not show while nothing may be sent.
    /// Nothing is written by it, for it has no bytes.
    pub(super) fn probe(&mut self) -> Result<(), SessionError> {
        let is_known = self.connection.agreed.terms.features & PROBE != 0;
        let is_idle = self.control.is_some() && self.in_flight.iter().all(|in_flight| in_flight.messages == 0);
        if !is_known || !is_idle || self.is_probing {
            return Ok(());
        }
        self.is_probing = true;
        self.chain.push(SendRequest {
            tag: PROBE_TAG,
            operation: Operation::Write(Remote { address: 0, key: 0 }),
            immediate: None,
            payload: Payload::Buffers(Vec::new()),
            is_signalled: true,
            is_solicited: false,
        });
        self.post()
    }

    pub(super) fn hello(&mut self, hello: &Hello) -> Result<(), SessionError> {
        let bytes = hello.bytes(CONTROL - HEADER);
        self.control(Kind::Hello, bytes.len(), |into| into.copy_from_slice(&bytes))
    }

    pub(super) fn heartbeat(&mut self, drops: impl Iterator<Item = Drops>) -> Result<(), SessionError> {
        self.control(Kind::Heartbeat, HEARTBEAT, |into| write_heartbeat(drops, into))
    }

    fn control(&mut self, kind: Kind, length: usize, write: impl FnOnce(&mut [u8])) -> Result<(), SessionError> {
        let Some(mut buffer) = self.control.take() else { return Ok(()) };
        buffer.restore();
        buffer.truncate(HEADER + length);
        Header { sender: self.sender, length: u32::try_from(length).unwrap_or(u32::MAX), kind }.write(&mut buffer);
        write(&mut buffer[HEADER..]);
        self.controls += 1;
        self.asked = Instant::now();
        self.chain.push(SendRequest {
            tag: CONTROL_TAG,
            operation: Operation::Send,
            immediate: None,
            payload: Payload::Buffers(vec![buffer]),
            is_signalled: false,
            is_solicited: true,
        });
        self.post()
    }

    /// Posts what has been added. Only the last request of a chain is signalled: its completion brings the others back.
    pub(super) fn post(&mut self) -> Result<(), SessionError> {
        let Some(last) = self.chain.last_mut() else { return Ok(()) };
        last.is_signalled = true;
        let chain = std::mem::take(&mut self.chain);
        self.connection.pair.send(chain).map_err(|refused| {
            for request in refused.rest {
                if let Payload::Buffers(buffers) = request.payload {
                    self.sent(Sent { tag: request.tag, buffers });
                }
            }
            SessionError::Call(refused.error)
        })
    }

    /// Ends the connection, and gives the memory of all batches back to their queues.
    pub(super) fn end(mut self, queues: &mut [ClassQueue<Buffer>; CLASSES]) {
        for request in std::mem::take(&mut self.chain) {
            if let Payload::Buffers(buffers) = request.payload {
                self.sent(Sent { tag: request.tag, buffers });
            }
        }
        let mut returned = self.returned();
        let Self { connection: Connection { pair, completions, .. }, completions: mut told, .. } = self;
        // Brings everything back.
        drop(pair);
        // What cannot be polled is counted as lost.
        completions.poll(&mut told).unwrap_or_default();
        for Completion { outcome, .. } in told {
            let (before, failed) = match outcome {
                Outcome::Sent(sent) => (sent, None),
                Outcome::SendFailed { before, failed, .. } => (before, Some(failed)),
                Outcome::Received(_) | Outcome::ReceiveFailed { .. } => continue,
            };
            for Sent { tag, buffers } in before.into_iter().chain(failed) {
                let code = u8::try_from(tag >> CLASS_SHIFT).unwrap_or(u8::MAX);
                if let (Some(class), Some(payload)) = (Class::of_code(code), buffers.into_iter().nth(1)) {
                    returned.push((class, tag & ((1 << CLASS_SHIFT) - 1), payload));
                }
            }
        }
        for (class, sequence, buffer) in returned {
            queues[class.index()].returned(sequence, buffer);
        }
    }
}
