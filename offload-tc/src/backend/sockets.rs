//! The netlink sockets of the backend, and through which of them its rules go.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::OffloadPolicy;
use parking_lot::Mutex;
use sluice_flow::refusal::Refusal;
use sluice_netdev::{Control, Monitor, MonitorOptions};

use super::failure::{link_refusal, socket_refusal};
use crate::install::Installer;
use crate::priorities::Priorities;

/// The sockets that threads share. Each worker, each reader, the mirrors and the meters have their own.
pub(super) struct Sockets {
    /// Hears what others do. Locked before all others, by whoever attaches or detaches a port and by `tc-watch`.
    pub(super) monitor: Mutex<Monitor>,
    /// Asks about devices and changes them.
    pub(super) control: Mutex<Control>,
    /// For requests that no worker makes.
    pub(super) installer: Mutex<Installer>,
    /// Reads rules back and does nothing else, so that nobody waits for it.
    pub(super) inspector: Mutex<Installer>,
    /// The netlink port ids of sockets through which our rules go.
    ours: Mutex<Vec<u32>>,
    /// The number of queues opened so far.
    queues: AtomicUsize,
}

impl Sockets {
    pub(super) fn open(policy: OffloadPolicy) -> Result<Self, Refusal> {
        let options = MonitorOptions { heard: Priorities::heard(), ..MonitorOptions::default() };
        let installer = Installer::open(policy).map_err(socket_refusal)?;
        let port = installer.port();
        let sockets = Self {
            monitor: Mutex::new(Monitor::open(options).map_err(link_refusal)?),
            control: Mutex::new(Control::open().map_err(link_refusal)?),
            installer: Mutex::new(installer),
            inspector: Mutex::new(Installer::open(policy).map_err(socket_refusal)?),
            ours: Mutex::default(),
            queues: AtomicUsize::new(0),
        };
        sockets.add(None, port)?;
        Ok(sockets)
    }

    /// The number of one more queue.
    pub(super) fn next_queue(&self) -> usize {
        self.queues.fetch_add(1, Ordering::Relaxed)
    }

    /// Rules go through this socket from now on, and no longer through another one. The monitor disregards what they do.
    pub(super) fn add(&self, instead_of: Option<u32>, port: u32) -> Result<(), Refusal> {
        let ports = {
            let mut ours = self.ours.lock();
            ours.retain(|socket| Some(*socket) != instead_of);
            ours.push(port);
            ours.clone()
        };
        self.monitor.lock().disregard(&ports).map_err(link_refusal)
    }

    /// Rules no longer go through this socket.
    pub(super) fn remove(&self, port: u32) {
        self.ours.lock().retain(|socket| *socket != port);
    }
}
