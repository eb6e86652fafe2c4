//! The actions of a flow (`enum ovs_action_attr`).

use sluice_flow::action::{
    Action, ActionList, EthernetAddresses, HashAlgorithm, MplsEntry, NshHeader, NshMetadata, VlanTag,
};
use sluice_flow::chain::ChainId;
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed};

use super::conntrack::read_conntrack;
use super::header::kind;
use super::nsh;
use super::set::{read_masked_set, read_set};
use super::userspace::read_userspace;

const PLACE: &str = "OVS_FLOW_ATTR_ACTIONS";
/// How deep lists may be in lists: as deep as the module takes them (`OVS_COPY_ACTIONS_MAX_DEPTH`), and nobody's message uses up the stack.
const MAX_DEPTH: usize = 16;

/// Reads what is in `OVS_FLOW_ATTR_ACTIONS`.
pub fn read_actions(bytes: &[u8]) -> Result<ActionList, Malformed> {
    read_list(bytes, 0)
}

fn read_list(bytes: &[u8], depth: usize) -> Result<ActionList, Malformed> {
    let mut actions = Vec::new();
    for attribute in Attributes::new(bytes, PLACE) {
        let attribute = attribute?;
        if depth > MAX_DEPTH {
            return Err(attribute.value("too deep in lists"));
        }
        actions.extend(read_action(&attribute, depth)?);
    }
    Ok(actions.into())
}

/// `None` is an action that is none here: an explicit drop.
fn read_action(action: &Attribute<'_>, depth: usize) -> Result<Option<Action>, Malformed> {
    let list = |nest: &Attribute<'_>| read_list(nest.payload, depth + 1);
    Ok(Some(match action.kind {
        1 => Action::Output(PortNumber(action.u32()?)),
        2 => Action::Userspace(Box::new(read_userspace(action)?)),
        3 => read_set(action)?,
        4 => {
            let [a, b, c, d] = action.bytes()?;
            let (tpid, control) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            Action::PushVlan(VlanTag { tpid, vid: control & 0xfff, pcp: c >> 5, cfi: c & 0x10 != 0 })
        }
        5 => Action::PopVlan,
        6 => {
            let [probability, actions] = parts(action, [1, 2], &[3])?;
            Action::Sample { probability: probability.u32()?, actions: list(&actions)? }
        }
        7 => Action::Recirc(ChainId(action.u32()?)),
        8 => {
            let [a, b, c, d, basis @ ..]: [u8; 8] = action.bytes()?;
            let algorithm = match u32::from_ne_bytes([a, b, c, d]) {
                0 => HashAlgorithm::L4,
                1 => HashAlgorithm::SymmetricL4,
                _ => return Err(action.value("a hash that is not known")),
            };
            Action::Hash { algorithm, basis: u32::from_ne_bytes(basis) }
        }
        9 => Action::PushMpls(label_stack_entry(action)?),
        10 => Action::PopMpls(action.be16()?),
        11 => read_masked_set(action)?,
        12 => Action::Conntrack(Box::new(read_conntrack(action)?)),
        13 => Action::Trunc(action.u32()?),
        14 => {
            let [source, destination] = halves(action.bytes()?);
            Action::PushEth(EthernetAddresses { source, destination })
        }
        15 => Action::PopEth,
        16 => Action::ConntrackClear,
        17 => Action::PushNsh(Box::new(read_nsh(action)?)),
        18 => Action::PopNsh,
        19 => Action::Meter(MeterId(action.u32()?)),
        20 => {
            // The module marks a copy after which nothing follows by an attribute of its own, which it does not show.
            Action::Clone(list(action)?)
        }
        21 => {
            let [length, greater, less_or_equal] = parts(action, [1, 2, 3], &[])?;
            Action::CheckPacketLength {
                length: length.u16()?,
                greater: list(&greater)?,
                less_or_equal: list(&less_or_equal)?,
            }
        }
        22 => {
            let bytes: [u8; 8] = action.bytes()?;
            if bytes[6..] != [0, 0] {
                return Err(action.value("a label stack entry behind the Ethernet header"));
            }
            Action::AddMpls(label_stack_entry(action)?)
        }
        23 => {
            let [actions] = parts(action, [1], &[])?;
            Action::DecTtl(list(&actions)?)
        }
        24 => return Ok(None),
        25 => read_psample(action)?,
        _ => return Err(action.unknown()),
    }))
}

