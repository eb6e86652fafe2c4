//! Adding, changing and deleting flows.

use std::borrow::Cow;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::{memchr, memchr2};
use sluice_control::answers::{BulkAnswer, LineError};
use sluice_control::parts::{Part, Parts};
use sluice_flow::port::PortMap;
use sluice_flow::table::{FlowView, TableError};
use sluice_flow::text::{self, FlowLine, LineReader, ParseError};
use sluice_flow::{ActionList, EndReason, Expiry, Flow, FlowId, MaskedKey, Match, Priority, Refusal};

use super::arguments::Arguments;
use super::{Failure, PROGRAM, dump, file};
use crate::agent::{ANSWER_TIME, Agent};
use crate::upkeep::audit;
use sluice_offload::{Batch, Series, Tally};
use sluice_unixctl::Output;

/// Errors of single lines that a reply carries; more are only counted.
const ERRORS_SHOWN: usize = 20;

/// `dpctl/add-flow`
pub(super) fn add(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    put(agent, arguments, out, Verb::Add)
}

/// `dpctl/mod-flow`
pub(super) fn modify(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    put(agent, arguments, out, if arguments.may_create { Verb::AddOrModify } else { Verb::Modify })
}

/// `dpctl/add-flows`
pub(super) fn add_file(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    from_file(agent, arguments, out, Verb::Add)
}

/// `dpctl/mod-flows`
pub(super) fn modify_file(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    from_file(agent, arguments, out, if arguments.may_create { Verb::AddOrModify } else { Verb::Modify })
}

/// `sluice/add-flows`: the text itself instead of a file's name, and an object that says what became of it.
pub(super) fn add_text(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let [text] = arguments.rest.as_slice() else { return Err(Failure::new("one text is needed")) };
    let ports = agent.ports();
    let mut bulk = Bulk::new(agent, arguments, &ports, LineFailure::with_place_shown);
    bulk.take(text, 0, Verb::Add);
    let answer = bulk.finish()?;
    Ok(writeln!(out, "{}", serde_json::to_string(&answer).map_err(Failure::new)?)?)
}

/// `dpctl/del-flow`
pub(super) fn delete(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let [key] = arguments.after_datapath(agent, 1)? else { return Err(Failure::new("one flow is needed")) };
    let id = find(agent, key, arguments, "deleting flow")?;
    let view = agent.table.view(id);
    let batch = Arc::new(Batch::default());
    batch.expect_one();
    agent.queue.delete(id, EndReason::Deleted, Some(batch.clone())).map_err(|e| failure("deleting flow", &e))?;
    agent.wait_for_journal().map_err(Failure::new)?;
    if arguments.no_wait {
        return Ok(());
    }
    let tally = batch.wait(ANSWER_TIME);
    answer(&tally, "deleting flow")?;
    if let (true, Some(mut view)) = (arguments.statistics, view) {
        view.counters = tally.last_deleted.unwrap_or(view.counters);
        dump::write_statistics(agent, &view, out)?;
    }
    Ok(())
}

/// `dpctl/del-flows`
pub(super) fn delete_file(agent: &Agent, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    match arguments.after_datapath(agent, 1)? {
        [] => flush(agent, arguments, out),
        _ => from_file(agent, arguments, out, Verb::Delete),
    }
}

/// `sluice/flush`, and `dpctl/del-flows` without a file
pub(super) fn flush(agent: &Agent, _: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let tally = agent.flush();
    agent.wait_for_journal().map_err(Failure::new)?;
    answer(&tally, "flushing flows")?;
    // The device has the last word.
    let swept = audit::sweep(agent).map_err(|refusal| Failure::new(format_args!("flushing flows: {refusal}")))?;
    match swept.iter().find_map(|mending| mending.result.as_ref().err()) {
        Some(refusal) => {
            let left = swept.iter().filter(|mending| mending.result.is_err()).count();
            Err(Failure::new(format_args!("flushing flows: {left} rules are still in the device: {refusal}")))
        }
        None => Ok(()),
    }
}

