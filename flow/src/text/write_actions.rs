//! Actions, written.

use std::fmt;

use super::Style;
use super::actions::conntrack::write_conntrack;
use super::actions::headers::{write_mpls, write_push_eth, write_push_nsh, write_push_vlan};
use super::actions::lists::{write_check_packet_length, write_clone, write_dec_ttl, write_sample};
use super::actions::tunnel::write_tunnel_push;
use super::actions::userspace::{write_psample, write_userspace};
use super::write_key::write_attribute;
use super::write_value::write_port;
use crate::action::{Action, ActionKind, HashAlgorithm};

/// Writes a list of actions, `drop` if it is empty.
pub fn write_actions(out: &mut dyn fmt::Write, actions: &[Action], style: &Style<'_>) -> fmt::Result {
    if actions.is_empty() {
        return out.write_str(ActionKind::Drop.name());
    }
    for (index, action) in actions.iter().enumerate() {
        if index > 0 {
            out.write_char(',')?;
        }
        write_action(out, action, style)?;
    }
    Ok(())
}

/// Writes one action.
pub fn write_action(out: &mut dyn fmt::Write, action: &Action, style: &Style<'_>) -> fmt::Result {
    match action {
        Action::AddMpls(entry) => {
            out.write_str("add_mpls")?;
            write_mpls(out, entry)
        }
        Action::CheckPacketLength { length, greater, less_or_equal } => {
            write_check_packet_length(out, *length, greater, less_or_equal, style)
        }
        Action::Clone(actions) => write_clone(out, actions, style),
        Action::Conntrack(conntrack) => write_conntrack(out, conntrack),
        Action::ConntrackClear => out.write_str("ct_clear"),
        Action::DecTtl(actions) => write_dec_ttl(out, actions, style),
        Action::Hash { algorithm: HashAlgorithm::L4, basis } => write!(out, "hash(l4({basis}))"),
        Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis } => write!(out, "hash(sym_l4({basis}))"),
        Action::LbOutput(bond) => write!(out, "lb_output({bond})"),
        Action::Meter(meter) => write!(out, "meter({meter})"),
        Action::Output(port) => write_port(out, *port, style),
        Action::PopEth => out.write_str("pop_eth"),
        Action::PopMpls(eth_type) => write!(out, "pop_mpls(eth_type={eth_type:#x})"),
        Action::PopNsh => out.write_str("pop_nsh()"),
        Action::PopVlan => out.write_str("pop_vlan"),
        Action::Psample { group, cookie } => write_psample(out, *group, cookie),
        Action::PushEth(addresses) => write_push_eth(out, addresses),
        Action::PushMpls(entry) => {
            out.write_str("push_mpls")?;
            write_mpls(out, entry)
        }
        Action::PushNsh(header) => write_push_nsh(out, header),
        Action::PushVlan(tag) => write_push_vlan(out, tag),
        Action::Recirc(chain) => write!(out, "recirc({chain})"),
        Action::Sample { probability, actions } => write_sample(out, *probability, actions, style),
        Action::Set(set) | Action::SetTunnel(set) => {
            out.write_str("set(")?;
            write_attribute(out, set.attribute, &|field| set.get(field).unwrap_or_default(), false, style)?;
            out.write_char(')')
        }
        Action::TunnelPop(port) => {
            out.write_str("tnl_pop(")?;
            write_port(out, *port, style)?;
            out.write_char(')')
        }
        Action::TunnelPush(push) => write_tunnel_push(out, push, style),
        Action::Trunc(length) => write!(out, "trunc({length})"),
        Action::Userspace(userspace) => write_userspace(out, userspace, style),
    }
}
