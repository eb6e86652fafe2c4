//! The facets of a device that keeps rules beyond the life of an agent, and lets others at them.

use super::{Adoption, Claims, Handle, Holding, InstalledRule, ToInspect};
use crate::id::FlowId;
use crate::refusal::Refusal;

/// Rules that outlive the agent: those of its earlier runs are taken over, those of other agents are named.
pub trait Adopter {
    /// Takes over the rules that an earlier run of the same owner left in the device, which go on working meanwhile. Each is shown to
    /// `claims`, which says which flow it belongs to from now on. Removes a rule that no flow claims, and one of ours that cannot be read back.
    ///
    /// Called once, with the ports attached and before any [queue](super::InstallQueue) is used. The chains that claimed rules jump to
    /// are opened right after it, by one of the queues. After an error some rules may have been taken over; the agent does not start then.
    fn adopt(&self, claims: &mut dyn Claims) -> Result<Adoption, Refusal>;

    /// Returns what other owners have in the device or have left there: rules that bear the mark of an agent like this one, and
    /// another's number.
    fn holdings(&self) -> Result<Vec<Holding>, Refusal>;

    /// Removes what the owner of a [holding](Self::holdings) has in the device, except what a newer build has written. Returns how
    /// many rules and meters that were. The caller has made sure that no agent of the owner runs.
    fn remove_holding(&self, mark: u32) -> Result<usize, Refusal>;
}

/// Rules that others can change behind the backend's back: which to look at again, and what the device says of them.
///
/// Called from the thread of the revalidator and from those of the control socket, while workers change rules.
pub trait Auditor {
    /// Returns rules that may be something else than what was put in, to be [read back](Self::read_back) before this is called again:
    /// a bounded number, whatever is installed. Every rule has its turn in time.
    fn to_inspect(&self) -> ToInspect;

    /// Reads rules of flows back from the device, in full, and shows each with the flow that it is for. A rule that the device does
    /// not have is not shown. Fails if not all could be read; some may have been shown then.
    fn read_back(&self, rules: &[Handle], visit: &mut dyn FnMut(FlowId, InstalledRule)) -> Result<(), Refusal>;

    /// Shows rules of others that lie where ours do, in the device's own words. They are never touched.
    fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal>;

    /// Removes one of the [installed](super::Backend::installed) rules that no flow has: one of ours that no flow wants, or a second
    /// one of a flow. Fails if a flow has the rule, which is removed through its worker's queue and never so, or if there is none.
    fn remove_stray(&self, handle: Handle) -> Result<(), Refusal>;
}
