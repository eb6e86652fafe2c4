//! Mirrors as a stage in front of all flows: a copy goes out, and the packet goes on as if nothing had matched
//! (`TC_ACT_UNSPEC`), so that a mirror never changes a verdict. Of the rules of one tc priority only one takes a packet, so
//! that each mirror has its own ([`Priorities::of_mirror`](crate::priorities::Priorities::of_mirror)).

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

/// Packets that shall be copied before any flow sees them.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// What of the first chain is copied; the port is said.
    pub matching: Match,
    /// Where copies go.
    pub copies: Vec<PortNumber>,
    /// Whose it is, and which.
    pub note: MirrorNote,
}

/// The rule of a mirror. It goes into the first chain at its own priority; that of flows says nothing here.
pub fn mirror(mirror: &Mirror, context: &dyn Context) -> Result<Rule, Refusal> {
    let Mirror { matching: full, copies, note } = mirror;
    let number: Option<u32> = exact(full, Field::InPort);
    let number = number.ok_or_else(|| refuse(Field::InPort, "a rule is of one port"))?;
    let device = device_of(PortNumber(number), context)?;
    let matched = matching::translate(full, device, context)?;
    if matched.chain != ChainId::ROOT.0 {
        return Err(refuse(Field::RecircId, "a mirror comes before the first chain"));
    }
    let mut flower = matched.flower;
    for port in copies {
        let to = device_of(*port, context)?;
        let (to, interface) = match to.kind {
            // For whom the packet is stays as it is: what is behind this stage shall not see a difference.
            DeviceKind::Internal => (Mirred::IngressMirror, to.interface),
            DeviceKind::Wire | DeviceKind::Lag => (Mirred::EgressMirror, to.interface),
            DeviceKind::Tunnel(_) => {
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
