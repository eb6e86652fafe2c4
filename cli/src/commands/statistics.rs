//! `stats`: the object of `sluice/stats` as tables.

use std::io::Write;

use clap::Args;
use serde_json::{Map, Value};

use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::terminal;

const METHOD: &str = "sluice/stats";

/// Everything that the agent counts.
pub(crate) fn get(connection: &mut Connection) -> Result<Value, CliError> {
    let answer = connection.text(METHOD, &[])?;
    serde_json::from_str(&answer).map_err(|_| CliError::answer(METHOD, &answer))
}

/// Show everything that is counted
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Run for Stats {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        if self.json {
            agent.print(METHOD, &[], out)?
        } else {
            print(&mut agent.connect()?, out)?
        }
        Ok(Outcome::Done)
    }
}

fn print(connection: &mut Connection, out: &mut dyn Write) -> Result<(), CliError> {
    let statistics = get(connection)?;
    let members = statistics.as_object().ok_or_else(|| CliError::answer(METHOD, &statistics.to_string()))?;
    out.write_all(tables(members, terminal::width()).as_bytes()).map_err(CliError::Output)
}

/// A value as people read it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            // Latencies come with more digits than they have meaning.
            Some(float) if number.is_f64() => {
                let fixed = format!("{float:.6}");
                fixed.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            _ => number.to_string(),
        },
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A table for each group of counters. Whatever the agent counts is shown, also what was not thought of here.
fn tables(members: &Map<String, Value>, width: Option<u16>) -> String {
    let mut all = String::new();
    let mut loose = Vec::new();
    for (title, value) in members {
        let table = match value {
            Value::Object(members) => {
                let mut rows = Vec::new();
                members.iter().for_each(|(name, value)| flatten(words(name), value, &mut rows));
                pairs(&words(title), rows, width)
            }
            Value::Array(items) => list(&words(title), items, width),
            _ => {
                loose.push((words(title), text(value)));
                continue;
            }
        };
        all.push_str(&format!("\n{table}\n"));
    }
    let loose: String = loose.into_iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    loose + &all
}

fn pairs(title: &str, rows: Vec<(String, String)>, width: Option<u16>) -> String {
    let mut table = terminal::table(width, &[title, ""], &[1]);
    rows.into_iter().for_each(|(name, value)| {
        table.add_row([name, value]);
    });
    table.trim_fmt()
}

/// Objects of the same members, one a row, numbered.
fn list(title: &str, items: &[Value], width: Option<u16>) -> String {
    let names: Vec<_> =
        items.first().and_then(Value::as_object).map(|first| first.keys().collect()).unwrap_or_default();
    let header: Vec<_> = [title.to_owned()].into_iter().chain(names.iter().map(|name| words(name))).collect();
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut table = terminal::table(width, &header, &(0..header.len()).collect::<Vec<_>>());
    for (index, item) in items.iter().enumerate() {
        let cells = names.iter().map(|name| text(item.get(name.as_str()).unwrap_or(&Value::Null)));
        table.add_row([index.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.trim_fmt()
}

fn flatten(name: String, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(member, value)| flatten(format!("{name}: {}", words(member)), value, rows));
        }
        _ => rows.push((name, text(value))),
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_become_tables_whatever_is_in_them() {
        let statistics = json!({
            "datapath": "soft@demo",
            "events": {"accepted": 12, "refused": {"field": 2}, "newly_thought_of": null},
            "workers": [{"queued": 0, "latency_average_seconds": 0.000_012_345_678}, {"queued": 3}],
        });
        let text = tables(statistics.as_object().unwrap(), None);
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "datapath soft@demo",
                "",
                "events",
                "accepted 12",
                "newly thought of -",
                "refused: field 2",
                "",
                "workers latency average seconds queued",
                "0 0.000012 0",
                "1 - 3"
            ]
        );
    }
}
