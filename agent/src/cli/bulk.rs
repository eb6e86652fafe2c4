//! `add-flows` and `del-flows`: a file of flows, sent in parts, answered with one summary.

use std::io::{self, Write};
use std::path::Path;

use super::connection::Connection;
use super::error::CliError;
use super::parts::{Part, Parts};
use super::{Outcome, terminal};

const METHOD: &str = "sluice/add-flows";

/// Complaints that are shown; more are only counted.
const COMPLAINTS_SHOWN: usize = 20;

/// `add-flows FILE`
pub(super) fn add(
    connect: impl FnOnce() -> Result<Connection, CliError>,
    file: &Path,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    run(connect, file, &|text| text, &Totals::of_additions, out)
}

/// `del-flows FILE`. The agent could read the file, too, but not standard input, and not what only the caller may read.
pub(super) fn delete(
    connect: impl FnOnce() -> Result<Connection, CliError>,
    file: &Path,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    run(connect, file, &as_deletions, &Totals::of_deletions, out)
}

fn run(
    connect: impl FnOnce() -> Result<Connection, CliError>,
    file: &Path,
    prepare: &dyn Fn(String) -> String,
    summary: &dyn Fn(&Totals) -> String,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    let mut parts = Parts::open(file)?;
    let mut connection = connect()?;
    let progress = terminal::progress(parts.length());
    let mut totals = Totals::default();
    let result = (|| {
        while let Some(Part { text, lines_before }) = parts.next()? {
            let length = text.len() as u64;
            totals.add(&connection.text(METHOD, &[&prepare(text)])?, lines_before)?;
            progress.inc(length);
        }
        Ok(())
    })();
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

/// The summaries of all parts in one.
#[derive(Debug, Default)]
struct Totals {
    parts: usize,
    accepted: u64,
    offloaded: u64,
    refused: u64,
    unanswered: u64,
    in_error: u64,
    complaints: Vec<String>,
    /// Complaints that are not in the list.
    more_complaints: u64,
}

impl Totals {
    /// Takes the answer to a part that came after `lines_before` lines.
    fn add(&mut self, answer: &str, lines_before: usize) -> Result<(), CliError> {
        let (summary, details) = answer.split_once('\n').unwrap_or((answer, ""));
        let counts = counts(summary).ok_or_else(|| CliError::answer(METHOD, summary))?;
        let [accepted, offloaded, refused, unanswered, in_error] = counts;
        self.parts += 1;
        self.accepted += accepted;
        self.offloaded += offloaded;
        self.refused += refused;
        self.unanswered += unanswered;
        self.in_error += in_error;

        let (mut told, mut taken) = (0, false);
        for line in details.lines() {
            let moved = with_line_moved(line, lines_before);
            if moved.is_some() || line.starts_with("refused: ") {
                told += 1;
                taken = self.complaints.len() < COMPLAINTS_SHOWN;
                if taken {
                    self.complaints.push(moved.unwrap_or_else(|| line.to_owned()));
                } else {
                    self.more_complaints += 1;
                }
            } else if let (true, Some(complaint)) = (taken, self.complaints.last_mut()) {
                // A line that is wrong is shown with a caret under the place.
                complaint.push('\n');
                complaint.push_str(line);
            }
        }
        self.more_complaints += (refused + in_error).saturating_sub(told);
        Ok(())
    }

    fn complain(&self) {
        let mut err = io::stderr().lock();
        // If nobody reads it, the exit code still tells.
        self.complaints.iter().for_each(|complaint| writeln!(err, "{complaint}").unwrap_or_default());
        if self.more_complaints > 0 {
            writeln!(err, "sluice: and {} more like these", self.more_complaints).unwrap_or_default();
        }
    }

    fn of_additions(&self) -> String {
        format!(
            "{} flows accepted: {} offloaded, {} refused, {} without an answer yet; {} lines in error",
            self.accepted, self.offloaded, self.refused, self.unanswered, self.in_error
        )
    }

    /// Deletions have no count of their own in the answer.
    fn of_deletions(&self) -> String {
        let others = self.offloaded + self.refused + self.unanswered;
        let offloaded = if self.offloaded > 0 { format!("{} offloaded, ", self.offloaded) } else { String::new() };
        format!(
            "{} flows deleted, {offloaded}{} refused, {} without an answer yet; {} lines in error",
            self.accepted.saturating_sub(others),
            self.refused,
            self.unanswered,
            self.in_error
        )
    }

    fn outcome(&self) -> Outcome {
        if self.refused + self.in_error + self.unanswered > 0 { Outcome::Refused } else { Outcome::Done }
    }
}

/// The five numbers of a summary.
fn counts(summary: &str) -> Option<[u64; 5]> {
    let words = [" flows accepted: ", " offloaded, ", " refused, ", " without an answer yet; ", " lines in error"];
    let mut rest = summary;
    let mut counts = [0; 5];
    for (count, word) in counts.iter_mut().zip(words) {
        let (number, after) = rest.split_once(word)?;
        *count = number.parse().ok()?;
        rest = after;
    }
    Some(counts)
}

/// A complaint about a line of a part, with the line's number in the file.
fn with_line_moved(line: &str, lines_before: usize) -> Option<String> {
    let (number, text) = line.strip_prefix("sluiced: line ")?.split_once(": ")?;
    Some(format!("sluiced: line {}: {text}", number.parse::<usize>().ok()?.saturating_add(lines_before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up_and_lines_get_their_number_in_the_file() {
        let mut totals = Totals::default();
        let first = "9 flows accepted: 7 offloaded, 1 refused, 1 without an answer yet; 2 lines in error\n\
                     refused: ufid:1: port 9: no such port\nsluiced: line 3: x\n ^\nat byte 0\nsluiced: line 4: y\n";
        totals.add(first, 0).unwrap();
        let second = "1 flows accepted: 1 offloaded, 0 refused, 0 without an answer yet; 40 lines in error\n";
        let errors: String = (1..=20).map(|line| format!("sluiced: line {line}: z\n ^\n")).collect();
        totals.add(&format!("{second}{errors}"), 100).unwrap();
        assert_eq!(
            totals.of_additions(),
            "10 flows accepted: 8 offloaded, 1 refused, 1 without an answer yet; 42 lines in error"
        );
        assert_eq!(totals.complaints[1], "sluiced: line 3: x\n ^\nat byte 0");
        assert_eq!(totals.complaints[3], "sluiced: line 101: z\n ^");
        assert_eq!((totals.complaints.len(), totals.more_complaints), (20, 23));
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
