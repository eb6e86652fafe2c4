//! The log: text or JSON on standard error, or entries in the journal; levels that change while the agent runs, and a limit on how often one
//! place in the code may speak, so that a device that fails a million times says so in a few lines.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use sluice_flow::time::Clock;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

use crate::journald::{JournalLayer, JournalSocket, priority};
pub use crate::log_writer::LastLines;
use crate::log_writer::LogWriter;
use crate::rate_limit::{Dropped, Passage, RateLimit};

/// The log, on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct LogConfig {
    /// What is logged: `"error"`, `"warn"`, `"info"` (default), `"debug"`, `"trace"` or `"off"`, also by part of the program, as
    /// in `"info,sluice_unixctl=debug"`. The environment variable `RUST_LOG` wins over it.
    #[serde(deserialize_with = "level")]
    pub level: String,
    /// `"text"` (default) or `"json"`.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The running log.
pub struct Logging {
    levels: reload::Handle<EnvFilter, Registry>,
    limit: Arc<RateLimit>,
    messages: Arc<Messages>,
    lines: LogWriter,
    /// What `RUST_LOG` says, which wins over the configuration.
    from_environment: Option<String>,
}

/// What became of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Errors, those included that the rate limit did not let through. What the level excludes is not counted.
    pub errors: u64,
    /// Warnings, likewise.
    pub warnings: u64,
    /// Lines that were dropped because nobody read standard error, or it did not take them.
    pub dropped_lines: u64,
}

/// Why the log cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The levels make no sense.
    #[error("{origin}: {reason}")]
    Level {
        /// Where they come from.
        origin: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The log is in use already, or no more.
    #[error("the log cannot be set up: {0}")]
    SetUp(String),
}

impl Logging {
    /// Starts logging for the whole process, once, to standard error, or to the journal if that is the journal's. At most `rate` messages a
    /// minute from one place in the code; 0 is no limit.
    pub fn start(config: &LogConfig, rate: u32, clock: Arc<dyn Clock>) -> Result<(Self, LastLines), LogError> {
        let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let in_journal = is_journal(env::var("JOURNAL_STREAM").ok().as_deref());
        let has_entries = in_journal && config.format == LogFormat::Text;
        let socket = has_entries.then(JournalSocket::open).and_then(Result::ok);
        let reader = match socket {
            Some(_) => Reader::Journal,
            None if in_journal => Reader::JournalStream,
            None => Reader::Other { colours },
        };
        let started = match socket {
            Some(socket) => LogWriter::start(socket),
            None => LogWriter::start(io::stderr()),
        };
        let (lines, last_lines) = started.map_err(|error| LogError::SetUp(error.to_string()))?;
        let environment = env::var(RUST_LOG).ok().filter(|levels| !levels.is_empty());
        let (subscriber, logging) = assemble(config, rate, clock, environment, reader, lines.clone())?;
        subscriber.try_init().map_err(|error| LogError::SetUp(error.to_string()))?;
        Ok((Self { lines, ..logging }, last_lines))
    }

    /// Takes over another rate, of messages a minute from one place in the code.
    pub fn set_rate(&self, rate: u32) {
        self.limit.set(rate);
    }

    /// Takes over the levels of a changed configuration. Says whether it has: `RUST_LOG` still wins, if it is set.
    pub fn take_over(&self, config: &LogConfig) -> Result<bool, LogError> {
        match &self.from_environment {
            Some(_) => Ok(false),
            None => self.set_level(&config.level).map(|()| true),
        }
    }

    /// Sets the levels, whatever configuration and environment say.
    pub fn set_level(&self, levels: &str) -> Result<(), LogError> {
        let filter = filter(levels, "log level")?;
        self.levels.reload(filter).map_err(|error| LogError::SetUp(error.to_string()))
    }

    /// What became of messages since the start.
    pub fn report(&self) -> LogReport {
        LogReport {
            errors: self.messages.errors.load(Ordering::Relaxed),
            warnings: self.messages.warnings.load(Ordering::Relaxed),
            dropped_lines: self.lines.dropped(),
        }
    }

