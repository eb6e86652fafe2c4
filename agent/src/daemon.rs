//! `sluiced`: from the command line to an orderly end.

mod ending;
mod parts;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{CommandFactory, Parser};
use rustix::process::Signal;
use sd_notify::NotifyState;
use sluice_flow::backend::Placement;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{FlowState, Timestamp};
use sluice_host::http::{HttpOptions, HttpServer};
use sluice_host::lifecycle::{Death, Lifecycle, StopReport};
use sluice_host::liveness::Hang;
use sluice_host::lock::Locks;
use sluice_host::logging::Logging;
use sluice_host::run_dir::RunDir;
use sluice_host::seed;
use sluice_journal::{Journal, JournalOptions, Opened};
use sluice_objects::ObjectsFile;
use sluice_preflight::Verdict;
use sluice_unixctl::group_id;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::agent::{Agent, DEVICE_WATCH, Keeping};
use crate::api::Listeners;
use crate::backends::Configured;
use crate::config::{Config, Loaded, Places, parse_metrics};
use crate::observe::metrics::Metrics;
use crate::observe::readiness::readiness;
use crate::preflight::{preflight, warn_of_others};
use crate::reload::{Reloader, Reloads, Reply, located};
use crate::source::Sources;

use self::ending::Ending;

/// What the clock shows at the start: flows of earlier runs were accepted before it. No timeout is longer.
const CLOCK_START: Timestamp = Timestamp(10 * 366 * 86_400 * 1_000_000_000);

/// How often it is looked whether the parts get on.
const LOOK: Duration = Duration::from_secs(1);

/// How long a reload may take to end once the agent is to.
const RELOAD_DEADLINE: Duration = Duration::from_secs(6);

const EXIT_CODES: &str = "Exit codes: 0 ended as it was told; 1 wrong usage, or a part died; 2 did not start, or the configuration is \
                          wrong; 3 the device failed, and a restart installs the flows again.";

/// What a script or a service manager can tell apart ([`EXIT_CODES`]).
mod exit {
    pub(super) const DIED: u8 = 1;
    pub(super) const NOT_STARTED: u8 = 2;
    pub(super) const DEVICE_FAILED: u8 = 3;
}

/// The flow-offload agent: takes OVS datapath flows over its control socket, installs them in a device, counts and ages
/// them.
#[derive(Debug, Parser)]
#[command(name = "sluiced", version, after_help = EXIT_CODES)]
pub struct Options {
    /// Read this configuration file; without one every key has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_name = "KIND", help = format!("Use this kind of device, {}; wins over the file", Configured::names()))]
    backend: Option<String>,
    /// Put the control socket and the pidfile here; wins over the file
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Serve metrics at this address and port, or not at all with "none"; wins over the file
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Adopt the rules of owners whose agent does not run, such as one whose state was lost; as adopt_orphans = true
    #[arg(long)]
    adopt_orphans: bool,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
    /// Look whether the machine has what the configured backend needs, print a line for each prerequisite with its cure, and exit:
    /// with 2 if something refuses the start
    #[arg(long, conflicts_with = "check")]
    preflight: bool,
    /// Take the rules of an agent that was killed out of the device, but for those of flows that the log keeps, and exit
    #[arg(long, conflicts_with_all = ["check", "preflight"])]
    sweep: bool,
    /// With --preflight, print one JSON object
    #[arg(long, requires = "preflight")]
    json: bool,
}

/// The parser of the command line, of which the manual page and completions are made.
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the daemon to its end. Returns the exit code, as the help text lists them.
pub fn run() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // A closed standard error is nobody's loss.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let loaded = options.load().map_err(End::from);
    if let (true, Ok(loaded)) = (options.preflight, &loaded) {
        return report_preflight(&loaded.config, options.json);
    }
    let result = loaded.and_then(|loaded| {
        if options.check {
            loaded.moved.iter().for_each(|moved| complain(moved));
            RunDir::check(&loaded.config.run_dir).map_err(End::from)
        } else {
            Daemon::run(options, loaded)
        }
    });
    let (code, error) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::NotStarted(error)) => (exit::NOT_STARTED, error),
        Err(End::Died(error)) => (exit::DIED, error),
        Err(End::DeviceFailed(error)) => (exit::DEVICE_FAILED, error),
    };
    complain(&error);
    ExitCode::from(code)
}

/// Tells whoever has started the program. A standard error that is closed is nobody's loss, and the exit code still says it.
fn complain(of: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "sluiced: {of}");
}

