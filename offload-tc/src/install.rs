//! The install path of one worker: many requests in a message, answers matched by sequence number, and the kernel's own text
//! for what it refuses.

use crate::config::OffloadPolicy;
use rustix::io::Errno;
use sluice_flow::refusal::Refusal;
use sluice_netdev::netlink::attribute::TooLong;
use sluice_netdev::netlink::message::{Acknowledgement, Answer, flag};

use crate::socket::{Next, Socket, SocketError, is_absence};
use crate::templates::Instance;
use crate::wire::action::Action;
use crate::wire::filter::{self, DELETE_FILTER, Filter, FilterId, FilterView, GET_FILTER};
use crate::wire::flower;
use crate::wire::rule_view::RuleView;
use crate::wire::statistics::Count;

/// Requests that are sent at once. A batch of 64 takes the kernel about 200 us: larger ones gain little and delay the first
/// answer.
pub const BATCH: usize = 64;
/// Bytes that are sent at once. The kernel accepts 212,992 by default (`net.core.wmem_default`).
const BATCH_BYTES: usize = 96 << 10;

/// A request about a filter.
#[derive(Clone, Debug)]
pub enum Request {
    /// Adds it; fails if it exists.
    Add(Filter),
    /// Adds one that a template makes.
    AddInstance(Instance),
    /// Replaces the filter with this name in place, or adds it.
    Replace(Filter),
    /// Reads it.
    Read(FilterId),
    /// Deletes it.
    Delete(FilterId),
}

impl Request {
    /// Writes the message at the end of a buffer, with additional netlink flags.
    pub fn emit(&self, buffer: &mut Vec<u8>, flags: u16, sequence: u32) -> Result<(), TooLong> {
        match self {
            Self::Add(filter) => filter.emit(buffer, flags | flag::CREATE | flag::EXCLUSIVE, sequence),
            Self::AddInstance(rule) => {
                rule.emit(buffer, flags | flag::CREATE | flag::EXCLUSIVE, sequence);
                Ok(())
            }
            Self::Replace(filter) => filter.emit(buffer, flags | flag::CREATE, sequence),
            Self::Read(id) => filter::emit_name(buffer, GET_FILTER, *id, flags, sequence),
            Self::Delete(id) => filter::emit_name(buffer, DELETE_FILTER, *id, flags | flag::ECHO, sequence),
        }
    }

    /// The rule that is installed once the request is done.
    pub(crate) fn into_rule(self) -> Option<Filter> {
        match self {
            Self::Add(filter) | Self::Replace(filter) => Some(filter),
            Self::AddInstance(rule) => rule.filter().ok(),
            Self::Read(_) | Self::Delete(_) => None,
        }
    }
}

/// Bits of [`flower::flag`] that go with every rule. Under [`OffloadPolicy::Any`] the driver's message is asked for
/// explicitly, because software takes what hardware refuses.
pub const fn flags(policy: OffloadPolicy) -> u32 {
    match policy {
        OffloadPolicy::Any => flower::flag::VERBOSE,
        OffloadPolicy::SkipSoftware => flower::flag::SKIP_SW,
        OffloadPolicy::SkipHardware => flower::flag::SKIP_HW,
    }
}

/// Whether every request asks for an answer: a warning comes only with one. Errors always come.
const fn answers_each(policy: OffloadPolicy) -> bool {
    matches!(policy, OffloadPolicy::Any)
}

/// The outcome of a request that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The driver's message where software took the rule instead.
    pub warning: Option<String>,
    /// The rule as the kernel shows it: after a read; just before a deletion; after an installation under
    /// [`OffloadPolicy::Any`]; and for the last request of a batch.
    pub report: Option<Report>,
}

/// What the kernel reports about a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bits of [`flower::flag`].
    pub flags: u32,
    /// What software counted, see [`FilterId::with_headers`].
    pub software: Count,
    /// What hardware counted.
    pub hardware: Count,
}

/// Installs and deletes rules.
pub struct Installer {
    socket: Socket,
    policy: OffloadPolicy,
    buffer: Vec<u8>,
}

impl Installer {
    /// Opens a socket.
    pub fn open(policy: OffloadPolicy) -> Result<Self, SocketError> {
        Ok(Self { socket: Socket::open()?, policy, buffer: Vec::with_capacity(BATCH_BYTES) })
    }

    /// The netlink port id, by which notifications name the socket. It changes after answers were lost.
    pub const fn port(&self) -> u32 {
        self.socket.port()
    }

    /// The name that a device has now.
    pub fn name_of(&self, interface: u32) -> Result<String, SocketError> {
        self.socket.name_of(interface)
    }

