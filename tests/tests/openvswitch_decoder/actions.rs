//! Actions.

use std::ffi::CStr;
use std::net::IpAddr;

use netlink_bindings::ovs_flow::{
    ActionAttrs, CheckPktLenAttrs, CtAttrs, DecTtlAttrs, IterableActionAttrs, IterableCtAttrs, IterableKeyAttrs,
    IterableNatAttrs, IterableOvsNshKeyAttrs, IterableUserspaceAttrs, KeyAttrs, NatAttrs, OvsNshKeyAttrs, SampleAttrs,
    UserspaceAttrs,
};
use sluice_flow::action::{
    Action, ActionList, Commit, Conntrack, EthernetAddresses, FieldSet, HashAlgorithm, MplsEntry, Nat, NatSide,
    NshHeader, NshMetadata, PortPick, Translation, UserData, Userspace, VlanTag,
};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field, MPLS_ENTRIES};
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;

use crate::key::{self, Values, number};

/// The actions of a list.
pub(crate) fn list(attributes: IterableActionAttrs<'_>) -> Vec<Action> {
    let mut rest = attributes.get_buf();
    let mut actions = Vec::new();
    for attribute in attributes {
        let (bytes, behind) = take(rest);
        actions.push(one(attribute.unwrap_or_else(|error| panic!("{error:?}")), bytes));
        rest = behind;
    }
    actions
}

/// What the first attribute carries, and what is behind it.
fn take(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk().unwrap()));
    (&bytes[4..length], bytes.get(length.next_multiple_of(4)..).unwrap_or_default())
}

fn shared(attributes: IterableActionAttrs<'_>) -> ActionList {
    list(attributes).into()
}

/// An action; its bytes are for what the description has not, or not right.
fn one(attribute: ActionAttrs<'_>, bytes: &[u8]) -> Action {
    match attribute {
        ActionAttrs::Output(port) => Action::Output(PortNumber(port)),
        ActionAttrs::Userspace(parts) => Action::Userspace(Box::new(userspace(parts))),
        ActionAttrs::Set(attributes) => set_tunnel(attributes),
        ActionAttrs::SetMasked(attributes) => Action::Set(masked(attributes.get_buf())),
        ActionAttrs::PushVlan(tag) => {
            let control = tag.vlan_tci();
            let (vid, cfi) = (control & 0xfff, control >> 12 & 1 == 1);
            Action::PushVlan(VlanTag { tpid: tag.vlan_tpid(), vid, pcp: (control >> 13).try_into().unwrap(), cfi })
        }
        ActionAttrs::PopVlan(()) => Action::PopVlan,
        ActionAttrs::Sample(parts) => {
            let (mut probability, mut actions) = (None, None);
            for part in parts {
                match part.unwrap() {
                    SampleAttrs::Probability(value) => probability = Some(value),
                    SampleAttrs::Actions(inner) => actions = Some(shared(inner)),
                }
            }
            Action::Sample { probability: probability.unwrap(), actions: actions.unwrap() }
        }
        ActionAttrs::Recirc(chain) => Action::Recirc(ChainId(chain)),
        ActionAttrs::Hash(hash) => {
            let algorithm = [HashAlgorithm::L4, HashAlgorithm::SymmetricL4][usize::try_from(hash.hash_alg).unwrap()];
            Action::Hash { algorithm, basis: hash.hash_basis }
        }
        ActionAttrs::PushMpls(push) => {
            assert_eq!(bytes.len(), 8);
            assert_eq!(push.mpls_lse().to_be_bytes(), bytes[..4]);
            Action::PushMpls(mpls(bytes))
        }
        ActionAttrs::AddMpls(add) => {
            assert_eq!(bytes[6..], [0, 0], "in front of all");
            assert_eq!(add.mpls_lse().to_be_bytes(), bytes[..4]);
            Action::AddMpls(mpls(bytes))
        }
        ActionAttrs::PopMpls(eth_type) => Action::PopMpls(eth_type),
        ActionAttrs::Ct(parts) => Action::Conntrack(Box::new(track(parts))),
        ActionAttrs::Trunc(length) => Action::Trunc(length),
        ActionAttrs::PushEth(addresses) => {
            let [source, destination] = [0, 6].map(|at| u64::try_from(number(&addresses[at..at + 6])).unwrap());
            Action::PushEth(EthernetAddresses { source, destination })
        }
        ActionAttrs::PopEth(()) => Action::PopEth,
        ActionAttrs::CtClear(()) => Action::ConntrackClear,
        // The description leaves out that there is an `OVS_KEY_ATTR_NSH` around the parts.
        ActionAttrs::PushNsh(_) => match KeyAttrs::new(bytes).get_nsh() {
            Ok(parts) => Action::PushNsh(Box::new(nsh(parts))),
            Err(error) => panic!("{error:?}"),
        },
        ActionAttrs::PopNsh(()) => Action::PopNsh,
        ActionAttrs::Meter(meter) => Action::Meter(MeterId(meter)),
        ActionAttrs::Clone(inner) => Action::Clone(shared(inner)),
        ActionAttrs::CheckPktLen(parts) => {
            let (mut length, mut greater, mut less_or_equal) = (None, None, None);
            for part in parts {
                match part.unwrap() {
                    CheckPktLenAttrs::PktLen(value) => length = Some(value),
                    CheckPktLenAttrs::ActionsIfGreater(inner) => greater = Some(shared(inner)),
                    CheckPktLenAttrs::ActionsIfLessEqual(inner) => less_or_equal = Some(shared(inner)),
                }
            }
            let (greater, less_or_equal) = (greater.unwrap(), less_or_equal.unwrap());
            Action::CheckPacketLength { length: length.unwrap(), greater, less_or_equal }
        }
        ActionAttrs::DecTtl(mut parts) => {
            let DecTtlAttrs::Action(inner) = parts.next().unwrap().unwrap();
            Action::DecTtl(shared(inner))
        }
        _ => panic!("nobody writes such an action"),
    }
}

