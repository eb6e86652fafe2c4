//! A connection, by whatever way it has come.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::access::Caller;
use super::places::Place;

/// How long a client may take to say the first thing: from then on it is asked whether it is there.
const GREETING: Duration = Duration::from_secs(10);
/// Bytes of the preface of HTTP/2 (RFC 9113, section 3.4), before which nobody is asked anything.
const PREFACE: usize = 24;

/// A connection, and what is known of its client.
pub(super) struct Connection {
    io: Io,
    caller: Caller,
    greeting: Option<Greeting>,
    _place: Place,
}

pub(super) enum Io {
    Local(UnixStream),
    Remote(Box<TlsStream<TcpStream>>),
}

/// What is waited for of a client that has not said enough to be asked anything.
struct Greeting {
    deadline: Pin<Box<Sleep>>,
    missing: usize,
}

impl Connection {
    /// One that has just come, and its place among all.
    pub(super) fn new(io: Io, caller: Caller, place: Place) -> Self {
        let greeting = Some(Greeting { deadline: Box::pin(sleep(GREETING)), missing: PREFACE });
        Self { io, caller, greeting, _place: place }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Connection {
    /// Fails if the client says nothing for too long at first.
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, greeting, .. } = self.get_mut();
        let before = buffer.filled().len();
        let read = match io {
            Io::Local(stream) => Pin::new(stream).poll_read(context, buffer),
            Io::Remote(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if let Some(Greeting { deadline, missing }) = greeting {
            *missing = missing.saturating_sub(buffer.filled().len() - before);
            if *missing == 0 {
                *greeting = None;
            } else if deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Local(stream) => Pin::new(stream).poll_write(context, bytes),
            Io::Remote(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Local(stream) => Pin::new(stream).poll_flush(context),
            Io::Remote(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Local(stream) => Pin::new(stream).poll_shutdown(context),
            Io::Remote(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::api::access::Access;

    /// The agent's end of a connection, and the client's.
    fn pair() -> (Connection, UnixStream) {
        let (io, client) = UnixStream::pair().unwrap();
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        (Connection::new(Io::Local(io), Caller::new(Access::Nothing), place.into()), client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_begin_to_speak_has_no_place_for_long() {
        let (mut connection, mut client) = pair();
        client.write_all(&[b'P'; PREFACE - 1]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE - 1]).await.unwrap();
        assert_eq!(connection.read(&mut [0; 64]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_begun_to_speak_may_be_silent_for_long() {
        let (mut connection, mut client) = pair();
        client.write_all(&[b'P'; PREFACE]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE]).await.unwrap();
        let silence = async {
            sleep(GREETING * 10).await;
            client.write_all(b"x").await.unwrap();
        };
        let (read, ()) = tokio::join!(connection.read_u8(), silence);
        assert_eq!(read.unwrap(), b'x');
    }
}
