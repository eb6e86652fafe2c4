//! Both ends of the exchange.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::error::ExchangeError;
use super::frame::{End, Frame};
use crate::terms::{Agreed, Terms};
use crate::verbs::{
    Access, CallError, Connect, Context, LinkLayer, Path, PathOptions, Psn, QueuePair, ReceiveRequest, Retries,
};

/// What an end is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What it offers.
    pub terms: Terms,
    /// Features that the other end must have.
    pub required: u32,
    /// Port of the device.
    pub port: u8,
    /// Place of the own GID in the port's table.
    pub gid_index: u8,
    /// What the other side may do with memory of which it has the key.
    pub access: Access,
    /// Number of the first packet that goes out.
    pub psn: Psn,
    /// As [`Connect::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// As [`Retries::timeout`].
    pub timeout: u8,
    /// As [`Retries::retries`].
    pub retries: u8,
    /// As [`Retries::rnr_retries`].
    pub rnr_retries: u8,
    /// For how long the whole exchange may take.
    pub patience: Duration,
}

/// Connects a queue pair in RESET with one of the other end, which calls [`accept`]. Both are ready to send when this returns. The receive
/// requests are posted before the other end knows the queue pair, so that whatever it sends finds one.
///
/// # Errors
/// Fails as [`ExchangeError`] says. The queue pair may then be in any state up to RTS.
pub async fn connect<S>(
    stream: &mut S,
    (context, pair): (&Context, &QueuePair),
    receives: Vec<ReceiveRequest>,
    settings: &Settings,
) -> Result<Agreed, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    in_time(settings, async {
        initialize(pair, receives, settings)?;
        Frame::Offer(settings.terms.bytes(), end(context, pair, settings)?).write(stream).await?;
        let (header, theirs) = match Frame::read(stream).await? {
            Frame::Answer(header, theirs) => (header, theirs),
            Frame::Refusal(reason) => return Err(ExchangeError::RefusedThere(reason)),
            _ => return Err(ExchangeError::Unexpected("no answer to the offer")),
        };
        let terms = agree(stream, settings, &header).await?;
        transit((context, pair), settings, &theirs)?;
        Frame::Ready.write(stream).await?;
        ready(stream).await?;
        Ok(Agreed { terms, remote: theirs.number })
    })
    .await
}

/// The same for the end that is connected to, by [`connect`].
///
/// # Errors
/// As [`connect`]. The other end is told why.
pub async fn accept<S>(
    stream: &mut S,
    (context, pair): (&Context, &QueuePair),
    receives: Vec<ReceiveRequest>,
    settings: &Settings,
) -> Result<Agreed, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    in_time(settings, async {
        let offered = Offered::read(stream, settings).await?;
        offered.accept(stream, (context, pair), receives, settings).await
    })
    .await
}

/// What the end that connects has offered: terms that are agreed to, and its queue pair.
pub(super) struct Offered {
    terms: Terms,
    theirs: End,
}

impl Offered {
    /// Reads the offer, for which no queue pair is needed yet.
    pub(super) async fn read(
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        settings: &Settings,
    ) -> Result<Self, ExchangeError> {
        match Frame::read(stream).await? {
            Frame::Offer(header, theirs) => Ok(Self { terms: agree(stream, settings, &header).await?, theirs }),
            _ => Err(ExchangeError::Unexpected("no offer")),
        }
    }

    /// Connects a queue pair with that of the offer, or tells the other end why not.
    pub(super) async fn accept(
        self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        (context, pair): (&Context, &QueuePair),
        receives: Vec<ReceiveRequest>,
        settings: &Settings,
    ) -> Result<Agreed, ExchangeError> {
        let Self { terms, theirs } = self;
        let prepared = initialize(pair, receives, settings)
            .and_then(|()| transit((context, pair), settings, &theirs))
            // With the options that the device has taken of those that were offered.
            .and_then(|()| end(context, pair, settings));
        let own = match prepared {
            Ok(own) => own,
            Err(error) => {
                refuse(stream, &error).await?;
                return Err(error.into());
            }
        };
        Frame::Answer(settings.terms.bytes(), own).write(stream).await?;
        ready(stream).await?;
        Frame::Ready.write(stream).await?;
        Ok(Agreed { terms, remote: theirs.number })
    }
}

fn initialize(pair: &QueuePair, receives: Vec<ReceiveRequest>, settings: &Settings) -> Result<(), CallError> {
    pair.initialize(settings.port, settings.access)?;
    pair.receive(receives).map_err(|refused| refused.error)
}

async fn in_time<T>(
    settings: &Settings,
    exchange: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    timeout(settings.patience, exchange).await.unwrap_or(Err(ExchangeError::Silence))
}

/// Checks the terms of the other end, and tells it why if they are refused.
async fn agree(
    stream: &mut (impl AsyncWrite + Unpin),
    settings: &Settings,
    header: &[u8],
) -> Result<Terms, ExchangeError> {
    let agreed = Terms::parse(header).and_then(|theirs| settings.terms.agree(theirs, settings.required));
    match agreed {
        Ok(terms) => Ok(terms),
        Err(refusal) => {
            refuse(stream, &refusal).await?;
            Err(ExchangeError::Refused(refusal))
        }
    }
}

/// Tells the other end why it is not connected.
pub(super) async fn refuse(stream: &mut (impl AsyncWrite + Unpin), why: &impl ToString) -> Result<(), ExchangeError> {
    Frame::Refusal(why.to_string()).write(stream).await
}

async fn ready(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), ExchangeError> {
    match Frame::read(stream).await? {
        Frame::Ready => Ok(()),
        Frame::Refusal(reason) => Err(ExchangeError::RefusedThere(reason)),
        _ => Err(ExchangeError::Unexpected("not that the other end is ready")),
    }
}

/// What the other side needs to know of a queue pair.
fn end(context: &Context, pair: &QueuePair, settings: &Settings) -> Result<End, CallError> {
    let port = context.port(settings.port)?;
    Ok(End {
        number: pair.number(),
        psn: settings.psn,
        lid: port.lid,
        mtu: port.mtu,
        gid: context.gid(settings.port, settings.gid_index.into())?.gid,
        // Not every device has options.
        ece: pair.ece().ok(),
    })
}

/// Brings a queue pair from INIT to RTS.
fn transit((context, pair): (&Context, &QueuePair), settings: &Settings, theirs: &End) -> Result<(), CallError> {
    if let Some(ece) = theirs.ece.filter(|theirs| pair.ece().is_ok_and(|own| own.vendor == theirs.vendor)) {
        pair.set_ece(ece)?;
    }
    let port = context.port(settings.port)?;
    // A subnet of InfiniBand has LIDs, and GIDs only lead out of it.
    let gid = (port.link_layer == LinkLayer::Ethernet).then_some((theirs.gid, settings.gid_index));
    const HOPS: u8 = 64;
    let path = Path {
        port: settings.port,
        lid: theirs.lid,
        gid,
        hop_limit: HOPS,
        traffic_class: 0,
        options: PathOptions::default(),
    };
    let mtu = port.mtu.min(theirs.mtu);
    let connect = Connect { remote: theirs.number, psn: theirs.psn, path, mtu, min_rnr_timer: settings.min_rnr_timer };
    pair.connect(&connect)?;
    let Settings { psn, timeout, retries, rnr_retries, .. } = *settings;
    pair.start(&Retries { psn, timeout, retries, rnr_retries })
}
