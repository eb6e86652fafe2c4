//! `ct(…)` as `act_ct`, and back.

use sluice_flow::action::{ActionKind, Commit, Conntrack as FlowConntrack, Nat, NatSide, PortPick};
use sluice_flow::refusal::Refusal;

use super::fields::ethernet;
use super::matching::Shape;
use super::refuse::refuse_action;
use crate::context::Features;
use crate::wire::action::{Conntrack, Family, Helper, Translation, conntrack_bit as bit};

pub(super) const fn clear() -> Conntrack {
    Conntrack {
        bits: bit::CLEAR,
        zone: 0,
        mark: None,
        label: None,
        translation: Translation { addresses: None, ports: None },
        helper: None,
    }
}

pub(super) fn translate(action: &FlowConntrack, shape: Shape, features: Features) -> Result<Conntrack, Refusal> {
    let FlowConntrack { commit, zone, mark, label, helper, timeout, nat } = action;
    let refuse = |reason| Err(refuse_action(ActionKind::Ct, reason));
    if helper.is_some() && !features.connection_helpers {
        return refuse("this kernel's tc attaches no helper (Linux 6.2 does)");
    }
    if timeout.is_some() {
        return refuse("tc has no timeout policies");
    }
    if *commit == Commit::No && (mark.is_some() || label.is_some()) {
        return refuse("mark and label are set on a commit only");
    }
    let mut found = Conntrack { zone: *zone, mark: *mark, label: *label, ..Conntrack::default() };
    if let Some(name) = helper {
        let (family, protocol) = match (shape.eth_type, shape.protocol) {
            (Some(ethernet::IPV4), Some(protocol)) => (Family::Ipv4, protocol),
            (Some(ethernet::IPV6), Some(protocol)) => (Family::Ipv6, protocol),
            _ => return refuse("a helper is for one protocol, which the match must name"),
        };
        found.helper = Some(Helper { name: name.clone(), family, protocol });
    }
    found.bits = match commit {
        Commit::No => 0,
        Commit::Yes => bit::COMMIT,
        Commit::Force => bit::COMMIT | bit::FORCE,
    };
    match nat {
        None => {}
        Some(Nat::Existing) => found.bits |= bit::NAT,
        Some(Nat::New(new)) => {
            if *commit == Commit::No {
                return refuse("addresses are translated anew on a commit only");
            }
            if new.persistent || new.pick != PortPick::Default {
                return refuse("tc picks addresses and ports in its own way only");
            }
            if matches!(new.addresses, Some((first, last)) if first.is_ipv4() != last.is_ipv4()) {
                return refuse("the addresses are of two families");
            }
            found.bits |= bit::NAT
                | match new.side {
                    NatSide::Source => bit::NAT_SOURCE,
                    NatSide::Destination => bit::NAT_DESTINATION,
                };
            found.translation = Translation { addresses: new.addresses, ports: new.ports };
        }
    }
    Ok(found)
}

/// The flow action; `None` if no flow can express it.
pub(super) fn read(found: &Conntrack) -> Option<FlowConntrack> {
    let commit = match found.bits & (bit::COMMIT | bit::FORCE) {
        0 => Commit::No,
        bit::COMMIT => Commit::Yes,
        both if both == bit::COMMIT | bit::FORCE => Commit::Force,
        _ => return None,
    };
    let nat = match found.bits & !(bit::COMMIT | bit::FORCE) {
        0 => None,
        bit::NAT => Some(Nat::Existing),
        bits => {
            let side = match bits & !bit::NAT {
                bit::NAT_SOURCE => NatSide::Source,
                bit::NAT_DESTINATION => NatSide::Destination,
                _ => return None,
            };
            Some(Nat::New(sluice_flow::action::Translation {
                side,
                addresses: found.translation.addresses,
                ports: found.translation.ports,
                persistent: false,
                pick: PortPick::Default,
            }))
        }
    };
    // The kernel shows a mark and a label with an empty mask where none is set.
    let mark = found.mark.filter(|(_, mask)| *mask != 0);
    let label = found.label.filter(|(_, mask)| *mask != 0);
    let helper = found.helper.as_ref().map(|helper| helper.name.clone());
    Some(FlowConntrack { commit, zone: found.zone, mark, label, helper, timeout: None, nat })
}
