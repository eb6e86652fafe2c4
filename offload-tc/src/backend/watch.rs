//! What happens to devices, qdiscs and filters by the doing of others, on a thread of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sluice_flow::refusal::Refusal;
use sluice_netdev::{self as links, Attachment, Event, Monitor, TouchedFilters};

use super::core::Core;
use super::failure::{device_refusal, link_refusal};
use super::ledger::record::State;
use super::reader::tell_lost;
use crate::priorities::Priorities;
use crate::wire::filter::{FilterId, Hook};

/// At the latest after this long it is looked whether the agent is still to be told of something.
const LONGEST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// So long after mirrors came into doubt it is looked once more whether they are there, whatever else happens meanwhile.
const DOUBT: Duration = Duration::from_secs(1);

/// So often in a row what happens may not be found out, before that is the end.
const PATIENCE: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The thread. It ends with this.
pub(super) struct Watch {
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(core: Arc<Core>) -> Result<Self, Refusal> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(device_refusal)?);
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("tc-watch".into()).spawn(move || {
            if let Err(reason) = watch(&core, &heard) {
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

fn watch(core: &Core, bell: &OwnedFd) -> Result<(), String> {
    // Waited for without the lock, so that ports can come and go meanwhile.
    let duplicated = core.sockets.monitor.lock().sockets().map(|socket| socket.try_clone_to_owned());
    let sockets: Vec<_> = duplicated.into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut failures = 0;
    let mut look_at_mirrors = None;
    loop {
        let waited = std::iter::once(bell.as_fd()).chain(sockets.iter().map(AsFd::as_fd));
        let mut waited: Vec<_> = waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut waited, Some(&LONGEST)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
        if waited.first().is_some_and(|bell| !bell.revents().is_empty()) {
            return Ok(());
        }
        let taken = core.take_news(&mut core.sockets.monitor.lock());
        match taken {
            Ok(()) => failures = 0,
            Err(_) if failures < PATIENCE => {
                failures += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
            Err(refusal) => return Err(refusal.to_string()),
        }
        if core.mirrors_in_doubt.swap(false, Ordering::Relaxed) {
            look_at_mirrors = Some(Instant::now() + DOUBT);
        } else if look_at_mirrors.take_if(|due| Instant::now() >= *due).is_some() {
            core.restore_mirrors(None);
        }
        if core.meters_in_doubt.swap(false, Ordering::Relaxed) {
            core.restore_meters();
        }
        core.events.catch_up(core.clock.now());
    }
}

impl Core {
    /// Takes in what has happened since the last time.
    pub(super) fn take_news(&self, monitor: &mut Monitor) -> Result<(), Refusal> {
        let events = monitor.poll(Duration::ZERO).map_err(link_refusal)?;
        if events.is_empty() {
            return Ok(());
        }
        let own = self.sockets.control.lock().port();
        for event in events {
            self.take(monitor.links(), event, own);
        }
        Ok(())
    }

    fn take(&self, links: &links::Links, event: Event, own: u32) {
        match event {
            Event::Appeared(port) | Event::Renamed { port, .. } | Event::StateChanged { port, .. } => {
                if let Some(known) = links.at(port.ifindex) {
                    self.bring_back(links, known);
                }
            }
            Event::Gone(port) | Event::Moved { port, .. } => self.take_out(port.generation),
            Event::QdiscRemoved { port, by, .. } | Event::QdiscReplaced { port, by, .. } if by != Some(own) => {
                self.ports.made.strike_off(port.ifindex);
                self.mend(links, port.generation);
            }
            Event::MasterChanged { to: Some(master), .. } => {
                if let Some(known) = links.at(master) {
                    self.mend(links, known.generation);
                }
            }
            Event::FiltersGone(loss) => self.look_for(&loss),
            Event::FilterPut(filter) => self.doubt(&filter),
            // Which rules use an action the kernel does not tell.
            Event::ActionsTouched { .. } => self.doubt_all(),
            Event::Resynchronised => {
                self.doubt_all();
                self.events.reset(self.clock.now());
            }
            _ => {}
        }
    }

    /// Somebody put a filter in, which may be in the place of one of ours.
    fn doubt(&self, filter: &TouchedFilters) {
        let TouchedFilters { chain, priority, protocol, handle, .. } = *filter;
        let hook = hook_of(filter);
        if Priorities::is_of_mirror(priority) {
            self.restore_mirrors(Some(hook));
        }
        let name = handle.map(|handle| FilterId { hook, chain, priority, protocol, handle });
        if let Some((entry, _)) = name.and_then(|name| self.ledger.named(&name)) {
            self.doubts.about(entry.handle);
        }
    }

    /// Rules and meters of ours may be something else than what was put in.
    fn doubt_all(&self) {
        self.doubts.about_all(&self.ledger);
        self.meters_in_doubt.store(true, Ordering::Relaxed);
    }

    /// Somebody took filters away. One of ours is looked for, and where it may be many, all are compared.
    fn look_for(&self, loss: &TouchedFilters) {
        let hook = hook_of(loss);
        let TouchedFilters { chain, priority, protocol, handle, .. } = *loss;
        if priority == 0 || Priorities::is_of_mirror(priority) {
            self.restore_mirrors(Some(hook));
            self.mirrors_in_doubt.store(true, Ordering::Relaxed);
        }
        let Some(handle) = handle else {
            self.ledger.chains.forget(hook);
            let there = self.ledger.select(|state, record| state == State::Installed && record.place.hook == hook);
            if there.iter().any(|entry| priority == 0 || entry.is_at(hook, priority)) {
                self.events.reset(self.clock.now());
            }
            return;
        };
        let id = FilterId { hook, chain, priority, protocol, handle };
        self.ledger.chains.forget_end(&id);
        if let Some((entry, State::Installed)) = self.ledger.named(&id) {
            let found = self.sockets.installer.lock().find(id);
            if matches!(found, Ok(None)) {
                tell_lost(self, &entry);
            }
        }
    }
}

const fn hook_of(filters: &TouchedFilters) -> Hook {
    match filters.attachment {
        Attachment::Ingress(ifindex) => Hook::Ingress { interface: ifindex.0 },
        Attachment::Egress(ifindex) => Hook::Egress { interface: ifindex.0 },
        Attachment::Block(block) => Hook::Block { number: block.0 },
    }
}
