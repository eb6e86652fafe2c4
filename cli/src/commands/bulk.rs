//! `add-flows` and `del-flows`: a file of flows, sent in parts, answered with one summary.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use sluice_control::answers::{BulkAnswer, LineError};
use sluice_control::parts::Part;

use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;
use crate::parts::Parts;
use crate::terminal;

const METHOD: &str = "sluice/add-flows";

/// Parts that are sent before the answer to an earlier one is read, so that the agent never waits for the next.
const SENT_AHEAD: usize = 1;

/// Complaints that are shown; more are only counted.
const COMPLAINTS_SHOWN: usize = 20;

/// Add the flows of a file, one a line; a dump of OVS works as it is
#[derive(Debug, Args)]
pub(crate) struct AddFlows {
    /// Lines as dump-flows prints them, with "add", "modify" or "delete" in front if needed; "-" is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Run for AddFlows {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        send(agent, &self.file, &|text| text, &Totals::of_additions, out)
    }
}

/// Delete the flows of a file, or all
#[derive(Debug, Args)]
pub(crate) struct DelFlows {
    /// Lines as dump-flows prints them, actions may be left out; "-" is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Run for DelFlows {
    /// The agent could read the file, too, but not standard input, and not what only the caller may read.
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        match &self.file {
            Some(file) => send(agent, file, &as_deletions, &Totals::of_deletions, out),
            None => agent.print("sluice/flush", &[], out).map(|()| Outcome::Done),
        }
    }
}

fn send(
    agent: &Agent,
    file: &Path,
    prepare: &dyn Fn(String) -> String,
    summary: &dyn Fn(&Totals) -> String,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    let mut parts = Parts::open(file)?;
    let mut connection = agent.connect()?;
    let progress = terminal::progress(parts.length());
    let mut totals = Totals::default();
    let mut under_way = VecDeque::new();
    let mut take_answer = |connection: &mut Connection, (asked, lines_before, length)| {
        totals.add(&connection.answer(asked)?, lines_before)?;
        progress.inc(length);
        Ok(())
    };
    let mut result = (|| {
        while let Some(Part { text, lines_before }) = parts.next()? {
            if connection.may_be_closed() {
                // Whoever writes the flows has paused for long. What was answered meanwhile is read before the connection is made anew.
                while let Some(oldest) = under_way.pop_front() {
                    take_answer(&mut connection, oldest)?;
                }
            }
            let length = text.len() as u64;
            under_way.push_back((connection.ask(METHOD, &[&prepare(text)])?, lines_before, length));
            if under_way.len() > SENT_AHEAD
                && let Some(oldest) = under_way.pop_front()
            {
                take_answer(&mut connection, oldest)?;
            }
        }
        Ok(())
    })();
    // What was sent is done, even after an error.
    for oldest in under_way {
        result = result.and(take_answer(&mut connection, oldest));
    }
    progress.finish_and_clear();
    totals.complain();
    // What was done before an error is done, and is said.
    if result.is_ok() || totals.parts > 0 {
        writeln!(out, "{}", summary(&totals)).map_err(CliError::Output)?;
    }
    result.map(|()| totals.outcome())
}

/// Puts "delete" before each line that does not say what is to be done.
fn as_deletions(text: String) -> String {
    let mut deletions = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        let flow = line.trim_start();
        let word = flow.split_whitespace().next().unwrap_or_default();
        if !flow.is_empty() && !flow.starts_with('#') && !["add", "modify", "delete"].contains(&word) {
            deletions.push_str("delete ");
        }
        deletions.push_str(line);
    }
    deletions
}

/// The answers to all parts in one.
#[derive(Debug, Default)]
struct Totals {
    parts: usize,
    sum: BulkAnswer,
    complaints: Vec<String>,
}

