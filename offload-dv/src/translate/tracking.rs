//! Connection tracking in flows: `ct()`, and what later flows match of the connection that was found.
//!
//! The device finds connections, and software makes them: a packet whose connection is not in the device, or that begins or ends one,
//! goes to its representor as it came in. So a flow may only want of `ct()` what is the same for every packet of a connection that
//! exists. A commit is that if it sets nothing: as in the kernel's driver, it takes packets of connections that are committed already.

use sluice_flow::ChainId;
use sluice_flow::action::{ActionKind, Commit, Conntrack, Nat};
use sluice_flow::field::{CT_STATES, Field};
use sluice_flow::refusal::Refusal;

use super::guarantees::Guarantees;
use super::registers::{Bits, CT_LABEL, CT_MARK, CT_STATE, CT_ZONE};
use super::vports::Vports;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// The first chain.
const FIRST: ChainId = ChainId(0);
/// States that no packet has in the device, by their names in OVS.
const IN_SOFTWARE: [&str; 3] = ["new", "rel", "inv"];

/// Where the connection of a packet is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tracking {
    /// The zone.
    pub zone: u16,
    /// Whether addresses are translated as those of the connection are.
    pub translates: bool,
    /// Whether the addresses and ports are those inside a tunnel, whose headers are still in front. They cannot be rewritten there, so
    /// that packets of translated connections go to their representor if `translates` is set.
    pub is_inside: bool,
}

/// Translates the action, or says what of it only software does.
pub(super) fn translate(ct: &Conntrack, guarantees: &Guarantees, vports: &dyn Vports) -> Result<Tracking, Refusal> {
    if !vports.has_connections() {
        return refuse("there is no source of connections: `connections` in [dv] names one");
    }
    if !matches!(guarantees.eth_type, Some(ETH_P_IP | ETH_P_IPV6)) {
        let reason = "ct without a match on eth_type(0x0800) or eth_type(0x86dd)";
        return Err(Refusal::Combination { reason: reason.into() });
    }
    let in_software = [
        (ct.commit == Commit::Force, "force_commit: software throws away the connection of the other direction"),
        (ct.mark.is_some(), "mark: software sets the marks of connections"),
        (ct.label.is_some(), "label: software sets the labels of connections"),
        (ct.helper.is_some(), "helper: a gateway in software must see the packets"),
        (ct.timeout.is_some(), "timeout: software gives connections their timeouts"),
        (matches!(ct.nat, Some(Nat::New(_))), "nat with an address: software chooses what a connection becomes"),
    ];
    if let Some((_, reason)) = in_software.into_iter().find(|(is_wanted, _)| *is_wanted) {
        return refuse(reason);
    }
    Ok(Tracking { zone: ct.zone, translates: ct.nat.is_some(), is_inside: guarantees.entrance.is_some() })
}

/// Modify actions that leave nothing of what was found (`ct_clear`).
pub(super) fn clear() -> [u64; 4] {
    [CT_STATE, CT_ZONE, CT_MARK, CT_LABEL].map(|bits| bits.set(0))
}

/// Fields that tell of a connection, and where the device has them. Of a label it has the first 32 bits: connections with others
/// are not in the device.
pub(super) const MATCHED: [(Field, Bits); 4] =
    [(Field::CtState, CT_STATE), (Field::CtZone, CT_ZONE), (Field::CtMark, CT_MARK), (Field::CtLabel, CT_LABEL)];

/// What a match on one of [`MATCHED`] is in the device: value and mask of its bits. `None` if it is true of every packet there.
pub(super) fn matched(
    field: Field,
    (value, mask): (u128, u128),
    chain: ChainId,
    vports: &dyn Vports,
) -> Result<Option<(u128, u128)>, Refusal> {
    let refuse = |reason: &'static str| Err(Refusal::Field { field, reason: reason.into() });
    let wanted = value & mask;
    if chain == FIRST || !vports.has_connections() {
        return match wanted {
            0 => Ok(None),
            _ if chain == FIRST => refuse("no packet is tracked before the first ct()"),
            _ => refuse("there is no source of connections: `connections` in [dv] names one"),
        };
    }
    if field == Field::CtState && wanted & states(&IN_SOFTWARE) != 0 {
        return refuse("packets of connections that are new, related or invalid go to their representor");
    }
    if field == Field::CtLabel && wanted > u32::MAX.into() {
        return refuse("packets of connections with a label of more than 32 bits go to their representor");
    }
    Ok(Some((value, mask)))
}

fn states(names: &[&str]) -> u128 {
    let bits = CT_STATES.iter().filter(|(name, _)| names.contains(name)).map(|(_, bit)| u128::from(*bit));
    bits.fold(0, |all, bit| all | bit)
}

fn refuse<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Action { action: ActionKind::Ct, reason: reason.into() })
}
