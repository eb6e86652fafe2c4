//! `sluice`, the command line: one command over the control socket of a running agent.
//!
//! Flow text goes to the agent as it was typed, and what the agent says is printed as it came; what is done here is what
//! the control socket leaves to its clients: files in parts, streams, tables, captures. Nothing of the daemon is needed for
//! that but the [control crate](sluice_control).
//!
//! [`run`] is the whole program.

mod arguments;
mod command;
mod commands;
mod connection;
mod error;
mod help;
mod parts;
mod terminal;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::arguments::Cli;
use crate::command::{Agent, Outcome};
use crate::error::CliError;

/// Wrong usage, no agent, or a local file that cannot be read.
const FAILED: u8 = 1;
/// The agent said no.
const REFUSED: u8 = 2;

/// The parser of the command line, of which manual pages and completions are made.
pub fn command() -> clap::Command {
    help::command()
}

/// Runs the command line of this process. 0: done; 1: wrong usage, no agent, or a local file that cannot be read;
/// 2: the agent refused.
pub fn run() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // If nobody reads it, it has still been said.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { FAILED } else { 0 });
        }
    };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let agent = Agent { run_dir: cli.run_dir(), patience: cli.timeout.0 };
    let result = cli.command.run(&agent, &mut out);
    let flushed = out.flush().map_err(CliError::Output);
    match result.and_then(|outcome| flushed.map(|()| outcome)) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::from(REFUSED),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(if matches!(error, CliError::Refused(_)) { REFUSED } else { FAILED })
        }
    }
}
