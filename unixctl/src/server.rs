//! The listening end of the control socket.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_control::IDLE_LIMIT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, info, warn};

use super::command::{Registry, Request};
use super::framing::{Splitter, Value};
use super::peer::{Admission, Peer};
use super::reply::{After, Reply, failure, success};
use super::request::Call;

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How many bytes a request may have.
    pub request_limit: usize,
    /// How deep brackets may be nested in a request.
    pub nesting_limit: usize,
    /// How long a client may pause in the middle of a request.
    pub silence_limit: Duration,
    /// How long a client may read nothing of a reply that waits for it. Long enough for a person who looks at a page of a dump: a
    /// reply that waits holds no lock, and no more than a few pieces.
    pub stall_limit: Duration,
    /// How long a client may do nothing between two requests, or before its first one.
    pub idle_limit: Duration,
    /// How many clients may be connected. One that has gone counts as long as its command runs.
    pub connection_limit: usize,
    /// How many more of root and the agent's user may be, whatever others do.
    pub reserved: usize,
    /// How many bytes of a reply are sent at once. Five times as much is held for each connection.
    pub piece_size: usize,
    /// How long running commands may take to end once the server is told to stop.
    pub stop_deadline: Duration,
    /// Who may ask.
    pub admission: Admission,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            request_limit: 64 << 20,
            nesting_limit: 1000,
            silence_limit: Duration::from_secs(10),
            stall_limit: Duration::from_secs(300),
            idle_limit: IDLE_LIMIT,
            connection_limit: 48,
            reserved: 16,
            piece_size: 64 << 10,
            stop_deadline: Duration::from_secs(5),
            admission: Admission::new(None),
        }
    }
}

/// The server of the control socket.
pub struct Server {
    listener: UnixListener,
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<Registry>,
    options: ServerOptions,
    stopping: Arc<AtomicBool>,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Running commands end, no new one begins.
    Draining,
    /// Time is up.
    Cut,
}

impl Server {
    /// A server on a bound socket. To be called within a tokio runtime.
    pub fn new(
        listener: std::os::unix::net::UnixListener,
        registry: Arc<Registry>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener, shared: Arc::new(Shared { registry, options, stopping: Arc::default() }) })
    }

    /// Serves until `stop` comes, then lets running commands end, up to the deadline. Returns those that are still to be answered: a
    /// client whose command is dropped hears that its connection was closed, and not that it was done.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Vec<Deferred> {
        let Self { listener, shared } = self;
        let places = Places::new(&shared.options);
        let (phase, watched_phase) = watch::channel(Phase::Serving);
        let (mut connections, mut deferred) = (JoinSet::new(), Vec::new());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    deferred.extend(ended.ok().flatten());
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Some(guest) = places.seat(&stream, &shared) {
                            connections.spawn(Connection::serve(stream, guest, Arc::clone(&shared), watched_phase.clone()));
                        }
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: the client waits in the queue of the socket meanwhile.
                        warn!(%error, "cannot accept a control connection");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        shared.stopping.store(true, Ordering::Relaxed);
        phase.send_replace(Phase::Draining);
        let drain = async {
            while let Some(ended) = connections.join_next().await {
                deferred.extend(ended.ok().flatten());
            }
        };
        if timeout(shared.options.stop_deadline, drain).await.is_err() {
            info!(connections = connections.len(), "cutting control connections off that did not end in time");
            phase.send_replace(Phase::Cut);
            connections.shutdown().await;
        }
        deferred
    }
}

/// A command that has succeeded so far, whose client is told what came of it once the server has stopped, as Open vSwitch answers `exit`
/// last of all. The connection is closed then.
pub struct Deferred {
    stream: UnixStream,
    id: String,
    _guest: Guest,
}

impl Deferred {
    /// Answers with text, or with the reason of a failure, if the client is still there. One that reads nothing is not waited for longer
    /// than a moment.
    pub async fn answer(mut self, result: Result<&str, &str>) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let reply = match result {
            Ok(text) => success(&self.id, text),
            Err(reason) => failure(&self.id, reason),
        };
        match timeout(PATIENCE, self.stream.write_all(&reply)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "control connection lost"),
            Err(_) => debug!("a control client does not read its reply"),
        }
    }
}

/// The places for clients. Whoever may ask nothing has none of them, and root and the agent's user have some for themselves.
struct Places {
    common: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    /// For clients that are told in a reply to their request that they may ask nothing.
    barred: Arc<Semaphore>,
}

/// A client that has a place until this is dropped, and the last command that it has asked for is over.
struct Guest {
    peer: Peer,
    /// Why it may ask nothing.
    barred: Option<String>,
    place: Arc<OwnedSemaphorePermit>,
}

