//! The sender: takes batches from its sources, and sends them to a collector over whatever connection a [`Connector`] makes.
//!
//! Each class has a queue, and credit of its own that the collector grants ([`Grant`](crate::wire::Grant)): the queue of a class that floods
//! fills up, and its source drops what comes then, while other classes go on. A batch keeps its memory until the collector has
//! acknowledged it; what was not acknowledged when a connection was lost is sent again over the next one.

mod metrics;
mod queue;
mod reconnect;
mod session;

pub use self::metrics::SenderMetrics;
pub(crate) use self::session::CONTROL;

use std::future::{Future, pending};
use std::time::Duration;

use sluice_control::mirror::Class;
use tokio::task::coop::consume_budget;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use self::queue::{ClassQueue, NewBatch};
use self::reconnect::Reconnector;
use self::session::{Session, SessionError};
use crate::connection::{Connection, Connector, DeviceGone, Left, Local};
use crate::source::{Batch, Source, SourceError};
use crate::verbs::{Buffer, CallError};
use crate::wire::{CLASSES, Drops, HEADER, Hello};

/// What a sender is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderConfig {
    /// The name of this sender, which the collector's files show.
    pub name: String,
    /// A number that no other sender of the collector has, and no other run of this one.
    pub id: u64,
    /// How long the sender waits before it connects again: at first, and at most. Each failure doubles it, and so does each connection that
    /// the collector ends without having granted anything.
    pub back_off: (Duration, Duration),
    /// How often a heartbeat is sent.
    pub heartbeat: Duration,
}

/// How to make a [`Local`] for a sender: how many requests to send, and how many grants, it has room for. A collector grants as many
/// messages as there is room for grants, at most.
#[must_use]
pub fn capacity(grants: u32) -> crate::connection::Capacity {
    crate::connection::Capacity { sends: grants, send_segments: 2, receives: grants, receive_bytes: GRANT_ROOM }
}

/// Bytes of a receive request for a grant.
const GRANT_ROOM: usize = crate::wire::GRANT.next_multiple_of(64);

/// A sender with its sources and queues.
pub struct Sender {
    local: Local,
    config: SenderConfig,
    sources: Vec<Box<dyn Source>>,
    queues: [ClassQueue<Buffer>; CLASSES],
    metrics: SenderMetrics,
    /// The source whose turn it is.
    turn: usize,
    /// Revisions of the ports that the collector was told of last.
    told: Vec<u64>,
    /// Steps since metrics have followed.
    unpublished: u32,
}

/// After how many steps metrics follow what has happened; they also do with each heartbeat, for which sources ask for their drops.
const PUBLISHED: u32 = 64;

/// Classes in the order in which batches of them are posted: those first whose protocols count on milliseconds.
const ORDER: [Class; CLASSES] =
    [Class::Bfd, Class::Lacp, Class::Lldp, Class::Ospf, Class::Bgp, Class::Dhcp, Class::Nd, Class::Arp, Class::Flow];

/// What happened.
enum Step {
    Stop,
    Batch(Result<(usize, Batch), SourceError>),
    Connected(Result<Connection, DeviceGone>),
    Session(Result<(), SessionError>),
    Heartbeat,
}

impl Sender {
    /// Makes a sender of what its sources give. It sends nothing before it [runs](Sender::run).
    #[must_use]
    pub fn new(local: Local, config: SenderConfig, sources: Vec<Box<dyn Source>>, metrics: SenderMetrics) -> Self {
        Self { local, config, sources, queues: Default::default(), metrics, turn: 0, told: Vec::new(), unpublished: 0 }
    }

