//! What the device can do: one row for each action, which checks it and makes a step of it.

use std::sync::Arc;

use sluice_flow::action::{Action, ActionList, Encapsulation};
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use super::matching::Guarantees;
use super::program::{List, Program, Step, release};
use super::validate::{Checker, Shape, psample, trunc};
use crate::chains::Chains;
use crate::conntrack::{Policies, Request};
use crate::engine::nsh;
use crate::engine::tunnel::Push;
use crate::meters::Meters;
use crate::ports::PortTable;

/// Lists within lists that are taken at most (`OVS_COPY_ACTIONS_MAX_DEPTH`).
const MAX_DEPTH: usize = 16;

/// Each row has an action, what checks it, and its step. An action without a row is refused by name.
macro_rules! actions {
    (
        check($checker:ident, $shape:ident), link($linker:ident, $is_last:ident);
        $($action:pat => $check:expr, $step:expr;)*
    ) => {
        /// Whether the device can do an action, to a packet of which this is known.
        #[expect(unused_variables, reason = "not every row needs all of an action")]
        fn check_one($checker: &Checker<'_>, action: &Action, $shape: &mut Shape) -> Result<(), Refusal> {
            match action {
                $($action => $check,)*
                other => Err(is_refused(other)),
            }
        }

        impl Linker<'_> {
            fn step(&self, action: &Action, $is_last: bool) -> Result<Step, Refusal> {
                let $linker = self;
                Ok(match action {
                    $($action => $step,)*
                    other => return Err(is_refused(other)),
                })
            }
        }
    };
}

actions! {
    check(checker, shape), link(linker, is_last);

    Action::AddMpls(entry) => shape.add_mpls(*entry),
        Step::PushMpls { entry: *entry, inside_ethernet: false };
    Action::CheckPacketLength { length, greater, less_or_equal } => Ok(()),
        linker.check_packet_length(*length, greater, less_or_equal, is_last)?;
    Action::Clone(list) => Ok(()),
        Step::Clone(linker.nested(list, is_last)?);
    Action::Conntrack(action) => shape.conntrack(action, checker.policies),
        Step::Conntrack(Box::new(Request::link(action, linker.policies)?));
    Action::ConntrackClear => Ok(()),
        Step::ConntrackClear;
    // Nothing of the list around it comes behind it (`dec_ttl_exception_handler` in actions.c).
    Action::DecTtl(list) => Ok(()),
        Step::DecTtl(linker.nested(list, true)?);
    Action::Hash { algorithm, basis } => Ok(()),
        Step::Hash { algorithm: *algorithm, basis: *basis };
    Action::Meter(id) => checker.meters.get(*id).map(drop),
        Step::Meter(linker.meters.acquire(*id)?);
    Action::Output(port) => checker.output(*port, shape),
        Step::Output(*port);
    Action::PopEth => shape.pop_eth(),
        Step::PopEth;
    Action::PopMpls(ethernet_type) => shape.pop_mpls(*ethernet_type),
        Step::PopMpls(*ethernet_type);
    Action::PopNsh => shape.pop_nsh(checker.guarantees.nsh_next_protocol),
        Step::PopNsh;
    Action::PopVlan => shape.pop_vlan(),
        Step::PopVlan;
    Action::Psample { group, cookie } => psample(cookie),
        Step::Psample { group: *group, cookie: cookie.clone() };
    Action::PushEth(addresses) => shape.push_eth(*addresses),
        Step::PushEth(*addresses);
    Action::PushMpls(entry) => shape.push_mpls(*entry),
        Step::PushMpls { entry: *entry, inside_ethernet: true };
    Action::PushNsh(header) => shape.push_nsh(header),
        Step::PushNsh(nsh::write(header)?);
    Action::PushVlan(tag) => shape.push_vlan(*tag),
        Step::PushVlan(*tag);
    Action::Recirc(chain) => checker.recirc(*chain),
        Step::Recirc(linker.chains.target(*chain)?);
    Action::Sample { probability, actions } => Ok(()),
        Step::Sample { probability: *probability, list: linker.nested(actions, is_last)? };
    Action::Set(set) => checker.set(set, shape),
        Step::Set(set.clone());
    Action::SetTunnel(set) => shape.set_tunnel(set),
        Step::SetTunnel(Arc::new(Encapsulation::new(set)?));
    Action::Trunc(bytes) => trunc(*bytes),
        Step::Trunc(*bytes as usize);
    Action::TunnelPop(port) => checker.tunnel_pop(*port),
        Step::TunnelPop(*port);
    Action::TunnelPush(push) => checker.tunnel_push(push, shape),
        Step::TunnelPush(Push::new(push)?);
}

/// Whether the device can do what a flow asks for.
pub(super) fn check(
    flow: &Flow,
    guarantees: &Guarantees,
    ports: &PortTable,
    meters: &Meters,
    policies: &Policies,
) -> Result<(), Refusal> {
    let checker = Checker { chain: flow.chain(), guarantees, ports, meters, policies };
    check_list(&checker, &flow.actions, Shape::of(guarantees), 0)
}

fn check_list(checker: &Checker<'_>, actions: &[Action], mut shape: Shape, depth: usize) -> Result<(), Refusal> {
    if depth > MAX_DEPTH {
        return Err(Refusal::Limit { what: "lists of actions within lists".into(), limit: MAX_DEPTH as u64 });
    }
    for action in actions {
        check_one(checker, action, &mut shape)?;
        for list in action.lists() {
            check_list(checker, list, shape.clone(), depth + 1)?;
        }
    }
    Ok(())
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

    fn check_packet_length(
        &self,
        length: u16,
        greater: &ActionList,
        less_or_equal: &ActionList,
        is_last: bool,
    ) -> Result<Step, Refusal> {
        let greater = self.nested(greater, is_last)?;
        let less_or_equal = self.nested(less_or_equal, is_last).inspect_err(|_| release(&greater.steps))?;
        Ok(Step::CheckPacketLength { length: length.into(), greater, less_or_equal })
    }
}

/// Whether a list does more than send the packet somewhere (`actions_may_change_flow`).
fn changes_headers(actions: &[Action]) -> bool {
    let only_sends = |action: &Action| {
        matches!(action, Action::Output(_) | Action::Recirc(_) | Action::Trunc(_) | Action::Psample { .. })
    };
    !actions.iter().all(only_sends)
}

/// What the device refuses by design: the packet would go to a process, or by a table that is not in the datapath.
fn is_refused(action: &Action) -> Refusal {
    let reason = match action {
        Action::Userspace(_) => "there is no process behind the software NIC that takes packets",
        Action::LbOutput(_) => "the members of the bond are known to ovs-vswitchd alone",
        _ => "the software NIC cannot do it",
    };
    Refusal::Action { action: action.kind(), reason: reason.into() }
}
