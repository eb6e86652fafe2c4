//! Mirrors in front of all flows: a copy is sent, and the packet goes on as if nothing had matched (`TC_ACT_UNSPEC`), so a
//! mirror never changes a verdict. Only one rule of a tc priority takes a packet, so each mirror has its own
//! ([`Priorities::of_mirror`](crate::priorities::Priorities::of_mirror)).

use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;

use super::matching::{self, exact};
use super::refuse::{device_of, refuse};
use crate::context::{Context, DeviceKind};
use crate::label::MirrorNote;
use crate::rule::Rule;
use crate::wire::action::{Action, Control, MAX_ACTIONS, Mirred, Operation};

/// A mirror: packets that are copied before any flow sees them.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// The packets of chain 0 that are copied; the match names the port.
    pub matching: Match,
    /// Where copies go.
    pub copies: Vec<PortNumber>,
    /// The agent, and the number of the mirror.
    pub note: MirrorNote,
}

/// The rule of a mirror, in chain 0. Its flow priority has no meaning; mirrors have their own tc priorities.
pub fn mirror(mirror: &Mirror, context: &dyn Context) -> Result<Rule, Refusal> {
    let Mirror { matching: full, copies, note } = mirror;
    let number: Option<u32> = exact(full, Field::InPort);
    let number = number.ok_or_else(|| refuse(Field::InPort, "a rule belongs to one port"))?;
    let device = device_of(PortNumber(number), context)?;
    let matched = matching::translate(full, device, context)?;
    if matched.chain != ChainId::ROOT.0 {
        return Err(refuse(Field::RecircId, "a mirror comes before the first chain"));
    }
    let mut flower = matched.flower;
    for port in copies {
        let to = device_of(*port, context)?;
        let (to, interface) = match to.kind {
            // The packet type stays as it is, so that rules behind this one see no difference.
            DeviceKind::Internal => (Mirred::IngressMirror, to.interface),
            DeviceKind::Wire | DeviceKind::Lag => (Mirred::EgressMirror, to.interface),
            DeviceKind::Tunnel { .. } => {
                let reason = "a copy into a tunnel needs an outer header, which the packet would keep";
                return Err(Refusal::Combination { reason: reason.into() });
            }
        };
        flower.actions.push(Action::new(Operation::Mirred { to, interface }, Control::Pipe));
    }
    flower.actions.push(Action::new(Operation::Generic, Control::Continue));
    if flower.actions.len() > MAX_ACTIONS {
        return Err(Refusal::Limit { what: "actions of tc in a rule".into(), limit: MAX_ACTIONS as u64 });
    }
    if let Some(first) = flower.actions.first_mut() {
        first.cookie = Some(note.bytes().into());
    }
    let (chain, protocol, caveats) = (matched.chain, matched.protocol, matched.caveats);
    Ok(Rule { hook: device.hook(), chain, priority: Priority::default(), protocol, flower, caveats })
}
