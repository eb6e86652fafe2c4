//! Where the control socket shows numbers: `sluice/stats` and `coverage/show`.

use serde_json::{Map, Value};

use super::measure::{Measure, Read};
use super::number::Number;
use super::reading::Reading;
use super::table::MEASURES;

impl Reading<'_> {
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

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use serde_json::json;

    use super::super::measure::Kind;
    use super::super::number::Number;
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
