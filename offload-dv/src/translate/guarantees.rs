//! What is known of a packet that matches.

use sluice_flow::Priority;
use sluice_flow::refusal::Refusal;

use super::geneve::GeneveOption;
use super::tunnel::Entrance;

/// What every packet that matches has for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantees {
    /// The vport that it comes from.
    pub from: Option<u16>,
    /// The tunnel that it comes through: what else is said here is of the headers inside.
    pub entrance: Option<Entrance>,
    /// An option of Geneve, which the device must look for.
    pub option: Option<GeneveOption>,
    /// Behind the VLAN tags.
    pub eth_type: Option<u16>,
    /// The protocol of IP.
    pub protocol: Option<u8>,
    /// It is no fragment.
    pub is_whole: bool,
    /// The flow takes fragments, too, and the rule does not: they go to their representor as they came in.
    pub leaves_fragments: bool,
    /// VLAN tags, of which at most two are looked at; `None` if the match does not say.
    pub tags: Option<usize>,
    /// The time to live or the hop limit is at least this.
    pub least_ttl: u8,
    /// The mark of congestion in IP, 0 without IP; `None` if the match does not say.
    pub mark: Option<u8>,
}

impl Guarantees {
    /// Fails if a packet that the rule leaves to software might meet a flow below its priority in the device.
    pub(super) fn check(&self, priority: Priority) -> Result<(), Refusal> {
        if self.leaves_fragments && priority != Priority::default() {
            let reason = "fragments are left to software, and may match a flow of lower priority in the device";
            return Err(Refusal::Combination { reason: reason.into() });
        }
        Ok(())
    }
}