/// The flow that a UFID, with or without `ufid:`, or a key at the given priority names.
pub(super) fn find(agent: &Agent, name: &str, arguments: &Arguments, attempt: &str) -> Result<FlowId, Failure> {
    if !name.contains('(') {
        let text = name.strip_prefix("ufid:").unwrap_or(name).trim();
        let ufid = text.parse().map_err(|error| Failure::new(format_args!("{attempt}: {text}: {error}")))?;
        return agent.table.find(ufid).ok_or_else(|| no_flow(attempt));
    }
    let parsed = text::parse_key(name, &*agent.ports()).map_err(|error| wrong_text("flow key", name, &error))?;
    if let Some(ufid) = parsed.ufid {
        return agent.table.find(ufid).ok_or_else(|| no_flow(attempt));
    }
    let at = |priority| {
        let (matching, actions) = (MaskedKey::new(&parsed.matching), ActionList::default());
        let flow = Flow::new(None, matching, actions, priority, Expiry::default(), agent.table.seed());
        agent.table.find_same(&flow)
    };
    let wanted = arguments.priority.unwrap_or_default();
    at(wanted).ok_or_else(|| {
        let others = (0..=Priority::MAX).filter_map(Priority::new).filter(|priority| at(*priority).is_some());
        let others: Vec<_> = others.map(|priority| priority.to_string()).collect();
        let Failure(mut text) = no_flow(attempt);
        if !others.is_empty() {
            let hint = format_args!("with priority {wanted}, but with priority {}", others.join(", "));
            text.push_str(&format!("\nThere is none {hint}; --priority=N says which is meant."));
        }
        Failure(text)
    })
}

/// That there is no such flow; OVS says no more than the text of the error number.
fn no_flow(attempt: &str) -> Failure {
    Failure::os(format_args!("{attempt}: there is no such flow"), "No such file or directory")
}

/// A flow that there is, by its name.
pub(super) fn named(agent: &Agent, name: &str, arguments: &Arguments) -> Result<FlowView, Failure> {
    let id = find(agent, name, arguments, "getting flow")?;
    agent.table.view(id).ok_or_else(|| no_flow("getting flow"))
}

/// The flow that a key and actions describe.
pub(super) fn describe(agent: &Agent, key: &str, actions: &str, arguments: &Arguments) -> Result<Flow, Failure> {
    let ports = agent.ports();
    let parsed = text::parse_key(key, &*ports).map_err(|error| wrong_text("flow key", key, &error))?;
    if actions.trim().is_empty() {
        // Most likely a variable of a shell that is not set, which must not become a flow that drops.
        return Err(Failure::os("parsing actions: they are empty; use \"drop\" to drop packets", "Invalid argument"));
    }
    let actions = text::parse_actions(actions, &*ports).map_err(|error| wrong_text("actions", actions, &error))?;
    check_in_port(&parsed.matching).map_err(|reason| Failure::new(format_args!("parsing flow key: {reason}")))?;
    Ok(Flow::new(
        parsed.ufid,
        MaskedKey::new(&parsed.matching),
        actions,
        arguments.priority.unwrap_or_default(),
        arguments.expiry.unwrap_or_default(),
        agent.table.seed(),
    ))
}

/// A flow from a line of a file or of a dump.
pub(super) fn from_line(agent: &Agent, line: &FlowLine) -> Result<Flow, &'static str> {
    check_in_port(&line.matching)?;
    let FlowLine { ufid, matching, actions, extra, .. } = line;
    let (matching, actions) = (MaskedKey::new(matching), actions.clone());
    Ok(Flow::new(*ufid, matching, actions, extra.priority, extra.expiry, agent.table.seed()))
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

/// As the datapath of OVS, which takes no flow for all ports.
fn check_in_port(matching: &Match) -> Result<(), &'static str> {
    let field = sluice_flow::Field::InPort;
    if matching.mask.get(field) == field.full_mask() { Ok(()) } else { Err("in_port() is missing") }
}

/// What is to be done with a flow that is given in full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Modify,
    AddOrModify,
    Delete,
}

fn put(agent: &Agent, arguments: &Arguments, out: &mut dyn Output, verb: Verb) -> Result<(), Failure> {
    let [key, actions] = arguments.after_datapath(agent, 2)? else {
        return Err(Failure::new("a flow and actions are needed"));
    };
    let flow = describe(agent, key, actions, arguments)?;
    let batch = Arc::new(Batch::default());
    let id = request(agent, flow, arguments, verb, &batch)
        .inspect_err(|error| count(agent, error))
        .map_err(|error| with_hint(agent, failure("updating flow table", &error), &error))?;
    agent.wait_for_journal().map_err(Failure::new)?;
    if arguments.no_wait {
        return Ok(());
    }
    answer(&batch.wait(ANSWER_TIME), "updating flow table")?;
    if arguments.statistics
        && let Some(view) = agent.table.view(id)
    {
        dump::write_statistics(agent, &view, out)?;
    }
    Ok(())
}

