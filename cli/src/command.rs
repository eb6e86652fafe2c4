//! What a command is.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::connection::Connection;
use crate::error::CliError;

/// A command as it was typed.
pub(crate) trait Run {
    /// Does what it says.
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError>;
}

/// A command that is one request, whose answer is printed as it comes.
pub(crate) trait Request {
    /// The command of the control socket.
    const METHOD: &str;

    /// Its parameters.
    fn params(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<R: Request> Run for R {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        agent.print(R::METHOD, &self.params(), out)?;
        Ok(Outcome::Done)
    }
}

/// How a command that ran to its end came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Not all of it; which part has been printed.
    Refused,
}

/// The agent that a command is for.
pub(crate) struct Agent {
    pub(crate) run_dir: PathBuf,
    /// How long to wait for a sign of life; `None` is for ever.
    pub(crate) patience: Option<Duration>,
}

impl Agent {
    pub(crate) fn connect(&self) -> Result<Connection, CliError> {
        Connection::open(&self.run_dir, self.patience)
    }

    /// Makes a request and writes its answer as it comes.
    pub(crate) fn print(&self, method: &str, params: &[String], out: &mut dyn Write) -> Result<(), CliError> {
        let params: Vec<_> = params.iter().map(String::as_str).collect();
        self.connect()?.print(method, &params, out)
    }
}

/// The options that were given.
pub(crate) fn given<const N: usize>(options: [(bool, &str); N]) -> impl Iterator<Item = String> {
    options.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option.to_owned())
}
