//! Metrics by class and by cause, each looked up once.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use sluice_control::mirror::Class;

use crate::wire::{CLASSES, Cause};

/// A metric with a label `class`.
#[derive(Debug)]
pub(crate) struct ByClass<M>([M; CLASSES]);

impl<M> ByClass<M> {
    pub(crate) fn of(&self, class: Class) -> &M {
        &self.0[class.index()]
    }
}

impl ByClass<IntCounter> {
    pub(crate) fn counters(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let all = registered(registry, IntCounterVec::new(Opts::new(name, help), &["class"])?)?;
        Ok(Self(Class::ALL.map(|class| all.with_label_values(&[class.name()]))))
    }
}

impl ByClass<IntGauge> {
    pub(crate) fn gauges(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let all = registered(registry, IntGaugeVec::new(Opts::new(name, help), &["class"])?)?;
        Ok(Self(Class::ALL.map(|class| all.with_label_values(&[class.name()]))))
    }
}

impl ByClass<Histogram> {
    pub(crate) fn histograms(
        registry: &Registry,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
    ) -> prometheus::Result<Self> {
        let options = HistogramOpts::new(name, help).buckets(buckets);
        let all = registered(registry, HistogramVec::new(options, &["class"])?)?;
        Ok(Self(Class::ALL.map(|class| all.with_label_values(&[class.name()]))))
    }
}

/// Counters with the labels `class` and `cause`.
#[derive(Debug)]
pub(crate) struct ByCause([[IntCounter; Cause::ALL.len()]; CLASSES]);

impl ByCause {
    pub(crate) fn new(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let all = registered(registry, IntCounterVec::new(Opts::new(name, help), &["class", "cause"])?)?;
        let of = |class: Class| Cause::ALL.map(|cause| all.with_label_values(&[class.name(), cause.word()]));
        Ok(Self(Class::ALL.map(of)))
    }

    pub(crate) fn add(&self, class: Class, cause: Cause, frames: u64) {
        self.0[class.index()][cause as usize].inc_by(frames);
    }

    /// Brings a counter to a total that somebody else has counted.
    pub(crate) fn set(&self, class: Class, cause: Cause, total: u64) {
        let counter = &self.0[class.index()][cause as usize];
        counter.inc_by(total.saturating_sub(counter.get()));
    }
}

pub(crate) fn counter(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    registered(registry, IntCounter::new(name, help)?)
}

pub(crate) fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    registered(registry, IntGauge::new(name, help)?)
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
