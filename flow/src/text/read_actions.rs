//! Actions, read.

use super::actions::conntrack::read_conntrack;
use super::actions::headers::{read_mpls, read_pop_mpls, read_push_eth, read_push_nsh, read_push_vlan};
use super::actions::tunnel::read_tunnel_push;
use super::actions::userspace::{read_psample, read_userspace};
use super::cursor::{Cursor, error_at, is_number, quoted};
use super::read_key::attribute_of;
use super::read_value::{number32, read_attribute, read_port};
use super::{NESTING_LIMIT, ParseError};
use crate::action::{Action, ActionKind, ActionList, FieldSet, HashAlgorithm};
use crate::chain::ChainId;
use crate::field::{Attribute, MPLS_PRESENT};
use crate::meter::MeterId;
use crate::port::PortNames;

/// As many actions as a netlink message of OVS has room for.
const ACTIONS_LIMIT: usize = 8191;

/// Reads a list of actions; `drop` and the empty text are the empty list.
pub fn parse_actions(text: &str, names: &dyn PortNames) -> Result<ActionList, ParseError> {
    read_actions(&mut Cursor::new(text), names, None)
}

/// Reads actions up to the end of the text or to `end`, which it leaves.
pub(super) fn read_actions(
    cursor: &mut Cursor<'_>,
    names: &dyn PortNames,
    end: Option<&str>,
) -> Result<ActionList, ParseError> {
    let ends = |cursor: &Cursor<'_>| cursor.at_end() || end.is_some_and(|end| cursor.rest().starts_with(end));
    ActionReader { names, depth: 0 }.read_list(cursor, &ends)
}

/// Reads lists of actions, and lists in them.
pub(super) struct ActionReader<'n> {
    names: &'n dyn PortNames,
    /// How many lists the one that is read is in.
    depth: usize,
}

