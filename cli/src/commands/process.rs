//! Commands about the agent itself.

use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_control::control_socket;

use crate::command::{Agent, Outcome, Request, Run};
use crate::connection::not_ended;
use crate::error::CliError;

/// Between two looks: nothing tells of a socket that goes.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Apply the changed configuration file without losing a flow
#[derive(Debug, Args)]
pub(crate) struct Reload {}

impl Request for Reload {
    const METHOD: &str = "sluice/reload";
}

/// End the agent in order, and wait until it has ended
#[derive(Debug, Args)]
pub(crate) struct Exit {
    /// Leave nothing of it in the device, whatever on_exit says: no rule, no mirror, nothing made for ports and meters. If rules are left
    /// all the same, says how many, where and why, and exits with 2
    #[arg(long)]
    cleanup: bool,
}

impl Run for Exit {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let began = Instant::now();
        let mut connection = agent.connect()?;
        connection.expect_end()?;
        let options: &[&str] = if self.cleanup { &["--cleanup"] } else { &[] };
        connection.print("exit", options, out)?;
        until_gone(&control_socket(&agent.run_dir), agent.patience, began)
    }
}

/// Waits until the agent has removed its socket, which it does after its answer.
fn until_gone(socket: &Path, limit: Option<Duration>, began: Instant) -> Result<Outcome, CliError> {
    while socket.exists() {
        if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
            return Err(CliError::Refused(format!("sluice: {}", not_ended(limit))));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(Outcome::Done)
}
