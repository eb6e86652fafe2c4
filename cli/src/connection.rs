//! The way to the agent.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sluice_control::{Asked, Client, ClientError, control_socket};

use crate::error::CliError;

/// A connection to the agent of a run folder.
pub(crate) struct Connection {
    client: Client,
    /// A second handle on the socket, to hang up in the middle of an answer.
    line: UnixStream,
}

impl Connection {
    /// Connects. An agent that shows no sign of life for so long is given up; one that works on a request is not, however long that
    /// takes.
    pub(crate) fn open(run_dir: &Path, limit: Option<Duration>) -> Result<Self, CliError> {
        let socket = control_socket(run_dir);
        let opened = connect(&socket, limit).and_then(|stream| Ok((stream.try_clone()?, stream)));
        let (line, stream) = opened.map_err(|source| CliError::NoAgent { socket: socket.clone(), source })?;
        let mut client = Client::over(stream);
        if let Some(limit) = limit {
            // Half of the time for the answer, half for a sign of life.
            let half = limit / 2;
            let patience = client.set_patience(half, move || {
                let dead = || {
                    format!(
                        "no sign of life of the agent for {limit:?}; is it stopped? (--timeout says how long to wait)"
                    )
                };
                is_alive(&socket, half).then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, dead()))
            });
            patience.map_err(ClientError::Transport)?;
        }
        Ok(Self { client, line })
    }

    /// Runs a command with a short answer.
    pub(crate) fn text(&mut self, method: &str, params: &[&str]) -> Result<String, CliError> {
        Ok(self.client.call_text(method, params)?)
    }

    /// Sends a command with a short answer, which is read later: in the order in which commands were sent.
    pub(crate) fn ask(&mut self, method: &str, params: &[&str]) -> Asked {
        self.client.ask(method, params)
    }

    /// Reads the answer to a command.
    pub(crate) fn answer(&mut self, asked: Asked) -> Result<String, CliError> {
        let mut answer = String::new();
        self.client.answer(asked, &mut |text| answer.push_str(text))?;
        Ok(answer)
    }

    /// Runs a command and takes its answer piece by piece. The first error of `on_text` ends it: a dump of a million
    /// flows, or a watch, does not go on after its reader is gone.
    pub(crate) fn stream(
        &mut self,
        method: &str,
        params: &[&str],
        on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut failure = None;
        let Self { client, line } = self;
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
    pub(crate) fn lines(
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
    pub(crate) fn print(&mut self, method: &str, params: &[&str], out: &mut dyn Write) -> Result<(), CliError> {
        self.stream(method, params, &mut |text| out.write_all(text.as_bytes()).map_err(CliError::Output))
    }
}

/// Connects to a socket. That, too, may take long: until somebody takes the connection there is room for a few of them only.
fn connect(socket: &Path, limit: Option<Duration>) -> io::Result<UnixStream> {
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, limit)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

/// Whether the agent answers a request that takes it no time. That it refuses one is an answer, too.
fn is_alive(socket: &Path, limit: Duration) -> bool {
    let answer = connect(socket, Some(limit)).map_err(ClientError::Transport).and_then(|stream| {
        let mut client = Client::over(stream);
        client.set_timeout(Some(limit)).map_err(ClientError::Transport)?;
        client.call_text("version", &[])
    });
    matches!(answer, Ok(_) | Err(ClientError::Refused(_)))
}
