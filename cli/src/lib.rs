//! `sluice`, the command line: one command over the control socket of a running agent.
//!
//! Flow text goes to the agent as it was typed, and what the agent says is printed as it came; what is done here is what
//! the control socket leaves to its clients: files in parts, streams, tables, captures. Nothing of the daemon is needed for
//! that but the [control crate](sluice_control).
//!
//! [`run`] is the whole program. [`capture`] reads captures, for `replay` and `trace`:
//!
//! ```
//! use sluice_cli::capture::{Capture, CaptureError};
//!
//! let picture = Capture::open(&b"GIF89a"[..]);
//! assert!(matches!(picture, Err(CaptureError::Format(_))));
//! ```

mod arguments;
mod bulk;
pub mod capture;
mod connection;
mod dump;
mod error;
mod explain;
mod parts;
mod replay;
mod show;
mod speed;
mod statistics;
mod terminal;
mod top;
mod trace;
mod wait;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::FromArgMatches;
use serde_json::Value;

use crate::arguments::{Cli, Command, command};
use crate::connection::Connection;
use crate::error::CliError;

/// Wrong usage, no agent, or a local file that cannot be read.
const FAILED: u8 = 1;
/// The agent said no.
const REFUSED: u8 = 2;

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
    let result = execute(&cli, &mut out);
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

/// How a command that ran to its end came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Not all of it; which part has been printed.
    Refused,
}

fn execute(cli: &Cli, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let connect = || Connection::open(&cli.run_dir(), cli.timeout.0);
    let mut plain = |method: &str, params: &[String]| {
        let params: Vec<_> = params.iter().map(String::as_str).collect();
        connect()?.print(method, &params, &mut *out)
    };
    match &cli.command {
        Command::AddFlow(command) => plain("dpctl/add-flow", &command.params())?,
        Command::ModFlow(command) => plain("dpctl/mod-flow", &command.params())?,
        Command::DelFlow(command) => plain("dpctl/del-flow", &command.params())?,
        Command::Flush(command) if command.orphans => plain("sluice/flush-orphans", &command.params())?,
        Command::Flush(_) | Command::DelFlows { file: None } => plain("sluice/flush", &[])?,
        Command::AddPort(command) => plain("sluice/add-port", &command.params())?,
        Command::DelPort { port } => plain("sluice/del-port", std::slice::from_ref(port))?,
        Command::AddMeter(command) => plain("sluice/add-meter", &command.params())?,
        Command::DelMeter { id } => plain("sluice/del-meter", &[id.to_string()])?,
        Command::ShowMeters { json: false } => plain("sluice/show-meters", &[])?,
        Command::ShowMeters { json: true } => plain("sluice/show-meters", &["--json".to_owned()])?,
        Command::AddMirror { name, key, ports } => {
            plain("sluice/add-mirror", &[name.clone(), key.clone(), ports.clone()])?;
        }
        Command::DelMirror { name } => plain("sluice/del-mirror", std::slice::from_ref(name))?,
        Command::ShowMirrors => plain("sluice/show-mirrors", &[])?,
        Command::AddCtTimeout(command) => plain("sluice/add-ct-timeout", &command.params())?,
        Command::DelCtTimeout { name } => plain("sluice/del-ct-timeout", std::slice::from_ref(name))?,
        Command::ShowCtTimeouts => plain("sluice/show-ct-timeouts", &[])?,
        Command::Wait => wait::run(&cli.run_dir(), cli.timeout.0)?,
        Command::Reload => plain("sluice/reload", &[])?,
        Command::GetFlow(command) => {
            let method = if command.json { "sluice/get-flow" } else { "dpctl/get-flow" };
            connect()?.print(method, &command.params(), out)?;
        }
        Command::Stats { json: true } => plain("sluice/stats", &[])?,
        Command::Stats { json: false } => statistics::print(&mut connect()?, out)?,
        Command::Show { json: true } => plain("sluice/show", &[])?,
        Command::Show { json: false } => show::print(&mut connect()?, out)?,
        Command::Watch { json } => watch(&mut connect()?, *json, out)?,
        Command::Top(command) => top::run(&mut connect()?, command, out)?,
        Command::Audit { fix, json } => {
            let options = [(*fix, "--fix"), (*json, "--json")].into_iter().filter(|(given, _)| *given);
            let options: Vec<_> = options.map(|(_, option)| option).collect();
            return audit(&mut connect()?, &options, *json, out);
        }
        Command::DumpFlows(command) => dump::print(&mut connect()?, command, out)?,
        Command::Explain(command) => match &command.file {
            Some(file) => return explain::file(connect, file, command.json, out),
            None => plain("sluice/explain", &command.params())?,
        },
        Command::AddFlows { file } => return bulk::add(connect, file, out),
        Command::DelFlows { file: Some(file) } => return bulk::delete(connect, file, out),
        Command::Trace(command) => trace::run(connect, command, out)?,
        Command::Replay(command) => return replay::run(connect, command, out),
    }
    Ok(Outcome::Done)
}

/// What is not as wanted is a failure. An object says by itself whether it is so.
fn audit(connection: &mut Connection, options: &[&str], json: bool, out: &mut dyn Write) -> Result<Outcome, CliError> {
    const METHOD: &str = "sluice/audit";
    if !json {
        connection.print(METHOD, options, out)?;
        return Ok(Outcome::Done);
    }
    let answer = connection.text(METHOD, options)?;
    out.write_all(answer.as_bytes()).map_err(CliError::Output)?;
    let object: Value = serde_json::from_str(&answer).map_err(|_| CliError::answer(METHOD, &answer))?;
    Ok(if object["clean"] == Value::Bool(true) { Outcome::Done } else { Outcome::Refused })
}

/// Whoever watches wants each event now.
fn watch(connection: &mut Connection, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    let params: &[&str] = if json { &["--json"] } else { &[] };
    connection.stream("sluice/watch", params, &mut |text| {
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
    })
}
