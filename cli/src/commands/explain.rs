//! `explain`: a flow, or a whole dump of OVS, judged in parts, with one summary.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use sluice_control::parts::Part;

use super::flows::priority;
use crate::command::{Agent, Outcome, Run, given};
use crate::error::CliError;
use crate::parts::Parts;
use crate::terminal;

const METHOD: &str = "sluice/explain-lines";

/// How the agent begins what it says of a line that is no flow.
const NOT_UNDERSTOOD: &str = "not understood: ";

/// Say why a flow is in the device, why it is not, or whether it would be
///
/// Exits 2 if the flow is refused, or would be.
#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// An existing flow, or the key of one that might exist
    #[arg(value_name = "UFID|KEY", required_unless_present = "file")]
    flow: Option<String>,
    /// The actions that go with a key
    #[arg(value_name = "ACTIONS")]
    actions: Option<String>,
    /// Explain a whole dump of OVS or a file for add-flows instead ("-" is standard input): which flows would not be taken, and
    /// why. Exits 2 if a line is not understood or no flow would be taken
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flow", "actions", "priority"])]
    file: Option<PathBuf>,
    /// The priority of the flow, 0 to 15, higher wins
    #[arg(long, value_name = "N", value_parser = priority)]
    priority: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Explain {
    fn params(&self) -> Vec<String> {
        let option =
            given([(self.json, "--json")]).chain(self.priority.iter().map(|value| format!("--priority={value}")));
        option.chain(self.flow.clone()).chain(self.actions.clone()).collect()
    }
}

impl Run for Explain {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        match &self.file {
            Some(file) => explain_file(agent, file, self.json, out),
            None => self.explain_one(agent, out),
        }
    }
}

impl Explain {
    /// The verdict is in the object only, so that this is asked for first also where people read the text.
    fn explain_one(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        const METHOD: &str = "sluice/explain";
        let mut connection = agent.connect()?;
        let params = Self { json: true, ..self.clone() }.params();
        let object = connection.text(METHOD, &params.iter().map(String::as_str).collect::<Vec<_>>())?;
        let verdict: Value = serde_json::from_str(&object).map_err(|_| CliError::answer(METHOD, &object))?;
        if self.json {
            out.write_all(object.as_bytes()).map_err(CliError::Output)?;
        } else {
            let params = self.params();
            connection.print(METHOD, &params.iter().map(String::as_str).collect::<Vec<_>>(), out)?;
        }
        let is_refused = verdict["taken"] == false || verdict["flow"]["state"] == "refused";
        Ok(if is_refused { Outcome::Refused } else { Outcome::Done })
    }
}

/// `explain --file FILE`
fn explain_file(agent: &Agent, file: &Path, json: bool, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let mut parts = Parts::open(file)?;
    let mut connection = agent.connect()?;
    let progress = terminal::progress(parts.length());
    let mut summary = Summary::default();
    while let Some(Part { text, lines_before }) = parts.next()? {
        let mut is_judged = false;
        connection.lines(METHOD, &[&text], &mut |line| {
            if is_judged {
                return summary.add_reason(line);
            }
            is_judged = summary.add_total(line);
            if is_judged {
                return Ok(());
            }
            let (line, reason) = of_line(line, lines_before).ok_or_else(|| CliError::answer(METHOD, line))?;
            if json {
                summary.lines.push(json!({ "line": line, "reason": reason }));
                return Ok(());
            }
            progress.suspend(|| writeln!(out, "line {line}: {reason}")).map_err(CliError::Output)
        })?;
        progress.inc(text.len() as u64);
    }
    progress.finish_and_clear();
    let outcome = summary.outcome();
    if json { summary.print_object(out) } else { summary.print(out) }.map_err(CliError::Output)?;
    Ok(outcome)
}

/// The summaries of all parts in one.
#[derive(Debug, Default)]
struct Summary {
    flows: u64,
    taken: u64,
    reasons: BTreeMap<String, u64>,
    /// What is said of lines, for one object at the end.
    lines: Vec<Value>,
}

impl Summary {
    /// Takes a line such as `9 flows: 7 would be taken, 2 not`. Says whether it is one.
    fn add_total(&mut self, line: &str) -> bool {
        let numbers = line.split_once(" flows: ").and_then(|(flows, rest)| {
            let (taken, _) = rest.split_once(" would be taken, ")?;
            Some((flows.parse::<u64>().ok()?, taken.parse::<u64>().ok()?))
        });
        let Some((flows, taken)) = numbers else { return false };
        self.flows += flows;
        self.taken += taken;
        true
    }

    /// Takes a line such as `       2  port 9: no such port`.
    fn add_reason(&mut self, line: &str) -> Result<(), CliError> {
        let parsed =
            line.trim_start().split_once("  ").and_then(|(count, reason)| Some((count.parse::<u64>().ok()?, reason)));
        let (count, reason) = parsed.ok_or_else(|| CliError::answer(METHOD, line))?;
        *self.reasons.entry(reason.to_owned()).or_default() += count;
        Ok(())
    }

    /// A file is explained if all of its lines are understood and some flow would be taken, if there is any.
    fn outcome(&self) -> Outcome {
        let is_understood = !self.reasons.keys().any(|reason| reason.starts_with(NOT_UNDERSTOOD));
        if is_understood && (self.taken > 0 || self.flows == 0) { Outcome::Done } else { Outcome::Refused }
    }

    fn print(self, out: &mut dyn Write) -> std::io::Result<()> {
        let (flows, taken) = (self.flows, self.taken);
        writeln!(out, "{flows} flows: {taken} would be taken, {} not", flows.saturating_sub(taken))?;
        self.most_frequent().into_iter().try_for_each(|(reason, count)| writeln!(out, "{count:>8}  {reason}"))
    }

    /// With the keys of `docs/json.md`.
    fn print_object(mut self, out: &mut dyn Write) -> std::io::Result<()> {
        let (flows, taken, lines) = (self.flows, self.taken, std::mem::take(&mut self.lines));
        let reason = |(reason, flows): (String, u64)| json!({ "reason": reason, "flows": flows });
        let reasons: Value = self.most_frequent().into_iter().map(reason).collect();
        writeln!(out, "{}", json!({ "flows": flows, "taken": taken, "reasons": reasons, "lines": lines }))
    }

    fn most_frequent(self) -> Vec<(String, u64)> {
        let mut reasons: Vec<_> = self.reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        reasons
    }
}

/// The number in the file, and what is said, of a line such as `line 3: port 9: no such port`.
fn of_line(line: &str, lines_before: usize) -> Option<(usize, &str)> {
    let (number, reason) = line.strip_prefix("line ")?.split_once(": ")?;
    Some((number.parse::<usize>().ok()?.saturating_add(lines_before), reason))
}
