//! What a rule does, ready to be run.

use std::sync::Arc;

use sluice_flow::action::{Action, ActionList, EthernetAddresses, FieldSet, HashAlgorithm, MplsEntry, VlanTag};
use sluice_flow::flow::Flow;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::{Encapsulation, is_refused};
use crate::chains::{Chain, Chains};
use crate::conntrack::{Policies, Request};
use crate::engine::nsh;
use crate::engine::tunnel::Push;
use crate::meters::{MeterState, Meters};

/// What a rule does.
pub(crate) struct Program {
    /// The chain that the rule is in.
    pub(crate) chain: Arc<Chain>,
    pub(crate) steps: Box<[Step]>,
    /// What the steps were made from, one by one.
    pub(crate) actions: ActionList,
    /// Whether packets are only sent as they came, or dropped.
    pub(crate) only_outputs: bool,
}

/// An action, with what it refers to at hand.
pub(crate) enum Step {
    CheckPacketLength {
        length: usize,
        greater: List,
        less_or_equal: List,
    },
    Clone(List),
    Conntrack(Box<Request>),
    ConntrackClear,
    DecTtl(List),
    Hash {
        algorithm: HashAlgorithm,
        basis: u32,
    },
    Meter(Arc<MeterState>),
    Output(PortNumber),
    PopEth,
    PopMpls(u16),
    PopNsh,
    PopVlan,
    Psample {
        group: u32,
        cookie: Box<[u8]>,
    },
    PushEth(EthernetAddresses),
    PushMpls {
        entry: MplsEntry,
        /// Behind the Ethernet header, or in front of all.
        inside_ethernet: bool,
    },
    /// A header as it stands on the wire.
    PushNsh(Box<[u8]>),
    PushVlan(VlanTag),
    Recirc(Arc<Chain>),
    Sample {
        probability: u32,
        list: List,
    },
    Set(FieldSet),
    SetTunnel(Arc<Encapsulation>),
    Trunc(usize),
    TunnelPop(PortNumber),
    TunnelPush(Push),
}

/// A list within a list.
#[derive(Clone)]
pub(crate) struct List {
    pub(crate) steps: Arc<[Step]>,
    /// What the steps were made from, one by one.
    pub(crate) actions: ActionList,
    /// Whether it runs at the level of the list around it: it is the last of it, or changes no header
    /// (`actions_may_change_flow` and `last` in net/openvswitch/flow_netlink.c).
    pub(crate) is_level: bool,
}

/// The program of a flow that was [checked](super::check). Its meters and timeout policies cannot go until
/// [`Program::release`].
pub(crate) fn link(flow: &Flow, chains: &Chains, meters: &Meters, policies: &Policies) -> Result<Program, Refusal> {
    let chain = chains.get_or_make(flow.chain());
    let steps = Linker { chains, meters, policies }.list(&flow.actions)?;
    let only_outputs = steps.iter().all(|step| matches!(step, Step::Output(_)));
    Ok(Program { chain, steps: steps.into(), actions: Arc::clone(&flow.actions), only_outputs })
}

struct Linker<'a> {
    chains: &'a Chains,
    meters: &'a Meters,
    policies: &'a Policies,
}

