//! The text of every action: one row for each, which reads it and writes it.

use std::fmt::{self, Write as _};

use super::arguments::parenthesised;
use super::conntrack::{read_conntrack, write_conntrack};
use super::headers::{
    read_mpls, read_pop_mpls, read_push_eth, read_push_nsh, read_push_vlan, write_mpls, write_push_eth, write_push_nsh,
    write_push_vlan,
};
use super::lists::{ActionReader, write_check_packet_length, write_clone, write_dec_ttl, write_sample};
use super::set::{push_set, read_set};
use super::tunnel::{read_tunnel_push, write_tunnel_push};
use super::userspace::{read_psample, read_userspace, write_psample, write_userspace};
use crate::action::{Action, ActionKind, HashAlgorithm};
use crate::chain::ChainId;
use crate::meter::MeterId;
use crate::name::is_number;
use crate::text::ParseError;
use crate::text::cursor::{Cursor, error_at, quoted};
use crate::text::read_value::{number32, read_port};
use crate::text::write_number::push_prefixed_hex;
use crate::text::write_value::{Ports, write_port};

/// Each row has a kind of action, what reads its arguments behind the name, and what writes the whole of it.
macro_rules! actions {
    (
        read($reader:ident, $cursor:ident), write($out:ident, $ports:ident);
        $($kind:ident: $read:expr, $action:pat => $write:expr;)*
    ) => {
        /// Reads what is behind the name of an action; `None` is `drop`.
        fn read_kind(
            $reader: &mut ActionReader<'_>,
            $cursor: &mut Cursor<'_>,
            kind: ActionKind,
            start: usize,
        ) -> Result<Option<Action>, ParseError> {
            Ok(Some(match kind {
                $(ActionKind::$kind => $read,)*
                ActionKind::Drop => return Ok(None),
                // These are names of kinds and no words of the grammar.
                ActionKind::Output | ActionKind::SetTunnel => return Err(error_at(start, "an action")),
            }))
        }

        /// Writes an action, those that nearly all flows have without `fmt`.
        pub(super) fn push_action(text: &mut Vec<u8>, action: &Action, $ports: &mut Ports<'_>) -> fmt::Result {
            let $out = &mut Utf8(text);
            match action {
                $($action => $write,)*
                Action::Output(port) => {
                    $ports.push($out.0, *port);
                    Ok(())
                }
            }
        }
    };
}