fn request(
    agent: &Agent,
    flow: Flow,
    arguments: &Arguments,
    verb: Verb,
    batch: &Arc<Batch>,
) -> Result<FlowId, TableError> {
    batch.expect_one();
    let modify = |flow| agent.queue.modify(flow, arguments.keep_old_rule, Some(batch.clone()));
    let result = match verb {
        Verb::Add => agent.queue.add(flow, Some(batch.clone())),
        Verb::Modify => modify(flow),
        Verb::AddOrModify => match modify(flow.clone()) {
            Err(TableError::NotFound) => agent.queue.add(flow, Some(batch.clone())),
            other => other,
        },
        Verb::Delete => match agent.table.find(flow.ufid).or_else(|| agent.table.find_same(&flow)) {
            Some(id) => agent.queue.delete(id, EndReason::Deleted, Some(batch.clone())),
            None => Err(TableError::NotFound),
        },
    };
    if result.is_err() {
        batch.expect_one_less();
    }
    result
}

/// Takes the lines of a file that the agent reads for its client. What is in the file is not repeated, wherever it comes from.
fn from_file(agent: &Agent, arguments: &Arguments, out: &mut dyn Output, verb: Verb) -> Result<(), Failure> {
    let [path] = arguments.after_datapath(agent, 1)? else { return Err(Failure::new("one file is needed")) };
    let peer = arguments.peer.ok_or_else(|| Failure::new("a file is read for a client only"))?;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("{path}: {error} (\"sluice add-flows\" reads a file with the rights of its caller)"))
    };
    let file = file::open(Path::new(path), peer).map_err(|error| failed(&error))?;
    let mut parts = Parts::over(Box::new(BufReader::new(file.take(file::SIZE_LIMIT))));
    let ports = agent.ports();
    let mut bulk = Bulk::new(agent, arguments, &ports, LineFailure::without_content);
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
    let answer = bulk.finish()?;
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
    if failures.is_empty() { Ok(out.write_str("")?) } else { Err(Failure(failures.join("\n"))) }
}

/// Does what each of many lines says, in order; a line that is wrong does not stop the rest.
struct Bulk<'a> {
    agent: &'a Agent,
    arguments: &'a Arguments,
    /// What the caller is told of a line that was not taken on.
    describe: Describe,
    batch: Arc<Batch>,
    series: Series<'a>,
    reader: LineReader<'a>,
    answer: BulkAnswer,
    /// For one wait without any room: a device that stalls is not waited for again at each line.
    patience: Duration,
}

/// What to say of a line that was not taken on.
type Describe = fn(&LineFailure, line: &str) -> String;

impl<'a> Bulk<'a> {
    fn new(agent: &'a Agent, arguments: &'a Arguments, ports: &'a PortMap, describe: Describe) -> Self {
        let batch = Arc::new(Batch::default());
        let (series, reader) = (agent.queue.series(batch.clone()), LineReader::new(ports));
        let (answer, patience) = (BulkAnswer::default(), ANSWER_TIME);
        Self { agent, arguments, describe, batch, series, reader, answer, patience }
    }

    /// Takes the lines of a text that comes after `lines_before` others. `verb` is for lines that have none.
    fn take(&mut self, text: &str, lines_before: usize, verb: Verb) {
        for (number, line) in flow_lines(text) {
            let (verb, line) = split_verb(line, verb);
            match self.request(line, verb) {
                Ok(_) => {
                    self.answer.accepted += 1;
                    self.patience = ANSWER_TIME;
                }
                Err(failure) => {
                    self.answer.in_error += 1;
                    if self.answer.errors.len() < ERRORS_SHOWN {
                        let text = (self.describe)(&failure, line);
                        self.answer.errors.push(LineError { line: lines_before + number, text });
                    }
                    if let LineFailure::Request(error) = failure {
                        count(self.agent, &error);
                    }
                }
            }
        }
    }

    /// Whoever gives many flows at once waits for room instead of hearing "busy" for what it filled up itself.
    fn request(&mut self, line: &str, verb: Verb) -> Result<FlowId, LineFailure> {
        loop {
            let to = (&self.batch, &mut self.series);
            match request_line(self.agent, self.arguments, &mut self.reader, line, verb, to) {
                Err(LineFailure::Request(TableError::Refused(Refusal::Busy { .. }))) if !self.patience.is_zero() => {
                    self.series.hand_over();
                    let began = Instant::now();
                    self.agent.queue.wait_for_room(self.patience);
                    self.patience = self.patience.saturating_sub(began.elapsed());
                }
                other => return other,
            }
        }
    }

    /// Waits for the outcomes, unless the caller does not.
    fn finish(self) -> Result<BulkAnswer, Failure> {
        let Self { agent, arguments, batch, series, answer, .. } = self;
        drop(series);
        agent.wait_for_journal().map_err(Failure::new)?;
        let tally = if arguments.no_wait { batch.wait(Duration::ZERO) } else { batch.wait(ANSWER_TIME) };
        let named = |id| agent.table.view(id).map(|view| format!("ufid:{}: ", view.flow.ufid)).unwrap_or_default();
        Ok(BulkAnswer {
            refusals: tally.refusals.iter().map(|(id, refusal)| format!("{}{refusal}", named(*id))).collect(),
            offloaded: tally.installed,
            refused: tally.refused,
            deleted: tally.deleted,
            superseded: tally.superseded,
            unanswered: tally.outstanding,
            ..answer
        })
    }
}

