//! The exchange over TCP.

use std::io;
use std::net::SocketAddr;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::end::{Offered, Settings, connect, refuse};
use super::error::ExchangeError;
use crate::addresses::{connect_any, resolve};
use crate::connection::{ConnectError, Connection, Connector, Gone, Left, Local};

/// Connects to an address, where an [`Acceptor`] listens; of a name with several addresses, to any that takes the connection.
#[derive(Debug)]
pub struct Dialer {
    /// The address: a name or number, a colon and a port.
    pub address: String,
    /// What this end is configured with.
    pub settings: Settings,
}

impl Connector for Dialer {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        let addresses = resolve(&self.address, self.settings.patience).await?;
        let attempt = |address| attempt(address, self.address.clone(), local.clone(), self.settings);
        // By then an attempt has ended: nothing is repeated that TCP does not repeat by itself.
        connect_any(addresses, 3 * self.settings.patience, attempt).await
    }
}

async fn attempt(
    address: SocketAddr,
    peer: String,
    local: Local,
    settings: Settings,
) -> Result<Connection, ConnectError> {
    let unreachable = |source| ConnectError::Address { address: peer.clone(), source };
    // The kernel would go on for two minutes, and at the end ask only once in half of one.
    let connected = timeout(settings.patience, TcpStream::connect(address)).await;
    let mut stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
    let mut end = local.unconnected()?;
    let receives = end.receives();
    let agreed = connect(&mut stream, (local.context(), end.pair()), receives, &settings).await;
    let agreed = agreed.map_err(|source| ConnectError::Peer { peer: peer.clone(), source: source.into() })?;
    Ok(end.connected(agreed, peer, closed(stream)))
}

/// Takes connections that [`Dialer`]s ask for, as many as there are places for, and tells each other one why it is refused. One that says
/// nothing holds up no other, and has neither a place nor a queue pair.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    settings: Settings,
    begun: JoinSet<Result<Connection, ConnectError>>,
}

impl Acceptor {
    /// Listens at an address.
    ///
    /// # Errors
    /// Fails if that address cannot be listened at.
    pub async fn bind(address: &str, settings: Settings) -> Result<Self, ConnectError> {
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| ConnectError::Address { address: address.to_owned(), source })?;
        Ok(Self { listener, settings, begun: JoinSet::new() })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// As `getsockname` fails.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connector for Acceptor {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        loop {
            tokio::select! {
                Some(Ok(outcome)) = self.begun.join_next() => return outcome,
                asked = self.listener.accept() => {
                    let address = self.listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
                    let (stream, peer) = asked.map_err(|source| ConnectError::Address { address, source })?;
                    self.begun.spawn(answer(stream, peer, local.clone(), self.settings));
                }
            }
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    peer: SocketAddr,
    local: Local,
    settings: Settings,
) -> Result<Connection, ConnectError> {
    let peer = peer.to_string();
    let failed = |source: ExchangeError| ConnectError::Peer { peer: peer.clone(), source: source.into() };
    let answered = timeout(settings.patience, async {
        let offered = Offered::read(&mut stream, &settings).await.map_err(failed)?;
        let place = match local.place() {
            Ok(place) => place,
            Err(full) => {
                refuse(&mut stream, &full).await.map_err(failed)?;
                return Err(failed(full.into()));
            }
        };
        let mut end = match local.unconnected() {
            Ok(end) => end.keeping(place),
            Err(error) => {
                refuse(&mut stream, &error).await.map_err(failed)?;
                return Err(error.into());
            }
        };
        let receives = end.receives();
        let agreed = offered.accept(&mut stream, (local.context(), end.pair()), receives, &settings).await;
        Ok((agreed.map_err(failed)?, end))
    });
    let (agreed, end) = answered.await.unwrap_or_else(|_| Err(failed(ExchangeError::Silence)))?;
    Ok(end.connected(agreed, peer, closed(stream)))
}

/// Nothing more is said on the socket, but a process that ends closes it.
fn closed(mut stream: TcpStream) -> Gone {
    Box::pin(async move {
        Left::Peer(match stream.read(&mut [0]).await {
            Ok(0) => "the other end has closed its socket".to_owned(),
            Ok(_) => "the other end has sent something behind the exchange".to_owned(),
            Err(error) => format!("the socket to the other end: {error}"),
        })
    })
}