impl ActionReader<'_> {
    fn read_list(
        &mut self,
        cursor: &mut Cursor<'_>,
        ends: &dyn Fn(&Cursor<'_>) -> bool,
    ) -> Result<ActionList, ParseError> {
        let mut actions = Vec::new();
        cursor.skip_separators();
        while !ends(cursor) {
            if actions.len() == ACTIONS_LIMIT {
                return Err(cursor.error(format!("at most {ACTIONS_LIMIT} actions")));
            }
            let start = cursor.offset();
            let action = self.read_action(cursor)?;
            let separators = cursor.skip_separators();
            if !separators.comma && !separators.blank && !ends(cursor) {
                return Err(cursor.error("\",\" between actions"));
            }
            match action {
                Some(action) => actions.push(action),
                None if ends(cursor) => break,
                None => return Err(error_at(start, "drop at the end: nothing behind it is done")),
            }
        }
        Ok(actions.into())
    }

    /// Reads a list in parentheses.
    pub(super) fn read_nested(&mut self, cursor: &mut Cursor<'_>) -> Result<ActionList, ParseError> {
        if self.depth == NESTING_LIMIT {
            return Err(cursor.error(format!("at most {NESTING_LIMIT} lists of actions within each other")));
        }
        cursor.expect("(")?;
        self.depth += 1;
        let actions = self.read_list(cursor, &|cursor| cursor.at_end() || cursor.peek() == Some(b')'))?;
        self.depth -= 1;
        cursor.expect(")")?;
        Ok(actions)
    }

    /// Reads one action; `None` is `drop`.
    fn read_action(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Action>, ParseError> {
        let start = cursor.offset();
        let mut ahead = cursor.clone();
        let word = ahead.take_word();
        if is_number(word) {
            return Ok(Some(Action::Output(read_port(cursor, self.names)?)));
        }
        let opens = ahead.peek() == Some(b'(');
        // No word of the grammar is "output" or "set(tunnel)": these are names of kinds only.
        let named = ActionKind::ALL.iter().find(|kind| kind.name() == word && **kind != ActionKind::Output);
        let Some(kind) = named.copied() else {
            return match (word.is_empty(), opens, self.names.number(word)) {
                (false, false, Some(port)) => {
                    *cursor = ahead;
                    Ok(Some(Action::Output(port)))
                }
                (true, ..) => Err(cursor.error("an action")),
                _ => Err(cursor.error(format!("an action or a port: {} is neither", quoted(word)))),
            };
        };
        *cursor = ahead;
        Ok(Some(match kind {
            ActionKind::Drop => return Ok(None),
            ActionKind::Output | ActionKind::SetTunnel => return Err(error_at(start, "an action")),
            ActionKind::AddMpls => Action::AddMpls(read_mpls(cursor, kind.name())?),
            ActionKind::CheckPktLen => self.read_check_packet_length(cursor)?,
            ActionKind::Clone => Action::Clone(self.read_nested(cursor)?),
            ActionKind::Ct => Action::Conntrack(read_conntrack(cursor)?.into()),
            ActionKind::CtClear => Action::ConntrackClear,
            ActionKind::DecTtl => self.read_dec_ttl(cursor)?,
            ActionKind::Hash => read_hash(cursor)?,
            ActionKind::LbOutput => Action::LbOutput(read_argument(cursor)?),
            ActionKind::Meter => Action::Meter(MeterId(read_argument(cursor)?)),
            ActionKind::PopEth => Action::PopEth,
            ActionKind::PopMpls => Action::PopMpls(read_pop_mpls(cursor)?),
            ActionKind::PopNsh => {
                // OVS prints and wants parentheses here, and nowhere else around nothing.
                cursor.eat("()");
                Action::PopNsh
            }
            ActionKind::PopVlan => Action::PopVlan,
            ActionKind::Psample => read_psample(cursor)?,
            ActionKind::PushEth => Action::PushEth(read_push_eth(cursor)?),
            ActionKind::PushMpls => Action::PushMpls(read_mpls(cursor, kind.name())?),
            ActionKind::PushNsh => Action::PushNsh(read_push_nsh(cursor)?.into()),
            ActionKind::PushVlan => Action::PushVlan(read_push_vlan(cursor)?),
            ActionKind::Recirc => Action::Recirc(ChainId(read_argument(cursor)?)),
            ActionKind::Sample => self.read_sample(cursor)?,
            ActionKind::Set => read_set(cursor, self.names)?,
            ActionKind::TnlPop => {
                cursor.expect("(")?;
                let port = read_port(cursor, self.names)?;
                cursor.expect(")")?;
                Action::TunnelPop(port)
            }
            ActionKind::TnlPush => Action::TunnelPush(read_tunnel_push(cursor, self.names)?.into()),
            ActionKind::Trunc => Action::Trunc(read_argument(cursor)?),
            ActionKind::Userspace => Action::Userspace(read_userspace(cursor, self.names)?.into()),
        }))
    }
}

/// Reads `(N)`.
fn read_argument(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    cursor.expect("(")?;
    let argument = number32(cursor)?;
    cursor.expect(")")?;
    Ok(argument)
}

/// Reads `(l4(N))` or `(sym_l4(N))`.
fn read_hash(cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
    cursor.expect("(")?;
    let start = cursor.offset();
    let algorithm = match cursor.take_name() {
        "l4" => HashAlgorithm::L4,
        "sym_l4" => HashAlgorithm::SymmetricL4,
        _ => return Err(error_at(start, "l4 or sym_l4")),
    };
    let basis = read_argument(cursor)?;
    cursor.expect(")")?;
    Ok(Action::Hash { algorithm, basis })
}

/// Reads the argument of `set`: one attribute with the fields to rewrite.
fn read_set(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<Action, ParseError> {
    cursor.expect("(")?;
    let start = cursor.offset();
    let name = cursor.take_name();
    let Some(attribute) = attribute_of(name).filter(|attribute| is_settable(*attribute)) else {
        return Err(error_at(start, format!("something that can be set: {} cannot, in this version", quoted(name))));
    };
    cursor.expect("(")?;
    let mut fields = Vec::new();
    read_attribute(cursor, attribute, names, &mut |found| {
        if attribute == Attribute::Tunnel && !found.is_whole {
            return Err(error_at(found.offset, "no mask: set(tunnel()) sets whole fields"));
        }
        if MPLS_PRESENT.contains(&found.field) {
            return Err(error_at(found.offset, "one label stack entry: set(mpls()) rewrites the outermost"));
        }
        if found.mask != 0 {
            fields.push((found.field, found.value & found.mask, found.mask));
        }
        Ok(())
    })?;
    cursor.expect(")")?;
    if fields.is_empty() {
        return Err(error_at(start, format!("at least one field to set in {name}()")));
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    let set = FieldSet { attribute, fields: fields.into() };
    Ok(if attribute == Attribute::Tunnel { Action::SetTunnel(set) } else { Action::Set(set) })
}

/// Whether some OVS datapath, the kernel's or that of user space, rewrites fields of the attribute.
fn is_settable(attribute: Attribute) -> bool {
    match attribute {
        Attribute::SkbPriority
        | Attribute::Tunnel
        | Attribute::SkbMark
        | Attribute::Ethernet
        | Attribute::Mpls
        | Attribute::Ipv4
        | Attribute::Ipv6
        | Attribute::Arp
        | Attribute::Tcp
        | Attribute::Udp
        | Attribute::Sctp
        | Attribute::Icmp
        | Attribute::Icmpv6
        | Attribute::Nsh
        | Attribute::Nd
        | Attribute::NdExt => true,
        Attribute::RecircId
        | Attribute::DpHash
        | Attribute::InPort
        | Attribute::CtState
        | Attribute::CtZone
        | Attribute::CtMark
        | Attribute::CtLabel
        | Attribute::CtTuple4
        | Attribute::CtTuple6
        | Attribute::PacketType
        | Attribute::NumOfVlans
        | Attribute::Vlan
        | Attribute::Cvlan
        | Attribute::EthType
        | Attribute::Pppoe
        | Attribute::Cfm
        | Attribute::TcpFlags
        | Attribute::L2tpv3
        | Attribute::Ipsec => false,
    }
}
