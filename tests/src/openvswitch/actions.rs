//! Actions as the module's (`enum ovs_action_attr`).

use std::net::IpAddr;

use sluice_flow::action::{
    Action, Commit, Conntrack, FieldSet, HashAlgorithm, MplsEntry, Nat, NatSide, NshHeader, NshMetadata, PortPick,
    Translation, UserData, Userspace,
};
use sluice_flow::field::{Attribute, MPLS_ENTRIES};
use sluice_flow::key::Match;

use super::Unsayable;
use super::attributes::Attributes;
use super::header::{header, number};
use super::key::{USERSPACE_ONLY, label_stack_entry, nsh_parts};
use super::tunnel::{self, Side};

/// The actions as the content of `OVS_FLOW_ATTR_ACTIONS`.
pub fn encode_actions(actions: &[Action]) -> Result<Vec<u8>, Unsayable> {
    Ok(list(actions)?.bytes().to_vec())
}

fn list(actions: &[Action]) -> Result<Attributes, Unsayable> {
    let mut out = Attributes::default();
    for action in actions {
        one(&mut out, action)?;
    }
    Ok(out)
}

const OUTPUT: u16 = 1;
const USERSPACE: u16 = 2;
const SET: u16 = 3;
const PUSH_VLAN: u16 = 4;
const POP_VLAN: u16 = 5;
const SAMPLE: u16 = 6;
const RECIRC: u16 = 7;
const HASH: u16 = 8;
const PUSH_MPLS: u16 = 9;
const POP_MPLS: u16 = 10;
const SET_MASKED: u16 = 11;
const CT: u16 = 12;
const TRUNC: u16 = 13;
const PUSH_ETH: u16 = 14;
const POP_ETH: u16 = 15;
const CT_CLEAR: u16 = 16;
const PUSH_NSH: u16 = 17;
const POP_NSH: u16 = 18;
const METER: u16 = 19;
const CLONE: u16 = 20;
const CHECK_PKT_LEN: u16 = 21;
const ADD_MPLS: u16 = 22;
const DEC_TTL: u16 = 23;

const SAMPLE_PROBABILITY: u16 = 1;
const SAMPLE_ACTIONS: u16 = 2;
const CHECK_PKT_LEN_LENGTH: u16 = 1;
const CHECK_PKT_LEN_GREATER: u16 = 2;
const CHECK_PKT_LEN_LESS_EQUAL: u16 = 3;
const DEC_TTL_ACTIONS: u16 = 1;

