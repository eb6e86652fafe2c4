//! What all benches have found: one table, and how each cost grows with the number of flows.
//!
//! Reads `target/bench/*.json`. A row is any object with a name and a figure of ours, and the peer's or what is to be
//! reached. Growth is drawn into `target/bench/growth.svg`, one panel a series: what all flows together cost, as a multiple
//! of the least number of flows, beside the line of what grows as the flows do.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot go on says so and ends"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use sluice_tests::bench;
use sluice_tests::daemon::repository;

const COLUMNS: usize = 5;
const PANEL: (f64, f64) = (230.0, 170.0);
/// Around the plot of a panel: left, right, above, below.
const MARGIN: (f64, f64, f64, f64) = (34.0, 10.0, 40.0, 22.0);
const TITLE: f64 = 46.0;
/// Letters of a line in the title of a panel.
const LINE: usize = 36;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let folder = repository("target/bench");
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (name, result) in results() {
        collect_rows(&name, &result, &mut rows);
        series.extend(series_of(&name, &result));
    }
    assert!(!rows.is_empty(), "no bench has written anything to {}", folder.display());
    print(&rows);
    println!("\nGrowth, exponent from the least to the greatest number of flows (1 is linear):");
    for series in &series {
        println!("  {:<90} {:>6.2}", series.title, series.exponent());
    }
    let plot = folder.join("growth.svg");
    fs::write(&plot, draw(&series)).expect("the plot is written");
    println!("\n{}", plot.display());
}

fn results() -> BTreeMap<String, Value> {
    let files = fs::read_dir(repository("target/bench")).into_iter().flatten().flatten().map(|entry| entry.path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem()?.to_str()?.to_owned();
        let text = fs::read_to_string(&path).expect("a result");
        Some((name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))))
    };
    files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).filter_map(read).collect()
}

struct Row {
    name: String,
    unit: String,
    ours: f64,
    peer: Option<f64>,
    ratio: Option<f64>,
    to_reach: String,
    reached: Option<bool>,
}

fn collect_rows(bench: &str, value: &Value, rows: &mut Vec<Row>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_rows(bench, value, rows)),
        Value::Object(fields) => {
            rows.extend(row(bench, value));
            let inner = fields.iter().filter(|(key, _)| !key.starts_with("growth"));
            inner.for_each(|(_, value)| collect_rows(bench, value, rows));
        }
        _ => {}
    }
}

fn row(bench: &str, value: &Value) -> Option<Row> {
    let number = |key: &str| value[key].as_f64();
    let unit = value["unit"].as_str().unwrap_or_default().to_owned();
    let (ours, peer, ratio) = (number("ours")?, number("peer"), number("ratio"));
    let to_reach = &value["to_reach"];
    if peer.is_none() && to_reach.is_null() {
        return None;
    }
    // Of a rate the ratio to the peer's counts, of anything else the figure itself, if the bench has not judged already.
    let judged = match (to_reach.as_f64(), ratio) {
        (Some(to_reach), Some(ratio)) if unit.ends_with("/s") => Some(ratio >= to_reach),
        (Some(to_reach), _) => Some(ours <= to_reach),
        _ => None,
    };
    Some(Row {
        name: format!("{bench}: {}", value["name"].as_str()?),
        unit,
        ours,
        peer,
        ratio,
        to_reach: match to_reach {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => short(number.as_f64().unwrap_or(f64::NAN)),
            other => other.to_string(),
        },
        reached: value["reached"].as_bool().or(judged),
    })
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    println!("{:<width$} {:>11} {:>11} {:>7}  {:<16} {:<8} unit", "", "ours", "peer", "ratio", "to reach", "");
    for row in rows {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), short);
        let reached = row.reached.map_or("", |reached| if reached { "reached" } else { "NOT" });
        println!(
            "{:<width$} {:>11} {:>11} {:>7}  {:<16} {reached:<8} {}",
            row.name,
            short(row.ours),
            number(row.peer),
            number(row.ratio),
            row.to_reach,
            row.unit
        );
    }
    let missed = rows.iter().filter(|row| row.reached == Some(false)).count();
    let judged = rows.iter().filter(|row| row.reached.is_some()).count();
    println!("{} of {judged} reached", judged - missed);
}

/// Three digits or so.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => format!("{number:.0}"),
        100.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// How a cost grows.
struct Series {
    title: String,
    /// Flows, and what all of them cost.
    points: Vec<(f64, f64)>,
}

