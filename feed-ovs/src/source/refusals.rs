//! Flows that the device refuses, as the source hears of them: from the threads that ask the device, and at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};

use rustix::event::{EventfdFlags, eventfd};
use sluice_flow::Ufid;
use sluice_flow::source::Intake;

/// The names of refused flows, and what wakes the source for them.
pub(super) struct Refusals {
    names: Receiver<Ufid>,
    bell: OwnedFd,
}

impl Refusals {
    /// Those from now on. To be called once for an intake.
    pub(super) fn of(intake: &dyn Intake) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (tell, names) = channel();
        let ring = bell.try_clone()?;
        intake.hear_refusals(Box::new(move |ufid| {
            // A source that has ended hears nothing, and a bell that is full has been rung.
            let _ = tell.send(ufid);
            let _ = rustix::io::write(&ring, &1u64.to_ne_bytes());
        }));
        Ok(Self { names, bell })
    }

    /// What is readable once there is one.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Those since the last call. They may have another state by now.
    pub(super) fn take(&self) -> Vec<Ufid> {
        // First, so that one that comes meanwhile rings again.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.names.try_iter().collect()
    }
}
