//! Rules that an ovs-vswitchd has left in the device at its end. Packets go as it has left them, as the kernel's datapath lets them, until the
//! next ovs-vswitchd is at work.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::kernel::Kernel;
use crate::listener::{Change, Listener};

/// How long a process may take to end after it has hung up.
const DYING: Duration = Duration::from_secs(1);
/// How long an ovs-vswitchd that works with the kernel's datapath may take to connect, if it hands flows over.
const CONNECTS: Duration = Duration::from_secs(5);
/// Bytes of notifications that may wait.
const QUEUE: usize = 1 << 20;

/// The rules of an ovs-vswitchd that has ended.
pub(super) struct Left {
    listener: Listener,
    /// When another one was first seen.
    seen: Option<Instant>,
}

impl Left {
    /// Those of a process that has hung up. There are none of one that lives, whose flows are elsewhere now, or if the next one could not be seen
    /// come.
    pub(super) fn by(process: &OwnedFd) -> Option<Self> {
        if !has_ended(process) {
            return None;
        }
        let listener = Kernel::open().and_then(|kernel| Listener::open(&kernel, QUEUE)).ok()?;
        Some(Self { listener, seen: None })
    }

    /// Whether another ovs-vswitchd is at work that has not connected in time, so that it has its flows elsewhere.
    pub(super) fn are_anothers(&mut self) -> bool {
        let mut is_seen = false;
        let heard = self.listener.receive(Duration::ZERO, &mut |notification| {
            is_seen |= notification.change() != Change::Deleted;
        });
        if is_seen || heard.is_err() {
            self.seen.get_or_insert_with(Instant::now);
        }
        self.seen.is_some_and(|seen| seen.elapsed() >= CONNECTS)
    }
}

/// Waits for the end of a process, which cannot be far, and says whether it has come.
fn has_ended(process: &OwnedFd) -> bool {
    let timeout = Timespec::try_from(DYING).ok();
    poll(&mut [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)], timeout.as_ref()) == Ok(1)
}
