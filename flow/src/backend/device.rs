//! What every device must have.

use super::adopter::{Adopter, Auditor};
use super::capabilities::Capabilities;
use super::capacity::Capacity;
use super::counted::{CounterReader, LookupCounters, PortCounters};
use super::events::{EventStream, LostRule};
use super::facet::Facet;
use super::injector::Injector;
use super::objects::{Connections, Meters, Mirrors};
use super::queue::{Handle, InstallQueue};
use super::rules::{CountedApart, InstalledRule, LooksAt};
use crate::flow::Flow;
use crate::port::{Port, PortNumber};
use crate::refusal::Refusal;

/// A device that carries flows.
///
/// # Who owns what
///
/// The agent owns what is wanted: flows, ports, meters, mirrors. The backend owns what is in the device, and the [`Handle`] of each
/// rule: it makes one at an install, knows it until the removal is completed, and uses it for another rule only afterwards. Of what it is
/// given by reference it keeps copies.
///
/// # Threads
///
/// The agent calls a backend from any thread, and several calls at a time, except where a method says when it is called. Each worker has
/// an [`InstallQueue`] of its own and the revalidator a [`CounterReader`], so that nothing on the path of installs and polls is shared
/// but what the device shares. A call may wait for the device; a call that looks at the backend's own memory only says so. A backend
/// calls nothing of the agent's but the closures and the [`Claims`](super::Claims) of a call, on the thread of the call and before it returns, and the
/// wakers of its queues.
///
/// # Errors
///
/// A [`Refusal`] says why, and its [cause](Refusal::cause) what could change that: "nothing" is an answer, too. After a refusal the device
/// is as it was before the call, unless the method says otherwise. When the cause goes, the backend says so by
/// [`DeviceEvent::Changed`](super::DeviceEvent::Changed), and the agent tries again.
pub trait Backend: Send + Sync {
    /// Returns what it can do; constant while it is open. Does not ask the device.
    fn capabilities(&self) -> Capabilities;

    /// Returns its meters, if it has any. What a facet getter returns is constant while the backend is open, and asking for it does not
    /// ask the device.
    fn meters(&self) -> Option<&dyn Meters>;

    /// Returns its mirrors, if it has any.
    fn mirrors(&self) -> Option<&dyn Mirrors>;

    /// Returns the connections that it tracks, if it tracks any.
    fn connections(&self) -> Option<&dyn Connections>;

    /// Returns what takes over the rules of an earlier run, if rules stay in the device when the agent ends.
    fn adoption(&self) -> Option<&dyn Adopter>;

    /// Returns what finds rules that others have changed, if others can get at them.
    fn audit(&self) -> Option<&dyn Auditor>;

    /// Returns its room in hardware, if rules that find none are carried in software and counted there.
    fn capacity(&self) -> Option<&dyn Capacity>;

    /// Returns where packets can be put in by hand; only a NIC in software has that.
    fn injector(&self) -> Option<&dyn Injector>;

    /// Returns what a person should know of the device besides, a sentence each: in which mode it is, and what is missing. Asked for when
    /// somebody looks; may ask the system.
    fn notes(&self) -> Vec<String>;

    /// Returns what rule would come of a flow, in the device's own words; of a flow that needs more than one, a line for each. Fails if
    /// the flow would be refused now. A dry run: nothing changes in the device.
    fn explain(&self, flow: &Flow) -> Result<String, Refusal>;

    /// Returns what the device looks at instead of the match of a flow, if that may be less; `None` if it is the match. Asked for every
    /// flow that is taken on, by the thread that takes it on: it must be quick, and does not ask the device.
    fn looks_at(&self, flow: &Flow) -> Option<LooksAt>;

    /// Makes a port usable. Fails if its device is not there, or is not such a port; flows that name the port are refused then. One that
    /// was attached under the same number and has another name or kind by now must have been detached before.
    fn attach_port(&self, port: &Port) -> Result<(), Refusal>;

    /// Does the same, and a device that is not there is no refusal: the port is usable once it is, which the backend says by
    /// [`DeviceEvent::PortChanged`](super::DeviceEvent::PortChanged).
    fn expect_port(&self, port: &Port) -> Result<(), Refusal>;

    /// Returns whether a port waits for its device. Does not ask the device.
    fn is_absent(&self, port: PortNumber) -> bool;

    /// Takes a port away. Rules that name it stay until their flows go, and do not see traffic. Fails if there is no such port.
    fn detach_port(&self, port: PortNumber) -> Result<(), Refusal>;

    /// Returns what the device counts at a port; `None` if it does not, or if there is no such port.
    fn port_counters(&self, port: PortNumber) -> Option<PortCounters>;

    /// Returns what became of lookups; `None` if the device counts nothing of it.
    fn lookup_counters(&self) -> Option<LookupCounters>;

    /// Opens the install queue of one more worker. Fails if the device gives no more; the agent does not start then.
    fn install_queue(&self) -> Result<Box<dyn InstallQueue>, Refusal>;

    /// Opens a reader of all rules' counters.
    fn counter_reader(&self) -> Result<Box<dyn CounterReader>, Refusal>;

    /// Lists our rules that are installed, for audit. One that is put in or taken out meanwhile may be shown or not. Fails if not all
    /// could be listed; some may have been shown then.
    fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal>;

    /// Returns what hardware and software counted of a rule, each by itself; `None` if the device does not tell.
    fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal>;

    /// Removes every rule of ours from the device, known or not, with those of mirrors and at the ends of chains where the device has
    /// such rules. Returns how many rules of flows and mirrors there were. After an error some may be left. A removal of one of these
    /// rules that comes later through a queue is completed without counters.
    fn flush(&self) -> Result<usize, Refusal>;

    /// Gives the device back, once it has no rule of ours: removes what was made for ports and meters, in this run or an earlier one,
    /// detaches the ports, and leaves what others use. Returns what of ours is left, and why. The last call to a backend.
    fn release(&self) -> Result<Vec<String>, Refusal>;

    /// Compares what the backend believes with what the device has, and returns the rules that are gone; their handles are no one's from
    /// then on. Called after [`DeviceEvent::Reset`](super::DeviceEvent::Reset).
    fn resync(&self) -> Result<Vec<LostRule>, Refusal>;

    /// Returns what happens to the device by itself. There is one stream: of several listeners each gets a part. It ends if, and only if,
    /// the backend has ended. The backend does not wait for a listener; what it cannot keep for one it sums up as
    /// [`DeviceEvent::Reset`](super::DeviceEvent::Reset), or as one [`DeviceEvent::Changed`](super::DeviceEvent::Changed) for each cause.
    fn events(&self) -> EventStream;
}

impl Facet {
    /// Returns whether a backend has it.
    pub fn is_of(self, backend: &dyn Backend) -> bool {
        match self {
            Self::Meters => backend.meters().is_some(),
            Self::Mirrors => backend.mirrors().is_some(),
            Self::Connections => backend.connections().is_some(),
            Self::Adoption => backend.adoption().is_some(),
            Self::Audit => backend.audit().is_some(),
            Self::Capacity => backend.capacity().is_some(),
            Self::Injector => backend.injector().is_some(),
        }
    }

    /// Returns the facets that a backend has.
    pub fn all_of(backend: &dyn Backend) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|facet| facet.is_of(backend))
    }

    /// Unwraps what a backend hands out for this facet. Fails with [`Refusal::Unsupported`] if that is nothing.
    pub fn require<T: ?Sized>(self, facet: Option<&T>) -> Result<&T, Refusal> {
        facet.ok_or(Refusal::Unsupported { facet: self })
    }
}