/// A label stack entry and an Ethernet type of 16 bits.
fn mpls(bytes: &[u8]) -> MplsEntry {
    let values = key::label_stack_entry(&bytes[..4], MPLS_ENTRIES[0]);
    let [label, tc, bos, ttl] = [0, 1, 2, 3].map(|at| values[at].1);
    MplsEntry {
        label: label.try_into().unwrap(),
        tc: tc.try_into().unwrap(),
        ttl: ttl.try_into().unwrap(),
        bos: bos == 1,
        eth_type: u16::from_be_bytes([bytes[4], bytes[5]]),
    }
}

/// The header to be rewritten; its mask follows its value, of which the description says nothing.
fn masked(bytes: &[u8]) -> FieldSet {
    let (value, rest) = take(bytes);
    assert_eq!(rest, [0; 0], "one header");
    let kind = u16::from_ne_bytes([bytes[2], bytes[3]]) & 0x3fff;
    let [value, mask] = if kind == NSH {
        let parts = halves_of_each(value);
        parts.map(|part| attribute(kind, &part))
    } else {
        let (value, mask) = value.split_at(value.len() / 2);
        [value, mask].map(|half| attribute(kind, half))
    };
    let [values, masks] = [value, mask].map(|bytes| key::fields(KeyAttrs::new(&bytes)));
    field_set(&values, &masks)
}

const NSH: u16 = 28;

/// Each attribute with the first half of what it carries, and each with the second.
fn halves_of_each(mut bytes: &[u8]) -> [Vec<u8>; 2] {
    let mut halves = [Vec::new(), Vec::new()];
    while !bytes.is_empty() {
        let kind = u16::from_ne_bytes([bytes[2], bytes[3]]);
        let (value, rest) = take(bytes);
        let (value, mask) = value.split_at(value.len() / 2);
        halves[0].extend(attribute(kind, value));
        halves[1].extend(attribute(kind, mask));
        bytes = rest;
    }
    halves
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The fields of which some bits are set, in the order of the table.
fn field_set(values: &Values, masks: &Values) -> FieldSet {
    let fields = values.iter().zip(masks).filter(|(_, (_, mask))| *mask != 0);
    let mut fields: Vec<_> = fields.map(|((field, value), (_, mask))| (*field, *value, *mask)).collect();
    fields.sort_by_key(|(field, ..)| *field as usize);
    FieldSet { attribute: fields[0].0.spec().attribute, fields: fields.into() }
}

/// Of an outer header the module knows values and no masks: which fields are set, besides those that are not zero, is lost.
fn set_tunnel(mut attributes: IterableKeyAttrs<'_>) -> Action {
    let Some(Ok(KeyAttrs::Tunnel(outer))) = attributes.next() else { panic!("no other header is set as a whole") };
    assert!(attributes.next().is_none(), "one header");
    let mut values = Values::new();
    key::tunnel(outer, &mut values);
    Action::SetTunnel(told(values))
}

fn told(values: Values) -> FieldSet {
    let values = values.into_iter().filter(|(field, value)| *value != 0 && !key::is_shape(*field));
    let mut fields: Vec<_> = values.map(|(field, value)| (field, value, field.full_mask())).collect();
    fields.sort_by_key(|(field, ..)| *field as usize);
    FieldSet { attribute: Attribute::Tunnel, fields: fields.into() }
}

/// A list as far as the module can be told of it: `flags(key)` is that there is an identifier.
pub(crate) fn as_said(actions: &[Action]) -> Vec<Action> {
    let shared = |actions: &ActionList| as_said(actions).into();
    let say = |action: &Action| match action {
        Action::SetTunnel(set) => {
            let values = set.fields.iter().map(|(field, value, _)| match field {
                Field::TunnelFlags => (*field, value & !key::KEY_FLAG),
                _ => (*field, *value),
            });
            Action::SetTunnel(told(values.collect()))
        }
        Action::Clone(list) => Action::Clone(shared(list)),
        Action::DecTtl(list) => Action::DecTtl(shared(list)),
        Action::Sample { probability, actions } => {
            Action::Sample { probability: *probability, actions: shared(actions) }
        }
        Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
            length: *length,
            greater: shared(greater),
            less_or_equal: shared(less_or_equal),
        },
        other => other.clone(),
    };
    actions.iter().map(say).collect()
}

