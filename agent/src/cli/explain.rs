//! `explain --file`: a whole dump of OVS, judged in parts, with one summary.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::connection::Connection;
use super::error::CliError;
use super::parts::Parts;
use super::terminal;
use crate::parts::Part;

const METHOD: &str = "sluice/explain-lines";

/// `explain --file FILE`
pub(super) fn file(
    connect: impl FnOnce() -> Result<Connection, CliError>,
    file: &Path,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut parts = Parts::open(file)?;
    let mut connection = connect()?;
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
            let moved = with_line_moved(line, lines_before);
            let moved = moved.ok_or_else(|| CliError::answer(METHOD, line))?;
            progress.suspend(|| writeln!(out, "{moved}")).map_err(CliError::Output)
        })?;
        progress.inc(text.len() as u64);
    }
    progress.finish_and_clear();
    summary.print(out).map_err(CliError::Output)
}

/// The summaries of all parts in one.
#[derive(Debug, Default)]
struct Summary {
    flows: u64,
    taken: u64,
    reasons: BTreeMap<String, u64>,
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

    fn print(self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { flows, taken, reasons } = self;
        writeln!(out, "{flows} flows: {taken} would be taken, {} not", flows.saturating_sub(taken))?;
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        reasons.into_iter().try_for_each(|(reason, count)| writeln!(out, "{count:>8}  {reason}"))
    }
}

fn with_line_moved(line: &str, lines_before: usize) -> Option<String> {
    let (number, text) = line.strip_prefix("line ")?.split_once(": ")?;
    Some(format!("line {}: {text}", number.parse::<usize>().ok()?.saturating_add(lines_before)))
}
