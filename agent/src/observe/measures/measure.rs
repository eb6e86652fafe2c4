//! What a row says.

use super::number::Number;
use super::reading::Reading;
use crate::observe::event_counts::EventCounts;

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    /// `None` for what is no metric.
    pub(crate) metric: Option<Metric>,
    /// Names of members, one in the other, with a dot between them; `list[].name` for a member of each item of a list.
    pub(super) stats: Option<&'static str>,
    pub(super) coverage: Option<&'static str>,
    pub(crate) read: Read,
}

/// A metric, or a part of one that a label tells from the others.
#[derive(Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// Whether there is such a metric now.
    pub(crate) is_there: fn(&Reading<'_>) -> bool,
}

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
    /// Durations, counted by how long they were.
    Histogram,
}

/// How numbers are read.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    /// It is a total of events.
    Events(fn(&EventCounts) -> u64),
    /// There is one.
    One(fn(&Reading<'_>) -> Number),
    /// There is one for each value of a label.
    Each(&'static str, fn(&Reading<'_>) -> Vec<(String, Number)>),
    /// Durations, counted by how long they were.
    Durations(fn(&Reading<'_>) -> Durations),
    /// Words about what runs, by the names of labels; the metric is 1.
    Words(fn(&Reading<'_>) -> Vec<(&'static str, String)>),
}

/// A histogram.
pub(crate) struct Durations {
    pub(crate) count: u64,
    /// In seconds.
    pub(crate) sum: f64,
    /// Upper bounds in seconds, and how many were at most as long.
    pub(crate) buckets: Vec<(f64, u64)>,
}