/// Why a line was not taken on.
enum LineFailure {
    Text(ParseError),
    Match(&'static str),
    Request(TableError),
}

impl LineFailure {
    /// For a caller who gave the line.
    fn with_place_shown(&self, line: &str) -> String {
        match self {
            Self::Text(error) => format!("\n{}", error.caret(line)),
            Self::Match(reason) => (*reason).to_owned(),
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
            Self::Match(reason) => (*reason).to_owned(),
            Self::Request(error) => request_text(error),
        }
    }
}

fn request_text(error: &TableError) -> String {
    match error {
        TableError::Exists(_) => format!("{error}; \"modify\" in front of the line changes its actions"),
        other => other.to_string(),
    }
}

/// Does what one line says.
fn request_line(
    agent: &Agent,
    arguments: &Arguments,
    reader: &mut LineReader<'_>,
    line: &str,
    verb: Verb,
    (batch, series): (&Arc<Batch>, &mut Series<'_>),
) -> Result<FlowId, LineFailure> {
    let read = match reader.read(line) {
        // A deletion may leave the actions out.
        Err(error) if verb == Verb::Delete => reader.read(&format!("{line} drop")).map_err(|_| error),
        result => result,
    };
    check_in_port(&read.map_err(LineFailure::Text)?.matching).map_err(LineFailure::Match)?;
    let flow = reader.flow(agent.table.seed());
    if verb == Verb::Add {
        return series.add(flow).map_err(LineFailure::Request);
    }
    series.hand_over();
    request(agent, flow, arguments, verb, batch).map_err(LineFailure::Request)
}

pub(super) fn split_verb(line: &str, default: Verb) -> (Verb, &str) {
    let verbs = [("add", Verb::Add), ("modify", Verb::Modify), ("delete", Verb::Delete)];
    verbs
        .into_iter()
        .find_map(|(word, verb)| {
            let rest = line.strip_prefix(word)?;
            rest.starts_with(char::is_whitespace).then(|| (verb, rest.trim_start()))
        })
        .unwrap_or((default, line))
}

fn answer(tally: &Tally, attempt: &str) -> Result<(), Failure> {
    if let Some((_, refusal)) = tally.refusals.first() {
        return Err(Failure::new(format_args!("{attempt}: refused, {refusal}")));
    }
    if tally.outstanding > 0 {
        let seconds = ANSWER_TIME.as_secs();
        let text = format!(
            "{attempt}: {} flows accepted, but the device has not answered within {seconds} s",
            tally.outstanding
        );
        return Err(Failure::new(text));
    }
    Ok(())
}

/// A request that is turned away is a refusal, too, told once to the caller and counted once.
fn count(agent: &Agent, error: &TableError) {
    if let TableError::Refused(refusal) = error {
        agent.events.count_refusal(refusal);
    }
}

fn failure(attempt: &str, error: &TableError) -> Failure {
    match error {
        TableError::Exists(ufid) => {
            Failure::os(format_args!("{attempt}: ufid:{ufid} has this match or UFID"), "File exists")
        }
        TableError::NotFound => no_flow(attempt),
        TableError::OtherMatch(_) => Failure::os(format_args!("{attempt}: {error}"), "Invalid argument"),
        TableError::Refused(refusal) => Failure::new(format_args!("{attempt}: refused, {refusal}")),
    }
}

/// A failure with what its caller can do about it.
fn with_hint(agent: &Agent, Failure(text): Failure, error: &TableError) -> Failure {
    let hint = match error {
        TableError::Exists(ufid) => {
            let view = agent.table.find(*ufid).and_then(|id| agent.table.view(id));
            let refusal = view.and_then(|view| view.refusal);
            let kept = refusal.map(|refusal| format!("The flow is kept, refused: {refusal}\n"));
            format!("{}Use mod-flow to change its actions.", kept.unwrap_or_default())
        }
        TableError::NotFound => "Use add-flow, or mod-flow with --may-create, to add it.".to_owned(),
        TableError::OtherMatch(_) | TableError::Refused(_) => return Failure(text),
    };
    Failure(format!("{text}\n{hint}"))
}

pub(super) fn wrong_text(what: &str, text: &str, error: &ParseError) -> Failure {
    Failure(format!("{PROGRAM}: parsing {what} (Invalid argument)\n{}", error.caret(text)))
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
