//! Verbs: devices, registered memory, queue pairs and completions, as safe types over libibverbs.
//!
//! - Each handle keeps what it was made of, so that objects are destroyed in the order of their dependencies, whoever drops them first.
//! - Memory that the device may write is owned by whom it was handed to: a [`Buffer`] that is posted belongs to the queue pair until its
//!   completion brings it back.
//! - A [`QueuePair`] that is dropped fails first, and waits until all that it has outstanding has come back ([`QueuePair`]).
//!
//! libibverbs has locks of its own for all that is called here, so handles may be used by several threads.

#![allow(unsafe_code)]

mod channel;
mod completion;
mod completions;
mod context;
mod error;
mod external;
mod failure;
mod gid;
mod memory;
mod mtu;
mod outstanding;
mod pair;
mod request;
mod shared_memory;
mod shared_receives;
mod state;

pub use self::channel::CompletionChannel;
pub use self::completion::{Completion, Outcome, Received, Sent};
pub use self::completions::CompletionQueue;
pub use self::context::{Context, LinkLayer, Port, devices};
pub use self::error::CallError;
pub(crate) use self::error::{done, made};
pub(crate) use self::external::{ExternalMemory, ExternalRegion, Piece};
pub use self::failure::{Failure, Reason};
pub use self::gid::{Gid, GidEntry, GidKind};
pub use self::memory::{Buffer, ProtectionDomain};
pub use self::mtu::Mtu;
pub use self::pair::{Ece, QueuePair, Receives, Room};
pub use self::request::{Operation, Payload, PostError, ReceiveRequest, Remote, SendRequest};
pub use self::shared_memory::SharedMemory;
pub use self::shared_receives::SharedReceives;
pub use self::state::{Access, Connect, Path, PathOptions, Psn, Retries, State};
