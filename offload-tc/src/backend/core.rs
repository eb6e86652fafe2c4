//! What all parts of the backend share, and the few things that they all do.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use sluice_flow::backend::{LostRule, OffloadPolicy, OpenConfig};
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Clock;
use sluice_netdev::{self as links};

use super::doubts::Doubts;
use super::events::Events;
use super::failure::{device_refusal, socket_refusal};
use super::ledger::Ledger;
use super::ledger::record::{Entry, State};
use super::mirrors::Mirrors;
use super::ports::Ports;
use super::ports::made::Made;
use super::ports::table::PortTable;
use super::removal;
use super::sockets::Sockets;
use crate::install::{self};
use crate::label;
use crate::marks::AgentId;
use crate::meters::Meters;
use crate::translate::{self, Rules};
use crate::wire::filter::Hook;

/// See the [module](self).
pub(super) struct Core {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) policy: OffloadPolicy,
    pub(super) agent: AgentId,
    pub(super) ledger: Ledger,
    pub(super) ports: Ports,
    pub(super) sockets: Sockets,
    pub(super) meters: Arc<Meters>,
    pub(super) mirrors: Mirrors,
    pub(super) doubts: Doubts,
    /// They may be something else than was set.
    pub(super) meters_in_doubt: AtomicBool,
    /// They are to be looked at once more: the kernel tells of filters a moment before it takes them out.
    pub(super) mirrors_in_doubt: AtomicBool,
    pub(super) events: Events,
    /// Rules that are off the ledger and that nobody could be told of.
    untold: Mutex<Vec<LostRule>>,
}

impl Core {
    pub(super) fn open(config: &OpenConfig) -> Result<Self, Refusal> {
        let sockets = Sockets::open(config.policy)?;
        let agent = config.owner.into();
        let meters = Arc::new(Meters::open(agent, config.policy).map_err(socket_refusal)?);
        let table = PortTable::new(Arc::clone(&meters), config.policy, config.tunnel_flags);
        let made = Made::open(config.state_dir.as_deref()).map_err(device_refusal)?;
        let core = Self {
            clock: Arc::clone(&config.clock),
            policy: config.policy,
            agent,
            ledger: Ledger::new(agent),
            ports: Ports::new(agent, table, made),
            sockets,
            meters,
            mirrors: Mirrors::open(agent, config.policy).map_err(socket_refusal)?,
            doubts: Doubts::default(),
            meters_in_doubt: AtomicBool::new(false),
            mirrors_in_doubt: AtomicBool::new(false),
            events: Events::default(),
            untold: Mutex::default(),
        };
        for socket in [core.mirrors.socket(), core.meters.socket()] {
            core.sockets.add(None, socket)?;
        }
        Ok(core)
    }

    /// The rules of a flow as they are asked for.
    pub(super) fn rules_of(&self, flow: &Flow, ports: &PortTable) -> Result<Rules, Refusal> {
        let mut rules = translate::rules(flow, self.agent, ports)?;
        for rule in std::iter::once(&mut rules.rule).chain(&mut rules.guard) {
            rule.flower.flags |= install::flags(self.policy);
            label::sign(&mut rule.flower);
        }
        Ok(rules)
    }

    /// Takes a rule off the ledger that the kernel has no more, or the guard of which it has no more, unless a worker has to do
    /// with it, who will notice.
    pub(super) fn lose(&self, entry: &Entry) -> Option<LostRule> {
        if entry.guard_id().is_some() {
            // What is left of two rules goes first, for then the name may be another flow's.
            let entry = self.ledger.turn(entry.handle, &[State::Installed], State::Leaving)?;
            // What cannot be taken out lies where the flow's next rules find it, or an audit.
            let _ = removal::take_out(&mut self.sockets.installer.lock(), &[&entry]);
            self.ledger.vacate(entry.handle);
            self.ledger.departed(entry.handle);
        } else if !self.ledger.forget_if(entry.handle, |state| state == State::Installed) {
            return None;
        }
        self.ledger.release_priority(entry.record.place.protocol);
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
        let mut links = self.sockets.monitor.lock();
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
}
