//! The gRPC interface `sluice.v1`: a codec on the [service](crate::service), as the [commands](crate::commands) are, and no second set of rules.
//!
//! * `server` accepts connections: on the socket in the run folder and, by `tls` once `handshakes` are through, over TCP. What a `connection` may
//!   do is its `access`.
//! * `reader` and `writer` are the codec proper, `fields` that of matches as structures, `errors` that of reasons.
//! * A call that streams (`streaming`) has a file of its own: `apply` with its `outcomes`, `replace`, `dump`, `watch`, `counters`.
//! * `opi` is another interface on the same sockets, with the same rights: `openoffload.v2`, for sessions.
//!
//! # What is bounded
//!
//! A message of `Apply` and `Replace` has 4 MiB at the most, and any other 64 KiB: all calls of a connection may have a message that is not
//! whole. A stream of requests is read only as fast as the table takes them on and the client reads answers; what is under way of one is a few
//! batches, and a connection has few such streams. A stream of answers holds a page or two. Walks over the table, watchers and followers of
//! counters are so many at a time. What is given to a thread that may wait is given to one of a bounded number.

mod access;
mod agent;
mod apply;
mod capabilities;
mod connection;
mod counters;
mod dump;
mod errors;
mod fields;
mod flows;
mod handshakes;
#[cfg(test)]
mod hostile;
mod leases;
mod objects;
mod opi;
mod outcomes;
mod places;
mod reader;
mod replace;
mod server;
mod streaming;
mod tls;
mod watch;
mod writer;

use std::sync::Arc;
use std::time::SystemTime;

use sluice_flow::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tonic::{Response, Status};

use self::leases::Leases;
pub use self::server::{ApiError, Listeners, serve};
use crate::agent::Agent;
use crate::service::Service;

/// Threads that take on flows, or wait for room or the log to do so, at a time.
const CHANGING: usize = 32;
/// Walks over the table at a time.
const WALKS: usize = 16;
/// Clients that watch events at a time. Each costs a page of them.
const WATCHERS: usize = 4_096;
/// Clients that follow counters at a time. Each costs some tens of bytes a flow.
const COUNTING: usize = 16;

/// What the services have in common.
struct Api {
    agent: Arc<Agent>,
    service: Service,
    clock: Arc<dyn Clock>,
    /// Tells this run of the agent from others.
    run: u64,
    leases: Leases,
    changing: Arc<Semaphore>,
    walks: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    counting: Arc<Semaphore>,
}

/// The services of one agent.
#[derive(Clone)]
struct Shared(Arc<Api>);

impl Api {
    fn new(agent: Arc<Agent>, leases: Leases) -> Arc<Self> {
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Arc::new(Self {
            service: Service::new(agent.clone()),
            clock: agent.clock.clone(),
            run: u64::try_from(started.as_nanos()).unwrap_or_default(),
            leases,
            changing: Arc::new(Semaphore::new(CHANGING)),
            walks: Arc::new(Semaphore::new(WALKS)),
            watchers: Arc::new(Semaphore::new(WATCHERS)),
            counting: Arc::new(Semaphore::new(COUNTING)),
            agent,
        })
    }

    /// Runs what may wait on a thread of its own, once there is one.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let task = self.spawn_blocking(run).await;
        task.await.map_err(|error| errors::cut_off(&error))
    }

    /// The same of what is waited for later.
    async fn spawn_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let turn = self.changing.clone().acquire_owned().await;
        let api = self.clone();
        tokio::task::spawn_blocking(move || {
            let result = run(&api);
            drop(turn);
            result
        })
    }

    /// Notes something that people should know of.
    fn note(&self, words: String) {
        self.agent.events.note(words);
    }
}

/// A place among those who do the same at a time, or words for whoever finds none.
fn turn(places: &Arc<Semaphore>, too_many: &str) -> Result<OwnedSemaphorePermit, Status> {
    places.clone().try_acquire_owned().map_err(|_| errors::too_many(too_many))
}

impl Shared {
    /// Answers a call that may wait.
    async fn answer<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Api) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.0.blocking(run).await?.map(Response::new)
    }
}
