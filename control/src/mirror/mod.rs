//! What the agent and `sluice-mirror` share about mirrored control traffic.
//!
//! - A [`Class`] is a kind of control traffic. One table says which packets are of a class; the flow keys that the agent installs and
//!   the packet filters that the sender attaches both come from it, so that they agree.
//! - The agent listens on [`mirror_socket`] (`SOCK_SEQPACKET`, one message a packet). To each client it sends a [`Plan`] first, and
//!   again whenever it changes. The NIC in software sends a [`Frame`](FrameView) for each copy, and a [`Losses`] message after the client
//!   was too slow for some.
//!
//! Every message begins with the same four bytes, and every number in it is big endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | kind: 1 for a plan, 2 for a frame, 3 for losses |
//! | 2..4 | zeros |

mod class;
mod class_set;
mod error;
pub mod filter;
mod frame;
mod header;
mod losses;
mod message;
mod plan;
mod selector;
mod tap;

pub use class::{CLASSES, Class};
pub use class_set::ClassSet;
pub use error::MessageError;
pub use frame::{FRAME_HEADER, FrameRepr, FrameView};
pub use losses::Losses;
pub use message::{MAX_MESSAGE, Message};
pub use plan::{MAX_TAPS, Plan};
pub use selector::{IpSelector, MAX_TAGS, Selector, Transport};
pub use tap::Tap;

use std::path::{Path, PathBuf};

/// The name in the run folder of the socket on which the agent gives plans and copies.
pub const MIRROR_SOCKET: &str = "mirror.sock";

/// Returns the path of the mirror socket of the agent with this run folder.
pub fn mirror_socket(run_dir: &Path) -> PathBuf {
    run_dir.join(MIRROR_SOCKET)
}
