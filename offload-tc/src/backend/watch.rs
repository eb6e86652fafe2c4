//! The thread that watches what others do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::device_refusal;
use super::policies::Follower;

/// At the latest after this long, events that could not be sent are tried again.
const LONGEST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// What could not be removed from former members of LAGs and former ports is tried again this long afterwards.
const RELEASE: Duration = Duration::from_secs(5);
/// Mirrors are checked once more this long after they came into doubt.
const DOUBT: Duration = Duration::from_secs(1);

/// The watch gives up after this many failures in a row.
const PATIENCE: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The thread. It ends when this is dropped.
pub(super) struct Watch {
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(core: Arc<Core>, follower: Option<Follower>) -> Result<Self, Refusal> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(device_refusal)?);
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("tc-watch".into()).spawn(move || {
            if let Err(reason) = watch(&core, &heard, follower) {
                core.events.failed(reason);
            }
        });
        Ok(Self { bell, thread: Some(thread.map_err(device_refusal)?) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(core: &Core, bell: &OwnedFd, mut follower: Option<Follower>) -> Result<(), String> {
    // Polled without the lock, so that ports can come and go meanwhile.
    let duplicated = core.sockets.monitor.lock().sockets().map(|socket| socket.try_clone_to_owned());
    let sockets: Vec<_> = duplicated.into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut failures = 0;
    let (mut look_at_mirrors, mut release) = (None, None);
    loop {
        let policies = follower.as_ref().and_then(Follower::socket);
        let waited = std::iter::once(bell.as_fd()).chain(sockets.iter().map(AsFd::as_fd)).chain(policies);
        let mut waited: Vec<_> = waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut waited, Some(&LONGEST)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
        if waited.first().is_some_and(|bell| !bell.revents().is_empty()) {
            return Ok(());
        }
        if let Some(policies) = follower.as_mut().and_then(Follower::renew) {
            core.set_policies(policies);
        }
        let taken = core.poll_monitor(&mut core.sockets.monitor.lock());
        match taken {
            Ok(()) => failures = 0,
            Err(_) if failures < PATIENCE => {
                failures += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
            Err(refusal) => return Err(refusal.to_string()),
        }
        if core.doubts.take_mirrors() {
            look_at_mirrors = Some(Instant::now() + DOUBT);
        } else if look_at_mirrors.take_if(|due| Instant::now() >= *due).is_some() {
            core.restore_mirrors(None);
        }
        if !core.ports.has_unreleased() {
            release = None;
        } else if Instant::now() >= *release.get_or_insert_with(|| Instant::now() + RELEASE) {
            core.release_what_is_left();
            release = None;
        }
        if core.doubts.take_meters() {
            core.restore_meters();
        }
        core.events.catch_up(core.clock.now());
    }
}