impl Places {
    fn new(options: &ServerOptions) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let (common, reserved) = (places(options.connection_limit), places(options.reserved));
        Self { common, reserved, barred: places(BARRED_CONNECTIONS) }
    }

    /// Gives a client a place; or closes its connection, with the reason if the socket takes it at once.
    fn seat(&self, stream: &UnixStream, shared: &Shared) -> Option<Guest> {
        let peer = match Peer::of(stream) {
            Ok(peer) => peer,
            Err(error) => {
                warn!(%error, "cannot tell who connected to the control socket");
                return None;
            }
        };
        let admission = shared.options.admission;
        let barred = admission.check(peer).err();
        if let Some(reason) = &barred {
            warn!(uid = peer.uid, gid = peer.gid, pid = peer.pid, "control connection refused: {reason}");
        }
        let place = self.place(barred.is_some(), admission.is_reserved_for(peer));
        if place.is_none() {
            let limit = shared.options.connection_limit;
            warn!(uid = peer.uid, pid = peer.pid, "too many control connections, closing the newest");
            let busy = || format!("busy: {limit} control connections are open, or their commands still run");
            let reason = barred.clone().unwrap_or_else(busy);
            if let Err(error) = stream.try_write(&failure("null", &reason)) {
                debug!(%error, "cannot tell the client that there are too many");
            }
        }
        Some(Guest { peer, barred, place: place?.into() })
    }

    fn place(&self, is_barred: bool, has_reserve: bool) -> Option<OwnedSemaphorePermit> {
        let free = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        match (is_barred, has_reserve) {
            (true, _) => free(&self.barred),
            (false, true) => free(&self.common).or_else(|| free(&self.reserved)),
            (false, false) => free(&self.common),
        }
    }
}

struct Connection {
    stream: UnixStream,
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    splitter: Splitter,
    guest: Guest,
}

/// What comes from a client.
enum Incoming {
    Request(Value),
    /// It is not going to send any more, or the server stops.
    End,
    /// What it sent cannot be a request.
    Bad(String),
}

/// Clients that may ask nothing and are there at a time.
const BARRED_CONNECTIONS: usize = 4;

/// How much such a client may send, so that it can be told so in a reply to its request.
const BARRED_REQUEST_LIMIT: usize = 64 << 10;

/// How long it may take to.
const BARRED_TIME: Duration = Duration::from_secs(1);

/// How often it is looked whether a client that waits for a command is still there.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(250);

/// How much of later requests is read, and held, while one is answered: a client that sends many finds the agent ready for the
/// next at once.
const READ_AHEAD: usize = 2 << 20;

/// Pieces of a reply that may wait for a slow client.
const PIECES_WAITING: usize = 2;

impl Connection {
    /// Answers requests, until one is to be answered later or there are no more.
    async fn serve(
        stream: UnixStream,
        guest: Guest,
        shared: Arc<Shared>,
        phase: watch::Receiver<Phase>,
    ) -> Option<Deferred> {
        let is_barred = guest.barred.is_some();
        let limit = if is_barred { BARRED_REQUEST_LIMIT } else { shared.options.request_limit };
        let splitter = Splitter::new(limit.min(shared.options.request_limit), shared.options.nesting_limit);
        let mut phase_of_serving = phase.clone();
        let mut connection = Self { stream, shared, phase, splitter, guest };
        let id = tokio::select! {
            deferred = connection.answer_all() => deferred?,
            () = sleep(BARRED_TIME), if is_barred => return None,
            _ = phase_of_serving.wait_for(|phase| *phase == Phase::Cut) => return None,
        };
        Some(Deferred { stream: connection.stream, id, _guest: connection.guest })
    }

    /// Returns the id of the request that is to be answered later, if it came to that.
    async fn answer_all(&mut self) -> Option<String> {
        loop {
            let after = match self.next_request().await {
                Ok(Incoming::Request(value)) => self.answer(value).await,
                Ok(Incoming::Bad(reason)) => {
                    debug!(pid = self.guest.peer.pid, "bad control request: {reason}");
                    self.stream.write_all(&failure("null", &reason)).await.map(|()| After::Close)
                }
                Ok(Incoming::End) => return None,
                Err(error) => Err(error),
            };
            match after {
                Ok(After::Continue) => {}
                Ok(After::Close) => return None,
                Ok(After::Defer(id)) => return Some(id),
                Err(error) => {
                    debug!(%error, pid = self.guest.peer.pid, "control connection lost");
                    return None;
                }
            }
        }
    }

    async fn next_request(&mut self) -> io::Result<Incoming> {
        let mut piece = Vec::new();
        loop {
            if *self.phase.borrow() != Phase::Serving {
                return Ok(Incoming::End);
            }
            match self.splitter.next() {
                Ok(Some(value)) => return Ok(Incoming::Request(value)),
                Ok(None) => {}
                Err(error) => return Ok(Incoming::Bad(error.to_string())),
            }
            let is_partial = self.splitter.is_partial();
            let ServerOptions { silence_limit, idle_limit, .. } = self.shared.options;
            piece.clear();
            piece.reserve(self.shared.options.piece_size);
            tokio::select! {
                read = self.stream.read_buf(&mut piece) => match read? {
                    0 if self.splitter.is_partial() => return Ok(Incoming::Bad("the request ends in the middle".to_owned())),
                    0 => return Ok(Incoming::End),
                    _ => self.splitter.push(&piece),
                },
                _ = self.phase.changed() => {}
                () = sleep(silence_limit), if is_partial => {
                    return Ok(Incoming::Bad(format!("no more of the request for {silence_limit:?}")));
                }
                () = sleep(idle_limit), if !is_partial => return Ok(Incoming::End),
            }
        }
    }