    /// The levels as they are, in the form in which they are set.
    pub fn level(&self) -> String {
        self.levels.with_current(ToString::to_string).unwrap_or_default()
    }
}

const RUST_LOG: &str = "RUST_LOG";

/// Who reads the log.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// systemd's journal, by its socket.
    Journal,
    /// The journal where its socket cannot be reached, or JSON is wanted: by standard error, where it takes the priority from the start of a
    /// line (sd-daemon(3)), and knows the time itself.
    JournalStream,
    /// A terminal, a file or a program.
    Other {
        /// Whether levels are coloured.
        colours: bool,
    },
}

/// Whether standard error is the journal's: it is if it is the file of this device and inode (systemd.exec(5)).
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else { return false };
    let is_it = |found: rustix::fs::Stat| device.parse() == Ok(found.st_dev) && inode.parse() == Ok(found.st_ino);
    rustix::fs::fstat(io::stderr()).is_ok_and(is_it)
}

/// Lines for the journal on standard error: a priority, and neither time nor level.
struct ForJournal(Format<tracing_subscriber::fmt::format::Full, ()>);

impl Default for ForJournal {
    fn default() -> Self {
        Self(Format::default().without_time().with_level(false))
    }
}

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        // What a line break would begin would be a message without a priority.
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let priority = priority(event.metadata().level());
        line.lines().try_for_each(|line| writeln!(out, "<{priority}>{line}"))
    }
}

fn assemble<W>(
    config: &LogConfig,
    rate: u32,
    clock: Arc<dyn Clock>,
    from_environment: Option<String>,
    reader: Reader,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + use<W>, Logging), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let first = match &from_environment {
        Some(levels) => filter(levels, RUST_LOG)?,
        None => filter(&config.level, "log.level")?,
    };
    let (levels, handle) = reload::Layer::new(first);
    let limit = Arc::new(RateLimit::new(rate, clock));
    let json = config.format == LogFormat::Json;
    let colours = matches!(reader, Reader::Other { colours: true });
    let of_lines = Arc::clone(&limit);
    let base = |writer| tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours && !json);
    let lines = match reader {
        Reader::Journal => JournalLayer::new(of_lines, writer).boxed(),
        _ if json => {
            let format = Limited { format: Format::default().json(), limit: of_lines, json, reader };
            base(writer).fmt_fields(JsonFields::new()).event_format(format).boxed()
        }
        Reader::JournalStream => {
            base(writer).event_format(Limited { format: ForJournal::default(), limit: of_lines, json, reader }).boxed()
        }
        Reader::Other { .. } => {
            base(writer).event_format(Limited { format: Format::default(), limit: of_lines, json, reader }).boxed()
        }
    };
    let messages = Arc::<Messages>::default();
    let counted = CountMessages(Arc::clone(&messages));
    let logging = Logging { levels: handle, limit, messages, lines: LogWriter::default(), from_environment };
    Ok((tracing_subscriber::registry().with(levels).with(counted).with(lines), logging))
}

fn filter(levels: &str, origin: &'static str) -> Result<EnvFilter, LogError> {
    let wrong = |reason| LogError::Level { origin, reason };
    let checked = parse_level(levels).map_err(wrong)?;
    EnvFilter::try_new(checked).map_err(|error| wrong(error.to_string()))
}

/// Messages by level, as far as somebody looks at how many there were.
#[derive(Debug, Default)]
struct Messages {
    errors: AtomicU64,
    warnings: AtomicU64,
}

/// Counts messages before the rate limit drops any.
struct CountMessages(Arc<Messages>);

impl<S: Subscriber> Layer<S> for CountMessages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match *event.metadata().level() {
            Level::ERROR => self.0.errors.fetch_add(1, Ordering::Relaxed),
            Level::WARN => self.0.warnings.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// A format for those messages that the limit lets pass.
struct Limited<F> {
    format: F,
    limit: Arc<RateLimit>,
    json: bool,
    reader: Reader,
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match self.limit.pass(event.metadata().callsite()) {
            Passage::Dropped => return Ok(()),
            Passage::Printed => {}
            Passage::PrintedAfter(dropped) => self.write_dropped(&mut out, event.metadata(), dropped)?,
        }
        self.format.format_event(context, out, event)
    }
}

