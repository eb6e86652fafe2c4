//! The metrics in OpenMetrics 1.0.0, which the `prometheus` crate does not write, and who is to get them.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use sluice_offload::Installation;

/// What the format calls itself.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a client that accepts this prefers the format to plain text. One that asks for neither gets plain text.
pub(super) fn is_preferred(accept: &str) -> bool {
    let quality = |wanted: &[&str]| {
        let ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
        let of_range = ranges.filter_map(|mut parts| {
            let name = parts.next()?;
            let given = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
            wanted.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)).then(|| given.unwrap_or(1.0))
        });
        of_range.fold(0.0, f64::max)
    };
    let openmetrics = quality(&["application/openmetrics-text"]);
    openmetrics > 0.0 && openmetrics >= quality(&["text/plain", "text/*"])
}

/// Examples of what a histogram counts, which become exemplars: one for each bucket, the infinite one included.
///
/// They have no time: Prometheus then takes one that it has seen already for the same, instead of keeping it with each scrape.
#[derive(Clone, Copy)]
pub(super) struct Examples<'a> {
    /// The name of the histogram.
    pub(super) of: &'static str,
    pub(super) by_bucket: &'a [Option<Installation>],
}

/// Writes all families.
pub(super) fn encode(families: &[MetricFamily], examples: Examples<'_>) -> String {
    let mut out = String::new();
    for family in families {
        let by_bucket = if family.name() == examples.of { examples.by_bucket } else { &[] };
        // Writing to a string does not fail.
        let _ = write_family(&mut out, family, by_bucket);
    }
    out.push_str("# EOF\n");
    out
}

fn write_family(out: &mut String, family: &MetricFamily, examples: &[Option<Installation>]) -> std::fmt::Result {
    let (kind, name) = match family.get_field_type() {
        MetricType::COUNTER => ("counter", family.name().trim_end_matches("_total")),
        MetricType::HISTOGRAM => ("histogram", family.name()),
        _ => ("gauge", family.name()),
    };
    writeln!(out, "# TYPE {name} {kind}")?;
    writeln!(out, "# HELP {name} {}", escaped(family.help()))?;
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => sample(out, &[name, "_total"], metric, metric.get_counter().get_value())?,
            MetricType::HISTOGRAM => write_histogram(out, name, metric, examples)?,
            _ => sample(out, &[name], metric, metric.get_gauge().get_value())?,
        }
    }
    Ok(())
}

fn write_histogram(
    out: &mut String,
    name: &str,
    metric: &Metric,
    examples: &[Option<Installation>],
) -> std::fmt::Result {
    let histogram = metric.get_histogram();
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
    let count = |count: u64| count as f64;
    let all = count(histogram.get_sample_count());
    let finite = histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), count(bucket.cumulative_count())));
    let mut examples = examples.iter();
    for (bound, count) in finite.chain([(f64::INFINITY, all)]) {
        begin_sample(out, &[name, "_bucket"], metric, Some(&number(bound)), count)?;
        if let Some(Some(example)) = examples.next() {
            write!(out, " # {{ufid=\"{}\"}} {}", example.ufid, number(example.latency))?;
        }
        out.push('\n');
    }
    sample(out, &[name, "_sum"], metric, histogram.get_sample_sum())?;
    sample(out, &[name, "_count"], metric, all)
}

fn sample(out: &mut String, name: &[&str], metric: &Metric, value: f64) -> std::fmt::Result {
    begin_sample(out, name, metric, None, value)?;
    writeln!(out)
}

/// Writes a sample, and leaves its line open.
fn begin_sample(out: &mut String, name: &[&str], metric: &Metric, bound: Option<&str>, value: f64) -> std::fmt::Result {
    out.extend(name.iter().copied());
    let of_metric = metric.get_label().iter().map(|label: &LabelPair| (label.name(), label.value()));
    let mut separator = '{';
    for (name, value) in of_metric.chain(bound.map(|bound| ("le", bound))) {
        write!(out, "{separator}{name}=\"{}\"", escaped(value))?;
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    write!(out, " {}", number(value))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

/// A number as Prometheus's own libraries write it, so that a bound of a bucket is the same text from every program.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_decides() {
        // What Prometheus 2.42 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(is_preferred(prometheus));
        assert!(is_preferred("Application/OpenMetrics-Text"));
        for other in ["", "*/*", "text/html,*/*;q=0.8", "text/plain", "application/openmetrics-text;q=0"] {
            assert!(!is_preferred(other), "{other}");
        }
        assert!(!is_preferred("application/openmetrics-text;q=0.5,text/plain"));
    }

    #[test]
    fn numbers_have_one_text_each() {
        let numbers = [1.0, 0.25, 1e-5, 2.5e-4, 1e21, -3.0, 0.0, f64::INFINITY, f64::NAN];
        let texts = numbers.map(number);
        assert_eq!(texts, ["1.0", "0.25", "1e-05", "0.00025", "1e+21", "-3.0", "0.0", "+Inf", "NaN"]);
    }
}