fn nsh(parts: IterableOvsNshKeyAttrs<'_>) -> NshHeader {
    let (mut base, mut metadata) = (None, None);
    for part in parts {
        match part.unwrap() {
            OvsNshKeyAttrs::Base(bytes) => base = Some(<[u8; 8]>::try_from(bytes).unwrap()),
            OvsNshKeyAttrs::Md1(bytes) => {
                let word = |at: usize| u32::from_be_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());
                assert_eq!(bytes.len(), 16);
                metadata = Some((1, NshMetadata::Contexts([0, 1, 2, 3].map(word))));
            }
            OvsNshKeyAttrs::Md2(bytes) => metadata = Some((2, NshMetadata::Tlvs(bytes.into()))),
        }
    }
    let [flags, ttl, kind, next_protocol, a, b, c, index] = base.unwrap();
    let (expected, metadata) = metadata.unwrap();
    assert_eq!(kind, expected);
    NshHeader { flags, ttl, next_protocol, path: u32::from_be_bytes([0, a, b, c]), index, metadata }
}

fn userspace(parts: IterableUserspaceAttrs<'_>) -> Userspace {
    let mut read = Userspace { pid: u32::MAX, data: None, actions: false, tunnel_port: None };
    for part in parts {
        match part.unwrap() {
            UserspaceAttrs::Pid(pid) => read.pid = pid,
            UserspaceAttrs::Userdata(bytes) => read.data = Some(UserData::Bytes(bytes.into())),
            UserspaceAttrs::EgressTunPort(port) => read.tunnel_port = Some(PortNumber(port)),
            UserspaceAttrs::Actions(()) => read.actions = true,
        }
    }
    read
}

fn track(parts: IterableCtAttrs<'_>) -> Conntrack {
    let mut read = Conntrack::default();
    let word = |name: &CStr| Some(name.to_str().unwrap().into());
    for part in parts {
        match part.unwrap() {
            CtAttrs::Commit(()) => read.commit = Commit::Yes,
            CtAttrs::ForceCommit(()) => read.commit = Commit::Force,
            CtAttrs::Zone(zone) => read.zone = zone,
            CtAttrs::Mark(bytes) => {
                let [value, mask] = [0, 4].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()));
                read.mark = Some((value, mask));
            }
            CtAttrs::Labels(bytes) => {
                let [value, mask] = [0, 16].map(|at| u128::from_ne_bytes(bytes[at..at + 16].try_into().unwrap()));
                read.label = Some((value, mask));
            }
            CtAttrs::Helper(name) => read.helper = word(name),
            CtAttrs::Timeout(name) => read.timeout = word(name),
            CtAttrs::Nat(parts) => read.nat = Some(nat(parts)),
            CtAttrs::Eventmask(_) => panic!("nobody writes it"),
        }
    }
    read
}

fn nat(parts: IterableNatAttrs<'_>) -> Nat {
    let (mut side, mut addresses, mut ports) = (None, [None, None], [None, None]);
    let (mut persistent, mut pick) = (false, PortPick::Default);
    let address = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap())),
    };
    for part in parts {
        match part.unwrap() {
            NatAttrs::Src(()) => side = Some(NatSide::Source),
            NatAttrs::Dst(()) => side = Some(NatSide::Destination),
            NatAttrs::IpMin(bytes) => addresses[0] = address(bytes),
            NatAttrs::IpMax(bytes) => addresses[1] = address(bytes),
            NatAttrs::ProtoMin(port) => ports[0] = Some(port),
            NatAttrs::ProtoMax(port) => ports[1] = Some(port),
            NatAttrs::Persistent(()) => persistent = true,
            NatAttrs::ProtoHash(()) => pick = PortPick::Hash,
            NatAttrs::ProtoRandom(()) => pick = PortPick::Random,
        }
    }
    let Some(side) = side else { return Nat::Existing };
    let (addresses, ports) = (addresses[0].zip(addresses[1]), ports[0].zip(ports[1]));
    Nat::New(Translation { side, addresses, ports, persistent, pick })
}