impl<F> Limited<F> {
    /// Writes a line as the formats of tracing-subscriber would. They can only be asked to format an event, and an event
    /// within an event goes nowhere.
    fn write_dropped(&self, out: &mut Writer<'_>, of: &Metadata<'_>, dropped: Dropped) -> fmt::Result {
        if let (Reader::JournalStream, false) = (self.reader, self.json) {
            return writeln!(out, "<{}>{}: {dropped}", priority(of.level()), of.target());
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        if self.json {
            let line = serde_json::json!({
                "timestamp": time,
                "level": of.level().as_str(),
                "fields": { "message": dropped.to_string() },
                "target": of.target(),
            });
            writeln!(out, "{line}")
        } else {
            writeln!(out, "{time} {:>5} {}: {dropped}", of.level().as_str(), of.target())
        }
    }
}

/// Checks what is to be logged: levels, also by part of the program.
///
/// The filter library takes any word for the name of a part, so that a mistyped level would be no error there.
pub fn parse_level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if !is_level(level.trim()) {
            return Err(format!("unknown log level \"{level}\", expected one of {}", LEVELS.join(", ")));
        }
    }
    text.parse::<EnvFilter>().map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn level<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    parse_level(&String::deserialize(from)?).map_err(Error::custom)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use parking_lot::Mutex;
    use sluice_flow::time::ManualClock;
    use tracing::subscriber::with_default;
    use tracing::{debug, info, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn take(&self) -> Vec<String> {
            let bytes = std::mem::take(&mut *self.0.lock());
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
        }
    }

    struct Bench {
        clock: Arc<ManualClock>,
        lines: Lines,
    }

    impl Bench {
        fn new() -> Self {
            Self { clock: Arc::default(), lines: Lines::default() }
        }

        fn start(
            &self,
            config: &LogConfig,
            rate: u32,
            environment: Option<&str>,
        ) -> (impl Subscriber + Send + Sync + use<>, Logging) {
            self.start_for(Reader::Other { colours: false }, config, rate, environment)
        }

        fn start_for(
            &self,
            reader: Reader,
            config: &LogConfig,
            rate: u32,
            environment: Option<&str>,
        ) -> (impl Subscriber + Send + Sync + use<>, Logging) {
            let lines = self.lines.clone();
            let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
            assemble(config, rate, clock, environment.map(str::to_owned), reader, move || lines.clone()).unwrap()
        }
    }

    fn complain() {
        warn!(port = 7, "it hurts");
    }

    #[test]
    fn a_place_that_speaks_too_often_is_counted_and_then_summed_up() {
        let bench = Bench::new();
        let (subscriber, logging) = bench.start(&LogConfig::default(), 6, None);
        with_default(subscriber, || {
            for _ in 0..10 {
                complain();
            }
            assert_eq!(bench.lines.take().len(), 6);
            info!("another place is not affected");
            assert_eq!(bench.lines.take().len(), 1);
            bench.clock.advance(Duration::from_secs(4));
            complain();
            bench.clock.advance(Duration::from_secs(8));
            complain();
        });
        let lines = bench.lines.take();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            logging.report(),
            LogReport { warnings: 12, ..LogReport::default() },
            "those not printed are counted"
        );
        assert!(
            lines[0].ends_with(
                " WARN sluice_host::logging::tests: Dropped 5 messages in last 12 s (most recently 8 s ago) due to excessive rate"
            ),
            "{}",
            lines[0]
        );
        assert!(lines[1].ends_with("it hurts port=7"), "{}", lines[1]);
    }

    #[test]
    fn every_line_of_a_json_log_is_an_object_also_the_one_about_drops() {
        let bench = Bench::new();
        let (subscriber, _logging) =
            bench.start(&LogConfig { format: LogFormat::Json, ..LogConfig::default() }, 1, None);
        with_default(subscriber, || {
            for _ in 0..3 {
                complain();
                bench.clock.advance(Duration::from_secs(30));
            }
        });
        let lines: Vec<serde_json::Value> =
            bench.lines.take().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["fields"]["port"], 7);
        assert!(lines[1]["fields"]["message"].as_str().unwrap().starts_with("Dropped 1 messages"));
        assert_eq!(lines[1]["level"], lines[2]["level"]);
        assert_eq!(lines[1]["target"], lines[2]["target"]);
        assert!(lines[1]["timestamp"].is_string());
    }

    #[test]
    fn the_journal_gets_entries_with_fields() {
        let bench = Bench::new();
        let (subscriber, _logging) = bench.start_for(Reader::Journal, &LogConfig::default(), 1, None);
        with_default(subscriber, || {
            complain();
            complain();
            bench.clock.advance(Duration::from_secs(60));
            complain();
            info!(flow = "first\nsecond", "a message");
        });
        let lines = bench.lines.take();
        let of_place = ["TARGET=sluice_host::logging::tests", "CODE_FILE=host/src/logging.rs"];
        assert_eq!(lines[..2], ["MESSAGE=it hurts port=7", "PRIORITY=4"]);
        assert!(lines[2].starts_with("SYSLOG_IDENTIFIER="), "{}", lines[2]);
        assert_eq!(lines[3..5], of_place);
        assert!(lines[5].starts_with("CODE_LINE="), "{}", lines[5]);
        assert_eq!(lines[6], "SLUICE_PORT=7");
        assert!(lines[7].starts_with("MESSAGE=Dropped 1 messages"), "{}", lines[7]);
        // A value with a line break comes behind its length.
        let last: Vec<&str> = lines[lines.len() - 3..].iter().map(String::as_str).collect();
        assert_eq!(last, ["SLUICE_FLOW", "\u{c}\0\0\0\0\0\0\0first", "second"]);
        assert!(lines.contains(&"MESSAGE=a message flow=\"first\\nsecond\"".to_owned()), "{lines:?}");
    }

    #[test]
    fn the_journal_gets_a_priority_and_no_second_time_on_standard_error() {
        let bench = Bench::new();
        let (subscriber, _logging) = bench.start_for(Reader::JournalStream, &LogConfig::default(), 1, None);
        with_default(subscriber, || {
            complain();
            complain();
            bench.clock.advance(Duration::from_secs(60));
            complain();
            info!("two\nlines");
        });
        let lines = bench.lines.take();
        assert_eq!(lines[0], "<4>sluice_host::logging::tests: it hurts port=7");
        assert!(lines[1].starts_with("<4>sluice_host::logging::tests: Dropped 1 messages"), "{}", lines[1]);
        assert_eq!(lines[3..], ["<6>sluice_host::logging::tests: two", "<6>lines"]);
        assert!(!is_journal(None) && !is_journal(Some("0:0")) && !is_journal(Some("journal")));
    }

    #[test]
    fn a_reload_changes_levels_and_rate() {
        let bench = Bench::new();
        let (subscriber, logging) = bench.start(&LogConfig::default(), 1, None);
        with_default(subscriber, || {
            let say = || debug!("in detail");
            say();
            assert_eq!(bench.lines.take().len(), 0);
            assert!(logging.take_over(&LogConfig { level: "debug".to_owned(), ..LogConfig::default() }).unwrap());
            logging.set_rate(0);
            for _ in 0..100 {
                say();
            }
            assert_eq!(bench.lines.take().len(), 100);
            assert_eq!(logging.level(), "debug");
        });
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let bench = Bench::new();
        let (_subscriber, logging) = bench.start(&LogConfig::default(), 1, Some("trace"));
        assert!(!logging.take_over(&LogConfig { level: "warn".to_owned(), ..LogConfig::default() }).unwrap());
        assert_eq!(logging.level(), "trace");
    }

    #[test]
    fn levels_that_make_no_sense_are_refused() {
        let bench = Bench::new();
        let (_subscriber, logging) = bench.start(&LogConfig::default(), 1, None);
        let error = logging.set_level("inof").unwrap_err().to_string();
        assert!(error.contains("unknown log level \"inof\""), "{error}");
        assert_eq!(logging.level(), "info");
    }
}
