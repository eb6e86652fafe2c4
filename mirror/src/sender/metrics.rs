//! What a sender counts.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge, Registry};
use sluice_control::mirror::Class;

use crate::metrics::{ByCause, ByClass, counter, gauge};
use crate::wire::Cause;

/// The metrics of a sender. Copies are of the same.
#[derive(Debug, Clone)]
pub struct SenderMetrics(Arc<Metrics>);

#[derive(Debug)]
struct Metrics {
    frames: ByClass<IntCounter>,
    bytes: ByClass<IntCounter>,
    batches: ByClass<IntCounter>,
    acknowledged: ByClass<IntCounter>,
    drops: ByCause,
    queued: ByClass<IntGauge>,
    under_way: ByClass<IntGauge>,
    credit_messages: ByClass<IntGauge>,
    credit_bytes: ByClass<IntGauge>,
    connected: IntGauge,
    connections: IntCounter,
    attempts: IntCounter,
}

impl SenderMetrics {
    /// Adds the metrics to a registry.
    ///
    /// # Errors
    /// Fails if it has metrics of these names.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self(Arc::new(Metrics {
            frames: ByClass::counters(
                registry,
                "sluice_mirror_send_frames_total",
                "Frames that sources gave to the sender.",
            )?,
            bytes: ByClass::counters(
                registry,
                "sluice_mirror_send_bytes_total",
                "Bytes of batches that sources gave to the sender, headers of frames included.",
            )?,
            batches: ByClass::counters(
                registry,
                "sluice_mirror_send_batches_total",
                "Batches that were posted to the device, again after a lost connection included.",
            )?,
            acknowledged: ByClass::counters(
                registry,
                "sluice_mirror_send_acknowledged_frames_total",
                "Frames that the collector has acknowledged.",
            )?,
            drops: ByCause::new(
                registry,
                "sluice_mirror_send_dropped_frames_total",
                "Frames that were mirrored and not sent, by cause.",
            )?,
            queued: ByClass::gauges(
                registry,
                "sluice_mirror_send_queued_frames",
                "Frames that the collector has not acknowledged yet.",
            )?,
            under_way: ByClass::gauges(
                registry,
                "sluice_mirror_send_batches_under_way",
                "Batches that were posted and not acknowledged yet.",
            )?,
            credit_messages: ByClass::gauges(
                registry,
                "sluice_mirror_send_credit_messages",
                "Batches that may be sent before the collector grants more.",
            )?,
            credit_bytes: ByClass::gauges(
                registry,
                "sluice_mirror_send_credit_bytes",
                "Bytes that may be sent before the collector grants more.",
            )?,
            connected: gauge(registry, "sluice_mirror_send_connected", "1 while there is a connection, else 0.")?,
            connections: counter(registry, "sluice_mirror_send_connections_total", "Connections that were made.")?,
            attempts: counter(registry, "sluice_mirror_send_connection_attempts_total", "Attempts to connect.")?,
        })))
    }

    pub(super) fn taken(&self, class: Class, frames: u32, bytes: usize) {
        self.0.frames.of(class).inc_by(frames.into());
        self.0.bytes.of(class).inc_by(bytes as u64);
    }

    pub(super) fn posted(&self, class: Class) {
        self.0.batches.of(class).inc();
    }

    pub(super) fn acknowledged(&self, class: Class, frames: u32) {
        self.0.acknowledged.of(class).inc_by(frames.into());
    }

    pub(super) fn drops(&self, class: Class, cause: Cause, total: u64) {
        self.0.drops.set(class, cause, total);
    }

    pub(super) fn state(&self, class: Class, queued: u64, under_way: usize, (messages, bytes): (u64, u64)) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.0.queued.of(class).set(number(queued));
        self.0.under_way.of(class).set(number(under_way as u64));
        self.0.credit_messages.of(class).set(number(messages));
        self.0.credit_bytes.of(class).set(number(bytes));
    }

    pub(super) fn attempt(&self) {
        self.0.attempts.inc();
    }

    pub(super) fn connected(&self, is_connected: bool) {
        self.0.connected.set(is_connected.into());
        if is_connected {
            self.0.connections.inc();
        }
    }
}
