//! The collector: takes connections of senders, and writes their frames to files, to a pipe or into a TAP.
//!
//! Each sender is granted credit by class ([`Grant`](crate::wire::Grant)); a batch is acknowledged once it was written. A collector whose
//! output is slow grants nothing, and holds no more than it has granted. One that starts again reads in its last file how far each sender
//! was taken over, so that no frame is lost or written twice.

#[cfg(test)]
mod accounts;
mod answers;
mod capture;
mod files;
mod mark;
mod metrics;
mod output;
#[cfg(test)]
mod rig;
mod seen;
mod senders;
mod sequence;
mod session;
mod tap;
#[cfg(test)]
mod torn;
mod writer;

pub use self::files::Files;
pub use self::metrics::CollectorMetrics;
pub use self::output::Outputs;
pub use self::tap::open as open_tap;

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use self::answers::GRANTS;
use self::session::{End, Session};
use self::writer::Writer;
use crate::connection::{Capacity, ConnectError, Connector, DeviceGone, Left, Local};
use crate::wire::{CLASSES, HEADER};

/// What a collector is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectorConfig {
    /// Batches of a class that a sender may have under way.
    pub messages: u32,
    /// Bytes that these may have together.
    pub bytes: u64,
    /// Bytes of the longest message, header included.
    pub longest: u32,
    /// Senders that can be connected at a time. One more is refused with that reason.
    pub connections: usize,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self { messages: 8, bytes: 512 << 10, longest: 68 << 10, connections: 16 }
    }
}

/// How long the last frames may take to be written.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Receive requests for hellos and heartbeats.
const CONTROLS: u32 = 2;

impl CollectorConfig {
    /// Returns what each queue pair must have room for.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let longest = usize::try_from(self.longest).unwrap_or(usize::MAX);
        let classes = u32::try_from(CLASSES).unwrap_or(u32::MAX);
        Capacity {
            sends: GRANTS,
            send_segments: 1,
            receives: self.messages * classes + CONTROLS,
            receive_bytes: longest.max(crate::sender::CONTROL).next_multiple_of(64),
        }
    }

    /// Checks that the numbers go together.
    ///
    /// # Errors
    /// Fails with what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.messages == 0 || self.messages > 1024 {
            return Err(format!("{} messages of a class cannot be granted, but 1 to 1024", self.messages));
        }
        let least = HEADER + 2048;
        if !(least..=16 << 20).contains(&usize::try_from(self.longest).unwrap_or(usize::MAX)) {
            return Err(format!("the longest message cannot have {} bytes, but {least} to 16 MiB", self.longest));
        }
        Ok(())
    }
}

/// A collector with its outputs.
pub struct Collector {
    local: Local,
    config: CollectorConfig,
    writer: Writer,
    metrics: CollectorMetrics,
}

impl Collector {
    /// Opens the outputs.
    ///
    /// # Errors
    /// Fails if a file or the pipe cannot be written.
    pub fn new(local: Local, config: CollectorConfig, outputs: Outputs, metrics: CollectorMetrics) -> io::Result<Self> {
        let writer = Writer::start(outputs, metrics.clone())?;
        Ok(Self { local: local.limited_to(config.connections), config, writer, metrics })
    }

    /// Serves senders until `stop` ends or the RDMA device is gone. Then it writes what has come, and ends its captures with statistics; if
    /// the future is dropped before, the files are as a killed process leaves them.
    ///
    /// # Errors
    /// Fails if the pipe cannot be written, if the output does not take the last frames within 10 seconds, or if the device is gone.
    pub async fn run(self, mut connector: impl Connector, stop: impl Future<Output = ()>) -> io::Result<()> {
        const PAUSE: Duration = Duration::from_millis(100);
        let Self { local, config, mut writer, metrics } = self;
        let Some(jobs) = writer.jobs() else { return Ok(()) };
        let mut sessions = JoinSet::new();
        tokio::pin!(stop);
        let outcome = loop {
            metrics.connections(sessions.len());
            let connection = tokio::select! {
                () = &mut stop => break Ok(()),
                error = writer.failed() => return Err(error),
                Some(ended) = sessions.join_next() => match ended {
                    Ok(Some(gone)) => break Err(gone),
                    _ => continue,
                },
                connection = connector.next(&local) => connection,
            };
            match connection {
                Ok(connection) => {
                    info!("{} is connected", connection.peer);
                    metrics.accepted();
                    match Session::new(&local, connection, jobs.clone(), metrics.clone(), config) {
                        Ok(session) => drop(sessions.spawn(serve(session, metrics.clone()))),
                        Err(error) => warn!("a connection cannot be served: {error}"),
                    }
                }
                Err(ConnectError::Device(gone)) => break Err(gone),
                Err(error @ ConnectError::Peer { .. }) => {
                    warn!("a peer is refused: {error}");
                    metrics.refused();
                }
                Err(error) => {
                    warn!("no connection can be taken: {error}");
                    sleep(PAUSE).await;
                }
            }
        };
        sessions.shutdown().await;
        drop(jobs);
        let finished = timeout(LAST_WRITES, spawn_blocking(move || writer.finish())).await;
        finished
            .map_err(|_| io::Error::other("the output has not taken the last frames in time"))?
            .map_err(io::Error::other)?;
        outcome.map_err(io::Error::other)
    }
}

/// Serves a sender until its connection ends; returns why, if there can be no other one.
async fn serve(mut session: Session, metrics: CollectorMetrics) -> Option<DeviceGone> {
    let end = session.serve().await;
    warn!("the connection of {} ends: {end}", session.peer());
    if end.is_refusal() {
        metrics.refused();
    }
    match end {
        End::Left(Left::Device(gone)) => Some(gone),
        _ => None,
    }
}
