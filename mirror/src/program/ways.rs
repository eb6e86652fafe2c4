//! The ways to connect, by configuration.

use std::time::Duration;

use sluice_control::mirror::Plan;
use tokio::sync::watch;

use super::config::{Shared, Way};
use crate::connection::{ConnectError, Connection, Connector, Left, Local};
use crate::verbs::{Access, Psn};
use crate::{cm, exchange, wire};

/// 640 us until a message that met no receive request is sent again. There is none: credit is flow control.
const MIN_RNR_TIMER: u8 = 12;
/// 67 ms until a message without an answer is sent again.
const TIMEOUT: u8 = 14;
/// A cut link shows after seven times that. Soft-RoCE takes 7 for any number.
const RETRIES: u8 = 6;
/// A message that meets no receive request fails.
const RNR_RETRIES: u8 = 0;
const PATIENCE: Duration = Duration::from_secs(3);
/// What was lost of an attempt comes again after 4 s only, so that a link that is mended would be found late.
const AGAIN: Duration = Duration::from_millis(400);

/// A collector takes writes without bytes ([`wire::PROBE`]).
fn access(is_collector: bool) -> Access {
    Access { remote_write: is_collector }
}

fn by_cm(is_collector: bool) -> cm::Settings {
    cm::Settings {
        terms: wire::terms(),
        required: wire::FRAMES | wire::RING,
        access: access(is_collector),
        min_rnr_timer: MIN_RNR_TIMER,
        timeout: TIMEOUT,
        retries: RETRIES,
        rnr_retries: RNR_RETRIES,
        patience: PATIENCE,
        again: AGAIN,
    }
}

fn by_socket(shared: &Shared, is_collector: bool) -> exchange::Settings {
    exchange::Settings {
        terms: wire::terms(),
        required: wire::FRAMES | wire::RING,
        port: shared.port,
        gid_index: shared.gid_index,
        access: access(is_collector),
        psn: Psn::new(std::process::id()),
        min_rnr_timer: MIN_RNR_TIMER,
        timeout: TIMEOUT,
        retries: RETRIES,
        rnr_retries: RNR_RETRIES,
        patience: PATIENCE,
    }
}

/// Connects to the collector that the configuration names, or else the agent's plan.
pub(super) struct Dialer {
    collector: Option<String>,
    plan: watch::Receiver<Option<Plan>>,
    shared: Shared,
}

impl Dialer {
    pub(super) fn new(collector: Option<String>, plan: watch::Receiver<Option<Plan>>, shared: Shared) -> Self {
        Self { collector, plan, shared }
    }

    async fn address(&mut self) -> String {
        if let Some(collector) = &self.collector {
            return collector.clone();
        }
        loop {
            let collector = self.plan.borrow_and_update().as_ref().map(|plan| plan.collector.clone());
            if let Some(collector) = collector.filter(|collector| !collector.is_empty()) {
                return collector;
            }
            if self.plan.changed().await.is_err() {
                // The sender ends.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Connector for Dialer {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        loop {
            let address = self.address().await;
            let mut other = Box::pin(other_collector(self.plan.clone(), address.clone(), self.collector.is_some()));
            tokio::select! {
                outcome = dial(address, &self.shared, local) => {
                    return outcome.map(|connection| leaving_for(other, connection));
                }
                // Nor is one waited for that does not answer.
                _ = &mut other => {}
            }
        }
    }
}

async fn dial(address: String, shared: &Shared, local: &Local) -> Result<Connection, ConnectError> {
    match shared.connect {
        Way::Cm => cm::Dialer { address, settings: by_cm(false) }.next(local).await,
        Way::Socket => exchange::Dialer { address, settings: by_socket(shared, false) }.next(local).await,
    }
}

/// Ends, with the reason in words, when the agent's plan names another collector than this, unless that is what the configuration names.
async fn other_collector(mut plan: watch::Receiver<Option<Plan>>, address: String, is_configured: bool) -> String {
    let is_other = |collector: &str| !is_configured && !collector.is_empty() && collector != address;
    if let Ok(plan) = plan.wait_for(|plan| plan.as_ref().is_some_and(|plan| is_other(&plan.collector))).await {
        let collector = plan.as_ref().map_or("", |plan| &plan.collector);
        return format!("the agent names another collector, {collector}");
    }
    // The sender ends.
    std::future::pending().await
}

/// A connection that is over also when `other` ends.
fn leaving_for(other: impl Future<Output = String> + Send + Unpin + 'static, mut connection: Connection) -> Connection {
    let gone = connection.gone;
    connection.gone = Box::pin(async {
        tokio::select! {
            left = gone => left,
            why = other => Left::Peer(why),
        }
    });
    connection
}

/// Listens for senders.
pub(super) enum Acceptor {
    Cm(cm::Acceptor),
    Socket(exchange::Acceptor),
}

impl Acceptor {
    pub(super) async fn bind(address: &str, shared: &Shared) -> Result<Self, ConnectError> {
        match shared.connect {
            Way::Cm => cm::Acceptor::bind(address, by_cm(true)).await.map(Self::Cm),
            Way::Socket => exchange::Acceptor::bind(address, by_socket(shared, true)).await.map(Self::Socket),
        }
    }
}

impl Connector for Acceptor {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        match self {
            Self::Cm(acceptor) => acceptor.next(local).await,
            Self::Socket(acceptor) => acceptor.next(local).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_collector_is_left_when_the_agent_names_another_one_and_the_configuration_none() {
        let (agent, plan) = watch::channel(None);
        let other = |is_configured| other_collector(plan.clone(), "192.0.2.1:4790".to_owned(), is_configured);
        let (mut told, mut configured) = (pin!(other(false)), pin!(other(true)));
        let mut context = Context::from_waker(Waker::noop());
        for collector in ["", "192.0.2.1:4790", ""] {
            agent.send_replace(Some(Plan { collector: collector.to_owned(), ..Plan::default() }));
            assert_eq!(told.as_mut().poll(&mut context), Poll::Pending, "{collector}");
        }
        agent.send_replace(Some(Plan { collector: "192.0.2.2:4790".to_owned(), ..Plan::default() }));
        let why = Poll::Ready("the agent names another collector, 192.0.2.2:4790".to_owned());
        assert_eq!(told.as_mut().poll(&mut context), why);
        assert_eq!(configured.as_mut().poll(&mut context), Poll::Pending);
    }
}
