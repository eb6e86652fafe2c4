//! Connects, and connects again, in a task of its own: an attempt goes on while the sender does other things.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::warn;

use super::metrics::SenderMetrics;
use crate::connection::{ConnectError, Connection, Connector, DeviceGone, Local};

/// How long to wait before an attempt. Only a connection that was of use lets it begin anew: a collector that takes one and ends it at once
/// would otherwise have nothing else to do.
#[derive(Debug)]
struct BackOff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl BackOff {
    fn new((first, most): (Duration, Duration)) -> Self {
        Self { first, most, next: Duration::ZERO }
    }

    /// Begins anew after a connection that was of use.
    fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns how long to wait before the next attempt.
    fn take(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).max(self.first).min(self.most);
        wait
    }
}

/// The task, which ends with this.
#[derive(Debug)]
pub(super) struct Reconnector {
    /// Whether the last connection was of use.
    again: mpsc::UnboundedSender<bool>,
    connections: mpsc::Receiver<Result<Connection, DeviceGone>>,
    task: JoinHandle<()>,
}

impl Reconnector {
    /// Begins with the first attempt.
    pub(super) fn start(
        connector: impl Connector + 'static,
        local: Local,
        back_off: (Duration, Duration),
        metrics: SenderMetrics,
    ) -> Self {
        let (again, asked) = mpsc::unbounded_channel();
        let (found, connections) = mpsc::channel(1);
        let task = tokio::spawn(connect(connector, local, back_off, metrics, (asked, found)));
        let this = Self { again, connections, task };
        this.again(false);
        this
    }

    /// Asks for another connection, now that the last one is lost, and says whether that was of use: whether the collector granted anything.
    pub(super) fn again(&self, was_of_use: bool) {
        // The task ends with this only.
        self.again.send(was_of_use).unwrap_or_default();
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// Fails if there will never be one.
    pub(super) async fn next(&mut self) -> Result<Connection, DeviceGone> {
        match self.connections.recv().await {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Reconnector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(
    mut connector: impl Connector,
    local: Local,
    back_off: (Duration, Duration),
    metrics: SenderMetrics,
    (mut asked, found): (mpsc::UnboundedReceiver<bool>, mpsc::Sender<Result<Connection, DeviceGone>>),
) {
    let mut back_off = BackOff::new(back_off);
    while let Some(was_of_use) = asked.recv().await {
        if was_of_use {
            back_off.reset();
        }
        let mut told = String::new();
        let outcome = loop {
            sleep(back_off.take()).await;
            metrics.attempt();
            match connector.next(&local).await {
                Ok(connection) => break Ok(connection),
                Err(ConnectError::Device(gone)) => break Err(gone),
                Err(error) => {
                    // Once for each reason, not once for each attempt.
                    let error = error.to_string();
                    if error != told {
                        warn!("cannot connect, and goes on trying: {error}");
                        told = error;
                    }
                }
            }
        };
        if found.send(outcome).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_a_connection_was_of_use() {
        let mut back_off = BackOff::new((Duration::from_millis(50), Duration::from_millis(200)));
        let waits = |back_off: &mut BackOff| [(); 5].map(|()| back_off.take().as_millis());
        assert_eq!(waits(&mut back_off), [0, 50, 100, 200, 200]);
        back_off.reset();
        assert_eq!(waits(&mut back_off), [50, 100, 200, 200, 200]);
    }
}