fn one(out: &mut Attributes, action: &Action) -> Result<(), Unsayable> {
    match action {
        Action::AddMpls(entry) => {
            // Without OVS_MPLS_L3_TUNNEL_FLAG_MASK, so that it goes in front of all.
            out.put(ADD_MPLS, &[&mpls(entry)[..], &0u16.to_ne_bytes()].concat());
        }
        Action::CheckPacketLength { length, greater, less_or_equal } => {
            let mut inner = Attributes::default();
            inner
                .put(CHECK_PKT_LEN_LENGTH, &length.to_ne_bytes())
                .nest(CHECK_PKT_LEN_GREATER, &list(greater)?)
                .nest(CHECK_PKT_LEN_LESS_EQUAL, &list(less_or_equal)?);
            out.nest(CHECK_PKT_LEN, &inner);
        }
        Action::Clone(actions) => {
            out.nest(CLONE, &list(actions)?);
        }
        Action::Conntrack(conntrack) => {
            out.nest(CT, &track(conntrack));
        }
        Action::ConntrackClear => {
            out.put_flag(CT_CLEAR);
        }
        Action::DecTtl(actions) => {
            let mut inner = Attributes::default();
            inner.nest(DEC_TTL_ACTIONS, &list(actions)?);
            out.nest(DEC_TTL, &inner);
        }
        Action::Hash { algorithm, basis } => {
            let algorithm: u32 = match algorithm {
                HashAlgorithm::L4 => 0,
                HashAlgorithm::SymmetricL4 => 1,
            };
            out.put(HASH, &[algorithm.to_ne_bytes(), basis.to_ne_bytes()].concat());
        }
        Action::Meter(meter) => {
            out.put_u32(METER, meter.0);
        }
        Action::Output(port) => {
            out.put_u32(OUTPUT, port.0);
        }
        Action::PopEth => {
            out.put_flag(POP_ETH);
        }
        Action::PopMpls(eth_type) => {
            out.put(POP_MPLS, &eth_type.to_be_bytes());
        }
        Action::PopNsh => {
            out.put_flag(POP_NSH);
        }
        Action::PopVlan => {
            out.put_flag(POP_VLAN);
        }
        Action::PushEth(addresses) => {
            let addresses = [addresses.source, addresses.destination];
            out.put(PUSH_ETH, &addresses.map(|address| address.to_be_bytes()[2..].to_vec()).concat());
        }
        Action::PushMpls(entry) => {
            out.put(PUSH_MPLS, &[&mpls(entry)[..], &[0, 0]].concat());
        }
        Action::PushNsh(nsh) => {
            let mut inner = Attributes::default();
            inner.nest(number::NSH, &push_nsh(nsh));
            out.nest(PUSH_NSH, &inner);
        }
        Action::PushVlan(tag) => {
            let control = u16::from(tag.pcp) << 13 | u16::from(tag.cfi) << 12 | tag.vid;
            out.put(PUSH_VLAN, &[tag.tpid.to_be_bytes(), control.to_be_bytes()].concat());
        }
        Action::Recirc(chain) => {
            out.put_u32(RECIRC, chain.0);
        }
        Action::Sample { probability, actions } => {
            let mut inner = Attributes::default();
            inner.put_u32(SAMPLE_PROBABILITY, *probability).nest(SAMPLE_ACTIONS, &list(actions)?);
            out.nest(SAMPLE, &inner);
        }
        Action::Set(set) => {
            out.nest(SET_MASKED, &masked(set)?);
        }
        Action::SetTunnel(set) => {
            if let Some((field, ..)) = set.fields.iter().find(|(field, ..)| USERSPACE_ONLY.contains(field)) {
                return Err(Unsayable::new(format!("set({field})")));
            }
            let mut inner = Attributes::default();
            inner.nest(number::TUNNEL, &tunnel::encode(Side::Key, &as_match(set)));
            out.nest(SET, &inner);
        }
        Action::Trunc(length) => {
            out.put_u32(TRUNC, *length);
        }
        Action::Userspace(userspace) => {
            out.nest(USERSPACE, &to_userspace(userspace)?);
        }
        other => return Err(Unsayable::new(format!("action {}", other.kind().name()))),
    }
    Ok(())
}

/// The value of a header, and its mask behind it.
fn masked(set: &FieldSet) -> Result<Attributes, Unsayable> {
    let full = as_match(set);
    let mut out = Attributes::default();
    match set.attribute {
        Attribute::Mpls => {
            let [value, mask] = [&full.key, &full.mask].map(|side| label_stack_entry(side, &MPLS_ENTRIES[0]));
            out.put(number::MPLS, &[value, mask].concat());
        }
        Attribute::Nsh => {
            let ((base, contexts), (base_mask, contexts_mask)) = (nsh_parts(&full.key), nsh_parts(&full.mask));
            let mut inner = Attributes::default();
            inner.put(NSH_BASE, &[base, base_mask].concat()).put(NSH_MD1, &[contexts, contexts_mask].concat());
            out.nest(number::NSH, &inner);
        }
        attribute => {
            let Some(header) = header(attribute) else {
                return Err(Unsayable::new(format!("set({})", attribute.name())));
            };
            out.put(header.number, &[header.bytes(&full.key), header.bytes(&full.mask)].concat());
        }
    }
    Ok(out)
}

fn as_match(set: &FieldSet) -> Match {
    let mut full = Match::default();
    for (field, value, mask) in &set.fields {
        full.set(*field, *value, *mask);
    }
    full
}

/// Entry and Ethernet type, as both `struct ovs_action_push_mpls` and `struct ovs_action_add_mpls` begin.
fn mpls(entry: &MplsEntry) -> [u8; 6] {
    let label = entry.label << 12 | u32::from(entry.tc) << 9 | u32::from(entry.bos) << 8 | u32::from(entry.ttl);
    let ([a, b, c, d], [e, f]) = (label.to_be_bytes(), entry.eth_type.to_be_bytes());
    [a, b, c, d, e, f]
}

const NSH_BASE: u16 = 1;
const NSH_MD1: u16 = 2;
const NSH_MD2: u16 = 3;

fn push_nsh(nsh: &NshHeader) -> Attributes {
    let kind = match nsh.metadata {
        NshMetadata::Contexts(_) => 1,
        NshMetadata::Tlvs(_) => 2,
    };
    let mut base = vec![nsh.flags, nsh.ttl, kind, nsh.next_protocol];
    base.extend((nsh.path << 8 | u32::from(nsh.index)).to_be_bytes());
    let mut out = Attributes::default();
    out.put(NSH_BASE, &base);
    match &nsh.metadata {
        NshMetadata::Contexts(contexts) => out.put(NSH_MD1, &contexts.map(u32::to_be_bytes).concat()),
        NshMetadata::Tlvs(tlvs) => out.put(NSH_MD2, tlvs),
    };
    out
}

