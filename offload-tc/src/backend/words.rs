//! Rules in tc's own words.

use std::fmt::Write;

use sluice_flow::backend::OffloadPolicy;

use super::ports::PortTable;
use crate::rule::{AgentId, Rule};
use crate::wire::filter::{FilterId, FilterView, Hook};

/// A filter of somebody else: where it is and of what kind.
pub(super) fn foreign(view: &FilterView<'_>, port: Option<&str>, agent: Option<AgentId>) -> String {
    let mut text = format!("{} {}", place(&view.id, port), view.kind);
    if view.id.handle != 0 {
        let _ = write!(text, " handle {:#x}", view.id.handle);
    }
    if let Some(AgentId(agent)) = agent {
        let _ = write!(text, " (of another agent, {agent:016x})");
    }
    text
}

/// Where a filter is, as `tc filter show` has it.
fn place(id: &FilterId, port: Option<&str>) -> String {
    let device = |interface: u32| port.map_or_else(|| format!("if{interface}"), ToOwned::to_owned);
    let hook = match id.hook {
        Hook::Ingress { interface } => format!("dev {} ingress", device(interface)),
        Hook::Egress { interface } => format!("dev {} egress", device(interface)),
        Hook::Block { number } => format!("block {number}"),
    };
    format!("filter {hook} protocol {} pref {} chain {}", protocol(id.protocol), id.priority, id.chain)
}

fn protocol(number: u16) -> String {
    match number {
        0x0003 => "all".into(),
        0x0800 => "ip".into(),
        0x0806 => "arp".into(),
        0x86dd => "ipv6".into(),
        0x8100 => "802.1Q".into(),
        0x88a8 => "802.1ad".into(),
        0x8847 => "mpls_uc".into(),
        0x8848 => "mpls_mc".into(),
        other => format!("{other:#06x}"),
    }
}

/// The rule of a flow, as `tc` would be told of it.
pub(super) fn rule(rule: &Rule, priority: u16, policy: OffloadPolicy, ports: &PortTable) -> String {
    let Rule { hook, chain, protocol, .. } = *rule;
    let id = FilterId { hook, chain, priority, protocol, handle: 0 };
    let mut text = format!("{} flower", place(&id, ports.name_at(hook)));
    for key in &rule.flower.keys {
        let _ = write!(text, " {} {:#x}/{:#x}", key.key.spec().name, key.value, key.mask);
    }
    let _ = write!(
        text,
        "{}",
        match policy {
            OffloadPolicy::Any => "",
            OffloadPolicy::SkipSoftware => " skip_sw",
            OffloadPolicy::SkipHardware => " skip_hw",
        }
    );
    for action in &rule.flower.actions {
        let _ = write!(text, " action {:?}", action.operation);
    }
    text
}
