//! The connection manager as a way to connect.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use tokio::task::JoinSet;
use tracing::debug;

use super::channel::Mode;
use super::connect::{Established, Listener, Request, Settings, connect};
use super::error::CmError;
use super::event::EventKind;
use super::identifier::Identifier;
use crate::addresses::{connect_any, resolve};
use crate::connection::{ConnectError, Connection, Connector, DeviceGone, Gone, Left, Local};

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
        connect_any(addresses, self.settings.again, attempt).await
    }
}

async fn attempt(
    address: SocketAddr,
    name: String,
    local: Local,
    settings: Settings,
) -> Result<Connection, ConnectError> {
    let mut end = local.unconnected()?;
    let receives = end.receives();
    let connected = connect((address, Mode::Reactor), (local.context(), end.pair()), receives, &settings).await;
    let Established { agreed, identifier } = connected.map_err(|error| failed(&name, error))?;
    Ok(end.connected(agreed, name, gone(identifier)))
}

/// Takes connections that [`Dialer`]s ask for, as many as there are places for, and tells each other one why it is rejected. One that asks and
/// then says nothing holds up no other, nor does one that has given up its request.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    address: String,
    settings: Settings,
    /// Without an outcome where nobody waits for one any more.
    begun: JoinSet<Option<Result<Connection, ConnectError>>>,
}

impl Acceptor {
    /// Listens at an address, in the reactor of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// Fails if that address cannot be listened at.
    pub async fn bind(address: &str, settings: Settings) -> Result<Self, ConnectError> {
        let unknown = || ConnectError::Address { address: address.to_owned(), source: io::ErrorKind::NotFound.into() };
        let first = resolve(address, settings.patience).await?.first().copied().ok_or_else(unknown)?;
        let failed = |error: crate::verbs::CallError| failed(address, error.into());
        let listener = Listener::bind(first, Mode::Reactor).map_err(failed)?;
        Ok(Self { listener, address: address.to_owned(), settings, begun: JoinSet::new() })
    }

    /// The port that it listens at.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listener.port()
    }
}

impl Connector for Acceptor {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        loop {
            tokio::select! {
                Some(Ok(answered)) = self.begun.join_next() => {
                    if let Some(outcome) = answered {
                        return outcome;
                    }
                }
                asked = self.listener.next(None) => {
                    let request = asked.map_err(|error| failed(&self.address, error))?;
                    self.begun.spawn(answer(request, local.clone(), self.settings));
                }
            }
        }
    }
}

async fn answer(request: Request, local: Local, settings: Settings) -> Option<Result<Connection, ConnectError>> {
    let peer = request.peer().map_or_else(|| "a peer without an IP address".to_owned(), |peer| peer.to_string());
    let place = match local.place() {
        Ok(place) => place,
        Err(full) => {
            refuse(&request, &peer, &full);
            return Some(Err(failed(&peer, full.into())));
        }
    };
    let mut end = match local.unconnected() {
        Ok(end) => end.keeping(place),
        Err(error) => {
            refuse(&request, &peer, &error);
            return Some(Err(error.into()));
        }
    };
    let receives = end.receives();
    match request.accept((local.context(), end.pair()), receives, &settings).await {
        Ok(Established { agreed, identifier }) => Some(Ok(end.connected(agreed, peer, gone(identifier)))),
        Err(CmError::GivenUp) => {
            debug!("{peer}: {}", CmError::GivenUp);
            None
        }
        Err(error) => Some(Err(failed(&peer, error))),
    }
}

/// Tells who asks why there is no connection.
fn refuse(request: &Request, peer: &str, why: &dyn Display) {
    // Who has given up its request needs no answer.
    if let Err(error) = request.refuse(&why.to_string()) {
        debug!("{peer} was not told that {why}: {error}");
    }
}

fn failed(peer: &str, error: CmError) -> ConnectError {
    let address = peer.to_owned();
    match error {
        CmError::Unresolved { kind, source } => {
            ConnectError::Address { address, source: io::Error::new(source.kind(), format!("{kind}: {source}")) }
        }
        CmError::Call(error) if error.call.starts_with("rdma_") => {
            ConnectError::Address { address, source: io::Error::new(error.source.kind(), error.to_string()) }
        }
        CmError::Call(error) => error.into(),
        CmError::Failed { kind: kind @ EventKind::DeviceRemoval, .. } => DeviceGone(kind.to_string()).into(),
        error => ConnectError::Peer { peer: address, source: error.into() },
    }
}

/// Ends when the other end disconnects, which the kernel does for a process that is killed, or when the device is removed.
fn gone(identifier: Identifier) -> Gone {
    Box::pin(async move {
        loop {
            match identifier.event(None).await {
                Ok((event, _)) => match event.kind {
                    EventKind::Disconnected => return Left::Peer(event.kind.to_string()),
                    EventKind::DeviceRemoval => return DeviceGone(event.kind.to_string()).into(),
                    _ => {}
                },
                Err(error) => return Left::Peer(error.to_string()),
            }
        }
    })
}
