//! The ways to connect, by configuration.

use std::time::Duration;

use sluice_control::mirror::Plan;
use tokio::sync::watch;

use super::config::{Shared, Way};
use crate::connection::{ConnectError, Connection, Connector, Local};
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
        let address = self.address().await;
        match self.shared.connect {
            Way::Cm => cm::Dialer { address, settings: by_cm(false) }.next(local).await,
            Way::Socket => exchange::Dialer { address, settings: by_socket(&self.shared, false) }.next(local).await,
        }
    }
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