/// Prints what the machine lacks.
fn report_preflight(config: &Config, json: bool) -> ExitCode {
    let checks = preflight(config);
    let text =
        if json { format!("{}\n", sluice_preflight::to_json(&checks)) } else { sluice_preflight::to_text(&checks) };
    // If nobody reads it, the exit code still says it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let refuses = checks.iter().any(|check| check.verdict == Verdict::Refuses);
    ExitCode::from(if refuses { exit::NOT_STARTED } else { 0 })
}

/// How the daemon ends when it is not told to.
enum End {
    /// The configuration, the host or the device does not let it start.
    NotStarted(Error),
    /// A part ended by itself, or did not stop in time.
    Died(Error),
    /// The device is dead, or does not answer.
    DeviceFailed(Error),
}

/// Of what fails before all parts run.
impl<E: Into<Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::NotStarted(error.into())
    }
}

impl End {
    fn by(death: Death) -> Self {
        if death.part == DEVICE_WATCH { Self::DeviceFailed(death.into()) } else { Self::Died(death.into()) }
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Options {
    /// The configuration, with all found right that can be told without the device.
    fn load(&self) -> Result<Loaded, String> {
        let backend = self.backend.as_deref().map(Configured::named).transpose()?;
        let mut loaded = match &self.config {
            Some(path) => Config::load(path, backend.as_ref()).map_err(|error| error.to_string())?,
            None => Loaded { config: Config::for_backend(backend.unwrap_or_default()), ..Loaded::default() },
        };
        let Loaded { config, places, .. } = &mut loaded;
        config.adopt_orphans |= self.adopt_orphans;
        if let Some(run_dir) = &self.run_dir {
            config.run_dir = std::path::absolute(run_dir).map_err(|error| error.to_string())?;
        }
        if let Some(metrics) = &self.metrics {
            config.metrics = parse_metrics(metrics)?;
        }
        take_state_directory(config, std::env::var_os("STATE_DIRECTORY"));
        if self.sweep {
            // It serves nobody, and must not fail by what may have ended the agent, such as an address that another program has, a
            // certificate, a group that is gone or that its unit may not give a socket to, or the file of leases.
            (config.metrics, config.api.remote, config.control_group) = (None, None, None);
        }
        if let Some(Err(error)) = config.control_group.as_deref().map(group_id) {
            return Err(places.of_control_group(error.to_string()).to_string());
        }
        Ok(loaded)
    }

    /// What takes the rules out of the device that an agent with these options has left there.
    fn sweep_command(&self) -> String {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
        let backend = self.backend.iter().map(|kind| format!(" --backend {kind}"));
        let run_dir = self.run_dir.iter().map(|path| format!(" --run-dir {}", absolute(path)));
        let config = self.config.iter().map(|path| format!(" --config {}", absolute(path)));
        iter::once("sluiced --sweep".to_owned()).chain(backend).chain(run_dir).chain(config).collect()
    }
}

/// The folder that systemd made for the unit (systemd.exec(5), `StateDirectory=`) is that of the state, if the file names none.
fn take_state_directory(config: &mut Config, given: Option<OsString>) {
    let given = given.map(PathBuf::from).filter(|path| path.is_absolute());
    config.state_dir = config.state_dir.take().or(given);
}

/// What the control socket and signals ask of the daemon itself.
enum Request {
    Exit,
    Reload(Reply),
}

struct Daemon {
    agent: Arc<Agent>,
    logging: Arc<Logging>,
    ending: Arc<Ending>,
}

impl Daemon {
    /// Whatever may be refused without the device is done first, and the device is touched last: a start that is refused
    /// leaves everything as it was.
    fn run(options: Options, loaded: Loaded) -> Result<(), End> {
        let Loaded { config, places, moved } = loaded;
        let clock = Arc::new(MonotonicClock::showing(CLOCK_START));
        let (logging, _last_lines) = Logging::start(&config.log, config.log_rate, clock.clone())?;
        let logging = Arc::new(logging);
        moved.iter().for_each(|moved| tracing::warn!("{moved}"));
        let runtime = Runtime::new()?;
        let _entered = runtime.enter();
        // From the pidfile on it can be asked for a reload, which comes once all parts run.
        let hang_up = signal(SignalKind::hangup())?;
        let mut run_dir = RunDir::claim(&config.run_dir)?;
        let device = config
            .backend
            .name_on_machine(&config.device)
            .map_err(|error| format!("cannot tell which network namespace this is: {error}"))?;
        let locks = Locks::open(&config.lock_dir)?;
        let _device_lock = locks.device(&device, &config.run_dir)?;
        let group = config.control_group.as_deref().map(group_id).transpose()?;
        // Who connects from now on is answered once all parts run.
        let listener = run_dir.bind_control(config.control_mode, group)?;
        let mirror_listener = run_dir.bind_mirror(config.control_mode, group)?;
        let api_listener = run_dir.bind_api(config.control_mode, group)?;
        let http = bind_http(&config, &places)?;
        // Should the start hang in a disk, that is what the status says.
        notify(&[NotifyState::Status(&format!("reading what is kept in {}", config.state_dir().display()))]);
        let seed = seed::load_or_make(&config.state_dir())?;
        let kept = config.persist.then(|| config.state_dir());
        let leases = kept.as_deref().filter(|_| !options.sweep);
        let api = Listeners::new(api_listener, group, config.api.remote.as_ref(), leases)?;
        let _owner_lock = locks.owner(seed.owner())?;
        let opened = open_journal(&config, &clock)?;
        let objects = config.persist.then(|| ObjectsFile::open(&config.state_dir())).transpose()?;
        let keeping = Keeping { journal: opened.as_ref().map(|opened| opened.journal.clone()), objects };
        let sources = if options.sweep { Sources::default() } else { Sources::new(&config)? };
        // Heard from here on, and obeyed once all parts run: an agent that died in between would leave rules that nobody takes out.
        let told_to_end = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (agent, parts) = Agent::open(config, seed, clock, keeping).map_err(|error| located(&places, error))?;
        agent.recent.note_reload(true, SystemTime::now());
        agent.events.note(concat!("started, version ", env!("CARGO_PKG_VERSION")));
        let daemon = Self { agent, logging, ending: Arc::default() };

        // A limit on the size of files is an error of the write that goes beyond it, not the death of the agent.
        let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
        // What others have their logs begun anew by is not the death of this one.
        let _unused = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
        let mut lifecycle = Lifecycle::new(runtime.handle().clone());
        // Started first, to be stopped last: it hears of what the others do to the end.
        if let Some(opened) = opened {
            daemon.agent.keep_flows(opened, &mut lifecycle)?;
        }
        let (is_sweep, ending) = (options.sweep, daemon.ending.clone());
        parts.run(&daemon.agent, &mut lifecycle, move |agent| {
            // Nobody is told any more what is copied where.
            agent.mirroring.end();
            // What a sweep leaves is for the next start.
            if !is_sweep && ending.wants_cleanup(agent) {
                ending.clean_up(agent);
            }
        })?;
        if is_sweep {
            // A start has taken out what no flow of the log wants.
            let report = runtime.block_on(lifecycle.stop());
            return end(runtime, &report);
        }
        daemon.note_coverage(&mut lifecycle);
        daemon.note_reinstatement(&mut lifecycle);
        let (ask, asked) = mpsc::unbounded_channel();
        let metrics = Arc::new(Metrics::new(daemon.agent.clone(), Some(daemon.logging.clone()))?);
        if let Some(http) = http {
            daemon.serve_http(&mut lifecycle, http, metrics.clone())?;
        }
        daemon.serve_mirror(&mut lifecycle, mirror_listener);
        daemon.serve_api(&mut lifecycle, api);
        daemon.serve_control(&mut lifecycle, (listener, group), metrics, ask)?;
        sources.run(&daemon.agent, &mut lifecycle)?;
        let capabilities = daemon.agent.backend.capabilities();
        tracing::info!(
            "running on {}; a packet without a flow is {}, in a later chain {}",
            daemon.agent.datapath(),
            capabilities.miss.describe(),
            capabilities.chain_miss.describe()
        );
        notify(&[NotifyState::Ready]);
        let config = daemon.agent.config();
        // It may have to wait for another program.
        runtime.spawn_blocking(move || warn_of_others(&config));
        let sweep = options.sweep_command();
        let load = Box::new(move || options.load());
        let reloader = Reloader { load, agent: daemon.agent.clone(), logging: daemon.logging.clone() };
        let reloads = Reloads::new(move || reloader.reload());
        let heard = Heard { asked, hang_up, told_to_end };
        let reason = runtime.block_on(until_the_end(&mut lifecycle, heard, reloads, daemon.agent.clone()));
        notify(&[NotifyState::Stopping]);
        let report = runtime.block_on(lifecycle.stop());
        runtime.block_on(daemon.ending.answer(&daemon.agent, &report, &sweep));
        let ended = end(runtime, &report);
        reason.and(ended)
    }
}

/// After all parts have stopped, as far as they have.
fn end(runtime: Runtime, report: &StopReport) -> Result<(), End> {
    tracing::info!("{report}");
    // A thread that hangs in a device must not keep the process.
    runtime.shutdown_background();
    if report.is_clean() { Ok(()) } else { Err(End::Died(report.to_string().into())) }
}

/// What the agent is told from outside.
struct Heard {
    asked: mpsc::UnboundedReceiver<Request>,
    hang_up: Signals,
    /// SIGTERM and SIGINT.
    told_to_end: (Signals, Signals),
}

/// Serves signals and requests until one of them, or the death of a part, ends the agent.
async fn until_the_end(
    lifecycle: &mut Lifecycle,
    Heard { mut asked, mut hang_up, told_to_end: (mut terminate, mut interrupt) }: Heard,
    mut reloads: Reloads,
    agent: Arc<Agent>,
) -> Result<(), End> {
    let clock = agent.clock.clone();
    let mut told = String::new();
    let liveness = lifecycle.liveness();
    let mut hanging = Vec::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asked_by = loop {
        tokio::select! {
            _ = terminate.recv() => break Ok("SIGTERM"),
            _ = interrupt.recv() => break Ok("SIGINT"),
            _ = hang_up.recv() => reloads.ask(None),
            () = reloads.finished() => {}
            _ = look.tick() => {
                let hang = liveness.look(clock.now()).err();
                let parts = hang.iter().flat_map(Hang::parts).map(str::to_owned).collect();
                let status = status_line(&agent);
                if status != told {
                    notify(&[NotifyState::Status(&status)]);
                    told = status;
                }
                if let Some(hang) = hang.as_ref().filter(|_| parts != hanging) {
                    tracing::error!("{hang}");
                }
                hanging = parts;
                // The watchdog of systemd, if there is one, ends an agent of which a part hangs for good.
                if hang.is_none_or(|hang| hang.is_of_disk()) {
                    notify(&[NotifyState::Watchdog]);
                }
            }
            request = asked.recv() => match request {
                Some(Request::Reload(reply)) => reloads.ask(Some(reply)),
                Some(Request::Exit) | None => break Ok("request"),
            },
            death = lifecycle.watch() => {
                tracing::error!("stopping: {death}");
                break Err(End::by(death));
            }
        }
    };
    if let Ok(asked_by) = &asked_by {
        tracing::info!("stopping on {asked_by}");
    }
    reloads.end(RELOAD_DEADLINE).await;
    asked_by.map(|_| ())
}

/// What `systemctl status` shows.
fn status_line(agent: &Agent) -> String {
    let census = agent.table.census();
    let hardware = census.placed(Placement::Hardware) + census.placed(Placement::Both);
    let (flows, waiting, refused) = (census.live(), census.unsettled(), census.in_state(FlowState::Refused));
    let unready = readiness(agent).err().map_or(String::new(), |reason| format!("; not ready: {reason}"));
    format!(
        "{}: {flows} flows, {hardware} in hardware, {refused} refused; {waiting} wait for the device{unready}",
        agent.datapath()
    )
}

/// The server of the metrics, before it has pages, if the configuration wants one.
fn bind_http(config: &Config, places: &Places) -> Result<Option<HttpServer>, Error> {
    let Some(address) = config.metrics else { return Ok(None) };
    let failed = |error| places.of_metrics(format!("cannot serve metrics at {address}: {error}"));
    Ok(Some(HttpServer::bind(address, HttpOptions::default()).map_err(failed)?))
}

/// The log of flows, unless the configuration wants none.
fn open_journal(config: &Config, clock: &Arc<MonotonicClock>) -> Result<Option<Opened>, Error> {
    let folder = config.state_dir().join("flows");
    if !config.persist {
        if folder.exists() {
            tracing::warn!("{} is left alone: flows are not kept, and those in it are not taken on", folder.display());
        }
        return Ok(None);
    }
    let options =
        JournalOptions { sync_interval: config.sync_interval, clock: clock.clone(), wall: Arc::new(SystemTime::now) };
    Ok(Some(Journal::open(&folder, options)?))
}

/// Tells systemd, if it is there to be told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("systemd was not told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_in_the_folder_of_the_unit_unless_the_file_names_one() {
        let state_dir = |file: Option<&str>, given: Option<&str>| {
            let mut config = Config { state_dir: file.map(PathBuf::from), ..Config::default() };
            take_state_directory(&mut config, given.map(OsString::from));
            config.state_dir().display().to_string()
        };
        assert_eq!(state_dir(None, None), "/run/sluice/state");
        assert_eq!(state_dir(None, Some("/var/lib/sluice")), "/var/lib/sluice");
        assert_eq!(state_dir(Some("/srv/state"), Some("/var/lib/sluice")), "/srv/state");
    }
}
