//! The metrics: the rows of `MEASURES` as Prometheus has them, read at the moment of a scrape.
//!
//! The `prometheus` crate gives the types, the text form and the process collector. Its own counters are not used on
//! the flow path, for the table and the queue count already, without a shared atomic per event and label look-up; a
//! collector turns those counts into metric families. Units are seconds and bytes, label sets are closed, and no series
//! is kept per flow.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, Registry, TextEncoder};

use super::openmetrics::{self, Examples};
use super::readiness::readiness;
use crate::agent::Agent;
use crate::observe::measures::{
    self, Durations, INSTALL_DURATION, Kind, MEASURES, Measure, Number, Read, Reading, latency_examples,
};
use sluice_host::http::METRICS_CONTENT_TYPE;
use sluice_host::logging::Logging;

/// Everything that is scraped.
pub struct Metrics {
    registry: Registry,
    agent: Arc<Agent>,
}

impl Metrics {
    /// The metrics of an agent and of this process, and of the log that it writes, if it does.
    pub fn new(agent: Arc<Agent>, log: Option<Arc<Logging>>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        registry.register(Box::new(AgentCollector { agent: agent.clone(), log }))?;
        Ok(Self { registry, agent })
    }

    /// The text of a scrape, in exposition format 0.0.4.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// The text of a scrape in the format that a client asks for, with its content type: OpenMetrics 1.0.0 if its `Accept`
    /// header prefers that, otherwise exposition format 0.0.4. OpenMetrics has flows as examples of how long installations took.
    pub fn negotiated(&self, accept: &str) -> Result<(&'static str, String), prometheus::Error> {
        if openmetrics::is_preferred(accept) {
            let families = self.registry.gather();
            let by_bucket = latency_examples(&self.agent.queue.reports());
            let examples = Examples { of: INSTALL_DURATION, by_bucket: &by_bucket };
            Ok((openmetrics::CONTENT_TYPE, openmetrics::encode(&families, examples)))
        } else {
            Ok((METRICS_CONTENT_TYPE, self.text()?))
        }
    }

    /// Whether flows are taken and revalidated, or why not.
    pub fn readiness(&self) -> Result<(), String> {
        readiness(&self.agent)
    }
}

struct AgentCollector {
    agent: Arc<Agent>,
    log: Option<Arc<Logging>>,
}

impl Collector for AgentCollector {
    /// None: the collector is unchecked, for its families depend on what the device counts.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let reading = Reading::take(&self.agent, self.log.as_ref().map(|log| log.report()));
        let mut families: Vec<MetricFamily> = Vec::new();
        for Measure { metric, read, .. } in MEASURES.into_iter().flatten() {
            let Some(metric) = metric.filter(|metric| (metric.is_there)(&reading)) else { continue };
            let series = series(&metric, read, &reading);
            match families.iter_mut().find(|family| family.name() == metric.name) {
                Some(family) => series.into_iter().for_each(|one| family.mut_metric().push(one)),
                // What is not known is absent, and so is a family of nothing else.
                None if series.is_empty() => {}
                None => families.push(family(&metric, series)),
            }
        }
        families
    }
}

/// The series of a row.
fn series(metric: &measures::Metric, read: &Read, reading: &Reading<'_>) -> Vec<Metric> {
    let own = metric.label.map(|(name, value)| label(name, value));
    let one = |labels: Vec<LabelPair>, number: Number| {
        let mut one = Metric::default();
        let value = number.value()?;
        if metric.kind == Kind::Counter {
            let mut counter = Counter::default();
            counter.set_value(value);
            one.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            one.set_gauge(gauge);
        }
        one.set_label(labels);
        Some(one)
    };
    match read {
        Read::Events(read) => one(own.into_iter().collect(), reading.total(*read)).into_iter().collect(),
        Read::One(read) => one(own.into_iter().collect(), read(reading)).into_iter().collect(),
        Read::Each(name, read) => {
            let labels = |value: &str| [label(name, value)].into_iter().chain(own.clone()).collect();
            read(reading).into_iter().filter_map(|(value, number)| one(labels(&value), number)).collect()
        }
        Read::Words(read) => {
            let labels = read(reading).iter().map(|(name, value)| label(name, value)).collect();
            one(labels, Number::Count(1)).into_iter().collect()
        }
        Read::Durations(read) => vec![histogram(&read(reading))],
    }
}

fn histogram(durations: &Durations) -> Metric {
    let mut histogram = Histogram::default();
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.sum);
    let bucket = |(bound, count): &(f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(*count);
        bucket
    };
    histogram.set_bucket(durations.buckets.iter().map(bucket).collect());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    metric
}

fn family(metric: &measures::Metric, series: Vec<Metric>) -> MetricFamily {
    let kind = match metric.kind {
        Kind::Gauge => MetricType::GAUGE,
        Kind::Counter => MetricType::COUNTER,
        Kind::Histogram => MetricType::HISTOGRAM,
    };
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(kind);
    family.set_metric(series);
    family
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}
