//! One connection of a collector: what comes goes to the writer, which [answers](Answers) what it is done with.
//!
//! A queue pair has as many receive requests as messages were granted, and two more for hellos and heartbeats, of which a sender has one
//! under way. So no message ever meets an empty receive queue. A grant follows at least one message, and a sender has room for as many
//! grants as messages are granted.

use std::sync::Arc;
use std::time::Duration;

use sluice_control::mirror::CLASSES;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::answers::Answers;
use super::metrics::CollectorMetrics;
use super::senders::Batch;
use super::writer::{Job, Jobs, LatestDrops, Message};
use super::{CONTROLS, CollectorConfig};
use crate::connection::{Connection, Left, Local, Watched};
use crate::verbs::{CallError, Completion, Failure, Outcome};
use crate::wire::{self, Header, Hello, Kind, SOLICITED, WireError};

/// How long a sender may say nothing while it is owed nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// A connection with a sender.
pub(super) struct Session {
    watched: Watched,
    answers: Arc<Answers>,
    jobs: Jobs,
    config: CollectorConfig,
    /// Who it is, once that was said.
    sender: Option<u64>,
    /// Its messages are solicited.
    is_solicited: bool,
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
        let is_solicited = connection.agreed.terms.features & SOLICITED != 0;
        let (pair, watched) = connection.split();
        Ok(Self {
            watched,
            answers: Arc::new(Answers::new(local, pair, config.longest, metrics)?),
            jobs,
            config,
            sender: None,
            is_solicited,
            drops: LatestDrops::default(),
            heard: Instant::now(),
            completions: Vec::new(),
        })
    }

    pub(super) fn peer(&self) -> &str {
        &self.watched.peer
    }

    /// Serves the sender until the connection ends.
    pub(super) async fn serve(&mut self) -> End {
        loop {
            // The device may always have more to tell of, and others of this thread are to have their turn.
            consume_budget().await;
            let outcome = self.step().await.and_then(|()| Ok(self.answers.answer()?));
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    async fn step(&mut self) -> Result<(), End> {
        let Watched { completions, gone, .. } = &mut self.watched;
        let told = &mut self.completions;
        // Of grants that were sent nobody needs to know before the next message, as long as there is memory for others.
        let is_any_wanted = !self.is_solicited || self.answers.wants_memory();
        let next =
            async { if is_any_wanted { completions.next(told).await } else { completions.next_solicited(told).await } };
        let deadline = self.heard + SILENCE;
        tokio::select! {
            told = next => {
                told?;
                self.heard = Instant::now();
                for Completion { outcome, .. } in std::mem::take(&mut self.completions) {
                    self.take(outcome)?;
                }
                Ok(())
            }
            () = self.answers.nudged() => Ok(()),
            why = gone => Err(why.into()),
            () = sleep_until(deadline) => {
                if !self.answers.owes() {
                    return Err(End::Silence);
                }
                self.heard = Instant::now();
                Ok(())
            }
        }
    }

    fn take(&mut self, outcome: Outcome) -> Result<(), End> {
        match outcome {
            Outcome::Sent(sent) => {
                self.answers.sent(sent);
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
                if !self.answers.greeted() {
                    return Err(End::Refused("a hello came before the last one was answered"));
                }
                let hello = Hello::parse(parsed.payload)?;
                let is_first = self.sender.is_none();
                if is_first {
                    self.first(&hello)?;
                }
                self.sender = Some(sender);
                self.jobs.submit_hello(sender, hello, is_first, &self.answers);
                Ok(self.answers.again(message)?)
            }
            Kind::Heartbeat => {
                if self.sender.is_none() {
                    return Err(End::Refused("a heartbeat came before a hello"));
                }
                let drops = parsed.class_drops().collect();
                self.jobs.submit_drops(sender, &self.drops, drops);
                self.answers.beaten();
                Ok(self.answers.again(message)?)
            }
            Kind::Batch { class, layout, frames, sequence, given_up, drops, .. } => {
                if !self.answers.came(class, message.length as u64) {
                    return Err(End::Refused("a batch came for which there was no credit"));
                }
                let batch = Batch { sender, class, layout, frames, sequence, given_up, drops };
                self.jobs.submit(Job::Batch { batch, message, answers: Arc::clone(&self.answers) });
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
        self.answers.begin(messages, self.config.bytes.max(self.config.longest.into()));
        Ok(())
    }
}

impl Drop for Session {
    /// Also if batches of it still wait to be written.
    fn drop(&mut self) {
        self.answers.close();
    }
}
