//! The way to the agent.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::error::CliError;
use crate::run_dir::control_socket;
use crate::unixctl::{Asked, Client, ClientError};

/// How long the agent may be silent over a request with a short answer: well beyond what it waits for a device itself.
const SILENCE: Duration = Duration::from_secs(120);

/// A connection to the agent of a run folder.
pub(super) struct Connection {
    client: Client,
    /// A second handle on the socket, to hang up in the middle of an answer.
    line: UnixStream,
}

impl Connection {
    pub(super) fn open(run_dir: &Path) -> Result<Self, CliError> {
        let socket = control_socket(run_dir);
        let opened = UnixStream::connect(&socket).and_then(|stream| Ok((stream.try_clone()?, stream)));
        let (line, stream) = opened.map_err(|source| CliError::NoAgent { socket, source })?;
        Ok(Self { client: Client::over(stream), line })
    }

    /// Runs a command with a short answer.
    pub(super) fn text(&mut self, method: &str, params: &[&str]) -> Result<String, CliError> {
        self.text_within(SILENCE, method, params)
    }

    /// Runs a command with a short answer, of which each piece may take so long.
    pub(super) fn text_within(&mut self, limit: Duration, method: &str, params: &[&str]) -> Result<String, CliError> {
        self.client.set_timeout(Some(limit)).map_err(ClientError::Transport)?;
        Ok(self.client.call_text(method, params)?)
    }

    /// Sends a command with a short answer, which is read later: in the order in which commands were sent.
    pub(super) fn ask(&mut self, method: &str, params: &[&str]) -> Asked {
        self.client.ask(method, params)
    }

    /// Reads the answer to a command.
    pub(super) fn answer(&mut self, asked: Asked) -> Result<String, CliError> {
        let mut answer = String::new();
        self.client.set_timeout(Some(SILENCE)).map_err(ClientError::Transport)?;
        self.client.answer(asked, &mut |text| answer.push_str(text))?;
        Ok(answer)
    }

    /// Runs a command and takes its answer piece by piece. The first error of `on_text` ends it: a dump of a million
    /// flows, or a watch, shall not go on after its reader is gone.
    pub(super) fn stream(
        &mut self,
        method: &str,
        params: &[&str],
        on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut failure = None;
        let Self { client, line } = self;
        // A watch may be silent for as long as nothing happens.
        client.set_timeout(None).map_err(ClientError::Transport)?;
        let result = client.call(method, params, &mut |text| {
            if failure.is_none()
                && let Err(error) = on_text(text)
            {
                failure = Some(error);
                // If it fails, the agent has closed already.
                line.shutdown(Shutdown::Both).unwrap_or_default();
            }
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    }

    /// Runs a command and takes its answer line by line, without the ends of the lines.
    pub(super) fn lines(
        &mut self,
        method: &str,
        params: &[&str],
        on_line: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut partial = String::new();
        self.stream(method, params, &mut |text| {
            let mut rest = text;
            while let Some((line, after)) = rest.split_once('\n') {
                rest = after;
                if partial.is_empty() {
                    on_line(line)?;
                } else {
                    partial.push_str(line);
                    on_line(&partial)?;
                    partial.clear();
                }
            }
            partial.push_str(rest);
            Ok(())
        })?;
        if partial.is_empty() { Ok(()) } else { on_line(&partial) }
    }

    /// Runs a command and writes its answer as it comes.
    pub(super) fn print(&mut self, method: &str, params: &[&str], out: &mut dyn Write) -> Result<(), CliError> {
        self.stream(method, params, &mut |text| out.write_all(text.as_bytes()).map_err(CliError::Output))
    }
}
