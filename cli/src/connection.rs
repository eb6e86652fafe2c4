//! The way to the agent.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sluice_control::{Asked, Client, ClientError, IDLE_LIMIT, control_socket};

use crate::error::CliError;

/// A connection to the agent of a run folder, made anew after a long pause between two requests.
pub(crate) struct Connection {
    socket: PathBuf,
    limit: Option<Duration>,
    client: Client,
    /// A second handle on the socket, to hang up in the middle of an answer.
    line: UnixStream,
    /// Requests whose answers are still to be read.
    unanswered: usize,
    /// When the last request was sent, or the connection made.
    used: Instant,
    /// How long the agent certainly keeps it after that.
    kept_for: Duration,
}

impl Connection {
    /// Connects. An agent that shows no sign of life for so long is given up; one that works on a request is not, however long that
    /// takes.
    pub(crate) fn open(run_dir: &Path, limit: Option<Duration>) -> Result<Self, CliError> {
        let socket = control_socket(run_dir);
        let (client, line) = open(&socket, limit)?;
        // Well before the agent closes it, lest it does so while a request is on its way.
        let kept_for = IDLE_LIMIT / 2;
        Ok(Self { socket, limit, client, line, unanswered: 0, used: Instant::now(), kept_for })
    }

    /// The next request ends the agent, which answers it last of all, and others not at all by then: no sign of life is asked for, and all
    /// that counts is that the answer comes in time.
    pub(crate) fn expect_end(&mut self) -> Result<(), CliError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let late = move || Err(io::Error::new(io::ErrorKind::TimedOut, not_ended(limit)));
        Ok(self.client.set_patience(limit, late).map_err(ClientError::Transport)?)
    }

    /// Whether the agent may have closed the connection, because it was idle for long. The next request is made over a new one, unless
    /// there are answers still to be read.
    pub(crate) fn may_be_closed(&self) -> bool {
        self.used.elapsed() >= self.kept_for
    }

    /// To be called before a request.
    fn renew(&mut self) -> Result<(), CliError> {
        if self.unanswered == 0 && self.may_be_closed() {
            (self.client, self.line) = open(&self.socket, self.limit)?;
        }
        self.used = Instant::now();
        Ok(())
    }

    /// Runs a command with a short answer.
    pub(crate) fn text(&mut self, method: &str, params: &[&str]) -> Result<String, CliError> {
        self.renew()?;
        Ok(self.client.call_text(method, params)?)
    }

    /// Sends a command with a short answer, which is read later: in the order in which commands were sent.
    pub(crate) fn ask(&mut self, method: &str, params: &[&str]) -> Result<Asked, CliError> {
        self.renew()?;
        self.unanswered += 1;
        Ok(self.client.ask(method, params))
    }

    /// Reads the answer to a command.
    pub(crate) fn answer(&mut self, asked: Asked) -> Result<String, CliError> {
        let mut answer = String::new();
        self.unanswered -= 1;
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
        self.renew()?;
        let mut failure = None;
        let Self { client, line, .. } = self;
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

/// What is said of an agent that was told to end and has not done so in this time.
pub(crate) fn not_ended(limit: Duration) -> String {
    format!("the agent has not ended in order after {limit:?}")
}

/// A client, and a second handle on its socket. An agent that shows no sign of life for so long is given up.
fn open(socket: &Path, limit: Option<Duration>) -> Result<(Client, UnixStream), CliError> {
    let opened = connect(socket, limit).and_then(|stream| Ok((stream.try_clone()?, stream)));
    let (line, stream) = opened.map_err(|source| CliError::NoAgent { socket: socket.to_owned(), source })?;
    let mut client = Client::over(stream);
    if let Some(limit) = limit {
        // Half of the time for the answer, half for a sign of life.
        let half = limit / 2;
        let socket = socket.to_owned();
        let patience = client.set_patience(half, move || {
            let dead = || {
                format!("no sign of life of the agent for {limit:?}; is it stopped? (--timeout says how long to wait)")
            };
            is_alive(&socket, half).then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, dead()))
        });
        patience.map_err(ClientError::Transport)?;
    }
    Ok((client, line))
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Has an agent answer so many requests on each of its connections, and close it then.
    fn with_agent(name: &str, answers: &'static [usize], play: impl FnOnce(Connection)) {
        let folder = std::env::temp_dir().join(format!("sluice-connection-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(control_socket(&folder)).unwrap();
        let agent = thread::spawn(move || {
            for count in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut requests = BufReader::new(stream.try_clone().unwrap());
                for id in 0..*count {
                    assert!(requests.read_until(b'}', &mut Vec::new()).unwrap() > 0);
                    write!(stream, "{{\"id\":{id},\"result\":\"{id}\",\"error\":null}}").unwrap();
                }
            }
        });
        play(Connection::open(&folder, None).unwrap());
        agent.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_request_after_a_long_pause_is_made_over_a_new_connection() {
        with_agent("pause", &[1, 2], |mut connection| {
            assert_eq!(connection.text("version", &[]).unwrap(), "0");
            connection.kept_for = Duration::ZERO;
            assert_eq!(connection.text("version", &[]).unwrap(), "0");
            connection.kept_for = IDLE_LIMIT;
            assert_eq!(connection.text("version", &[]).unwrap(), "1", "there was no pause");
        });
    }

    #[test]
    fn a_request_leaves_no_answer_behind_however_long_the_pause_was() {
        with_agent("behind", &[2], |mut connection| {
            let first = connection.ask("version", &[]).unwrap();
            connection.kept_for = Duration::ZERO;
            assert!(connection.may_be_closed());
            let second = connection.ask("version", &[]).unwrap();
            assert_eq!(connection.answer(first).unwrap(), "0");
            assert_eq!(connection.answer(second).unwrap(), "1");
        });
    }
    #[test]
    fn an_agent_that_ends_is_not_asked_for_a_sign_of_life_and_is_given_up_if_it_does_not_end_in_time() {
        let folder = std::env::temp_dir().join(format!("sluice-connection-{}-end", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(control_socket(&folder)).unwrap();
        let mut connection = Connection::open(&folder, Some(Duration::from_millis(50))).unwrap();
        let stream = listener.accept().unwrap();
        drop(listener);
        connection.expect_end().unwrap();
        let late = connection.text("exit", &[]).unwrap_err();
        assert_eq!(late.to_string(), "sluice: the agent has not ended in order after 50ms");
        drop(stream);
        fs::remove_dir_all(&folder).unwrap();
    }
}
