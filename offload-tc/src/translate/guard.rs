//! Guards, which keep `dec_ttl` from wrapping: act_pedit adds to a TTL without looking at it, where OVS drops a packet whose
//! TTL is 0 or 1 (`execute_dec_ttl` in `net/openvswitch/actions.c`). So a flow whose match allows such a TTL becomes two
//! rules, and the one in front takes the packets that OVS drops.

use sluice_flow::action::{Action, ActionKind, ActionList};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;

use super::fields::ethernet;
use super::matching::exact;
use super::refuse::refuse_action;

/// The bits of a TTL of which one must be set so that it can be decremented.
const UPPER: u128 = 0xfe;

/// What the guard matches and does.
pub(super) struct Guard {
    pub(super) matching: Match,
    pub(super) actions: ActionList,
}

/// The guard of a flow, if it needs one and one would do.
pub(super) fn guard(full: &Match, actions: &[Action]) -> Result<Option<Guard>, Refusal> {
    let Some(at) = actions.iter().position(|action| matches!(action, Action::DecTtl(_))) else { return Ok(None) };
    let before = &actions[..at];
    let ttl = match exact(full, Field::EthType) {
        Some(ethernet::IPV4) => Field::Ipv4Ttl,
        Some(ethernet::IPV6) => Field::Ipv6Hlimit,
        _ => return Ok(None),
    };
    // After these the TTL is another one, or known.
    let is_other = |action: &Action| match action {
        Action::PushMpls(_) | Action::PopMpls(_) => true,
        Action::Set(set) => matches!(set.attribute, Attribute::Ipv4 | Attribute::Ipv6) && set.get(ttl).is_some(),
        _ => false,
    };
    let (value, mask) = (full.key.get(ttl), full.mask.get(ttl));
    if before.iter().any(is_other) || value & mask & UPPER != 0 {
        return Ok(None);
    }
    if mask & UPPER == UPPER {
        return Err(refuse_action(ActionKind::DecTtl, "it is 0 or 1 in every packet that matches, which is dropped"));
    }
    let mut matching = *full;
    matching.set(ttl, value & mask, mask | UPPER);
    Ok(Some(Guard { matching, actions: before.into() }))
}
