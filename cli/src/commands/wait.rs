//! `sluice wait`: for scripts and for whoever starts the agent in the background.
//!
//! An Open vSwitch user knows this from `ovsdb-client wait`. The daemon itself stays in the foreground, where systemd and a
//! container want it, and never forks.

use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_control::{READY, READY_COMMAND};

use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;

/// Between two looks: no event tells of a socket that another process is going to bind.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Wait until the agent is ready, such as after a start in the background
#[derive(Debug, Args)]
pub(crate) struct Wait {}

impl Run for Wait {
    fn run(&self, agent: &Agent, _: &mut dyn Write) -> Result<Outcome, CliError> {
        wait(&agent.run_dir, agent.patience).map(|()| Outcome::Done)
    }
}

/// Returns once the agent is ready. Fails with the last reason after `limit`, if there is one, and at once where waiting does not
/// help.
fn wait(run_dir: &Path, limit: Option<Duration>) -> Result<(), CliError> {
    let began = Instant::now();
    loop {
        // A time limit of zero would be none.
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()).max(BETWEEN_LOOKS));
        let not_yet = match look(run_dir, left) {
            Ok(answer) if answer.trim_end() == READY => return Ok(()),
            Ok(reason) => {
                let waited = limit.unwrap_or_else(|| began.elapsed());
                CliError::Refused(format!("sluice: not ready after {waited:?}: {}", reason.trim_end()))
            }
            Err(error) if may_pass(&error) => error,
            Err(error) => return Err(error),
        };
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            return Err(not_yet);
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

fn look(run_dir: &Path, limit: Option<Duration>) -> Result<String, CliError> {
    Connection::open(run_dir, limit)?.text(READY_COMMAND, &[])
}

/// Whether an agent that starts looks like this: no socket yet, the one of an agent that was killed, or one that closes.
fn may_pass(error: &CliError) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, TimedOut, UnexpectedEof, WouldBlock,
    };
    match error {
        CliError::NoAgent { source, .. } => matches!(source.kind(), NotFound | ConnectionRefused | WouldBlock),
        CliError::Lost(source) => {
            matches!(source.kind(), BrokenPipe | ConnectionReset | TimedOut | UnexpectedEof)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use sluice_control::control_socket;

    use super::*;

    #[test]
    fn an_agent_that_ends_before_it_takes_the_connection_is_no_reason_to_give_up() {
        let folder = std::env::temp_dir().join(format!("sluice-wait-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(control_socket(&folder)).unwrap();
        let mut connection = Connection::open(&folder, None).unwrap();
        drop(listener);
        let lost = connection.text(READY_COMMAND, &[]).unwrap_err();
        assert!(may_pass(&lost), "{lost}");
        let refused = Connection::open(&folder, None).err().unwrap();
        assert!(may_pass(&refused), "{refused}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
