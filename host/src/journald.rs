//! The log as systemd's journal takes it: entries whose fields can be searched for, by its native protocol
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).
//!
//! The package `tracing-journald` sends from the thread that logs, which then waits for a journal that is slow. Entries go by [`LogWriter`]
//! instead, whose thread alone waits.
//!
//! [`LogWriter`]: crate::log_writer::LogWriter

use std::env;
use std::ffi::OsStr;
use std::fmt::{Debug, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;

use crate::log_writer::LogSink;
use crate::rate_limit::{Passage, RateLimit};

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// What the fields of a message begin with in the journal, which has names of its own.
const PREFIX: &str = "SLUICE_";

/// Has each message that the rate limit lets pass written as an entry.
pub(crate) struct JournalLayer<W> {
    limit: Arc<RateLimit>,
    entries: W,
    program: String,
}

impl<W> JournalLayer<W> {
    pub(crate) fn new(limit: Arc<RateLimit>, entries: W) -> Self {
        let program = env::args_os().next();
        let name = program.as_deref().map(Path::new).and_then(Path::file_name);
        Self { limit, entries, program: name.unwrap_or(OsStr::new("sluice")).to_string_lossy().into_owned() }
    }
}

impl<S, W> Layer<S> for JournalLayer<W>
where
    S: Subscriber,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match self.limit.pass(event.metadata().callsite()) {
            Passage::Dropped => return,
            Passage::Printed => {}
            Passage::PrintedAfter(dropped) => {
                self.write(event.metadata(), Message { text: dropped.to_string(), ..Message::default() });
            }
        }
        let mut message = Message::default();
        event.record(&mut message);
        self.write(event.metadata(), message);
    }
}

impl<W: for<'a> MakeWriter<'a>> JournalLayer<W> {
    fn write(&self, of: &Metadata<'_>, message: Message) {
        let mut entry = Vec::new();
        field(&mut entry, "MESSAGE", &(message.text + &message.values));
        field(&mut entry, "PRIORITY", &priority(of.level()).to_string());
        field(&mut entry, "SYSLOG_IDENTIFIER", &self.program);
        field(&mut entry, "TARGET", of.target());
        if let (Some(file), Some(line)) = (of.file(), of.line()) {
            field(&mut entry, "CODE_FILE", file);
            field(&mut entry, "CODE_LINE", &line.to_string());
        }
        entry.extend(message.fields);
        // There is nobody to tell.
        let _ = self.entries.make_writer().write_all(&entry);
    }
}

/// The priority of syslog(3) for a level.
pub(crate) fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// What a message says.
#[derive(Default)]
struct Message {
    text: String,
    /// Its fields as they are told behind the text.
    values: String,
    /// Its fields as the journal has them.
    fields: Vec<u8>,
}

impl Message {
    fn add(&mut self, of: &Field, told: &dyn Debug, value: &str) {
        if of.name() == "message" {
            self.text = value.to_owned();
            return;
        }
        // Writing to a string does not fail.
        let _ = write!(self.values, " {}={told:?}", of.name());
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
        let name: String = PREFIX.chars().chain(of.name().chars().map(letter)).collect();
        field(&mut self.fields, &name, value);
    }
}

impl Visit for Message {
    fn record_str(&mut self, of: &Field, value: &str) {
        self.add(of, &value, value);
    }

    fn record_debug(&mut self, of: &Field, value: &dyn Debug) {
        self.add(of, value, &format!("{value:?}"));
    }
}

/// Adds a field to an entry: a value with line breaks comes behind its length.
fn field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

/// The way to the journal.
pub(crate) struct JournalSocket(UnixDatagram);

impl JournalSocket {
    /// Fails where there is no journal, or this process may not speak to it.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        Ok(Self(socket))
    }

    fn send(&self, entry: &[u8]) -> io::Result<usize> {
        self.0.send(entry).or_else(|_| {
            // The journal has been started anew.
            self.0.connect(SOCKET)?;
            self.0.send(entry)
        })
    }
}

impl LogSink for JournalSocket {
    fn write_lines(&mut self, entries: &[u8], ends: &[usize]) -> u64 {
        let begins = [0].into_iter().chain(ends.iter().copied());
        begins.zip(ends).map(|(begin, end)| u64::from(self.send(&entries[begin..*end]).is_err())).sum()
    }

    fn tell_missing(&mut self, lines: u64) -> bool {
        let mut entry = Vec::new();
        field(&mut entry, "MESSAGE", &format!("{lines} log lines are missing here: the journal did not take them"));
        field(&mut entry, "PRIORITY", &priority(&Level::WARN).to_string());
        self.send(&entry).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_one_by_one_and_what_is_not_taken_is_counted() {
        let (near, journal) = UnixDatagram::pair().unwrap();
        let mut sink = JournalSocket(near);
        let mut received = [0; 100];
        assert_eq!(sink.write_lines(b"MESSAGE=a\nPRIORITY=6\nMESSAGE=b\n", &[21, 31]), 0);
        let first = journal.recv(&mut received).unwrap();
        assert_eq!(&received[..first], b"MESSAGE=a\nPRIORITY=6\n");
        let second = journal.recv(&mut received).unwrap();
        assert_eq!(&received[..second], b"MESSAGE=b\n");

        // More than a datagram takes.
        let large = vec![b'x'; 10_000_000];
        if !Path::new(SOCKET).exists() {
            assert_eq!(sink.write_lines(&large, &[10, large.len()]), 1);
        }
    }
}
