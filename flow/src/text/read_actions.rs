//! Actions, read.

use super::ParseError;
use super::cursor::{Cursor, ends_word, error_at, is_number, quoted};
use super::read_key::attribute_of;
use super::read_value::{number32, read_attribute, read_port};
use crate::action::{Action, ActionKind, ActionList, FieldSet, OpaqueAction, VlanTag};
use crate::chain::ChainId;
use crate::field::Attribute;
use crate::meter::MeterId;
use crate::port::PortNames;

/// As many actions as a netlink message of OVS has room for.
const ACTIONS_LIMIT: usize = 8191;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;

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
    cursor.skip_separators();
    let mut ahead = cursor.clone();
    if ahead.take_word() == ActionKind::Drop.name() {
        ahead.skip_separators();
        if !ends(&ahead) {
            return Err(cursor.error("drop alone or other actions, not both"));
        }
        *cursor = ahead;
        return Ok(ActionList::default());
    }
    let mut actions = Vec::new();
    while !ends(cursor) {
        if actions.len() == ACTIONS_LIMIT {
            return Err(cursor.error(format!("at most {ACTIONS_LIMIT} actions")));
        }
        if let Some(action) = read_action(cursor, names)? {
            actions.push(action);
        }
        let separators = cursor.skip_separators();
        if !separators.comma && !separators.blank && !ends(cursor) {
            return Err(cursor.error("\",\" between actions"));
        }
    }
    Ok(actions.into())
}

fn read_action(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<Option<Action>, ParseError> {
    let start = cursor.offset();
    let mut ahead = cursor.clone();
    let word = ahead.take_word();
    if is_number(word) {
        return Ok(Some(Action::Output(read_port(cursor, names)?)));
    }
    let opens = ahead.peek() == Some(b'(');
    // No word of the grammar is "output" or "set(tunnel)": these are names of kinds only.
    let named = ActionKind::ALL.iter().find(|kind| kind.name() == word && **kind != ActionKind::Output);
    let Some(kind) = named.copied() else {
        return match (word.is_empty(), opens, names.number(word)) {
            (false, false, Some(port)) => {
                *cursor = ahead;
                Ok(Some(Action::Output(port)))
            }
            (true, ..) => Err(cursor.error("an action")),
            _ => Err(cursor.error(format!("an action or a port: {} is neither", quoted(word)))),
        };
    };
    *cursor = ahead;
    let action = match kind {
        ActionKind::Drop => return Err(error_at(start, "drop alone or other actions, not both")),
        ActionKind::Meter => Action::Meter(MeterId(read_argument(cursor)?)),
        ActionKind::PopVlan => Action::PopVlan,
        ActionKind::PushVlan => Action::PushVlan(read_tag(cursor)?),
        ActionKind::Recirc => Action::Recirc(ChainId(read_argument(cursor)?)),
        ActionKind::Set => read_set(cursor, names)?,
        ActionKind::Trunc => Action::Trunc(read_argument(cursor)?),
        _ => {
            if opens {
                cursor.balanced()?;
            }
            Action::Opaque(OpaqueAction { kind, text: cursor.since(start).into() })
        }
    };
    Ok(Some(action))
}

/// Reads `(N)`.
fn read_argument(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    cursor.expect("(")?;
    let argument = number32(cursor)?;
    cursor.expect(")")?;
    Ok(argument)
}

/// Reads the arguments of `push_vlan`.
fn read_tag(cursor: &mut Cursor<'_>) -> Result<VlanTag, ParseError> {
    cursor.expect("(")?;
    let (mut tpid, mut vid, mut pcp, mut cfi) = (None, None, None, None);
    loop {
        cursor.skip_separators();
        let start = cursor.offset();
        if cursor.eat(")") {
            let vid = vid.ok_or_else(|| error_at(start, "vid= in push_vlan()"))?;
            return Ok(VlanTag {
                tpid: tpid.unwrap_or(ETH_P_8021Q),
                vid,
                pcp: u8::try_from(pcp.unwrap_or(0)).unwrap_or(0),
                cfi: cfi != Some(0),
            });
        }
        let (place, limit) = match cursor.take_name() {
            "tpid" => (&mut tpid, u16::MAX),
            "vid" => (&mut vid, 0xfff),
            "pcp" => (&mut pcp, 7),
            "cfi" => (&mut cfi, 1),
            _ => return Err(error_at(start, "a field of push_vlan(): tpid, vid, pcp, cfi")),
        };
        if place.is_some() {
            return Err(error_at(start, "each field once"));
        }
        cursor.expect("=")?;
        let value_start = cursor.offset();
        let value = cursor.number(u128::from(limit))?;
        *place = u16::try_from(value).ok();
        if tpid.is_some_and(|tpid| !matches!(tpid, ETH_P_8021Q | ETH_P_8021AD)) {
            return Err(error_at(value_start, "0x8100 or 0x88a8"));
        }
        if !matches!(cursor.peek(), Some(b')')) && !cursor.rest().starts_with(ends_word) {
            return Err(cursor.error("\",\" or \")\""));
        }
    }
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
        if attribute == Attribute::Tunnel && found.mask != found.field.full_mask() {
            return Err(error_at(found.offset, "no mask: set(tunnel()) sets whole fields"));
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
        | Attribute::Nd => true,
        Attribute::RecircId
        | Attribute::DpHash
        | Attribute::InPort
        | Attribute::CtState
        | Attribute::CtZone
        | Attribute::CtMark
        | Attribute::CtLabel
        | Attribute::PacketType
        | Attribute::Vlan
        | Attribute::Cvlan
        | Attribute::EthType
        | Attribute::TcpFlags => false,
    }
}
