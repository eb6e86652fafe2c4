//! Actions, written.

use std::fmt::{self, Write as _};

use super::Style;
use super::actions::conntrack::write_conntrack;
use super::actions::headers::{write_mpls, write_push_eth, write_push_nsh, write_push_vlan};
use super::actions::lists::{write_check_packet_length, write_clone, write_dec_ttl, write_sample};
use super::actions::tunnel::write_tunnel_push;
use super::actions::userspace::{write_psample, write_userspace};
use super::write_key::{Pieces, describe_attribute, push_stack};
use super::write_number::push_prefixed_hex;
use super::write_options::push_geneve;
use super::write_value::{Ports, push_field_value, write_port};
use crate::action::{Action, ActionKind, FieldSet, HashAlgorithm};
use crate::field::Field;

/// Writes a list of actions, `drop` if it is empty.
pub fn write_actions(out: &mut dyn fmt::Write, actions: &[Action], style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    push_actions(&mut text, actions, &mut Ports::new(style));
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes one action.
pub fn write_action(out: &mut dyn fmt::Write, action: &Action, style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    push_action(&mut text, action, &mut Ports::new(style))?;
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes a list of actions; what is appended is UTF-8.
pub(super) fn push_actions(out: &mut Vec<u8>, actions: &[Action], ports: &mut Ports<'_>) {
    if actions.is_empty() {
        return out.extend_from_slice(ActionKind::Drop.name().as_bytes());
    }
    for (index, action) in actions.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // A vector takes all.
        push_action(out, action, ports).unwrap_or_default();
    }
}

/// Writes an action, those that nearly all flows have without `fmt`.
fn push_action(text: &mut Vec<u8>, action: &Action, ports: &mut Ports<'_>) -> fmt::Result {
    let style = &{ ports.style };
    let out = &mut Utf8(text);
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
        Action::Output(port) => {
            ports.push(out.0, *port);
            Ok(())
        }
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
        Action::Recirc(chain) => {
            out.0.extend_from_slice(b"recirc(");
            push_prefixed_hex(out.0, u128::from(chain.0));
            out.0.push(b')');
            Ok(())
        }
        Action::Sample { probability, actions } => write_sample(out, *probability, actions, style),
        Action::Set(set) | Action::SetTunnel(set) => {
            out.0.extend_from_slice(b"set(");
            let get = |field| set.get(field).unwrap_or_default();
            describe_attribute(&mut Direct { out: out.0, set, ports }, set.attribute, &get, false);
            out.0.push(b')');
            Ok(())
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

/// Writes what is set of a header as it comes.
struct Direct<'a, 'b> {
    out: &'a mut Vec<u8>,
    set: &'a FieldSet,
    ports: &'a mut Ports<'b>,
}

impl Direct<'_, '_> {
    fn get(&self, field: Field) -> (u128, u128) {
        self.set.get(field).unwrap_or_default()
    }
}

impl Pieces for Direct<'_, '_> {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn value(&mut self, field: Field) {
        let (value, mask) = self.get(field);
        push_field_value(self.out, field, value, mask, self.ports);
    }

    fn stack(&mut self, entries: usize, is_exact: bool) {
        let set = self.set;
        push_stack(self.out, entries, is_exact, &|field| set.get(field).unwrap_or_default());
    }

    fn geneve(&mut self) {
        let set = self.set;
        push_geneve(self.out, &|field| set.get(field).unwrap_or_default());
    }
}

/// Bytes to which only text is added.
struct Utf8<'a>(&'a mut Vec<u8>);

impl fmt::Write for Utf8<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
