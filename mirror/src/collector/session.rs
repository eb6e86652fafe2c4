//! One connection of a collector: what comes goes to the writer, and what the writer is done with is granted again.
//!
//! A queue pair has as many receive requests as messages were granted, and two more for hellos and heartbeats, of which a sender has one
//! under way. So no message ever meets an empty receive queue. A grant follows at least one message, and a sender has room for as many
//! grants as messages are granted.

use std::time::Duration;

use sluice_control::mirror::{CLASSES, Class};
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::metrics::CollectorMetrics;
use super::senders::Batch;
use super::writer::{Done, Job, Jobs, LatestDrops, Message};
use super::{CONTROLS, CollectorConfig};
use crate::connection::{Connection, Left, Local};
use crate::verbs::{Buffer, CallError, Completion, Failure, Operation, Outcome, Payload, ReceiveRequest, SendRequest};
use crate::wire::{self, ClassGrant, GRANT, Grant, Header, Hello, Kind, WireError};

/// Grants that the device has at a time: what is to be granted meanwhile goes with the next one.
pub(super) const GRANTS: u32 = 1;

/// How long a sender may say nothing while it is owed nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// A connection with a sender.
pub(super) struct Session {
    connection: Connection,
    jobs: Jobs,
    metrics: CollectorMetrics,
    config: CollectorConfig,
    done: (mpsc::UnboundedSender<Done>, mpsc::UnboundedReceiver<Done>),
    /// Who it is, once that was said.
    sender: Option<u64>,
    is_welcome: bool,
    grant: Grant,
    used: [ClassGrant; CLASSES],
    is_grant_due: bool,
    free: Vec<Buffer>,
    /// Jobs without an answer.
    waiting: usize,
    /// One of them is a hello.
    is_greeting: bool,
    drops: LatestDrops,
    heard: Instant,
    completions: Vec<Completion>,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("a grant was not sent: {0}")]
    Send(Failure),
    #[error("a message was not received: {0}")]
    Receive(Failure),
    #[error(transparent)]
    Left(#[from] Left),
    #[error("it has said nothing for {} seconds", SILENCE.as_secs())]
    Silence,
    #[error("it is refused: {0}")]
    Wire(#[from] WireError),
    #[error("it is refused: {0}")]
    Refused(&'static str),
}

impl End {
    /// Whether this is because of what the sender sent.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Wire(_) | Self::Refused(_))
    }
}

impl Session {
    pub(super) fn new(
        local: &Local,
        connection: Connection,
        jobs: Jobs,
        metrics: CollectorMetrics,
        config: CollectorConfig,
    ) -> Result<Self, CallError> {
        const SPACED: usize = GRANT.next_multiple_of(64);
        let mut memory = local.domain().buffer(GRANTS as usize * SPACED)?;
        let free = (0..GRANTS).map(|_| {
            let mut buffer = memory.split_to(SPACED);
            buffer.truncate(GRANT);
            buffer
        });
        let free = free.collect();
        Ok(Self {
            connection,
            jobs,
            metrics,
            config,
            done: mpsc::unbounded_channel(),
            sender: None,
            is_welcome: false,
            grant: Grant { longest: config.longest, ..Grant::default() },
            used: Default::default(),
            is_grant_due: false,
            free,
            waiting: 0,
            is_greeting: false,
            drops: LatestDrops::default(),
            heard: Instant::now(),
            completions: Vec::new(),
        })
    }

    pub(super) fn peer(&self) -> &str {
        &self.connection.peer
    }

    /// Serves the sender until the connection ends.
    pub(super) async fn serve(&mut self) -> End {
        loop {
            // The device may always have more to tell of, and others of this thread are to have their turn.
            consume_budget().await;
            let outcome = self.step().await.and_then(|()| self.answer());
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    async fn step(&mut self) -> Result<(), End> {
        let Connection { completions, gone, .. } = &mut self.connection;
        let deadline = self.heard + SILENCE;
        tokio::select! {
            told = completions.next(&mut self.completions) => {
                told?;
                self.heard = Instant::now();
                for Completion { outcome, .. } in std::mem::take(&mut self.completions) {
                    self.take(outcome)?;
                }
                Ok(())
            }
            done = self.done.1.recv() => {
                let mut done = done;
                while let Some(this) = done {
                    self.done(this)?;
                    done = self.done.1.try_recv().ok();
                }
                Ok(())
            }
            why = gone => Err(why.into()),
            () = sleep_until(deadline), if self.waiting == 0 => Err(End::Silence),
        }
    }

    fn take(&mut self, outcome: Outcome) -> Result<(), End> {
        match outcome {
            Outcome::Sent(sent) => {
                self.free.extend(sent.into_iter().flat_map(|sent| sent.buffers));
                Ok(())
            }
            Outcome::SendFailed { failure, .. } => Err(End::Send(failure)),
            Outcome::ReceiveFailed { failure, .. } => Err(End::Receive(failure)),
            Outcome::Received(received) => {
                let message = Message { tag: received.tag, buffers: received.buffers, length: received.length };
                self.message(message)
            }
        }
    }

    fn message(&mut self, message: Message) -> Result<(), End> {
        let parsed = wire::Message::parse(message.bytes())?;
        let Header { sender, kind, length: _ } = parsed.header;
        if self.sender.is_some_and(|known| known != sender) {
            return Err(End::Refused("the number of the sender changes within a connection"));
        }
        match kind {
            Kind::Hello => {
                // It takes no credit, so that this alone bounds how many wait for an output that stands still.
                if self.is_greeting {
                    return Err(End::Refused("a hello came before the last one was answered"));
                }
                let hello = Hello::parse(parsed.payload)?;
                let is_first = self.sender.is_none();
                if is_first {
                    self.first(&hello)?;
                }
                self.sender = Some(sender);
                self.waiting += 1;
                self.is_greeting = true;
                self.jobs.submit(Job::Hello { sender, hello, is_first, done: self.done.0.clone() });
                self.again(message)
            }
            Kind::Heartbeat => {
                if self.sender.is_none() {
                    return Err(End::Refused("a heartbeat came before a hello"));
                }
                let drops = parsed.class_drops().collect();
                self.jobs.submit_drops(sender, &self.drops, drops);
                self.grant.controls += 1;
                self.is_grant_due = true;
                self.again(message)
            }
            Kind::Batch { class, layout, frames, sequence, given_up, drops, captured: _ } => {
                let (granted, used) = (self.grant.classes[class.index()], &mut self.used[class.index()]);
                used.messages += 1;
                used.bytes += message.length as u64;
                if !self.is_welcome || used.messages > granted.messages || used.bytes > granted.bytes {
                    return Err(End::Refused("a batch came for which there was no credit"));
                }
                self.waiting += 1;
                let batch = Batch { sender, class, layout, frames, sequence, given_up, drops };
                self.jobs.submit(Job::Batch { batch, message, done: self.done.0.clone() });
                Ok(())
            }
        }
    }

    /// Works out the credit of a sender, by what both ends have room for.
    fn first(&mut self, hello: &Hello) -> Result<(), End> {
        let classes = CLASSES as u64;
        let messages = u64::from(hello.grants.saturating_sub(CONTROLS)) / classes;
        let messages = messages.min(self.config.messages.into());
        if messages == 0 {
            return Err(End::Refused("it has no room for a grant of each class"));
        }
        for class in &mut self.grant.classes {
            class.messages = messages;
            class.bytes = self.config.bytes.max(self.config.longest.into());
        }
        Class::ALL.into_iter().for_each(|class| self.metrics.granted(class, messages));
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), End> {
        self.waiting -= 1;
        self.is_grant_due = true;
        match done {
            Done::Welcome(acknowledged) => {
                self.is_welcome = true;
                self.is_greeting = false;
                self.grant.controls += 1;
                for (class, acknowledged) in self.grant.classes.iter_mut().zip(acknowledged) {
                    class.acknowledged = acknowledged;
                }
                Ok(())
            }
            Done::Batch { class, acknowledged, message } => {
                let grant = &mut self.grant.classes[class.index()];
                grant.messages += 1;
                grant.bytes += message.length as u64;
                grant.acknowledged = acknowledged;
                self.metrics.granted(class, 1);
                self.again(message)
            }
        }
    }

    /// Posts the receive request of a message again.
    fn again(&mut self, message: Message) -> Result<(), End> {
        let Message { tag, buffers, .. } = message;
        Ok(self.connection.pair.receive(vec![ReceiveRequest { tag, buffers }]).map_err(|refused| refused.error)?)
    }

    /// Sends a grant if one is due and the device can take it.
    fn answer(&mut self) -> Result<(), End> {
        if !self.is_grant_due || !self.is_welcome {
            return Ok(());
        }
        let Some(mut buffer) = self.free.pop() else { return Ok(()) };
        self.is_grant_due = false;
        buffer.copy_from_slice(&self.grant.bytes());
        let request = SendRequest {
            tag: 0,
            operation: Operation::Send,
            immediate: None,
            payload: Payload::Buffers(vec![buffer]),
            is_signalled: true,
            is_solicited: false,
        };
        Ok(self.connection.pair.send(vec![request]).map_err(|refused| refused.error)?)
    }
}