    /// Sends until `stop` ends, or until it cannot go on. Frames that are not acknowledged then are counted as dropped.
    ///
    /// # Errors
    /// Fails if a source fails, if there is no registered memory for a connection, or if the RDMA device is gone.
    pub async fn run(
        mut self,
        connector: impl Connector + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), SenderError> {
        let mut connector =
            Reconnector::start(connector, self.local.clone(), self.config.back_off, self.metrics.clone());
        let mut session: Option<Session> = None;
        let mut heartbeat = interval(self.config.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(stop);
        let outcome = loop {
            let step = tokio::select! {
                () = &mut stop => Step::Stop,
                connection = connector.next(), if session.is_none() => Step::Connected(connection),
                happened = happened(session.as_mut()) => Step::Session(happened),
                _ = heartbeat.tick() => Step::Heartbeat,
                batch = next_batch(&mut self.sources, &mut self.turn) => Step::Batch(batch),
            };
            let is_heartbeat = matches!(step, Step::Heartbeat);
            let outcome = match step {
                Step::Stop => break Ok(()),
                Step::Batch(Ok((source, batch))) => {
                    self.enqueue(source, batch);
                    Ok(())
                }
                Step::Batch(Err(error)) => break Err(error.into()),
                Step::Connected(Err(gone)) => break Err(gone.into()),
                Step::Connected(Ok(connection)) => {
                    info!("connected to {}", connection.peer);
                    match Session::new(&self.local, connection, self.config.id) {
                        Ok(made) => session = Some(made),
                        Err(error) => break Err(error.into()),
                    }
                    self.metrics.connected(true);
                    self.greet(session.as_mut())
                }
                Step::Session(outcome) => outcome,
                Step::Heartbeat => {
                    self.count_drops();
                    self.beat(session.as_mut())
                }
            };
            let outcome = outcome.and_then(|()| self.advance(session.as_mut()));
            if let Err(error) = outcome {
                let is_granted = session.as_ref().is_some_and(|session| session.longest().is_some());
                self.disconnect(session.take(), &error);
                if let SessionError::Left(Left::Device(gone)) = error {
                    break Err(gone.into());
                }
                connector.again(is_granted);
            }
            self.tell_sources();
            // The device may always have more to tell of, and others of this thread are to have their turn.
            consume_budget().await;
            self.unpublished += 1;
            if is_heartbeat || self.unpublished >= PUBLISHED {
                self.publish();
            }
        };
        if let Some(session) = session.take() {
            self.end(session);
        }
        self.queues.iter_mut().for_each(ClassQueue::stop);
        self.count_drops();
        self.publish();
        outcome
    }

    fn enqueue(&mut self, source: usize, batch: Batch) {
        let Batch { class, layout, frames, captured, buffer } = batch;
        let length = buffer.len();
        self.metrics.taken(class, frames, length);
        self.queues[class.index()].push(source, NewBatch { frames, captured, layout, length, memory: buffer });
    }

    /// Says who this is.
    fn greet(&mut self, session: Option<&mut Session>) -> Result<(), SessionError> {
        let Some(session) = session else { return Ok(()) };
        self.told = self.sources.iter().map(|source| source.revision()).collect();
        let ports = self.sources.iter().flat_map(|source| source.ports()).collect();
        session.hello(&Hello { grants: session.grants(), name: self.config.name.clone(), ports })
    }

    /// Tells the collector that this end lives.
    fn beat(&self, session: Option<&mut Session>) -> Result<(), SessionError> {
        let Some(session) = session else { return Ok(()) };
        session.check_answer()?;
        if !session.may_send_control() {
            return session.probe();
        }
        session.heartbeat(Class::ALL.map(|class| self.drops(class)).into_iter())
    }

    /// Does all that can be done now: takes over what was acknowledged, and posts what there is credit for.
    fn advance(&mut self, session: Option<&mut Session>) -> Result<(), SessionError> {
        let Some(session) = session else { return Ok(()) };
        for (class, sequence, buffer) in session.returned() {
            self.queues[class.index()].returned(sequence, buffer);
        }
        if let Some(grant) = session.granted() {
            for (class, granted) in Class::ALL.into_iter().zip(grant.classes) {
                self.queues[class.index()].grant(granted)?;
            }
        }
        self.give_back();
        session.want_completions(self.queues.iter().any(ClassQueue::is_held_by_device));
        let Some(longest) = session.longest() else { return Ok(()) };
        let are_ports_told = self.told.iter().copied().eq(self.sources.iter().map(|source| source.revision()));
        if !are_ports_told {
            // A frame must not come before the name of its port: it waits as well until a heartbeat is answered.
            if !session.may_send_control() {
                session.want_completions(true);
                return Ok(());
            }
            self.greet(Some(session))?;
        }
        for class in ORDER {
            loop {
                let queue = &mut self.queues[class.index()];
                while let Some((source, buffer)) = queue.too_long(longest) {
                    warn!(%class, "a batch of {} bytes is longer than the collector takes", buffer.len() + HEADER);
                    self.sources[source].give_back(class, buffer);
                }
                if !session.has_room(class) {
                    if queue.may_post() {
                        session.want_completions(true);
                    }
                    break;
                }
                let Some(posted) = queue.post() else { break };
                let drops = self.drops(class);
                self.metrics.posted(class);
                session.batch(class, posted, drops);
            }
        }
        session.post()
    }

    fn disconnect(&mut self, session: Option<Session>, why: &SessionError) {
        let Some(session) = session else { return };
        error!("the connection to {} is lost: {why}", session.peer());
        self.metrics.connected(false);
        self.end(session);
    }

    /// Ends a connection. What was acknowledged is not sent again, though the device had it until now.
    fn end(&mut self, session: Session) {
        session.end(&mut self.queues);
        self.queues.iter_mut().for_each(ClassQueue::disconnected);
        self.give_back();
    }

    /// Gives the memory of all batches back to their sources that were acknowledged.
    fn give_back(&mut self) {
        for class in ORDER {
            let queue = &mut self.queues[class.index()];
            while let Some((facts, source, buffer)) = queue.acknowledged() {
                self.metrics.acknowledged(class, facts.frames);
                if let Some(buffer) = buffer {
                    self.sources[source].give_back(class, buffer);
                }
            }
        }
    }

    fn count_drops(&mut self) {
        self.sources.iter_mut().for_each(|source| source.count_drops());
    }

    /// Returns all drops of a class, by its sources and here.
    fn drops(&self, class: Class) -> Drops {
        let mut drops = self.queues[class.index()].drops();
        self.sources.iter().for_each(|source| drops += source.drops(class));
        drops
    }

    /// Tells the sources of which classes batches wait.
    fn tell_sources(&mut self) {
        for class in Class::ALL {
            let is_waiting = self.queues[class.index()].is_waiting();
            self.sources.iter_mut().for_each(|source| source.set_waiting(class, is_waiting));
        }
    }

    fn publish(&mut self) {
        self.unpublished = 0;
        for class in Class::ALL {
            let queue = &self.queues[class.index()];
            self.metrics.state(class, queue.frames(), queue.under_way(), queue.credit());
            for (cause, count) in self.drops(class).iter() {
                self.metrics.drops(class, cause, count);
            }
        }
    }
}

/// Why a sender ends by itself.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// A source has failed.
    #[error("the source of frames failed: {0}")]
    Source(#[from] SourceError),
    /// There is no registered memory.
    #[error(transparent)]
    Memory(#[from] CallError),
    /// Nothing can be connected any more.
    #[error(transparent)]
    Device(#[from] DeviceGone),
}

async fn happened(session: Option<&mut Session>) -> Result<(), SessionError> {
    match session {
        Some(session) => session.happened().await,
        None => pending().await,
    }
}

/// Waits for a batch of any source; they have turns.
async fn next_batch(sources: &mut [Box<dyn Source>], turn: &mut usize) -> Result<(usize, Batch), SourceError> {
    if sources.is_empty() {
        return pending().await;
    }
    *turn = (*turn + 1) % sources.len();
    let first = *turn;
    let mut waits: Vec<_> = sources.iter_mut().enumerate().map(|(place, source)| (place, source.next())).collect();
    waits.rotate_left(first);
    std::future::poll_fn(|context| {
        for (place, wait) in &mut waits {
            if let std::task::Poll::Ready(batch) = wait.as_mut().poll(context) {
                return std::task::Poll::Ready(batch.map(|batch| (*place, batch)));
            }
        }
        std::task::Poll::Pending
    })
    .await
}