    /// Makes sure that a device has its hooks. They stay when this is dropped.
    pub fn make_hooks(&mut self, interface: u32) -> Result<(), Refusal> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        let flags = flag::ACK | flag::CREATE | flag::EXCLUSIVE;
        filter::emit_clsact(&mut self.buffer, interface, flags, sequence).map_err(too_long)?;
        let mut results = vec![None];
        self.exchange(sequence, &mut results).map_err(|error| device(&error))?;
        match results.pop().flatten() {
            Some(Err(Refusal::Kernel { errno, .. })) if errno == Errno::EXIST.raw_os_error() => Ok(()),
            Some(Err(refusal)) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Does requests in order and returns the outcome of each.
    pub fn submit(&mut self, requests: &[Request]) -> Vec<Result<Done, Refusal>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let taken = self.batch(rest, &mut results);
            rest = &rest[taken..];
        }
        results
    }

    /// Does one request.
    pub fn submit_one(&mut self, request: Request) -> Result<Done, Refusal> {
        let no_answer = || Err(Refusal::Device { reason: "no answer".into() });
        self.submit(&[request]).pop().unwrap_or_else(no_answer)
    }

    /// Does as many requests as fit into one batch and returns their number, at least one.
    fn batch(&mut self, requests: &[Request], results: &mut Vec<Result<Done, Refusal>>) -> usize {
        let wanted = requests.len().min(BATCH);
        let first = self.socket.sequences(u32::try_from(wanted).unwrap_or(u32::MAX));
        self.buffer.clear();
        let mut outcomes: Vec<Option<Result<Done, Refusal>>> = Vec::with_capacity(wanted);
        let mut last = None;
        for (sequence, request) in (first..).zip(&requests[..wanted]) {
            if self.buffer.len() > BATCH_BYTES {
                break;
            }
            let start = self.buffer.len();
            let written = self.write(request, sequence);
            outcomes.push(written.as_ref().err().map(|error| Err(too_long(*error))));
            if written.is_ok() {
                last = Some((start, sequence));
            }
        }
        let taken = outcomes.len();
        if let Some((start, sequence)) = last {
            self.ask_for_answer(start, flag::ACK | flag::ECHO);
            if let Err(error) = self.exchange_up_to(first, sequence, &mut outcomes) {
                self.recover(&requests[..taken], &mut outcomes, &error);
            }
        }
        // The last request is answered, so a request without an answer of its own is done.
        results.extend(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Ok(Done::default()))));
        taken
    }

    fn write(&mut self, request: &Request, sequence: u32) -> Result<(), TooLong> {
        let answer = if answers_each(self.policy) { flag::ACK | flag::ECHO } else { 0 };
        request.emit(&mut self.buffer, answer, sequence)
    }

    /// Sets flags in the message that begins at an offset in the buffer.
    fn ask_for_answer(&mut self, start: usize, wanted: u16) {
        const FLAGS: std::ops::Range<usize> = 6..8;
        let place = start + FLAGS.start..start + FLAGS.end;
        if let Some(flags) = self.buffer.get_mut(place)
            && let Ok(bytes) = <[u8; 2]>::try_from(&*flags)
        {
            flags.copy_from_slice(&(u16::from_ne_bytes(bytes) | wanted).to_ne_bytes());
        }
    }

    fn exchange(&mut self, first: u32, outcomes: &mut [Option<Result<Done, Refusal>>]) -> Result<(), SocketError> {
        let last = first + u32::try_from(outcomes.len()).unwrap_or(u32::MAX) - 1;
        self.exchange_up_to(first, last, outcomes)
    }

    /// Sends the buffer and receives answers up to the one to `last`.
    fn exchange_up_to(
        &mut self,
        first: u32,
        last: u32,
        outcomes: &mut [Option<Result<Done, Refusal>>],
    ) -> Result<(), SocketError> {
        self.socket.send(&self.buffer)?;
        self.socket.receive(|answer, _| {
            let (sequence, is_end) = match &answer {
                Answer::Acknowledgement(found) => (found.sequence, found.sequence == last),
                Answer::Content(message) => (message.header.sequence, false),
                _ => return Ok(Next::More),
            };
            // An answer to an abandoned batch does not belong to this one.
            let place = sequence.checked_sub(first).and_then(|place| outcomes.get_mut(place as usize));
            match (place, answer) {
                (Some(outcome), Answer::Content(message)) => {
                    let report = report(&FilterView::new(message.payload)?)?;
                    *outcome = Some(Ok(Done { report, ..Done::default() }));
                }
                (Some(outcome), Answer::Acknowledgement(found)) => acknowledge(outcome, &found),
                _ => {}
            }
            Ok(if is_end { Next::Enough } else { Next::More })
        })
    }

    /// Looks up, one by one and on a new socket, the outcome of requests whose answers were lost.
    fn recover(&mut self, requests: &[Request], outcomes: &mut [Option<Result<Done, Refusal>>], error: &SocketError) {
        let reopened = Socket::open();
        let is_open = reopened.is_ok();
        if let Ok(socket) = reopened {
            self.socket = socket;
        }
        for (request, outcome) in requests.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_none()) {
            let looked_up = match request {
                _ if !is_open => None,
                Request::Add(_) | Request::AddInstance(_) | Request::Replace(_) => {
                    request.clone().into_rule().and_then(|sent| {
                        let found = self.find(sent.id).ok()?;
                        Some(found.is_some_and(|found| has_notes_of(&found, &sent)))
                    })
                }
                // It changed nothing.
                Request::Read(_) => None,
                Request::Delete(id) => self.find(*id).ok().map(|found| found.is_none()),
            };
            *outcome = Some(match looked_up {
                Some(true) => Ok(Done::default()),
                Some(false) | None => Err(device(error)),
            });
        }
    }

    /// Shows the flower filters that exist among some names.
    pub fn read_all(&mut self, names: &[FilterId], see: &mut dyn FnMut(&FilterView<'_>)) -> Result<(), SocketError> {
        for names in names.chunks(BATCH) {
            let first = self.socket.sequences(u32::try_from(names.len()).unwrap_or(u32::MAX));
            let mut last = first;
            self.buffer.clear();
            for (sequence, name) in (first..).zip(names) {
                filter::emit_name(&mut self.buffer, GET_FILTER, *name, flag::ACK, sequence)?;
                last = sequence;
            }
            self.socket.send(&self.buffer)?;
            self.socket.receive(|answer, _| {
                match answer {
                    Answer::Content(message) if (first..=last).contains(&message.header.sequence) => {
                        let view = FilterView::new(message.payload)?;
                        if view.is_flower() {
                            see(&view);
                        }
                    }
                    Answer::Acknowledgement(answer) if answer.sequence == last => return Ok(Next::Enough),
                    _ => {}
                }
                Ok(Next::More)
            })?;
        }
        Ok(())
    }

    /// The filter with a name, if it exists.
    pub fn find(&mut self, id: FilterId) -> Result<Option<Filter>, SocketError> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        filter::emit_name(&mut self.buffer, GET_FILTER, id, flag::ACK, sequence)?;
        self.socket.send(&self.buffer)?;
        let mut found = None;
        self.socket.receive(|answer, _| {
            match answer {
                Answer::Content(message) if message.header.sequence == sequence => {
                    let view = FilterView::new(message.payload)?;
                    if view.is_flower() {
                        found = Some(view.parse()?);
                    }
                }
                Answer::Acknowledgement(answer) if answer.sequence == sequence => match answer.errno {
                    0 => return Ok(Next::Enough),
                    errno if is_absence(errno) => return Ok(Next::Enough),
                    errno => return Err(std::io::Error::from_raw_os_error(errno).into()),
                },
                _ => {}
            }
            Ok(Next::More)
        })?;
        Ok(found)
    }
}