impl Linker<'_> {
    /// The steps of a list; none is held if one cannot be had.
    fn list(&self, actions: &[Action]) -> Result<Vec<Step>, Refusal> {
        let mut steps = Vec::with_capacity(actions.len());
        for (index, action) in actions.iter().enumerate() {
            match self.step(action, index + 1 == actions.len()) {
                Ok(step) => steps.push(step),
                Err(refusal) => {
                    release(&steps);
                    return Err(refusal);
                }
            }
        }
        Ok(steps)
    }

    fn nested(&self, actions: &ActionList, is_last: bool) -> Result<List, Refusal> {
        let is_level = is_last || !changes_headers(actions);
        Ok(List { steps: self.list(actions)?.into(), actions: Arc::clone(actions), is_level })
    }

    fn step(&self, action: &Action, is_last: bool) -> Result<Step, Refusal> {
        Ok(match action {
            Action::AddMpls(entry) => Step::PushMpls { entry: *entry, inside_ethernet: false },
            Action::CheckPacketLength { length, greater, less_or_equal } => {
                let greater = self.nested(greater, is_last)?;
                let less_or_equal = match self.nested(less_or_equal, is_last) {
                    Ok(list) => list,
                    Err(refusal) => {
                        release(&greater.steps);
                        return Err(refusal);
                    }
                };
                Step::CheckPacketLength { length: (*length).into(), greater, less_or_equal }
            }
            Action::Clone(list) => Step::Clone(self.nested(list, is_last)?),
            Action::Conntrack(action) => Step::Conntrack(Box::new(Request::link(action, self.policies)?)),
            Action::ConntrackClear => Step::ConntrackClear,
            // Nothing of the list around it comes behind it (`dec_ttl_exception_handler` in actions.c).
            Action::DecTtl(list) => Step::DecTtl(self.nested(list, true)?),
            Action::Hash { algorithm, basis } => Step::Hash { algorithm: *algorithm, basis: *basis },
            Action::Meter(id) => Step::Meter(self.meters.acquire(*id)?),
            Action::Output(port) => Step::Output(*port),
            Action::PopEth => Step::PopEth,
            Action::PopMpls(ethernet_type) => Step::PopMpls(*ethernet_type),
            Action::PopNsh => Step::PopNsh,
            Action::PopVlan => Step::PopVlan,
            Action::Psample { group, cookie } => Step::Psample { group: *group, cookie: cookie.clone() },
            Action::PushEth(addresses) => Step::PushEth(*addresses),
            Action::PushMpls(entry) => Step::PushMpls { entry: *entry, inside_ethernet: true },
            Action::PushNsh(header) => Step::PushNsh(nsh::write(header)?),
            Action::PushVlan(tag) => Step::PushVlan(*tag),
            Action::Recirc(chain) => Step::Recirc(self.chains.target(*chain)?),
            Action::Sample { probability, actions } => {
                Step::Sample { probability: *probability, list: self.nested(actions, is_last)? }
            }
            Action::Set(set) => Step::Set(set.clone()),
            Action::SetTunnel(set) => Step::SetTunnel(Arc::new(Encapsulation::new(set)?)),
            Action::TunnelPop(port) => Step::TunnelPop(*port),
            Action::TunnelPush(push) => Step::TunnelPush(Push::new(push)?),
            Action::Trunc(bytes) => Step::Trunc(*bytes as usize),
            other => return Err(is_refused(other)),
        })
    }
}

/// Whether a list does more than send the packet somewhere (`actions_may_change_flow`).
fn changes_headers(actions: &[Action]) -> bool {
    let only_sends = |action: &Action| {
        matches!(action, Action::Output(_) | Action::Recirc(_) | Action::Trunc(_) | Action::Psample { .. })
    };
    !actions.iter().all(only_sends)
}

impl Program {
    /// Lets meters and timeout policies go.
    pub(crate) fn release(&self) {
        release(&self.steps);
    }

    /// Whether nothing is counted per rule of what it refers to, so that rules can share it.
    pub(crate) fn holds_nothing(&self) -> bool {
        use Step as S;
        let holds = |step: &Step| {
            matches!(step, S::Meter(_) | S::Conntrack(_) | S::Clone(_) | S::DecTtl(_) | S::Sample { .. })
                || matches!(step, S::CheckPacketLength { .. } | S::Recirc(_))
        };
        !self.steps.iter().any(holds)
    }
}

/// Lets meters and timeout policies of a list and of all lists within go.
fn release(steps: &[Step]) {
    for step in steps {
        match step {
            Step::Meter(meter) => meter.release(),
            Step::Conntrack(request) => request.release(),
            Step::Clone(list) | Step::DecTtl(list) | Step::Sample { list, .. } => release(&list.steps),
            Step::CheckPacketLength { greater, less_or_equal, .. } => {
                release(&greater.steps);
                release(&less_or_equal.steps);
            }
            _ => {}
        }
    }
}
