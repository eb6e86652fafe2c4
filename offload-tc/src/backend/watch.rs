//! What happens to devices, qdiscs and filters by the doing of others, on a thread of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sluice_flow::refusal::Refusal;

use super::books::{Place, State};
use super::core::{Core, device_refusal, link_refusal, socket_refusal};
use super::reader::tell_lost;
use crate::install::Installer;
use crate::links::{self, Attachment, Event, FilterLoss, Monitor};
use crate::wire::filter::{FilterId, Hook};

/// At the latest after this long it is looked whether the agent is still to be told of something.
const LONGEST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

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
    let duplicated = core.links.lock().sockets().map(|socket| socket.try_clone_to_owned());
    let sockets: Vec<_> = duplicated.into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
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
        let mut links = core.links.lock();
        core.take_news(&mut links).map_err(|refusal| refusal.to_string())?;
        drop(links);
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
        let own = self.control.lock().port();
        for event in events {
            self.take(monitor.links(), event, own)?;
        }
        Ok(())
    }

    fn take(&self, links: &links::Links, event: Event, own: u32) -> Result<(), Refusal> {
        match event {
            Event::Appeared(port) | Event::Renamed { port, .. } | Event::StateChanged { port, .. } => {
                if let Some(known) = links.at(port.ifindex) {
                    self.bring_back(links, known);
                }
            }
            Event::Gone(port) | Event::Moved { port, .. } => self.take_out(port.generation),
            Event::QdiscRemoved { port, by, .. } | Event::QdiscReplaced { port, by, .. } if by != Some(own) => {
                self.mend(links, port.generation);
            }
            Event::MasterChanged { to: Some(master), .. } => {
                if let Some(known) = links.at(master) {
                    self.mend(links, known.generation);
                }
            }
            Event::FiltersGone(loss) => self.look_for(&loss)?,
            Event::Resynchronised => self.events.reset(self.clock.now()),
            _ => {}
        }
        Ok(())
    }

    /// Somebody took filters away. One of ours is looked for, and where it may be many, all are compared.
    fn look_for(&self, loss: &FilterLoss) -> Result<(), Refusal> {
        let hook = match loss.attachment {
            Attachment::Ingress(ifindex) => Hook::Ingress { interface: ifindex.0 },
            Attachment::Egress(ifindex) => Hook::Egress { interface: ifindex.0 },
            Attachment::Block(block) => Hook::Block { number: block.0 },
        };
        let FilterLoss { chain, priority, protocol, handle, .. } = *loss;
        let Some(handle) = handle else {
            let is_there = |state, place: Place| {
                state == State::Installed && place.hook == hook && (priority == 0 || place.priority == priority)
            };
            self.chains.forget(hook);
            if !self.books.select(|state, record| is_there(state, record.place)).is_empty() {
                self.events.reset(self.clock.now());
            }
            return Ok(());
        };
        let id = FilterId { hook, chain, priority, protocol, handle };
        self.chains.forget_end(&id);
        if let Some((entry, State::Installed)) = self.books.named(&id) {
            let mut finder = Installer::open(self.policy).map_err(socket_refusal)?;
            if matches!(finder.find(id), Ok(None)) {
                tell_lost(self, &entry);
            }
        }
        Ok(())
    }
}