actions! {
    read(reader, cursor), write(out, ports);

    AddMpls: Action::AddMpls(read_mpls(cursor, "add_mpls")?),
        Action::AddMpls(entry) => write_mpls(out, "add_mpls", entry);
    CheckPktLen: reader.read_check_packet_length(cursor)?,
        Action::CheckPacketLength { length, greater, less_or_equal } => {
            write_check_packet_length(out, *length, greater, less_or_equal, &ports.style)
        };
    Clone: Action::Clone(reader.read_nested(cursor)?),
        Action::Clone(actions) => write_clone(out, actions, &ports.style);
    Ct: Action::Conntrack(read_conntrack(cursor)?.into()),
        Action::Conntrack(conntrack) => write_conntrack(out, conntrack);
    CtClear: Action::ConntrackClear,
        Action::ConntrackClear => out.write_str("ct_clear");
    DecTtl: reader.read_dec_ttl(cursor)?,
        Action::DecTtl(actions) => write_dec_ttl(out, actions, &ports.style);
    Hash: read_hash(cursor)?,
        Action::Hash { algorithm, basis } => write_hash(out, *algorithm, *basis);
    LbOutput: Action::LbOutput(read_argument(cursor)?),
        Action::LbOutput(bond) => write!(out, "lb_output({bond})");
    Meter: Action::Meter(MeterId(read_argument(cursor)?)),
        Action::Meter(meter) => write!(out, "meter({meter})");
    PopEth: Action::PopEth,
        Action::PopEth => out.write_str("pop_eth");
    PopMpls: Action::PopMpls(read_pop_mpls(cursor)?),
        Action::PopMpls(eth_type) => write!(out, "pop_mpls(eth_type={eth_type:#x})");
    PopNsh: read_pop_nsh(cursor),
        Action::PopNsh => out.write_str("pop_nsh()");
    PopVlan: Action::PopVlan,
        Action::PopVlan => out.write_str("pop_vlan");
    Psample: read_psample(cursor)?,
        Action::Psample { group, cookie } => write_psample(out, *group, cookie);
    PushEth: Action::PushEth(read_push_eth(cursor)?),
        Action::PushEth(addresses) => write_push_eth(out, addresses);
    PushMpls: Action::PushMpls(read_mpls(cursor, "push_mpls")?),
        Action::PushMpls(entry) => write_mpls(out, "push_mpls", entry);
    PushNsh: Action::PushNsh(read_push_nsh(cursor)?.into()),
        Action::PushNsh(header) => write_push_nsh(out, header);
    PushVlan: Action::PushVlan(read_push_vlan(cursor)?),
        Action::PushVlan(tag) => write_push_vlan(out, tag);
    Recirc: Action::Recirc(ChainId(read_argument(cursor)?)),
        Action::Recirc(chain) => write_recirc(out, *chain);
    Sample: reader.read_sample(cursor)?,
        Action::Sample { probability, actions } => write_sample(out, *probability, actions, &ports.style);
    Set: read_set(cursor, reader.names)?,
        Action::Set(set) | Action::SetTunnel(set) => {
            push_set(out.0, set, ports);
            Ok(())
        };
    TnlPop: Action::TunnelPop(parenthesised(|cursor| read_port(cursor, reader.names))(cursor)?),
        Action::TunnelPop(port) => {
            out.write_str("tnl_pop(")?;
            write_port(out, *port, &ports.style)?;
            out.write_char(')')
        };
    TnlPush: Action::TunnelPush(read_tunnel_push(cursor, reader.names)?.into()),
        Action::TunnelPush(push) => write_tunnel_push(out, push, &ports.style);
    Trunc: Action::Trunc(read_argument(cursor)?),
        Action::Trunc(length) => write!(out, "trunc({length})");
    Userspace: Action::Userspace(read_userspace(cursor, reader.names)?.into()),
        Action::Userspace(userspace) => write_userspace(out, userspace, &ports.style);
}

/// Reads one action, or the number or name of a port; `None` is `drop`.
pub(super) fn read_action(
    reader: &mut ActionReader<'_>,
    cursor: &mut Cursor<'_>,
) -> Result<Option<Action>, ParseError> {
    let start = cursor.offset();
    let mut ahead = cursor.clone();
    let word = ahead.take_word();
    if is_number(word) {
        return Ok(Some(Action::Output(read_port(cursor, reader.names)?)));
    }
    let opens = ahead.peek() == Some(b'(');
    let named = ActionKind::ALL.iter().find(|kind| kind.name() == word && **kind != ActionKind::Output);
    let Some(kind) = named.copied() else {
        return match (word.is_empty(), opens, reader.names.number(word)) {
            (false, false, Some(port)) => {
                *cursor = ahead;
                Ok(Some(Action::Output(port)))
            }
            (true, ..) => Err(cursor.error("an action")),
            _ => Err(cursor.error(format!("an action or a port: {} is neither", quoted(word)))),
        };
    };
    *cursor = ahead;
    read_kind(reader, cursor, kind, start)
}

/// Reads `(N)`.
fn read_argument(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    parenthesised(number32)(cursor)
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

fn write_hash(out: &mut dyn fmt::Write, algorithm: HashAlgorithm, basis: u32) -> fmt::Result {
    match algorithm {
        HashAlgorithm::L4 => write!(out, "hash(l4({basis}))"),
        HashAlgorithm::SymmetricL4 => write!(out, "hash(sym_l4({basis}))"),
    }
}

/// OVS prints and wants parentheses here, and nowhere else around nothing.
fn read_pop_nsh(cursor: &mut Cursor<'_>) -> Action {
    cursor.eat("()");
    Action::PopNsh
}

fn write_recirc(out: &mut Utf8<'_>, chain: ChainId) -> fmt::Result {
    out.0.extend_from_slice(b"recirc(");
    push_prefixed_hex(out.0, u128::from(chain.0));
    out.0.push(b')');
    Ok(())
}

/// Bytes to which only text is added.
struct Utf8<'a>(&'a mut Vec<u8>);

impl fmt::Write for Utf8<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
