//! How two ends connect without a connection manager: over a stream they tell each other what their queue pairs need to know.
//!
//! The side that connects offers its terms and its queue pair. The other side checks them, connects its own and answers with the same, or
//! refuses with the reason. Both say when they are ready, so that nothing is sent to a queue pair that cannot receive yet.

mod end;
mod error;
mod frame;
mod socket;

pub use self::end::{Settings, accept, connect};
pub use self::error::ExchangeError;
pub use self::socket::{Acceptor, Dialer};
