//! How two ends connect by RDMA's connection manager (`rdma_cm(7)`): it finds device and path by IP address, and carries the terms of
//! both ends, and a reason if they do not fit, as private data.
//!
//! Queue pairs are not the connection manager's: it says what their transitions need, but for the two timers that it leaves at values
//! which stall a connection for 655 ms and let a dead peer go unnoticed for 17 s. Those are [`Settings`].
//!
//! An [`Identifier`] has an event channel of its own, so that events of one connection wait for nobody else. It works in either
//! [`Mode`]: on tokio's reactor, or by blocking the thread.

mod channel;
mod connect;
mod connector;
mod error;
mod event;
mod identifier;
mod rejection;

pub use self::channel::Mode;
pub use self::connect::{Established, Listener, Request, Settings, connect};
pub use self::connector::{Acceptor, Dialer};
pub use self::error::CmError;
pub use self::event::{Event, EventKind};
pub use self::identifier::Identifier;
pub use self::rejection::{MOST_WORDS, reason, rejection};
