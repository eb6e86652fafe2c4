//! The log: text or JSON on standard error, levels that change while the agent runs, and a limit on how often one place in
//! the code may speak, so that a device that fails a million times says so in a few lines.

use std::collections::HashMap;
use std::env;
use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use sluice_flow::time::{Clock, Timestamp};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

use crate::log_writer::LogWriter;

/// The log, on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// Lines that were dropped because nobody read standard error.
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
    /// Starts logging for the whole process, once, to what becomes standard error. At most `rate` messages a minute from one place in the code; 0 is no limit.
    pub fn start(config: &LogConfig, rate: u32, clock: Arc<dyn Clock>, writer: LogWriter) -> Result<Self, LogError> {
        let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let reader = if is_journal(env::var("JOURNAL_STREAM").ok().as_deref()) {
            Reader::Journal
        } else {
            Reader::Other { colours }
        };
        let environment = env::var(RUST_LOG).ok().filter(|levels| !levels.is_empty());
        let lines = writer.clone();
        let (subscriber, logging) = assemble(config, rate, clock, environment, reader, writer)?;
        subscriber.try_init().map_err(|error| LogError::SetUp(error.to_string()))?;
        Ok(Self { lines, ..logging })
    }

    /// Takes over levels and rate of a changed configuration. `RUST_LOG` still wins, if it is set.
    pub fn reload(&self, config: &LogConfig, rate: u32) -> Result<(), LogError> {
        self.limit.per_minute.store(rate, Ordering::Relaxed);
        match &self.from_environment {
            Some(_) => Ok(()),
            None => self.set_level(&config.level),
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

/// Who reads standard error.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// systemd's journal, which knows the time and takes the priority from the start of a line (sd-daemon(3)).
    Journal,
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

/// Lines for the journal: a priority, and neither time nor level.
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

/// The priority of syslog(3) for a level.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
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
    let base = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours && !json);
    let lines = if json {
        let format = Limited { format: Format::default().json(), limit: Arc::clone(&limit), json, reader };
        base.fmt_fields(JsonFields::new()).event_format(format).boxed()
    } else {
        let limit = Arc::clone(&limit);
        match reader {
            Reader::Journal => {
                base.event_format(Limited { format: ForJournal::default(), limit, json, reader }).boxed()
            }
            Reader::Other { .. } => {
                base.event_format(Limited { format: Format::default(), limit, json, reader }).boxed()
            }
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

/// How often each place in the code may speak: so many messages at once, and as many a minute.
pub struct RateLimit {
    per_minute: AtomicU32,
    clock: Arc<dyn Clock>,
    // As many entries as the program has log statements. Only messages that pass their level come here.
    places: Mutex<HashMap<Identifier, Place>>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It may be printed.
    Printed,
    /// It may be printed, after a word about those that were not.
    PrintedAfter(Dropped),
    /// It is one too many.
    Dropped,
}

/// Messages that were not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// How many.
    pub count: u64,
    /// How long ago the first one was.
    pub first: Duration,
    /// How long ago the last one was.
    pub last: Duration,
}

impl fmt::Display for Dropped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Dropped {} messages in last {} s (most recently {} s ago) due to excessive rate",
            self.count,
            self.first.as_secs(),
            self.last.as_secs()
        )
    }
}

struct Place {
    /// What may still be spent, in nanoseconds of a minute.
    credit: u64,
    seen: Timestamp,
    dropped: u64,
    first_dropped: Timestamp,
    last_dropped: Timestamp,
}

const MINUTE: u64 = 60_000_000_000;

impl RateLimit {
    /// At most so many messages a minute for each place; 0 is no limit.
    pub fn new(per_minute: u32, clock: Arc<dyn Clock>) -> Self {
        Self { per_minute: AtomicU32::new(per_minute), clock, places: Mutex::default() }
    }

    /// Counts a message of `place`, and says whether it may be printed.
    pub fn pass(&self, place: Identifier) -> Passage {
        let rate = u64::from(self.per_minute.load(Ordering::Relaxed));
        let now = self.clock.now();
        let mut places = self.places.lock();
        let place = places.entry(place).or_insert_with(|| Place {
            credit: MINUTE,
            seen: now,
            dropped: 0,
            first_dropped: now,
            last_dropped: now,
        });
        let earned = now.0.saturating_sub(place.seen.0);
        place.credit = place.credit.saturating_add(earned).min(MINUTE);
        place.seen = place.seen.max(now);
        let cost = MINUTE.checked_div(rate).unwrap_or(0);
        if place.credit < cost {
            if place.dropped == 0 {
                place.first_dropped = now;
            }
            place.dropped += 1;
            place.last_dropped = now;
            return Passage::Dropped;
        }
        place.credit -= cost;
        match std::mem::take(&mut place.dropped) {
            0 => Passage::Printed,
            count => Passage::PrintedAfter(Dropped {
                count,
                first: now.since(place.first_dropped),
                last: now.since(place.last_dropped),
            }),
        }
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
        if let (Reader::Journal, false) = (self.reader, self.json) {
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
    use super::*;
    use sluice_flow::time::ManualClock;
    use std::io::Write;
    use tracing::subscriber::with_default;
    use tracing::{debug, info, warn};

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
            let lines = self.lines.clone();
            let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
            let reader = Reader::Other { colours: false };
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
    fn the_journal_gets_a_priority_and_no_second_time() {
        let bench = Bench::new();
        let lines = bench.lines.clone();
        let clock: Arc<dyn Clock> = Arc::clone(&bench.clock) as _;
        let (subscriber, _logging) =
            assemble(&LogConfig::default(), 1, clock, None, Reader::Journal, move || lines.clone()).unwrap();
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
            logging.reload(&LogConfig { level: "debug".to_owned(), ..LogConfig::default() }, 0).unwrap();
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
        logging.reload(&LogConfig { level: "warn".to_owned(), ..LogConfig::default() }, 0).unwrap();
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
