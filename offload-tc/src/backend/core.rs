//! What all parts of the backend share, and the few things that they all do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::backend::{Handle, LostRule, OpenConfig};
use sluice_flow::flow::Flow;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Clock;
use sluice_netdev::{self as links, LinkError, Monitor, MonitorOptions};

use super::books::{Books, Entry, Place, State};
use super::chains::Chains;
use super::departures::Departures;
use super::doubts::Doubts;
use super::events::Events;
use super::inheritance::Predecessors;
use super::listing::Strays;
use super::made::Made;
use super::mirrors::Mirrors;
use super::ports::PortTable;
use super::removal;
use super::survey::FirstReadings;
use crate::config::{Config, OffloadPolicy};
use crate::digest;
use crate::install::{self, Installer};
use crate::meters::Meters;
use crate::priorities::Priorities;
use crate::rule::AgentId;
use crate::socket::SocketError;
use crate::translate::{self, Rules};
use crate::wire::filter::Hook;

/// See the [module](self).
pub(super) struct Core {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) policy: OffloadPolicy,
    pub(super) agent: AgentId,
    pub(super) predecessors: Predecessors,
    pub(super) books: Books,
    pub(super) chains: Chains,
    pub(super) ports: ArcSwap<PortTable>,
    pub(super) meters: Arc<Meters>,
    pub(super) mirrors: Mirrors,
    pub(super) doubts: Doubts,
    /// Reads rules back, and does nothing else, so that nobody waits for it.
    pub(super) inspector: Mutex<Installer>,
    /// They may be something else than was set.
    pub(super) meters_in_doubt: AtomicBool,
    /// They are to be looked at once more: the kernel tells of filters a moment before it takes them out.
    pub(super) mirrors_in_doubt: AtomicBool,
    pub(super) events: Events,
    pub(super) queues: AtomicUsize,
    /// Taken before `control`, by whoever attaches or detaches a port and by the watch.
    pub(super) links: Mutex<Monitor>,
    pub(super) control: Mutex<links::Control>,
    pub(super) made: Made,
    pub(super) strays: Mutex<Strays>,
    /// For the little that is not asked for by a worker.
    pub(super) installer: Mutex<Installer>,
    priorities: Mutex<Priorities>,
    /// Sockets by which rules of ours go.
    sockets: Mutex<Vec<u32>>,
    /// What was counted by what was taken over, for who reads counters first.
    pub(super) first_readings: Mutex<Option<FirstReadings>>,
    /// Rules that are off the books and that nobody could be told of.
    untold: Mutex<Vec<LostRule>>,
    pub(super) departures: Departures,
}

impl Core {
    pub(super) fn open(open: &OpenConfig, config: &Config) -> Result<Self, Refusal> {
        let options = MonitorOptions { heard: Priorities::heard(), ..MonitorOptions::default() };
        let links = Monitor::open(options).map_err(link_refusal)?;
        let control = links::Control::open().map_err(link_refusal)?;
        let installer = Installer::open(config.policy).map_err(socket_refusal)?;
        let agent = open.owner.into();
        let meters = Arc::new(Meters::open(agent, config.policy).map_err(socket_refusal)?);
        let core = Self {
            clock: Arc::clone(&open.clock),
            policy: config.policy,
            agent,
            predecessors: Predecessors::default(),
            books: Books::new(),
            chains: Chains::default(),
            ports: ArcSwap::from_pointee(PortTable::new(Arc::clone(&meters), config.policy, config.tunnel_flags)),
            meters,
            mirrors: Mirrors::open(agent, config.policy).map_err(socket_refusal)?,
            doubts: Doubts::default(),
            inspector: Mutex::new(Installer::open(config.policy).map_err(socket_refusal)?),
            meters_in_doubt: AtomicBool::new(false),
            mirrors_in_doubt: AtomicBool::new(false),
            events: Events::default(),
            queues: AtomicUsize::new(0),
            links: Mutex::new(links),
            control: Mutex::new(control),
            made: Made::open(open.state_dir.as_deref()).map_err(device_refusal)?,
            strays: Mutex::default(),
            installer: Mutex::new(installer),
            priorities: Mutex::default(),
            sockets: Mutex::default(),
            first_readings: Mutex::default(),
            untold: Mutex::default(),
            departures: Departures::default(),
        };
        for socket in [core.installer.lock().port(), core.mirrors.socket(), core.meters.socket()] {
            core.add_socket(None, socket)?;
        }
        Ok(core)
    }

