//! `sluice-mirror`: from the command line to an orderly end.

mod collect;
mod config;
mod send;
mod serve;
mod ways;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, CommandFactory, Parser, Subcommand};
use sluice_flow::time::MonotonicClock;
use sluice_host::logging::{LogConfig, Logging};
use tokio::runtime::{Builder, Runtime};

use self::config::Shared;

const EXIT_CODES: &str = "Exit codes: 0 ended as it was told; 1 wrong usage, or it failed while it ran; 2 did not start, or the \
                          configuration is wrong.";

/// Log messages a minute from one place in the code.
const LOG_RATE: u32 = 60;

/// Control traffic that is mirrored to a collector over RDMA.
#[derive(Debug, Parser)]
#[command(name = "sluice-mirror", version, after_help = EXIT_CODES)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send what the agent on this host mirrors
    #[command(after_help = EXIT_CODES)]
    Send(send::Options),
    /// Collect what senders send, into files, a pipe or a TAP
    #[command(after_help = EXIT_CODES)]
    Collect(collect::Options),
}

/// What both ends are told.
#[derive(Debug, Args)]
struct Common {
    /// Read this configuration file; without one every key has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use this RDMA device, as `ibv_devices` names it; wins over the file
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Connect by "cm", RDMA's connection manager, or by "socket", for fabrics without one; wins over the file
    #[arg(long, value_name = "WAY")]
    connect: Option<config::Way>,
    /// Serve metrics at this address and port, or not at all with "none"; wins over the file
    #[arg(long, value_name = "ADDR")]
    metrics: Option<config::Metrics>,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
}

impl Common {
    fn apply(&self, shared: &mut Shared) {
        if let Some(device) = &self.device {
            shared.device.clone_from(device);
        }
        if let Some(way) = self.connect {
            shared.connect = way;
        }
        shared.metrics = self.metrics.or(shared.metrics);
    }
}

/// How a program ends when it is not told to.
enum End {
    /// Its configuration, the host or the device does not let it start.
    NotStarted(Error),
    /// It failed while it ran.
    Failed(Error),
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl<E: Into<Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::NotStarted(error.into())
    }
}

/// The parser of the command line, of which manual pages and completions are made.
#[must_use]
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the program to its end. Returns the exit code, as the help text lists them.
#[must_use]
pub fn run() -> ExitCode {
    const FAILED: u8 = 1;
    const NOT_STARTED: u8 = 2;
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // A closed standard error is nobody's loss.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match options.command {
        Command::Send(options) => send::run(&options),
        Command::Collect(options) => collect::run(&options),
    };
    let (code, error) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::Failed(error)) => (FAILED, error),
        Err(End::NotStarted(error)) => (NOT_STARTED, error),
    };
    eprintln!("sluice-mirror: {error}");
    ExitCode::from(code)
}

/// Makes the runtime of both ends: of one thread, since what waits for a device and what it then does would otherwise be two, of which each
/// wakes the other. What blocks has threads of its own.
///
/// # Errors
/// Fails if the system has no more threads or files for it.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Starts the log, which is written to its end before this returns, and plays a program on a runtime.
fn play<F: Future<Output = Result<(), End>>>(log: &LogConfig, program: impl FnOnce() -> F) -> Result<(), End> {
    let (_logging, _last_lines) = Logging::start(log, LOG_RATE, Arc::new(MonotonicClock::new()))?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async { program().await });
    // An output that hangs must not keep the process.
    runtime.shutdown_background();
    outcome
}
