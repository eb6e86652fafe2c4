//! Bonds and teams: the members share one block of filters, so that a packet meets the same filters on whichever it arrives.

use crate::control::Control;
use crate::device::Ifindex;
use crate::ingress::{IngressError, IngressQdisc, Ownership, ensure_ingress, remove_ingress};
use crate::links::Links;

/// A bond, team or member cannot have the block of the others.
#[derive(Debug, thiserror::Error)]
#[error("member {member}: {source}")]
pub struct LagError {
    /// Which device.
    pub member: Ifindex,
    /// Why not.
    pub source: IngressError,
}

/// Makes sure that a bond or team and all of its members have a queueing discipline that serves, with the block that they
/// share. Returns which each has and whose it is. If one cannot have it, those that were made are removed again. Call it again
/// when members are added.
pub fn ensure_lag(
    control: &mut Control,
    links: &Links,
    master: Ifindex,
    wanted: IngressQdisc,
) -> Result<Vec<(Ifindex, IngressQdisc, Ownership)>, LagError> {
    let mut done: Vec<(Ifindex, IngressQdisc, Ownership)> = vec![];
    let members = links.members(master).map(|known| known.device.ifindex);
    for member in std::iter::once(master).chain(members) {
        match ensure_ingress(control, member, wanted) {
            Ok((qdisc, ownership)) => done.push((member, qdisc, ownership)),
            Err(source) => {
                for (made, qdisc, ownership) in done.into_iter().rev() {
                    // What does not go back is empty and in nobody's way; the reason to tell is the first one.
                    let _ = remove_ingress(control, made, qdisc, ownership);
                }
                return Err(LagError { member, source });
            }
        }
    }
    Ok(done)
}
