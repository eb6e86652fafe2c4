//! An end that is named and may have several addresses: of IPv6 and of IPv4, or of several networks, of which one leads there.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::ConnectError;

/// Looks up all addresses of a name or number, a colon and a port; there is at least one.
pub(crate) async fn resolve(address: &str, patience: Duration) -> Result<Vec<SocketAddr>, ConnectError> {
    let unknown = |source| ConnectError::Address { address: address.to_owned(), source };
    let found = timeout(patience, lookup_host(address)).await;
    let found: Vec<_> = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unknown)?.collect();
    if found.is_empty() { Err(unknown(io::ErrorKind::NotFound.into())) } else { Ok(found) }
}

/// Connects to the first address that takes the connection. The next one is tried as soon as one has failed, and also beside those that are
/// under way for so long: the first again once each had its turn.
///
/// # Errors
/// Fails once each address has failed, with the reason of an end that is there, if there was one; and at once if the device is gone.
pub(crate) async fn connect_any<C, F>(
    addresses: Vec<SocketAddr>,
    again: Duration,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<C, ConnectError>
where
    C: Send + 'static,
    F: Future<Output = Result<C, ConnectError>> + Send + 'static,
{
    let mut left = VecDeque::from(addresses);
    let mut attempts = JoinSet::new();
    let mut refused = ConnectError::Address { address: String::new(), source: io::ErrorKind::NotFound.into() };
    let mut is_due = true;
    loop {
        if is_due {
            let Some(address) = left.front().copied() else { return Err(refused) };
            left.rotate_left(1);
            let attempt = attempt(address);
            attempts.spawn(async move { (address, attempt.await) });
        }
        tokio::select! {
            Some(Ok((address, outcome))) = attempts.join_next() => match outcome {
                Ok(connection) => return Ok(connection),
                Err(gone @ ConnectError::Device(_)) => return Err(gone),
                Err(error) => {
                    // Of one that was tried twice, the first outcome counts.
                    is_due = left.contains(&address);
                    left.retain(|other| *other != address);
                    // An end that says why it refuses tells more than an address where nobody is.
                    if !matches!(refused, ConnectError::Peer { .. }) {
                        refused = error;
                    }
                }
            },
            () = sleep(again) => is_due = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const AGAIN: Duration = Duration::from_millis(1);

    /// Ports are what becomes of an attempt there.
    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|port| SocketAddr::from(([192, 0, 2, 1], *port))).collect()
    }

    const TAKES: u16 = 1;
    const REFUSES: u16 = 2;
    const NOBODY: u16 = 3;
    const SILENT: u16 = 4;

    async fn attempt(address: SocketAddr) -> Result<u16, ConnectError> {
        match address.port() {
            TAKES => Ok(TAKES),
            REFUSES => Err(ConnectError::Peer { peer: "there".to_owned(), source: "full".into() }),
            NOBODY => Err(ConnectError::Address {
                address: "there".to_owned(),
                source: io::ErrorKind::ConnectionRefused.into(),
            }),
            _ => pending().await,
        }
    }

    async fn outcome(ports: &[u16]) -> Result<u16, String> {
        connect_any(addresses(ports), AGAIN, attempt).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn whatever_becomes_of_one_address_another_one_that_takes_the_connection_is_found() {
        for ports in
            [&[TAKES][..], &[REFUSES, TAKES], &[NOBODY, REFUSES, TAKES], &[SILENT, TAKES], &[SILENT, NOBODY, TAKES]]
        {
            assert_eq!(outcome(ports).await, Ok(TAKES), "{ports:?}");
        }
    }

    #[tokio::test]
    async fn once_all_have_failed_the_reason_of_an_end_that_is_there_is_told() {
        assert_eq!(outcome(&[NOBODY]).await, Err("there: connection refused".to_owned()));
        for ports in [&[REFUSES][..], &[NOBODY, REFUSES], &[REFUSES, NOBODY]] {
            assert_eq!(outcome(ports).await, Err("there: full".to_owned()), "{ports:?}");
        }
    }

    #[tokio::test]
    async fn an_attempt_that_hangs_is_not_waited_for() {
        let attempts = AtomicUsize::new(0);
        let second_takes = |_| {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            attempt(addresses(&[if number == 0 { SILENT } else { TAKES }])[0])
        };
        assert!(matches!(connect_any(addresses(&[TAKES]), AGAIN, second_takes).await, Ok(TAKES)));
    }
}
