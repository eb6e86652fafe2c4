//! What both ends do besides: pages of metrics, and signals.

use std::io;

use prometheus::{Registry, TextEncoder};
use sluice_host::http::{HttpOptions, HttpServer, METRICS_CONTENT_TYPE, StatusCode, TEXT_CONTENT_TYPE};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::info;

use super::Error;
use super::config::Metrics;
use crate::verbs::devices;

/// The server of the metrics, which ends with this.
pub(super) struct Pages(Option<JoinHandle<()>>);

impl Pages {
    /// Serves a registry, if an address was given.
    pub(super) fn serve(metrics: Metrics, registry: Registry) -> Result<Self, Error> {
        let Some(address) = metrics.0 else { return Ok(Self(None)) };
        let failed = |error: io::Error| format!("cannot serve metrics at {address}: {error}");
        let server = HttpServer::bind(address, HttpOptions::default()).map_err(failed)?;
        let address = server.address()?;
        let server = server
            .page("/metrics", move || match TextEncoder::new().encode_to_string(&registry.gather()) {
                Ok(text) => (StatusCode::OK, METRICS_CONTENT_TYPE, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT_CONTENT_TYPE, format!("{error}\n")),
            })
            .page("/healthz", || (StatusCode::OK, TEXT_CONTENT_TYPE, "ok\n".to_owned()));
        info!("metrics at http://{address}/metrics");
        Ok(Self(Some(tokio::spawn(server.run(std::future::pending())))))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Ends at SIGTERM or SIGINT, which are caught from this call on. Where they cannot be, it never ends.
pub(super) fn told_to_stop() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return std::future::pending().await };
        let by = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!("stopping on {by}");
    }
}

/// Returns the name of the device that was given, or of the only one.
pub(super) fn device(wanted: &str) -> Result<String, Error> {
    if !wanted.is_empty() {
        return Ok(wanted.to_owned());
    }
    let mut names = devices()?;
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        (None, _) => Err("there is no RDMA device".into()),
        (Some(name), false) => {
            names.push(name);
            Err(format!("there are several RDMA devices, name one of them: {}", names.join(", ")).into())
        }
    }
}