    /// Answers a request, on a thread that may block, and sends the reply as it comes.
    async fn answer(&mut self, value: Value) -> io::Result<After> {
        let (sender, mut pieces) = mpsc::channel(PIECES_WAITING);
        let shared = Arc::clone(&self.shared);
        let (peer, barred) = (self.guest.peer, self.guest.barred.clone());
        // It goes with the thread of the command, not with the client, who may be gone before: commands that hang are not to take one
        // thread after the other.
        let place = Arc::clone(&self.guest.place);
        let command = spawn_blocking(move || {
            let _place = place;
            run(&shared, peer, barred, &value, sender)
        });
        let mut presence = interval(PRESENCE_INTERVAL);
        presence.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ahead = Vec::new();
        let mut has_ended = false;
        loop {
            let has_room = self.splitter.held() < READ_AHEAD;
            ahead.clear();
            ahead.reserve(self.shared.options.piece_size);
            tokio::select! {
                read = self.stream.read_buf(&mut ahead), if has_room && !has_ended => match read? {
                    // It may still wait for this answer.
                    0 => has_ended = true,
                    _ => self.splitter.push(&ahead),
                },
                piece = pieces.recv() => match piece {
                    Some(piece) => self.send(&piece).await?,
                    None => break,
                },
                _ = presence.tick() => if is_gone(&self.stream)? {
                    // Dropping `pieces` is what the command hears of it.
                    return Ok(After::Close);
                }
            }
        }
        command.await.map_err(io::Error::other)
    }

    /// Sends a piece of a reply, as long as the client takes some of it now and then.
    async fn send(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut rest = piece;
        while !rest.is_empty() {
            match timeout(self.shared.options.stall_limit, self.stream.write(rest)).await {
                Ok(sent) => rest = &rest[sent?..],
                Err(_) => {
                    warn!(
                        pid = self.guest.peer.pid,
                        "a control client reads nothing of its reply, closing its connection"
                    );
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }
}

/// Whether the client has closed its socket. One that has only stopped sending still waits for its answer.
fn is_gone(stream: &UnixStream) -> io::Result<bool> {
    let mut watched = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Does what a request asks for.
fn run(shared: &Shared, peer: Peer, barred: Option<String>, value: &Value, pieces: mpsc::Sender<Vec<u8>>) -> After {
    let call = match Call::parse(value) {
        Ok(call) => call,
        Err(misunderstood) => {
            debug!(pid = peer.pid, "bad control request: {}", misunderstood.reason);
            let reply = failure(&misunderstood.id, &misunderstood.reason);
            // Whether it arrives or not, the connection ends here.
            pieces.blocking_send(reply).unwrap_or_default();
            return After::Close;
        }
    };
    let mut reply = Reply::new(call.id, pieces, Arc::clone(&shared.stopping), shared.options.piece_size);
    if let Some(reason) = barred {
        reply.finish(Err(reason));
        return After::Close;
    }
    let args = match shared.registry.find(&call.method, call.params.count) {
        Err(text) => return reply.finish(Err(text)),
        Ok(_) => match call.params.texts {
            None => return reply.finish(Err(format!("\"{}\" command has non-string argument", call.method))),
            Some(args) => args,
        },
    };
    debug!(pid = peer.pid, uid = peer.uid, command = call.method, ?args, "control request");
    let request = Request { args: &args, peer };
    // What a command breaks is its own reply and not the agent: its parts are watched elsewhere.
    let result = catch_unwind(AssertUnwindSafe(|| shared.registry.run(&call.method, &request, &mut reply)));
    reply.finish(result.unwrap_or_else(|_| {
        warn!(command = call.method, "a control command panicked");
        Err(format!("\"{}\" command failed inside the agent (it panicked)", call.method))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_strangers_nor_members_keep_root_out() {
        let options = ServerOptions { connection_limit: 2, reserved: 1, ..ServerOptions::default() };
        let places = Places::new(&options);
        let all = |is_barred, has_reserve| -> Vec<_> {
            std::iter::from_fn(|| places.place(is_barred, has_reserve)).collect()
        };
        let strangers = all(true, false);
        assert_eq!(strangers.len(), BARRED_CONNECTIONS);
        let members = all(false, false);
        assert_eq!(members.len(), 2, "strangers have taken none of theirs");
        let root = all(false, true);
        assert_eq!(root.len(), 1, "one was kept");
        drop(members);
        assert_eq!(all(false, true).len(), 2, "it shares the others");
    }
}