/// The attributes within, each of which must be there, besides those that say nothing.
fn parts<'a, const N: usize>(
    action: &Attribute<'a>,
    wanted: [u16; N],
    passed_over: &[u16],
) -> Result<[Attribute<'a>; N], Malformed> {
    let mut found = [None; N];
    for part in action.nested(PLACE) {
        let part = part?;
        match wanted.iter().position(|kind| *kind == part.kind) {
            Some(index) => found[index] = Some(part),
            None if passed_over.contains(&part.kind) => {}
            None => return Err(part.unknown()),
        }
    }
    for (part, kind) in found.iter().zip(wanted) {
        if part.is_none() {
            return Err(Malformed::Missing { place: PLACE, kind });
        }
    }
    Ok(found.map(|part| part.unwrap_or(*action)))
}

/// Two Ethernet addresses.
fn halves(addresses: [u8; 12]) -> [u64; 2] {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    [number(&addresses[..6]), number(&addresses[6..])]
}

/// What `struct ovs_action_push_mpls` and `struct ovs_action_add_mpls` begin with. C puts two unused bytes behind the former.
fn label_stack_entry(action: &Attribute<'_>) -> Result<MplsEntry, Malformed> {
    let [a, b, c, ttl, e, f, ..]: [u8; 8] = action.bytes()?;
    Ok(MplsEntry {
        label: u32::from(a) << 12 | u32::from(b) << 4 | u32::from(c >> 4),
        tc: c >> 1 & 7,
        ttl,
        bos: c & 1 == 1,
        eth_type: u16::from_be_bytes([e, f]),
    })
}

fn read_nsh(action: &Attribute<'_>) -> Result<NshHeader, Malformed> {
    /// `OVS_NSH_KEY_ATTR_MD2`
    const MD2: u16 = 3;
    let missing = |kind| Malformed::Missing { place: nsh::PLACE, kind };
    let (mut base, mut metadata) = (None, None);
    for around in action.nested(PLACE) {
        let around = around?;
        if around.kind != kind::NSH {
            return Err(around.unknown());
        }
        for part in around.nested(nsh::PLACE) {
            let part = part?;
            match part.kind {
                nsh::BASE => base = Some(part.bytes::<8>()?),
                nsh::MD1 => {
                    let (words, _) = part.payload.as_chunks::<4>();
                    let words: [_; 4] = words.try_into().map_err(|_| part.length())?;
                    metadata = Some(NshMetadata::Contexts(words.map(u32::from_be_bytes)));
                }
                MD2 => metadata = Some(NshMetadata::Tlvs(part.payload.into())),
                _ => return Err(part.unknown()),
            }
        }
    }
    let [flags, ttl, _, next_protocol, a, b, c, index] = base.ok_or_else(|| missing(nsh::BASE))?;
    let metadata = metadata.ok_or_else(|| missing(nsh::MD1))?;
    Ok(NshHeader { flags, ttl, next_protocol, path: u32::from_be_bytes([0, a, b, c]), index, metadata })
}

fn read_psample(action: &Attribute<'_>) -> Result<Action, Malformed> {
    let (mut group, mut cookie) = (None, Box::default());
    for part in action.nested(PLACE) {
        let part = part?;
        match part.kind {
            1 => group = Some(part.u32()?),
            2 => cookie = part.payload.into(),
            _ => return Err(part.unknown()),
        }
    }
    let group = group.ok_or(Malformed::Missing { place: PLACE, kind: 1 })?;
    Ok(Action::Psample { group, cookie })
}
