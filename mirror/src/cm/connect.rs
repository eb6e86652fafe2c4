//! The ways of both ends to a connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::channel::Mode;
use super::error::CmError;
use super::event::EventKind;
use super::identifier::{Identifier, Initial};
use super::rejection::rejection;
use crate::terms::{Agreed, Terms};
use crate::verbs::{Access, CallError, Context, QueuePair, ReceiveRequest, Retries};

/// What an end is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What it offers.
    pub terms: Terms,
    /// Features that the other end must have.
    pub required: u32,
    /// What the other side may do with memory of which it has the key.
    pub access: Access,
    /// As [`Connect::min_rnr_timer`](crate::verbs::Connect::min_rnr_timer), which the connection manager would leave at 655 ms.
    pub min_rnr_timer: u8,
    /// As [`Retries::timeout`], which the connection manager would set to 2.1 s, for eight times.
    pub timeout: u8,
    /// As [`Retries::retries`].
    pub retries: u8,
    /// As [`Retries::rnr_retries`].
    pub rnr_retries: u8,
    /// For how long all of it may take.
    pub patience: Duration,
    /// After how long another attempt is begun beside those that are under way, of which the first that is done counts. The kernel repeats
    /// a request that was lost after 4 s only.
    pub again: Duration,
}

/// A connection, whose queue pair is in RTS.
#[derive(Debug)]
pub struct Established {
    /// What both ends agreed on.
    pub agreed: Agreed,
    /// Tells that the other end disconnects, and disconnects when it is dropped.
    pub identifier: Identifier,
}

/// Listens at an address.
#[derive(Debug)]
pub struct Listener(Identifier);

/// Somebody who asks for a connection. Dropping it rejects it without a reason.
#[derive(Debug)]
pub struct Request {
    identifier: Identifier,
    private_data: Vec<u8>,
    remote: u32,
}

/// Connects a queue pair in RESET with one at an address, where a [`Listener`] is. The receive requests are posted before the other end
/// knows the queue pair, so that whatever it sends finds one.
///
/// # Errors
/// Fails as [`CmError`] says. The queue pair may then be in any state up to RTS.
pub async fn connect(
    (address, mode): (SocketAddr, Mode),
    (context, pair): (&Context, &QueuePair),
    receives: Vec<ReceiveRequest>,
    settings: &Settings,
) -> Result<Established, CmError> {
    let deadline = Instant::now() + settings.patience;
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut identifier = Identifier::new(mode)?;
    identifier.resolve_address(address, left())?;
    identifier.expect(EventKind::AddressResolved, deadline).await?;
    is_of(context, &identifier)?;
    identifier.resolve_route(left())?;
    identifier.expect(EventKind::RouteResolved, deadline).await?;

    initialize(&identifier, pair, receives, settings)?;
    offer(&identifier, pair)?;
    identifier.connect(pair.number(), &settings.terms.bytes())?;
    let response = identifier.expect(EventKind::ConnectResponse, deadline).await?;
    let terms = match agreed(&response.private_data, settings) {
        Ok(terms) => terms,
        Err(error) => {
            identifier.reject(&rejection(&error.words()))?;
            return Err(error);
        }
    };
    take_options(&identifier, pair)?;
    transit(&identifier, pair, settings)?;
    identifier.establish()?;
    Ok(Established { agreed: Agreed { terms, remote: response.remote }, identifier })
}

impl Listener {
    /// Listens at an address; port 0 is any that is free.
    ///
    /// # Errors
    /// Fails if the address cannot be listened at.
    pub fn bind(address: SocketAddr, mode: Mode) -> Result<Self, CallError> {
        const BACKLOG: u16 = 128;
        let identifier = Identifier::new(mode)?;
        identifier.bind(address)?;
        identifier.listen(BACKLOG)?;
        Ok(Self(identifier))
    }

    /// The port that it listens at.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.local_port()
    }

    /// Waits for the next who asks for a connection. Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// Fails if the device is removed, at the deadline, or as `rdma_get_cm_event` fails.
    pub async fn next(&self, deadline: Option<Instant>) -> Result<Request, CmError> {
        loop {
            match self.0.event(deadline).await? {
                (event, Some(identifier)) => {
                    let (private_data, remote) = (event.private_data, event.remote);
                    return Ok(Request { identifier, private_data, remote });
                }
                (event, None) if event.kind == EventKind::DeviceRemoval => return Err(CmError::of(event)),
                _ => {}
            }
        }
    }
}