/// Whether a filter has the notes that another was sent with. Actions that rules share have notes of their own.
fn has_notes_of(found: &Filter, sent: &Filter) -> bool {
    let (found, sent) = (&found.flower.actions, &sent.flower.actions);
    let is_same = |(found, sent): (&Action, &Action)| sent.cookie.is_none() || found.cookie == sent.cookie;
    found.len() == sent.len() && found.iter().zip(sent).all(is_same)
}

/// Adds an acknowledgement to what was reported before it.
fn acknowledge(outcome: &mut Option<Result<Done, Refusal>>, found: &Acknowledgement<'_>) {
    let report = outcome.take().and_then(Result::ok).and_then(|done| done.report);
    *outcome = Some(result(found).map(|done| Done { report, ..done }));
}

pub(crate) fn result(found: &Acknowledgement<'_>) -> Result<Done, Refusal> {
    match found.errno {
        0 => Ok(Done { warning: found.text.map(ToOwned::to_owned), report: None }),
        errno => {
            Err(Refusal::Kernel { errno, message: found.text.map_or_else(|| errno_text(errno), ToOwned::to_owned) })
        }
    }
}

/// The report about a flower filter.
fn report(view: &FilterView<'_>) -> Result<Option<Report>, SocketError> {
    if !view.is_flower() {
        return Ok(None);
    }
    let RuleView { flags, software, hardware, .. } = RuleView::new(view)?;
    Ok(Some(Report { flags, software, hardware }))
}

/// The text of an error number, where the kernel sends none.
fn errno_text(errno: i32) -> String {
    let words = std::io::Error::from_raw_os_error(errno).to_string();
    words.split(" (os error").next().unwrap_or_default().to_owned()
}

fn device(error: &SocketError) -> Refusal {
    Refusal::Device { reason: error.to_string().into() }
}

fn too_long(error: TooLong) -> Refusal {
    Refusal::Limit { what: format!("bytes of {error}").into(), limit: u16::MAX.into() }
}