fn series_of(bench: &str, result: &Value) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for point in result["growth"].as_array().into_iter().flatten() {
        let (Some(flows), Some(value)) = (point["flows"].as_f64(), point["value"].as_f64()) else { continue };
        let unit = point["unit"].as_str().unwrap_or_default();
        let cost = if unit.contains("/s") {
            flows / value
        } else if unit.starts_with("ms") {
            value
        } else {
            flows * value
        };
        let title = match point["name"].as_str() {
            Some(name) => format!("{bench}: {name}"),
            None => bench.to_owned(),
        };
        match series.iter_mut().find(|series| series.title == title) {
            Some(series) => series.points.push((flows, cost)),
            None => series.push(Series { title, points: vec![(flows, cost)] }),
        }
    }
    series.retain(|series| series.points.len() > 1 && series.points.iter().all(|(_, cost)| *cost > 0.0));
    series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series
}

impl Series {
    fn exponent(&self) -> f64 {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        (last.1 / first.1).ln() / (last.0 / first.0).ln()
    }
}

fn draw(series: &[Series]) -> String {
    let lines = series.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS as f64 * PANEL.0, TITLE + lines as f64 * PANEL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"9\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\">What all flows together cost, as a multiple of the cost at the least \
         number of flows</text>\n<text x=\"12\" y=\"36\" fill=\"#666\">Both axes are logarithmic. Dashed: linear, slope \
         1; at or below it is linear or better.</text>\n"
    );
    for (place, series) in series.iter().enumerate() {
        let (column, line) = (place % COLUMNS, place / COLUMNS);
        let at = (column as f64 * PANEL.0, TITLE + line as f64 * PANEL.1);
        writeln!(svg, "<g transform=\"translate({} {})\">\n{}</g>", at.0, at.1, panel(series)).expect("a string");
    }
    svg + "</svg>\n"
}

fn panel(series: &Series) -> String {
    let (left, right, above, below) = MARGIN;
    let (least, first_cost) = series.points[0];
    let most = series.points[series.points.len() - 1].0;
    let decades = (most / least).log10();
    let multiples: Vec<_> = series.points.iter().map(|(flows, cost)| (*flows, cost / first_cost)).collect();
    // As high as the line of slope 1, or the highest point.
    let highest = multiples.iter().fold(decades, |most, (_, multiple)| most.max(multiple.log10()));
    let lowest = multiples.iter().fold(0.0f64, |least, (_, multiple)| least.min(multiple.log10()));
    let x = |flows: f64| left + (flows / least).log10() / decades * (PANEL.0 - left - right);
    let y = |exponent: f64| {
        let part = (exponent - lowest) / (highest - lowest);
        PANEL.1 - below - part * (PANEL.1 - above - below)
    };
    let mut svg = String::new();
    let mut put = |element: String| writeln!(svg, "{element}").expect("a string");
    for (number, line) in wrapped(&format!("{}, n^{:.2}", series.title, series.exponent())).iter().enumerate() {
        put(format!("<text x=\"{left}\" y=\"{}\">{}</text>", 12 + number * 11, escaped(line)));
    }
    let bottom = PANEL.1 - below;
    put(format!("<path d=\"M{left} {above}V{bottom}H{}\" fill=\"none\" stroke=\"#999\"/>", PANEL.0 - right));
    for (flows, _) in &multiples {
        let at = x(*flows);
        put(format!("<path d=\"M{at:.1} {bottom}v4\" stroke=\"#999\"/>"));
        put(format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            bottom + 14.0,
            count(*flows)
        ));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a few decades")]
    for decade in lowest.ceil() as i32..=highest.floor() as i32 {
        let at = y(f64::from(decade));
        put(format!("<path d=\"M{left} {at:.1}h-4\" stroke=\"#999\"/>"));
        let label = 10f64.powi(decade);
        put(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{label}</text>",
            left - 6.0,
            at + 3.0
        ));
    }
    put(format!(
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>",
        x(least),
        y(0.0),
        x(most),
        y(decades)
    ));
    let points: Vec<_> =
        multiples.iter().map(|(flows, multiple)| format!("{:.1},{:.1}", x(*flows), y(multiple.log10()))).collect();
    put(format!("<polyline points=\"{}\" fill=\"none\" stroke=\"#0b62a4\" stroke-width=\"1.5\"/>", points.join(" ")));
    for point in &points {
        let (x, y) = point.split_once(',').expect("two numbers");
        put(format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\" fill=\"#0b62a4\"/>"));
    }
    svg
}

/// At most three lines, broken at blanks.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= LINE || lines.len() == 3 {
            let last = lines.last_mut().expect("there is one");
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn count(flows: f64) -> String {
    match flows {
        1e6.. => format!("{}M", flows / 1e6),
        1e3.. => format!("{}k", flows / 1e3),
        _ => flows.to_string(),
    }
}
