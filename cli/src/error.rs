//! What can go wrong on the side of the command line.

use std::io;
use std::path::{Path, PathBuf};

use sluice_control::ClientError;

/// Why a command was not done. What it prints is the whole text for standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("sluice: {}", unreachable(socket, .source))]
    NoAgent { socket: PathBuf, source: io::Error },
    /// In the agent's words.
    #[error("{0}")]
    Refused(String),
    #[error("sluice: {}", reason(.0))]
    Lost(io::Error),
    #[error("sluice: {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("sluice: cannot write the output ({})", reason(.0))]
    Output(io::Error),
    /// Agent and command line are of different versions, most likely.
    #[error("sluice: the answer of the agent to {method} is not understood: {answer}")]
    Answer { method: &'static str, answer: String },
}

impl CliError {
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: reason(error) }
    }

    pub(crate) fn answer(method: &'static str, answer: &str) -> Self {
        Self::Answer { method, answer: answer.chars().take(200).collect() }
    }

    /// Whether nobody reads the output any more, as with `| head`, which is no failure.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(_) => Self::Refused(error.to_string()),
            ClientError::Transport(error) => Self::Lost(error),
        }
    }
}

/// What the system says, without the number that Rust puts behind it.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Why the control socket cannot be connected to.
fn unreachable(socket: &Path, error: &io::Error) -> String {
    let (socket, reason) = (socket.display(), reason(error));
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no agent at {socket} ({reason}); is sluiced running?")
        }
        io::ErrorKind::PermissionDenied => {
            format!("no access to {socket} ({reason}): root, the agent's user and the socket's group may use it")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!(
                "the agent at {socket} takes no connection in time; is it stopped? (--timeout says how long to wait)"
            )
        }
        _ => format!("cannot connect to {socket} ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_may_not_be_used_is_not_said_to_be_none() {
        let said = |kind: io::ErrorKind| {
            CliError::NoAgent { socket: PathBuf::from("/run/x.ctl"), source: kind.into() }.to_string()
        };
        assert_eq!(
            said(io::ErrorKind::NotFound),
            "sluice: no agent at /run/x.ctl (entity not found); is sluiced running?"
        );
        let denied = said(io::ErrorKind::PermissionDenied);
        assert!(denied.starts_with("sluice: no access to /run/x.ctl (permission denied): root, "), "{denied}");
    }
}
