//! Connects, and connects again, in a task of its own: an attempt goes on while the sender does other things.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::warn;

use super::metrics::SenderMetrics;
use crate::connection::{ConnectError, Connection, Connector, DeviceGone, Local};

/// The task, which ends with this.
#[derive(Debug)]
pub(super) struct Reconnector {
    again: mpsc::UnboundedSender<()>,
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
        this.again();
        this
    }

    /// Asks for another connection, now that the last one is lost.
    pub(super) fn again(&self) {
        // The task ends with this only.
        self.again.send(()).unwrap_or_default();
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
    (first, most): (Duration, Duration),
    metrics: SenderMetrics,
    (mut asked, found): (mpsc::UnboundedReceiver<()>, mpsc::Sender<Result<Connection, DeviceGone>>),
) {
    while asked.recv().await.is_some() {
        let mut pause = first;
        let mut told = String::new();
        let outcome = loop {
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
                    sleep(pause).await;
                    pause = (pause * 2).min(most);
                }
            }
        };
        if found.send(outcome).await.is_err() {
            return;
        }
    }
}
