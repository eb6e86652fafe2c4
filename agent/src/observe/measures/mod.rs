//! What the agent tells in numbers, each told once.
//!
//! A row of [`MEASURES`] says where a number is read, under which name and labels it is a metric, where it is in the object of
//! `sluice/stats` and what `coverage/show` calls it. So these cannot differ, and a new number is a new row.

mod table;

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_flow::table::Census;

use crate::agent::Agent;
use crate::observe::event_counts::EventCounts;
use crate::upkeep::device_counters::DeviceCounters;
use crate::upkeep::revalidation::Published;
use sluice_journal::JournalReport;
use sluice_offload::WorkerReport;

pub(crate) use self::table::MEASURES;

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    /// `None` for what is no metric.
    pub(crate) metric: Option<Metric>,
    /// Names of members, one in the other, with a dot between them; `list[].name` for a member of each item of a list.
    stats: Option<&'static str>,
    coverage: Option<&'static str>,
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

/// A number. One that is not known is absent, not zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// How many.
    Count(u64),
    /// Seconds, or a share.
    Real(f64),
    /// Whether.
    Flag(bool),
    /// It is not known, or there is no such thing.
    Absent,
}

/// A histogram.
pub(crate) struct Durations {
    pub(crate) count: u64,
    /// In seconds.
    pub(crate) sum: f64,
    /// Upper bounds in seconds, and how many were at most as long.
    pub(crate) buckets: Vec<(f64, u64)>,
}

/// All that numbers are read from, taken at one moment.
pub(crate) struct Reading<'a> {
    agent: &'a Agent,
    census: &'a Census,
    counts: &'a EventCounts,
    published: Published,
    workers: Vec<WorkerReport>,
    journal: Option<JournalReport>,
    device: Arc<DeviceCounters>,
    /// Log lines that nobody read in time, of a daemon that writes a log.
    dropped_log_lines: Option<u64>,
}

impl<'a> Reading<'a> {
    /// Takes it. No question goes to the device.
    pub(crate) fn take(agent: &'a Agent, dropped_log_lines: Option<u64>) -> Self {
        Self {
            agent,
            census: agent.table.census(),
            counts: agent.events.counts(),
            published: agent.revalidation.published(),
            workers: agent.queue.reports(),
            journal: agent.journal.as_ref().map(|journal| journal.report()),
            device: agent.device_counters(),
            dropped_log_lines,
        }
    }

    /// A total of events.
    pub(crate) fn total(&self, read: fn(&EventCounts) -> u64) -> Number {
        read(self.counts).into()
    }

    /// Adds all numbers to the object of `sluice/stats`. What is null there already stays so.
    pub(crate) fn add_to_stats(&self, stats: &mut Value) {
        for Measure { stats: path, read, .. } in MEASURES.into_iter().flatten() {
            let Some(path) = *path else { continue };
            match read {
                Read::Events(read) => put(stats, path, self.total(*read).into()),
                Read::One(read) => put(stats, path, read(self).into()),
                Read::Each(_, read) => match path.split_once("[].") {
                    Some((list, name)) => put_in_items(stats, list, name, read(self)),
                    None => {
                        let members: Map<_, _> =
                            read(self).into_iter().map(|(value, number)| (value, number.into())).collect();
                        put(stats, path, members.into());
                    }
                },
                Read::Durations(_) | Read::Words(_) => {}
            }
        }
    }

    /// The totals of events that `coverage/show` tells, by name.
    pub(crate) fn coverage(&self) -> Vec<(String, u64)> {
        let mut totals = Vec::new();
        for Measure { coverage, read, .. } in MEASURES.into_iter().flatten() {
            let Some(name) = *coverage else { continue };
            match read {
                Read::Events(read) => totals.push((name.to_owned(), read(self.counts))),
                Read::One(read) => totals.push((name.to_owned(), read(self).count())),
                Read::Each(_, read) => totals
                    .extend(read(self).into_iter().map(|(value, number)| (format!("{name}_{value}"), number.count()))),
                Read::Durations(_) | Read::Words(_) => {}
            }
        }
        totals
    }
}

/// Puts a member where its path says, and makes the objects on the way.
fn put(object: &mut Value, path: &str, member: Value) {
    match (path.split_once('.'), object) {
        (Some((first, rest)), Value::Object(members)) => {
            put(members.entry(first).or_insert_with(|| Map::new().into()), rest, member);
        }
        (None, Value::Object(members)) => {
            members.insert(path.to_owned(), member);
        }
        // There is no such thing now.
        _ => {}
    }
}

/// Puts a member into each item of a list.
fn put_in_items(object: &mut Value, list: &str, name: &str, numbers: Vec<(String, Number)>) {
    let Value::Object(members) = object else { return };
    let Value::Array(items) = members.entry(list).or_insert_with(|| Value::Array(Vec::new())) else { return };
    items.resize_with(items.len().max(numbers.len()), || Map::new().into());
    for (item, (_, number)) in items.iter_mut().zip(numbers) {
        put(item, name, number.into());
    }
}

impl Number {
    /// As Prometheus has it.
    pub(crate) fn value(self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
            Self::Count(count) => Some(count as f64),
            Self::Real(value) => Some(value),
            Self::Flag(flag) => Some(f64::from(u8::from(flag))),
            Self::Absent => None,
        }
    }

    fn count(self) -> u64 {
        if let Self::Count(count) = self { count } else { 0 }
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Count(count) => count.into(),
            Number::Real(value) => value.into(),
            Number::Flag(flag) => flag.into(),
            Number::Absent => Self::Null,
        }
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<std::time::Duration> for Number {
    fn from(span: std::time::Duration) -> Self {
        Self::Real(span.as_secs_f64())
    }
}

impl From<bool> for Number {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Number {
    fn from(number: Option<T>) -> Self {
        number.map_or(Self::Absent, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use serde_json::json;

    use super::*;

    #[test]
    fn members_go_where_their_path_says_and_what_is_null_stays_so() {
        let mut object = json!({ "journal": null, "flows": { "live": 1 } });
        put(&mut object, "flows.limit", 7.into());
        put(&mut object, "events.ended.idle", 3.into());
        put(&mut object, "journal.records", 9.into());
        put_in_items(
            &mut object,
            "workers",
            "queued",
            vec![("0".into(), 4_usize.into()), ("1".into(), Number::Absent)],
        );
        put_in_items(&mut object, "workers", "in_flight", vec![("0".into(), 5_usize.into())]);
        let expected = json!({
            "journal": null,
            "flows": { "live": 1, "limit": 7 },
            "events": { "ended": { "idle": 3 } },
            "workers": [{ "queued": 4, "in_flight": 5 }, { "queued": null }],
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn rows_of_one_metric_agree_and_none_is_there_twice() {
        let (mut families, mut series) = (HashMap::new(), HashSet::new());
        let (mut paths, mut names) = (HashSet::new(), HashSet::new());
        for measure in MEASURES.into_iter().flatten() {
            if let Some(metric) = measure.metric {
                let known = families.entry(metric.name).or_insert((metric.help, metric.kind));
                assert_eq!(*known, (metric.help, metric.kind), "{}", metric.name);
                assert!(series.insert((metric.name, metric.label)), "{}", metric.name);
                assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            }
            let is_histogram = measure.metric.is_some_and(|metric| metric.kind == Kind::Histogram);
            assert_eq!(is_histogram, matches!(measure.read, Read::Durations(_)));
            assert!(measure.stats.is_none_or(|path| paths.insert(path)), "{:?}", measure.stats);
            assert!(measure.coverage.is_none_or(|name| names.insert(name)), "{:?}", measure.coverage);
        }
    }
}
