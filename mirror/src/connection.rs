//! A connected queue pair, however it was connected: what each way to connect hands to the sender and to the collector, which do not know
//! one way from the other.
//!
//! [`Local`] is what an end has of a device for as long as it runs, so that registered memory outlives connections. A [`Connector`] makes
//! an [`Unconnected`] queue pair of it, posts the receive requests that come with it in INIT, and connects it. Neither end ever meets an
//! empty receive queue: all requests are posted before the other end can know the queue pair.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

pub use crate::places::NoPlace;
use crate::places::{Place, Places};
use crate::terms::Agreed;
use crate::verbs::{
    CallError, CompletionChannel, CompletionQueue, Context, ProtectionDomain, QueuePair, ReceiveRequest, Receives, Room,
};

/// What an end has of a device for as long as it runs. Copies are of the same.
#[derive(Debug, Clone)]
pub struct Local {
    context: Context,
    domain: ProtectionDomain,
    capacity: Capacity,
    places: Places,
}

/// What each queue pair of an end has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Requests to send that are outstanding at a time.
    pub sends: u32,
    /// Buffers of each.
    pub send_segments: u32,
    /// Messages that can come in before one has been looked at.
    pub receives: u32,
    /// Bytes of the longest message that comes in.
    pub receive_bytes: usize,
}

impl Local {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn open(device: &str, capacity: Capacity) -> Result<Self, CallError> {
        let context = Context::open(device)?;
        let domain = ProtectionDomain::new(&context)?;
        Ok(Self { context, domain, capacity, places: Places::new(usize::MAX) })
    }

    /// Has it take so many connections at a time of those who ask. One more is refused before it is connected.
    #[must_use]
    pub fn limited_to(self, connections: usize) -> Self {
        Self { places: Places::new(connections), ..self }
    }

    /// Takes a place for a connection that is asked for, which [`Unconnected::keeping`] keeps.
    pub(crate) fn place(&self) -> Result<Place, NoPlace> {
        self.places.take()
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The domain of all queue pairs and of all memory of this end.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// What each of its queue pairs has room for.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Makes a queue pair, and the queue of all its completions, in the reactor of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// Fails outside of a runtime, or as `ibv_create_comp_channel`, `ibv_create_cq`, `ibv_create_qp` and `ibv_reg_mr` fail.
    pub fn unconnected(&self) -> Result<Unconnected, CallError> {
        let Capacity { sends, send_segments, receives, receive_bytes } = self.capacity;
        // A channel for each, for an event of one shared by all connections would wake those who wait for the others.
        let completions = CompletionQueue::with_events(&CompletionChannel::new(&self.context)?, sends + receives)?;
        let room = Room { sends, send_segments, inline: 0, receive_segments: 1 };
        let pair = QueuePair::new(&self.domain, (&completions, &completions), Receives::Own(receives), room)?;
        // One region for all, since each takes an entry of the device's table.
        let mut memory = self.domain.buffer(receive_bytes * usize::try_from(receives).unwrap_or(usize::MAX))?;
        let request = |tag| ReceiveRequest { tag, buffers: vec![memory.split_to(receive_bytes)] };
        Ok(Unconnected { pair, completions, requests: (0..receives.into()).map(request).collect(), place: None })
    }
}

/// A queue pair of an end that is not connected yet.
#[derive(Debug)]
pub struct Unconnected {
    pair: QueuePair,
    completions: CompletionQueue,
    requests: Vec<ReceiveRequest>,
    place: Option<Place>,
}

impl Unconnected {
    /// The queue pair, for those who connect it.
    #[must_use]
    pub fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Takes the receive requests, which are to be posted in INIT, while the other end does not know the queue pair yet.
    #[must_use]
    pub fn receives(&mut self) -> Vec<ReceiveRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Has it keep its place, until the connection is over.
    pub(crate) fn keeping(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Says that it is connected now, and in RTS.
    #[must_use]
    pub fn connected(self, agreed: Agreed, peer: String, gone: Gone) -> Connection {
        Connection { pair: self.pair, completions: self.completions, agreed, peer, gone, _place: self.place }
    }
}

/// Ends when the connection is known to be over, with what tells so; whatever has to stay open for as long as the connection lasts is in it.
pub type Gone = Pin<Box<dyn Future<Output = Left> + Send>>;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum Left {
    /// The other end has left, as this tells, or is to be left.
    #[error("{0}")]
    Peer(String),
    /// The device is gone.
    #[error(transparent)]
    Device(#[from] DeviceGone),
}

/// The RDMA device was removed, or does not answer any more. A device that comes back under its name is another one, of which this process
/// has nothing, so that only one that starts anew can use it.
#[derive(Debug, thiserror::Error)]
#[error("the RDMA device is gone, and one that comes back needs a new start: {0}")]
pub struct DeviceGone(pub String);

/// A connected queue pair, in RTS, with all its receive requests posted. Dropping it ends the connection.
pub struct Connection {
    /// The queue pair.
    pub pair: QueuePair,
    /// Where all its completions go.
    pub completions: CompletionQueue,
    /// What both ends agreed on.
    pub agreed: Agreed,
    /// The other end, as the log is to call it.
    pub peer: String,
    /// Tells that the connection is over, sooner than requests fail.
    pub gone: Gone,
    /// Free for another one afterwards.
    _place: Option<Place>,
}

/// What tells of a connection, apart from its queue pair.
pub struct Watched {
    /// Where all its completions go.
    pub completions: CompletionQueue,
    /// The other end, as the log is to call it.
    pub peer: String,
    /// Tells that the connection is over, sooner than requests fail.
    pub gone: Gone,
    /// Free for another one afterwards.
    _place: Option<Place>,
}

impl Connection {
    /// Takes the queue pair out, for one that shares it with another thread. The connection ends when that is dropped.
    #[must_use]
    pub fn split(self) -> (QueuePair, Watched) {
        let Self { pair, completions, peer, gone, _place, .. } = self;
        (pair, Watched { completions, peer, gone, _place })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").field("peer", &self.peer).field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

/// A way to connect.
pub trait Connector: Send {
    /// Returns the next connection: at the sender, one that is made now, by one attempt; at the collector, the next that somebody asks for.
    /// Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// Fails as [`ConnectError`] says. It can be called again: when, is up to the caller.
    fn next(&mut self, local: &Local) -> impl Future<Output = Result<Connection, ConnectError>> + Send;
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be reached, or not be listened at.
    #[error("{address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The other end is there, and the two did not come to terms.
    #[error("{peer}: {source}")]
    Peer {
        /// The other end.
        peer: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no queue pair to connect.
    #[error(transparent)]
    QueuePair(CallError),
    /// There never will be one.
    #[error(transparent)]
    Device(#[from] DeviceGone),
}

impl From<CallError> for ConnectError {
    fn from(error: CallError) -> Self {
        if error.is_of_dead_device() { Self::Device(DeviceGone(error.to_string())) } else { Self::QueuePair(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_to_a_device_that_was_removed_is_told_from_one_that_may_do_later() {
        let failed = |errno| ConnectError::from(CallError::new("ibv_create_cq", io::Error::from_raw_os_error(errno)));
        for errno in [libc::EIO, libc::ENODEV] {
            assert!(matches!(failed(errno), ConnectError::Device(_)), "{errno}");
        }
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::EINVAL] {
            assert!(matches!(failed(errno), ConnectError::QueuePair(_)), "{errno}");
        }
    }
}