impl Request {
    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.identifier.peer()
    }

    /// The identifier of the connection that is asked for.
    #[must_use]
    pub fn identifier(&self) -> &Identifier {
        &self.identifier
    }

    /// Rejects it, for this reason.
    ///
    /// # Errors
    /// As `rdma_reject` fails.
    pub fn refuse(&self, words: &str) -> Result<(), CallError> {
        self.identifier.reject(&rejection(words))
    }

    /// Connects a queue pair in RESET with that of who asks, as [`connect`] does at the other end.
    ///
    /// # Errors
    /// As [`connect`], or with [`CmError::GivenUp`]. The other end is told why.
    pub async fn accept(
        self,
        (context, pair): (&Context, &QueuePair),
        receives: Vec<ReceiveRequest>,
        settings: &Settings,
    ) -> Result<Established, CmError> {
        let deadline = Instant::now() + settings.patience;
        let terms = match self.prepare((context, pair), receives, settings) {
            Ok(terms) => terms,
            Err(error) => {
                // If the other end cannot be told, it is rejected without a reason.
                let _ = self.refuse(&error.words());
                return Err(error);
            }
        };
        let Self { mut identifier, remote, .. } = self;
        identifier.accept(pair.number(), &settings.terms.bytes()).map_err(given_up)?;
        match identifier.expect(EventKind::Established, deadline).await {
            Ok(_) => Ok(Established { agreed: Agreed { terms, remote }, identifier }),
            // An end that does not like the answer has words for that.
            Err(CmError::Rejected(_)) => Err(CmError::GivenUp),
            Err(error) => Err(error),
        }
    }

    /// Does all that comes before the other end is answered, and returns the terms that both have.
    fn prepare(
        &self,
        (context, pair): (&Context, &QueuePair),
        receives: Vec<ReceiveRequest>,
        settings: &Settings,
    ) -> Result<Terms, CmError> {
        let Self { identifier, private_data, .. } = self;
        is_of(context, identifier)?;
        let terms = agreed(private_data, settings)?;
        initialize(identifier, pair, receives, settings).map_err(given_up)?;
        take_options(identifier, pair)?;
        transit(identifier, pair, settings).map_err(given_up)?;
        // With the options that the device has taken of those that were offered.
        offer(identifier, pair)?;
        Ok(terms)
    }
}

/// Of a request that was given up only calls that fail tell: until it is accepted, the kernel keeps its events to itself
/// (`ucma_event_handler` in `drivers/infiniband/core/ucma.c`).
fn given_up(error: CallError) -> CmError {
    let is_of_request = matches!(error.call, "rdma_init_qp_attr" | "rdma_accept");
    if is_of_request && error.source.raw_os_error() == Some(libc::EINVAL) { CmError::GivenUp } else { error.into() }
}

/// A queue pair of one device cannot be connected by a path of another.
fn is_of(context: &Context, identifier: &Identifier) -> Result<(), CmError> {
    let (found, used) = (identifier.device().unwrap_or_default(), context.name());
    if found == used { Ok(()) } else { Err(CmError::Device { found, used }) }
}

fn initialize(
    identifier: &Identifier,
    pair: &QueuePair,
    receives: Vec<ReceiveRequest>,
    settings: &Settings,
) -> Result<(), CallError> {
    let Initial { port, partition } = identifier.initial()?;
    pair.initialize_in(partition, port, settings.access)?;
    pair.receive(receives).map_err(|refused| refused.error)
}

/// Not every device has options.
fn offer(identifier: &Identifier, pair: &QueuePair) -> Result<(), CallError> {
    pair.ece().ok().filter(|ece| ece.vendor != 0).map_or(Ok(()), |ece| identifier.set_local_ece(ece))
}

/// Those of another vendor mean nothing to this device.
fn take_options(identifier: &Identifier, pair: &QueuePair) -> Result<(), CallError> {
    let own = pair.ece().ok();
    match identifier.remote_ece()? {
        Some(theirs) if own.is_some_and(|own| own.vendor == theirs.vendor) => pair.set_ece(theirs),
        _ => Ok(()),
    }
}

/// Checks the terms of the other end.
fn agreed(private_data: &[u8], settings: &Settings) -> Result<Terms, CmError> {
    let agreed = Terms::parse(private_data).and_then(|theirs| settings.terms.agree(theirs, settings.required));
    agreed.map_err(CmError::Refused)
}

/// Brings a queue pair from INIT to RTS.
fn transit(identifier: &Identifier, pair: &QueuePair, settings: &Settings) -> Result<(), CallError> {
    pair.connect(&identifier.connected(settings.min_rnr_timer)?)?;
    let Settings { timeout, retries, rnr_retries, .. } = *settings;
    pair.start(&Retries { psn: identifier.first_psn()?, timeout, retries, rnr_retries })
}
