//! Finds out what the running kernel can match, with rules that no packet reaches: in a chain that nothing jumps to, at a
//! priority that is not ours.
//!
//! A kernel ignores attributes that it does not know and installs a rule that matches more. So a feature counts as present
//! only if the kernel shows it again.

use std::net::Ipv4Addr;

use sluice_flow::refusal::Refusal;

use crate::context::Features;
use crate::install::{Installer, Request};
use crate::wire::action::{Action, Conntrack, Control, Encapsulation, Family, Helper, Operation, conntrack_bit};
use crate::wire::filter::{ANY_PROTOCOL, Filter, FilterId, Hook};
use crate::wire::flower::{self, CfmMatch, Flower};
use crate::wire::key::{Key, KeyMatch};

/// The last chain of all.
const CHAIN: u32 = Control::NUMBER_LIMIT;
/// The priority of OVS's own probes.
const PRIORITY: u16 = 65535;
/// `TCA_FLOWER_KEY_FLAGS_TUNNEL_CSUM`
const CHECKSUM: u128 = 4;
const IPV4: u16 = 0x0800;
const PPPOE_SESSION: u16 = 0x8864;
const CFM: u16 = 0x8902;
const TCP: u8 = 6;
const ESP: u8 = 50;
const L2TP: u8 = 115;
/// PPP's link control protocol, which has no Ethernet type of its own that the kernel would show.
const LINK_CONTROL: u16 = 0xc021;

/// Probes on a device, which must have its hooks.
pub fn features(installer: &mut Installer, hook: Hook) -> Result<Features, Refusal> {
    let drop = || Action::new(Operation::Generic, Control::Shot);
    let key = |key| Flower { keys: vec![key], actions: vec![drop()], ..Flower::default() };
    let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let header = Encapsulation { ipv4: Some((here, there)), no_fragment: true, ..Encapsulation::default() };
    let encapsulate = Action::new(Operation::TunnelSet(Box::new(header)), Control::Pipe);
    let no_fragment = Flower { actions: vec![encapsulate, drop()], ..Flower::default() };
    // A kernel with helpers has the one of FTP.
    let helper = Helper { name: "ftp".into(), family: Family::Ipv4, protocol: TCP };
    let helped = Conntrack { bits: conntrack_bit::COMMIT, helper: Some(helper), ..Conntrack::default() };
    let track = Action::new(Operation::Conntrack(Box::new(helped)), Control::Pipe);
    let exactly = |(key, value): &(Key, u128)| KeyMatch::exact(*key, *value);
    let behind = |eth_type: u16, keys: &[(Key, u128)]| Flower {
        keys: [(Key::EthType, eth_type.into())].iter().chain(keys).map(exactly).collect(),
        actions: vec![drop()],
        ..Flower::default()
    };
    let pppoe = behind(PPPOE_SESSION, &[(Key::PppoeSession, 1), (Key::PppProtocol, LINK_CONTROL.into())]);
    let message = CfmMatch { level: Some(7), opcode: Some(1) };
    let flags = KeyMatch { key: Key::EncFlags, value: CHECKSUM, mask: CHECKSUM };
    let mut can = |protocol, flower| can(installer, hook, protocol, flower);
    Ok(Features {
        number_of_tags: can(ANY_PROTOCOL, key(KeyMatch::exact(Key::NumOfVlans, 1)))?,
        pppoe: can(PPPOE_SESSION, pppoe)?,
        l2tpv3: can(IPV4, behind(IPV4, &[(Key::IpProto, L2TP.into()), (Key::L2tpv3Session, 1)]))?,
        cfm: can(CFM, Flower { cfm: Some(message), ..behind(CFM, &[]) })?,
        spi: can(IPV4, behind(IPV4, &[(Key::IpProto, ESP.into()), (Key::Spi, 1)]))?,
        tunnel_flags: can(IPV4, key(flags))?,
        no_fragment: can(IPV4, no_fragment)?,
        connection_helpers: can(IPV4, Flower { actions: vec![track, drop()], ..Flower::default() })?,
    })
}

/// Whether the kernel takes a rule as it is. An error means that this could not be found out.
fn can(installer: &mut Installer, hook: Hook, protocol: u16, flower: Flower) -> Result<bool, Refusal> {
    let id = FilterId { hook, chain: CHAIN, priority: PRIORITY, protocol, handle: 1 };
    let filter = Filter { id, flower: Flower { flags: flower::flag::SKIP_HW, ..flower } };
    let wanted = shape(&filter.flower);
    match installer.submit(&[Request::Add(filter)]).pop() {
        Some(Err(Refusal::Kernel { .. })) => return Ok(false),
        Some(Err(refusal)) => return Err(refusal),
        _ => {}
    }
    let found = installer.find(id);
    if let Some(Err(refusal)) = installer.submit(&[Request::Delete(id)]).pop() {
        return Err(refusal);
    }
    match found {
        Ok(found) => Ok(found.is_some_and(|found| shape(&found.flower) == wanted)),
        Err(error) => Err(Refusal::Device { reason: error.to_string().into() }),
    }
}

/// What was asked for, without what the kernel adds or does not show again: the Ethernet type, which is the rule's protocol.
fn shape(flower: &Flower) -> (Vec<KeyMatch>, Option<CfmMatch>, Vec<Operation>) {
    let plain = |action: &Action| match &action.operation {
        // The kernel shows marks and labels with an empty mask.
        Operation::Conntrack(found) => {
            Operation::Conntrack(Box::new(Conntrack { mark: None, label: None, ..(**found).clone() }))
        }
        other => other.clone(),
    };
    let keys = flower.keys.iter().copied().filter(|found| found.key != Key::EthType).collect();
    (keys, flower.cfm, flower.actions.iter().map(plain).collect())
}
