//! Adding, changing and deleting many flows, a line each.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use memchr::{memchr, memchr2};
use sluice_control::answers::{BulkAnswer, LineError};
use sluice_control::parts::{Part, Parts};
use sluice_flow::port::PortMap;
use sluice_flow::text::{LineReader, ParseError};
use sluice_unixctl::{Output, client_file};

use super::arguments::Arguments;
use super::failure::{Failure, PROGRAM};
use super::flows;
use crate::agent::ANSWER_TIME;
use crate::service::{AddFlow, DeleteFlow, Error, FlowBatch, FlowName, FlowRequest, ModifyFlow, Receipt, Service};

/// Errors of single lines that a reply carries; more are only counted.
const ERRORS_SHOWN: usize = 20;

/// `dpctl/add-flows`
pub(super) fn add_file(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    from_file(service, arguments, out, Verb::Add)
}

/// `dpctl/mod-flows`
pub(super) fn modify_file(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    from_file(service, arguments, out, Verb::Modify { may_create: arguments.may_create })
}

/// `dpctl/del-flows`
pub(super) fn delete_file(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    match arguments.after_datapath(service.view(), 1)? {
        [] => flows::flush(service, arguments, out),
        _ => from_file(service, arguments, out, Verb::Delete),
    }
}

/// `sluice/add-flows`: the text itself instead of a file's name, and an object that says what became of it.
pub(super) fn add_text(service: &Service, arguments: &Arguments, out: &mut dyn Output) -> Result<Receipt, Failure> {
    let [text] = arguments.rest.as_slice() else { return Err(Failure::new("one text is needed")) };
    let ports = service.view().ports();
    let mut bulk = Bulk::new(service, arguments, &ports, LineFailure::with_place_shown);
    bulk.take(text, 0, Verb::Add);
    let (answer, receipt) = bulk.finish()?;
    writeln!(out, "{}", serde_json::to_string(&answer).map_err(Failure::new)?)?;
    Ok(receipt)
}

/// Takes the lines of a file that the agent reads for its client. What is in the file is not repeated, wherever it comes from.
fn from_file(service: &Service, arguments: &Arguments, out: &mut dyn Output, verb: Verb) -> Result<Receipt, Failure> {
    let [path] = arguments.after_datapath(service.view(), 1)? else { return Err(Failure::new("one file is needed")) };
    let peer = arguments.peer.ok_or_else(|| Failure::new("a file is read for a client only"))?;
    let failed = |error: &dyn Display| {
        Failure::new(format_args!("{path}: {error} (\"sluice add-flows\" reads a file with the rights of its caller)"))
    };
    let file = client_file::open(Path::new(path), peer).map_err(|error| failed(&error))?;
    let mut parts = Parts::over(Box::new(BufReader::new(file.take(client_file::SIZE_LIMIT))));
    let ports = service.view().ports();
    let mut bulk = Bulk::new(service, arguments, &ports, LineFailure::without_content);
    let mut unread = None;
    while out.is_wanted() {
        match parts.next_part() {
            Ok(Some(Part { text, lines_before })) => bulk.take(&text, lines_before, verb),
            Ok(None) => break,
            Err(error) => {
                unread = Some(format!("{PROGRAM}: {path}: {error}"));
                break;
            }
        }
    }
    let (answer, receipt) = bulk.finish()?;
    let mut failures: Vec<_> =
        answer.errors.iter().map(|error| format!("{PROGRAM}: line {}: {}", error.line, error.text)).collect();
    if answer.in_error > failures.len() {
        failures.push(format!("{PROGRAM}: {} more lines in error", answer.in_error - failures.len()));
    }
    failures.extend(unread);
    failures.extend(answer.refusals.iter().map(|refusal| format!("{PROGRAM}: refused: {refusal}")));
    if answer.unanswered > 0 {
        failures.push(format!("{PROGRAM}: {} flows without an answer yet", answer.unanswered));
    }
    if failures.is_empty() { Ok(receipt) } else { Err(Failure(failures.join("\n"))) }
}

/// Does what each of many lines says, in order; a line that is wrong does not stop the rest.
struct Bulk<'a> {
    service: &'a Service,
    arguments: &'a Arguments,
    /// What the caller is told of a line that was not taken on.
    describe: Describe,
    reader: LineReader<'a>,
    batch: FlowBatch<'a>,
    answer: BulkAnswer,
}

/// What to say of a line that was not taken on.
type Describe = fn(&LineFailure, line: &str) -> String;

impl<'a> Bulk<'a> {
    fn new(service: &'a Service, arguments: &'a Arguments, ports: &'a PortMap, describe: Describe) -> Self {
        let reader = LineReader::new(ports).sharing(service.view().parts().clone());
        let batch = service.batch();
        Self { service, arguments, describe, reader, batch, answer: BulkAnswer::default() }
    }

    /// Takes the lines of a text that comes after `lines_before` others. `verb` is for lines that have none.
    fn take(&mut self, text: &str, lines_before: usize, verb: Verb) {
        for (number, line) in flow_lines(text) {
            let (verb, line) = split_verb(line, verb);
            match self.request(line, verb) {
                Ok(()) => self.answer.accepted += 1,
                Err(failure) => {
                    self.answer.in_error += 1;
                    if self.answer.errors.len() < ERRORS_SHOWN {
                        let text = (self.describe)(&failure, line);
                        self.answer.errors.push(LineError { line: lines_before + number, text });
                    }
                }
            }
        }
    }

