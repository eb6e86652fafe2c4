//! Copies from the NIC in software, on their way to the clients of the mirror socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_control::mirror::{Class, ClassSet, FRAME_HEADER, FrameRepr, MAX_MESSAGE, Plan};
use sluice_flow::backend::{CopiedPacket, CopySink};
use sluice_flow::port::PortNumber;

use super::client::Client;
use super::counts::{Counts, Loss};
use super::stage::{Shown, Staged};
use crate::config;

/// Takes copies and hands them to all clients. A client that is slow loses copies, and costs nobody else anything.
#[derive(Default)]
pub struct Handout {
    counts: Arc<Counts>,
    clients: ArcSwap<Vec<Arc<Client>>>,
    published: ArcSwap<Published>,
    /// The bytes that wait for a client at most, for each class.
    queue_bytes: AtomicUsize,
    /// Held while clients come and go, and while they are told a plan.
    changing: Mutex<()>,
}

#[derive(Default)]
struct Published {
    plan: Plan,
    shown: Arc<Vec<Shown>>,
}

impl Handout {
    /// What became of copies.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many clients are connected.
    pub fn clients(&self) -> usize {
        self.clients.load().len()
    }

    /// The plan that clients are told.
    pub fn plan(&self) -> Plan {
        self.published.load().plan.clone()
    }

    pub(super) fn shown(&self) -> Arc<Vec<Shown>> {
        self.published.load().shown.clone()
    }

    /// Tells all clients what is mirrored from now on.
    pub(super) fn publish(&self, Staged { plan, shown }: Staged, config: Option<&config::Mirroring>) {
        let _changing = self.changing.lock();
        let queue_bytes = config.map_or(0, |config| config.queue_bytes);
        self.queue_bytes.store(queue_bytes, Ordering::Relaxed);
        let is_news = self.published.load().plan != plan;
        let message = Arc::new(plan.message());
        self.published.store(Arc::new(Published { plan, shown: Arc::new(shown) }));
        if is_news {
            self.clients.load().iter().for_each(|client| client.tell(message.clone()));
        }
    }

    /// Takes a client on, unless there are `most` already.
    pub(super) fn connect(&self, most: usize) -> Option<Arc<Client>> {
        let _changing = self.changing.lock();
        let mut clients = Vec::clone(&self.clients.load());
        if clients.len() >= most {
            return None;
        }
        let plan = self.published.load().plan.message();
        let client = Arc::new(Client::new(Arc::new(plan), self.counts.clone()));
        clients.push(client.clone());
        self.clients.store(Arc::new(clients));
        Some(client)
    }

    /// Forgets a client; what waits for it is lost.
    pub(super) fn disconnect(&self, client: &Arc<Client>) {
        let _changing = self.changing.lock();
        let mut clients = Vec::clone(&self.clients.load());
        clients.retain(|known| !Arc::ptr_eq(known, client));
        self.clients.store(Arc::new(clients));
    }

    /// The number of the tap of a class, in the NIC in software.
    pub(super) fn tap(class: Class) -> PortNumber {
        PortNumber(PortNumber::FIRST_TAP.0 + u32::from(class.code()))
    }
}

/// The class of what goes to a mirror port: that of a tap, or of a port that actions of flows copy to.
fn class_of(to: PortNumber) -> Option<Class> {
    if !to.is_tap() {
        return Some(Class::Flow);
    }
    Class::of_code(u8::try_from(to.0 - PortNumber::FIRST_TAP.0).ok()?)
}

impl CopySink for Handout {
    fn take(&self, copied: &CopiedPacket<'_>) {
        let classes: ClassSet = self.published.load().plan.classes;
        let Some(class) = class_of(copied.to).filter(|class| classes.contains(*class)) else { return };
        self.counts.count_copy(class, copied.frame.len());
        let clients = self.clients.load();
        if clients.is_empty() {
            return self.counts.count_loss(class, Loss::NoClient);
        }
        let is_too_long = copied.frame.len() > MAX_MESSAGE - FRAME_HEADER;
        let (Ok(original_length), false) = (u32::try_from(copied.frame.len()), is_too_long) else {
            return clients.iter().for_each(|_| self.counts.count_loss(class, Loss::TooLong));
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let repr = FrameRepr {
            class,
            in_port: Some(copied.in_port.0),
            ufid: copied.ufid.map(|ufid| ufid.0),
            time: u64::try_from(time).unwrap_or(u64::MAX),
            original_length,
        };
        let message = Arc::new(repr.message(copied.frame));
        let limit = self.queue_bytes.load(Ordering::Relaxed);
        clients.iter().for_each(|client| client.put(class, &message, limit));
    }
}
