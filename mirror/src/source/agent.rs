//! The agent's mirror socket as a source: its plan, and the copies that the software NIC makes.

use std::io;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sluice_control::mirror::{Class, Losses, MAX_MESSAGE, Message, Plan};
use tokio::net::UnixDatagram;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::batcher::{Batcher, Batching};
use super::{Batch, NextBatch, Source};
use crate::verbs::{Buffer, CallError, ProtectionDomain};
use crate::wire::frames::Frame;
use crate::wire::{Cause, Drops, Port};

/// How long to wait before the agent's socket is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// How many messages are read before others get a turn.
const TURN: usize = 128;

/// The agent's mirror socket, connected again whenever the agent is there. Frames that the agent could not put into the socket count as
/// [`Cause::AgentSocketFull`].
#[derive(Debug)]
pub struct AgentSource {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    retry: Instant,
    batcher: Batcher,
    /// Of this connection, what has been counted already.
    losses: Losses,
    plan: watch::Sender<Option<Plan>>,
    /// How many plans there were.
    plans: u64,
    message: Box<[u8]>,
}

impl AgentSource {
    /// Makes a source of the socket at this path, which need not be there yet, with memory for frames of all classes.
    ///
    /// # Errors
    /// Fails if there is not so much memory, or if it cannot be registered.
    pub fn new(path: &Path, domain: &ProtectionDomain, batching: Batching) -> Result<Self, CallError> {
        Ok(Self {
            path: path.to_owned(),
            socket: None,
            retry: Instant::now(),
            batcher: Batcher::new(domain, &Class::ALL, batching)?,
            losses: Losses::default(),
            plan: watch::Sender::new(None),
            plans: 0,
            message: vec![0; MAX_MESSAGE].into(),
        })
    }

    /// Follows the agent's plan; `None` until there is one. It is read only while somebody waits for [`Source::next`].
    #[must_use]
    pub fn plan(&self) -> watch::Receiver<Option<Plan>> {
        self.plan.subscribe()
    }

    async fn batch(&mut self) -> Batch {
        loop {
            if let Some(batch) = self.batcher.next(Instant::now()) {
                return batch;
            }
            let due = self.batcher.due();
            let came_of_age = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = came_of_age => {}
                readable = readable(self.socket.as_ref(), self.retry) => {
                    if !readable {
                        self.connect();
                    } else if !self.read() {
                        // Nothing makes this wait while the agent is as fast, and no memory comes back before others have had their turn.
                        yield_now().await;
                    }
                }
            }
        }
    }

    fn connect(&mut self) {
        match open(&self.path) {
            Ok(socket) => {
                info!("connected to the agent at {}", self.path.display());
                self.socket = Some(socket);
                self.losses = Losses::default();
            }
            Err(error) => {
                debug!("{}: {error}", self.path.display());
                self.retry = Instant::now() + RETRY;
            }
        }
    }

    fn disconnected(&mut self, why: &dyn std::fmt::Display) {
        warn!("the agent at {} is gone: {why}", self.path.display());
        self.socket = None;
        self.retry = Instant::now() + RETRY;
    }

    /// Reads the messages that there are, and returns whether these were all.
    fn read(&mut self) -> bool {
        for _ in 0..TURN {
            let Some(socket) = &self.socket else { return true };
            match socket.try_recv(&mut self.message) {
                Ok(0) => self.disconnected(&"it has closed the socket"),
                Ok(read) => self.take(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.disconnected(&error),
            }
        }
        false
    }

    /// Takes the message in the first so many bytes.
    fn take(&mut self, length: usize) {
        match Message::parse(&self.message[..length]) {
            Ok(Message::Frame(view)) => {
                let repr = view.repr();
                let frame = Frame {
                    in_port: repr.in_port,
                    ufid: repr.ufid,
                    captured: repr.time,
                    length: repr.original_length,
                    bytes: view.frame(),
                };
                self.batcher.push(repr.class, &frame);
            }
            Ok(Message::Plan(plan)) => {
                info!("the agent mirrors {} of {} ports", plan.classes, plan.taps.len());
                self.plans += 1;
                self.plan.send_replace(Some(plan));
            }
            Ok(Message::Losses(losses)) => {
                for class in Class::ALL {
                    let more = losses.of(class).saturating_sub(self.losses.of(class));
                    self.batcher.add_drops(class, Cause::AgentSocketFull, more);
                }
                self.losses = losses;
            }
            Ok(Message::Unknown(kind)) => debug!("the agent sent a message of the unknown kind {kind}"),
            Err(error) => warn!("the agent sent something that is no message: {error}"),
        }
    }
}

impl Source for AgentSource {
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(async { Ok(self.batch().await) })
    }

    fn give_back(&mut self, class: Class, buffer: Buffer) {
        self.batcher.give_back(class, buffer);
    }

    fn set_waiting(&mut self, class: Class, is_waiting: bool) {
        self.batcher.set_waiting(class, is_waiting);
    }

    fn drops(&self, class: Class) -> Drops {
        self.batcher.drops(class)
    }

    fn ports(&self) -> Vec<Port> {
        let plan = self.plan.borrow();
        let taps = plan.iter().flat_map(|plan| &plan.taps);
        taps.map(|tap| Port { number: tap.in_port, ifindex: 0, name: tap.name.clone() }).collect()
    }

    fn revision(&self) -> u64 {
        self.plans
    }
}

/// Waits until there is something to read, and returns true; or, without a socket, until it is to be tried again, and returns false.
async fn readable(socket: Option<&UnixDatagram>, retry: Instant) -> bool {
    let Some(socket) = socket else {
        sleep_until(retry).await;
        return false;
    };
    // An error shows again when the socket is read.
    socket.readable().await.unwrap_or_default();
    true
}

/// Connects. Tokio has no sockets of `SOCK_SEQPACKET`; once connected, they are read like datagrams.
fn open(path: &Path) -> io::Result<UnixDatagram> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    UnixDatagram::from_std(net::UnixDatagram::from(socket))
}