impl Totals {
    /// Takes the answer to a part that came after `lines_before` lines.
    fn add(&mut self, answer: &str, lines_before: usize) -> Result<(), CliError> {
        let part: BulkAnswer = serde_json::from_str(answer).map_err(|_| CliError::answer(METHOD, answer.trim_end()))?;
        self.parts += 1;
        self.sum.accepted += part.accepted;
        self.sum.offloaded += part.offloaded;
        self.sum.refused += part.refused;
        self.sum.deleted += part.deleted;
        self.sum.superseded += part.superseded;
        self.sum.unanswered += part.unanswered;
        self.sum.in_error += part.in_error;
        let refusals = part.refusals.into_iter().map(|refusal| format!("refused: {refusal}"));
        let in_file = |error: LineError| format!("sluice: line {}: {}", error.line + lines_before, error.text);
        let room = COMPLAINTS_SHOWN.saturating_sub(self.complaints.len());
        self.complaints.extend(part.errors.into_iter().map(in_file).chain(refusals).take(room));
        Ok(())
    }

    fn complain(&self) {
        let mut err = io::stderr().lock();
        // If nobody reads it, the exit code still tells.
        self.complaints.iter().for_each(|complaint| writeln!(err, "{complaint}").unwrap_or_default());
        let more = (self.sum.refused + self.sum.in_error).saturating_sub(self.complaints.len());
        if more > 0 {
            writeln!(err, "sluice: and {more} more like these").unwrap_or_default();
        }
    }

    fn of_additions(&self) -> String {
        let BulkAnswer { accepted, offloaded, refused, unanswered, in_error, .. } = self.sum;
        format!(
            "{accepted} flows accepted: {offloaded} offloaded, {refused} refused, {unanswered} without an answer yet; \
             {in_error} lines in error"
        )
    }

    fn of_deletions(&self) -> String {
        let BulkAnswer { deleted, refused, unanswered, in_error, .. } = self.sum;
        format!(
            "{deleted} flows deleted, {refused} refused, {unanswered} without an answer yet; {in_error} lines in error"
        )
    }

    fn outcome(&self) -> Outcome {
        let undone = self.sum.refused + self.sum.in_error + self.sum.unanswered;
        if undone > 0 { Outcome::Refused } else { Outcome::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(accepted: usize, refused: usize, error_lines: std::ops::Range<usize>) -> String {
        let error = |line| LineError { line, text: "\nz\n ^".into() };
        let errors: Vec<_> = error_lines.map(error).collect();
        let (offloaded, in_error) = (accepted - refused, errors.len());
        let refusals = (0..refused).map(|_| "port 9: no such port".to_owned()).collect();
        let answer = BulkAnswer { accepted, offloaded, refused, in_error, refusals, errors, ..BulkAnswer::default() };
        serde_json::to_string(&answer).unwrap()
    }

    #[test]
    fn answers_add_up_and_lines_get_their_number_in_the_file() {
        let mut totals = Totals::default();
        totals.add(&part(9, 1, 3..5), 0).unwrap();
        totals.add(&part(1, 0, 1..41), 100).unwrap();
        assert_eq!(
            totals.of_additions(),
            "10 flows accepted: 9 offloaded, 1 refused, 0 without an answer yet; 42 lines in error"
        );
        assert_eq!(totals.complaints[0], "sluice: line 3: \nz\n ^");
        assert_eq!(totals.complaints[2], "refused: port 9: no such port");
        assert_eq!(totals.complaints[3], "sluice: line 101: \nz\n ^");
        assert_eq!(totals.complaints.len(), COMPLAINTS_SHOWN);
        assert_eq!(totals.outcome(), Outcome::Refused);
    }

    #[test]
    fn an_answer_of_another_kind_is_no_success() {
        let error = Totals::default().add("done\n", 0).unwrap_err();
        assert_eq!(error.to_string(), "sluice: the answer of the agent to sluice/add-flows is not understood: done");
    }

    #[test]
    fn lines_without_a_word_become_deletions() {
        let text = "# flows\n\nin_port(1) 2\n  add in_port(2) 1\ndelete in_port(3)\nin_port(4)".to_owned();
        assert_eq!(
            as_deletions(text),
            "# flows\n\ndelete in_port(1) 2\n  add in_port(2) 1\ndelete in_port(3)\ndelete in_port(4)"
        );
    }
}
