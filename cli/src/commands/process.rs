//! Commands about the agent itself.

use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_control::control_socket;

use crate::command::{Agent, Outcome, Request, Run};
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
    /// Leave nothing of it in the device, whatever on_exit says: no rule, no mirror, nothing made for ports and meters
    #[arg(long)]
    cleanup: bool,
}

impl Run for Exit {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let cleanup = self.cleanup.then(|| "--cleanup".to_owned());
        agent.print("exit", cleanup.as_slice(), out)?;
        until_gone(&control_socket(&agent.run_dir), agent.patience)
    }
}

/// Waits until the agent has removed its socket, which is among the last things that it does.
fn until_gone(socket: &Path, limit: Option<Duration>) -> Result<Outcome, CliError> {
    let began = Instant::now();
    while socket.exists() {
        if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
            return Err(CliError::Refused(format!("sluice: the agent has not ended in order after {limit:?}")));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(Outcome::Done)
}