    /// The rules of a flow as they are asked for.
    pub(super) fn rules_of(&self, flow: &Flow, ports: &PortTable) -> Result<Rules, Refusal> {
        let mut rules = translate::rules(flow, self.agent, ports)?;
        for rule in std::iter::once(&mut rules.rule).chain(&mut rules.guard) {
            rule.flower.flags |= install::flags(self.policy);
            digest::sign(&mut rule.flower);
        }
        Ok(rules)
    }

    /// The priority in the kernel of one more rule. Only for odd protocols anything is shared.
    pub(super) fn acquire_priority(&self, priority: Priority, protocol: u16) -> Result<u16, Refusal> {
        match Priorities::fixed(priority, protocol) {
            Some(fixed) => Ok(fixed),
            None => self.priorities.lock().acquire(priority, protocol),
        }
    }

    /// A rule is there at a place. Says whether one of ours can be.
    pub(super) fn adopt_priority(&self, place: Place) -> bool {
        self.priorities.lock().adopt(place.priority, place.protocol).is_ok()
    }

    /// A rule of somebody else is there at a place, which rules of other protocols cannot have as long as this agent runs.
    pub(super) fn note_priority(&self, priority: u16, protocol: u16) {
        if Priorities::fixed(Priority::default(), protocol).is_none() {
            // One that is at no place of ours is in nobody's way.
            let _ = self.priorities.lock().adopt(priority, protocol);
        }
    }

    /// A rule is gone.
    pub(super) fn release_priority(&self, protocol: u16) {
        if Priorities::fixed(Priority::default(), protocol).is_none() {
            self.priorities.lock().release(protocol);
        }
    }

    /// Takes a rule off the books.
    pub(super) fn forget(&self, handle: Handle, place: Place) {
        self.books.forget(handle);
        self.release_priority(place.protocol);
    }

    /// Takes a rule off the books that the kernel has no more, or the guard of which it has no more, unless a worker has to do
    /// with it, who will notice.
    pub(super) fn lose(&self, entry: &Entry) -> Option<LostRule> {
        if entry.guard_id().is_some() {
            // What is left of two rules goes first, for then the name may be another flow's.
            let entry = self.books.turn(entry.handle, &[State::Installed], State::Leaving)?;
            // What cannot be taken out lies where the flow's next rules find it, or an audit.
            let _ = removal::take_out(&mut self.installer.lock(), &[&entry]);
            self.books.forget(entry.handle);
            self.departed(entry.handle);
        } else if !self.books.forget_if(entry.handle, |state| state == State::Installed) {
            return None;
        }
        self.release_priority(entry.record.place.protocol);
        Some(entry.lost())
    }

    /// A rule is gone, and the agent is told when everything is compared.
    pub(super) fn remember_lost(&self, rule: LostRule) {
        self.untold.lock().push(rule);
    }

    /// Rules that nobody was told of.
    pub(super) fn take_untold(&self) -> Vec<LostRule> {
        std::mem::take(&mut self.untold.lock())
    }

    /// Where rules may be of ours: at the ports, and wherever else filters can hang.
    pub(super) fn hooks_everywhere(&self) -> Result<Vec<Hook>, Refusal> {
        let mut hooks = self.ports.load().hooks();
        let mut links = self.links.lock();
        self.take_news(&mut links)?;
        for known in links.links().iter() {
            let Some(qdisc) = known.qdisc else { continue };
            let interface = known.device.ifindex.0;
            let block = |block: links::Block| Hook::Block { number: block.0 };
            hooks.push(qdisc.ingress_block.map_or(Hook::Ingress { interface }, block));
            if qdisc.kind == links::IngressKind::Clsact {
                hooks.push(qdisc.egress_block.map_or(Hook::Egress { interface }, block));
            }
        }
        hooks.sort_unstable();
        hooks.dedup();
        Ok(hooks)
    }

    /// Rules go by this socket from now on, and no longer by another one.
    pub(super) fn add_socket(&self, instead_of: Option<u32>, port: u32) -> Result<(), Refusal> {
        let ports = {
            let mut sockets = self.sockets.lock();
            sockets.retain(|socket| Some(*socket) != instead_of);
            sockets.push(port);
            sockets.clone()
        };
        self.links.lock().disregard(&ports).map_err(link_refusal)
    }

    /// Rules no longer go by this socket.
    pub(super) fn remove_socket(&self, port: u32) {
        self.sockets.lock().retain(|socket| *socket != port);
    }
}

pub(super) fn link_refusal(error: LinkError) -> Refusal {
    match error.reason() {
        Some(reason) => Refusal::Kernel { errno: reason.errno.raw_os_error(), message: error.to_string() },
        None => device_refusal(error),
    }
}

pub(super) fn socket_refusal(error: SocketError) -> Refusal {
    device_refusal(error)
}

pub(super) fn device_refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::Device { reason: error.to_string().into() }
}
