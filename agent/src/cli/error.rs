//! What can go wrong on the side of the command line.

use std::io;
use std::path::{Path, PathBuf};

use crate::unixctl::ClientError;

/// Why a command was not done. What it prints is the whole text for standard error.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error("sluice: no agent at {} ({}){}", socket.display(), reason(.source), hint(.source))]
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
    pub(super) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: reason(error) }
    }

    pub(super) fn answer(method: &'static str, answer: &str) -> Self {
        Self::Answer { method, answer: answer.chars().take(200).collect() }
    }

    /// Whether nobody reads the output any more, as with `| head`, which is no failure.
    pub(super) fn is_broken_pipe(&self) -> bool {
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
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "; is sluiced running?",
        _ => "",
    }
}