const USERSPACE_PID: u16 = 1;
const USERSPACE_USERDATA: u16 = 2;
const USERSPACE_EGRESS_TUN_PORT: u16 = 3;
const USERSPACE_ACTIONS: u16 = 4;

fn to_userspace(userspace: &Userspace) -> Result<Attributes, Unsayable> {
    let mut out = Attributes::default();
    out.put_u32(USERSPACE_PID, userspace.pid);
    match &userspace.data {
        None => {}
        Some(UserData::Bytes(bytes)) => {
            out.put(USERSPACE_USERDATA, bytes);
        }
        // To the module it is all bytes; what they mean is between the process and itself.
        Some(_) => return Err(Unsayable::new("userspace() with a note that is more than bytes")),
    }
    if let Some(port) = userspace.tunnel_port {
        out.put_u32(USERSPACE_EGRESS_TUN_PORT, port.0);
    }
    if userspace.actions {
        out.put_flag(USERSPACE_ACTIONS);
    }
    Ok(out)
}

const CT_COMMIT: u16 = 1;
const CT_ZONE: u16 = 2;
const CT_MARK: u16 = 3;
const CT_LABELS: u16 = 4;
const CT_HELPER: u16 = 5;
const CT_NAT: u16 = 6;
const CT_FORCE_COMMIT: u16 = 7;
const CT_TIMEOUT: u16 = 9;

fn track(conntrack: &Conntrack) -> Attributes {
    let mut out = Attributes::default();
    match conntrack.commit {
        Commit::No => {}
        Commit::Yes => {
            out.put_flag(CT_COMMIT);
        }
        Commit::Force => {
            out.put_flag(CT_FORCE_COMMIT);
        }
    }
    out.put(CT_ZONE, &conntrack.zone.to_ne_bytes());
    if let Some((value, mask)) = conntrack.mark {
        out.put(CT_MARK, &[value.to_ne_bytes(), mask.to_ne_bytes()].concat());
    }
    if let Some((value, mask)) = conntrack.label {
        out.put(CT_LABELS, &[value.to_ne_bytes(), mask.to_ne_bytes()].concat());
    }
    for (number, name) in [(CT_HELPER, &conntrack.helper), (CT_TIMEOUT, &conntrack.timeout)] {
        if let Some(name) = name {
            out.put_text(number, name);
        }
    }
    if let Some(nat) = &conntrack.nat {
        let translation = match nat {
            Nat::Existing => Attributes::default(),
            Nat::New(translation) => translate(translation),
        };
        out.nest(CT_NAT, &translation);
    }
    out
}

const NAT_SRC: u16 = 1;
const NAT_DST: u16 = 2;
const NAT_IP_MIN: u16 = 3;
const NAT_IP_MAX: u16 = 4;
const NAT_PROTO_MIN: u16 = 5;
const NAT_PROTO_MAX: u16 = 6;
const NAT_PERSISTENT: u16 = 7;
const NAT_PROTO_HASH: u16 = 8;
const NAT_PROTO_RANDOM: u16 = 9;

fn translate(translation: &Translation) -> Attributes {
    let mut out = Attributes::default();
    out.put_flag(match translation.side {
        NatSide::Source => NAT_SRC,
        NatSide::Destination => NAT_DST,
    });
    if let Some((first, last)) = translation.addresses {
        for (number, address) in [(NAT_IP_MIN, first), (NAT_IP_MAX, last)] {
            match address {
                IpAddr::V4(address) => out.put(number, &address.octets()),
                IpAddr::V6(address) => out.put(number, &address.octets()),
            };
        }
    }
    if let Some((first, last)) = translation.ports {
        out.put(NAT_PROTO_MIN, &first.to_ne_bytes()).put(NAT_PROTO_MAX, &last.to_ne_bytes());
    }
    if translation.persistent {
        out.put_flag(NAT_PERSISTENT);
    }
    match translation.pick {
        PortPick::Default => {}
        PortPick::Hash => {
            out.put_flag(NAT_PROTO_HASH);
        }
        PortPick::Random => {
            out.put_flag(NAT_PROTO_RANDOM);
        }
    }
    out
}