    /// Does what one line says.
    fn request(&mut self, line: &str, verb: Verb) -> Result<(), LineFailure> {
        match self.reader.read(line) {
            // A deletion may leave the actions out.
            Err(error) if verb == Verb::Delete => {
                self.reader.read(&format!("{line} drop")).map_err(|_| LineFailure::Text(error))?;
            }
            Err(error) => return Err(LineFailure::Text(error)),
            Ok(_) => {}
        }
        let keep_old_rule = self.arguments.keep_old_rule;
        let (reader, seed) = (&mut self.reader, self.service.view().seed());
        let request = || {
            let flow = reader.flow(seed);
            match verb {
                Verb::Add => FlowRequest::Add(AddFlow { flow }),
                Verb::Modify { may_create } => FlowRequest::Modify(ModifyFlow { flow, may_create, keep_old_rule }),
                Verb::Delete => FlowRequest::Delete(DeleteFlow { flow: FlowName::Like(flow), of: None }),
            }
        };
        self.batch.request(request).map(|_| ()).map_err(LineFailure::Request)
    }

    /// Waits for the outcomes, unless the caller does not.
    fn finish(self) -> Result<(BulkAnswer, Receipt), Failure> {
        let changes = self.batch.accepted().durable().map_err(Failure::new)?;
        let patience = if self.arguments.no_wait { Duration::ZERO } else { ANSWER_TIME };
        let outcome = changes.outcome(patience).map_err(Failure::new)?;
        let refusals = outcome.refusals.iter().map(|(ufid, refusal)| match ufid {
            Some(ufid) => format!("ufid:{ufid}: {refusal}"),
            None => refusal.to_string(),
        });
        let answer = BulkAnswer {
            refusals: refusals.collect(),
            offloaded: outcome.installed,
            refused: outcome.refused,
            deleted: outcome.deleted,
            superseded: outcome.superseded,
            unanswered: outcome.unanswered,
            ..self.answer
        };
        Ok((answer, changes.receipt()))
    }
}

/// Why a line was not taken on.
enum LineFailure {
    Text(ParseError),
    Request(Error),
}

impl LineFailure {
    /// For a caller who gave the line.
    fn with_place_shown(&self, line: &str) -> String {
        match self {
            Self::Text(error) => format!("\n{}", error.caret(line)),
            Self::Request(error) => request_text(error),
        }
    }

    /// Without anything of the line. What is expected at a place is told unless it may name what was found there.
    fn without_content(&self, _: &str) -> String {
        match self {
            Self::Text(ParseError { offset, expected: Cow::Owned(_) }) => {
                format!("at byte {offset}: not part of a flow")
            }
            Self::Text(error) => error.to_string(),
            Self::Request(error) => request_text(error),
        }
    }
}

fn request_text(error: &Error) -> String {
    match error {
        Error::Exists(_) => format!("{error}; \"modify\" in front of the line changes its actions"),
        other => other.to_string(),
    }
}

/// What is to be done with a flow that is given in full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Modify { may_create: bool },
    Delete,
}

/// The verb in front of a line, or `default`, and the rest of the line.
pub(super) fn split_verb(line: &str, default: Verb) -> (Verb, &str) {
    let verbs = [("add", Verb::Add), ("modify", Verb::Modify { may_create: false }), ("delete", Verb::Delete)];
    verbs
        .into_iter()
        .find_map(|(word, verb)| {
            let rest = line.strip_prefix(word)?;
            rest.starts_with(char::is_whitespace).then(|| (verb, rest.trim_start()))
        })
        .unwrap_or((default, line))
}

/// The lines of a file that hold flows, with their numbers: no comments, no blank lines, no headings of a dump of OVS
/// ("flow-dump from the main thread:").
pub(super) fn flow_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    let lines = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let flow_end = memchr2(b'\n', b'#', rest.as_bytes()).unwrap_or(rest.len());
        let (flow, comment) = rest.split_at(flow_end);
        // Mostly there is none.
        let comment_end = if comment.starts_with('#') { memchr(b'\n', comment.as_bytes()) } else { Some(0) };
        rest = comment_end.and_then(|end| comment.get(end + 1..)).unwrap_or_default();
        Some(flow)
    });
    (1..)
        .zip(lines)
        .map(|(number, line)| (number, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("flow-dump from"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_keep_the_numbers_of_their_lines() {
        let flows = |text| flow_lines(text).collect::<Vec<_>>();
        assert_eq!(flows("a\n\n b # c\r\n#\nflow-dump from x:\nd\r\n"), [(1, "a"), (3, "b"), (6, "d")]);
        assert_eq!(flows("a # b # c"), [(1, "a")]);
        assert_eq!(flows("a#\nü"), [(1, "a"), (2, "ü")]);
        for empty in ["", "\n", "#", "#\n", " \r\n\n"] {
            assert_eq!(flows(empty), []);
        }
    }
}
