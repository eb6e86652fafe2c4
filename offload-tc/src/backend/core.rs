//! The parts of the backend, and the few operations that need several of them.

use std::sync::Arc;

use crate::config::{Config, OffloadPolicy};
use sluice_flow::backend::OpenConfig;
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Clock;

use super::doubts::Doubts;
use super::events::Events;
use super::failure::{device_refusal, socket_refusal};
use super::ipsec;
use super::ledger::Ledger;
use super::mirrors::Mirrors;
use super::ports::Ports;
use super::ports::qdiscs::MadeQdiscs;
use super::ports::table::PortTable;
use super::sockets::Sockets;
use crate::context::Context;
use crate::label;
use crate::marks::AgentId;
use crate::meters::Meters;
use crate::rule::Caveat;
use crate::translate::{self, Rules};
use crate::wire::filter::Hook;

/// What all threads of the backend share.
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
    pub(super) events: Events,
}

impl Core {
    pub(super) fn open(open: &OpenConfig, config: &Config) -> Result<Self, Refusal> {
        let sockets = Sockets::open(config.policy)?;
        let agent = open.owner.into();
        let meters = Arc::new(Meters::open(agent, config.policy).map_err(socket_refusal)?);
        let table = PortTable::new(Arc::clone(&meters), config.policy, config.tunnel_flags);
        let qdiscs = MadeQdiscs::open(open.state_dir.as_deref()).map_err(device_refusal)?;
        let core = Self {
            clock: Arc::clone(&open.clock),
            policy: config.policy,
            agent,
            ledger: Ledger::new(agent),
            ports: Ports::new(agent, table, qdiscs),
            sockets,
            meters,
            mirrors: Mirrors::open(agent, config.policy).map_err(socket_refusal)?,
            doubts: Doubts::default(),
            events: Events::default(),
        };
        for socket in [core.mirrors.socket(), core.meters.socket()] {
            core.sockets.add(None, socket)?;
        }
        Ok(core)
    }

    /// The rules of a flow, flagged for the policy and signed.
    pub(super) fn rules_of(&self, flow: &Flow, ports: &PortTable) -> Result<Rules, Refusal> {
        let mut rules = translate::rules(flow, self.agent, ports)?;
        let exposure = ports.exposure(flow);
        let flags = ipsec::flags(self.policy, exposure)?;
        rules.rule.caveats.extend(exposure.map(Caveat::OutOfHardware));
        for rule in std::iter::once(&mut rules.rule).chain(&mut rules.guard) {
            rule.flower.flags |= flags;
            label::sign(&mut rule.flower);
        }
        Ok(rules)
    }

    /// Restores meters that somebody changed. What cannot be restored is found by the next audit.
    pub(super) fn restore_meters(&self) {
        let _ = self.meters.check(true);
    }

    /// Restores mirrors that somebody deleted, at a hook or everywhere. What cannot be restored is found by the next audit.
    pub(super) fn restore_mirrors(&self, hook: Option<Hook>) {
        let _ = self.mirrors.check(hook, &self.ports.load(), true);
    }
}
