//! What a collector counts.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use sluice_control::mirror::Class;

use crate::metrics::{ByCause, ByClass, counter, gauge};
use crate::wire::Cause;

/// The metrics of a collector. Copies are of the same.
#[derive(Debug, Clone)]
pub struct CollectorMetrics(Arc<Metrics>);

#[derive(Debug)]
struct Metrics {
    frames: ByClass<IntCounter>,
    bytes: ByClass<IntCounter>,
    batches: ByClass<IntCounter>,
    written: ByClass<IntCounter>,
    injected: ByClass<IntCounter>,
    missing: ByClass<IntCounter>,
    late: ByClass<IntCounter>,
    duplicates: ByClass<IntCounter>,
    drops: ByCause,
    latency: ByClass<Histogram>,
    granted: ByClass<IntCounter>,
    connections: IntGauge,
    accepted: IntCounter,
    refused: IntCounter,
}

/// From 10 microseconds to 10 seconds.
const LATENCY: [f64; 13] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0];

impl CollectorMetrics {
    /// Adds the metrics to a registry.
    ///
    /// # Errors
    /// Fails if it has metrics of these names.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let by_class = |name, help| ByClass::counters(registry, name, help);
        Ok(Self(Arc::new(Metrics {
            frames: by_class("sluice_mirror_collect_frames_total", "Frames that came, without those that came twice.")?,
            bytes: by_class(
                "sluice_mirror_collect_bytes_total",
                "Bytes of the batches of these frames, headers of frames included.",
            )?,
            batches: by_class("sluice_mirror_collect_batches_total", "Batches of these frames.")?,
            written: by_class(
                "sluice_mirror_collect_written_frames_total",
                "Frames that were written to a file or pipe.",
            )?,
            injected: by_class(
                "sluice_mirror_collect_injected_frames_total",
                "Frames that were injected into the TAP.",
            )?,
            missing: by_class(
                "sluice_mirror_collect_missing_frames_total",
                "Frames that had not come when later ones of their class did, without those that the sender has given up and counts.",
            )?,
            late: by_class(
                "sluice_mirror_collect_late_frames_total",
                "Frames that came after they were counted as missing.",
            )?,
            duplicates: by_class(
                "sluice_mirror_collect_duplicate_frames_total",
                "Frames that had come before, and were not taken again.",
            )?,
            drops: ByCause::new(
                registry,
                "sluice_mirror_collect_dropped_frames_total",
                "Frames that came and were not written or injected, by cause.",
            )?,
            latency: ByClass::histograms(
                registry,
                "sluice_mirror_collect_latency_seconds",
                "Time from the capture of a frame to its being written, by the clocks of both ends.",
                LATENCY.to_vec(),
            )?,
            granted: by_class("sluice_mirror_collect_granted_messages_total", "Batches that senders were granted.")?,
            connections: gauge(registry, "sluice_mirror_collect_connections", "Connections that there are.")?,
            accepted: counter(registry, "sluice_mirror_collect_connections_total", "Connections that were made.")?,
            refused: counter(
                registry,
                "sluice_mirror_collect_refused_total",
                "Peers that were refused, before they were connected or because of what they sent.",
            )?,
        })))
    }

    pub(super) fn batch(&self, class: Class, frames: u64, bytes: usize) {
        self.0.frames.of(class).inc_by(frames);
        self.0.bytes.of(class).inc_by(bytes as u64);
        self.0.batches.of(class).inc();
    }

    pub(super) fn written(&self, class: Class, frames: u64) {
        self.0.written.of(class).inc_by(frames);
    }

    pub(super) fn injected(&self, class: Class, frames: u64) {
        self.0.injected.of(class).inc_by(frames);
    }

    pub(super) fn missing(&self, class: Class, frames: u64) {
        self.0.missing.of(class).inc_by(frames);
    }

    pub(super) fn late(&self, class: Class, frames: u64) {
        self.0.late.of(class).inc_by(frames);
    }

    pub(super) fn duplicates(&self, class: Class, frames: u64) {
        self.0.duplicates.of(class).inc_by(frames);
    }

    pub(super) fn dropped(&self, class: Class, cause: Cause, frames: u64) {
        self.0.drops.add(class, cause, frames);
    }

    pub(super) fn latency(&self, class: Class, nanoseconds: u64) {
        #[expect(clippy::cast_precision_loss, reason = "of a time, 53 bits are more than is known")]
        self.0.latency.of(class).observe(nanoseconds as f64 / 1e9);
    }

    pub(super) fn granted(&self, class: Class, messages: u64) {
        self.0.granted.of(class).inc_by(messages);
    }

    pub(super) fn connections(&self, connections: usize) {
        self.0.connections.set(i64::try_from(connections).unwrap_or(i64::MAX));
    }

    pub(super) fn accepted(&self) {
        self.0.accepted.inc();
    }

    pub(super) fn refused(&self) {
        self.0.refused.inc();
    }
}
