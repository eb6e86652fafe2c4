//! The facets for objects that flows use or that stand beside them: meters, mirrors, tracked connections.

use std::sync::Arc;

use super::{MeterCounters, MeterFault, MirrorCounters, MirrorFault};
use crate::connection::{Connection, Selection, ZoneLimits};
use crate::meter::{Meter, MeterId};
use crate::mirror::Mirror;
use crate::port::PortNumber;
use crate::refusal::Refusal;
use crate::timeout::TimeoutPolicy;
use crate::ufid::Ufid;

/// Meters, which flows name in their actions. The agent owns what is wanted, the backend what is in the device.
///
/// The agent makes one change at a time; the counters are read from the thread of the revalidator meanwhile, and changes that use
/// a meter are in the hands of the workers.
pub trait Meters {
    /// Makes a meter, or changes its rate; rules that use it follow, and what it counted goes on. A new one is told of as
    /// [`Changed`](super::DeviceEvent::Changed) for [`Cause::Meter`](crate::Cause::Meter), so that flows refused for want of it
    /// are tried again. After an error the device has the meter as it was before, or none.
    fn set_meter(&self, meter: &Meter) -> Result<(), Refusal>;

    /// Removes a meter. Fails if a rule uses it, or if there is none; it is as it was then.
    fn remove_meter(&self, meter: MeterId) -> Result<(), Refusal>;

    /// Returns what a meter counted since it was made; `None` if the device has no such meter or does not tell.
    fn meter_counters(&self, meter: MeterId) -> Option<MeterCounters>;

    /// Compares meters with what the device has, and returns those that are missing or something else. Puts them right if `mends`
    /// says so; each fault says what came of that. Fails if the device does not list its meters.
    fn check_meters(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal>;
}

/// Mirrors, which copy packets before any flow sees them, and change nothing of what becomes of them.
///
/// Called as [`Meters`] are.
pub trait Mirrors {
    /// Makes a mirror, or changes it; what it counted goes on. Takes over one of the same name that an earlier run of the same owner
    /// left in the device. Fails if the device cannot copy so; it copies as before then.
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal>;

    /// Removes a mirror. Fails if there is none of that name.
    fn remove_mirror(&self, name: &str) -> Result<(), Refusal>;

    /// Returns what a mirror copied, and where it is; `None` if the device does not have it.
    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters>;

    /// Compares mirrors with what the device has, and returns those that are missing or something else. Puts them right if `mends`
    /// says so; each fault says what came of that. Fails if the device cannot be asked.
    fn check_mirrors(&self, mends: bool) -> Result<Vec<MirrorFault>, Refusal>;

    /// Returns how copies come out of the device to a program of the host. Constant while the backend is open.
    fn outlet(&self) -> Outlet<'_>;
}

/// How copies come out of a device to a program of the host.
#[derive(Clone, Copy)]
pub enum Outlet<'a> {
    /// The device hands each copy that goes to a port of kind mirror to a sink.
    Sink(&'a dyn HandsOut),
    /// Ports of kind mirror are network devices of the host: each copy that is sent to one can be captured there.
    NetworkDevices,
    /// Copies go to ports of the device only, and come out where those lead.
    Ports,
}

/// A device that hands out the copies that go to its ports of kind mirror.
pub trait HandsOut {
    /// From now on copies go to this sink, and no longer to an earlier one.
    fn hand_to(&self, sink: Arc<dyn CopySink>);
}

/// Takes copies of packets.
pub trait CopySink: Send + Sync {
    /// Takes one. Called in the way of packets, by several threads at a time: it neither waits nor blocks.
    fn take(&self, copied: &CopiedPacket<'_>);
}

/// A packet that was copied to a port of kind mirror.
#[derive(Clone, Copy, Debug)]
pub struct CopiedPacket<'a> {
    /// The mirror port.
    pub to: PortNumber,
    /// The port that the packet came in at.
    pub in_port: PortNumber,
    /// The flow that took it last before it was copied: of a mirror's copy that in the first chain; `None` if no flow took it.
    pub ufid: Option<Ufid>,
    /// The frame, without FCS.
    pub frame: &'a [u8],
}

/// Tracked connections, of a device that tracks them itself or of whoever tracks them for it: their list, how many there may be, and how
/// long they live.
///
/// Called from the threads of the control socket, several at a time.
pub trait Connections {
    /// Makes a timeout policy, or changes it; its connections follow it. A new one is told of as
    /// [`Changed`](super::DeviceEvent::Changed) for [`Cause::TimeoutPolicy`](crate::Cause::TimeoutPolicy). After an error it is as it
    /// was before.
    fn set_timeout_policy(&self, policy: &TimeoutPolicy) -> Result<(), Refusal>;

    /// Removes a timeout policy. Fails if a rule uses it, or if there is none of that name.
    fn remove_timeout_policy(&self, name: &str) -> Result<(), Refusal>;

    /// Shows the connections of a zone, or of all. One that comes or goes meanwhile may be shown or not. Fails if whoever tracks them
    /// cannot be asked; some may have been shown then.
    fn visit_connections(&self, zone: Option<u16>, visit: &mut dyn FnMut(Connection)) -> Result<(), Refusal>;

    /// Adds a connection that packets went by in both directions, or changes the one with this zone and original direction. It lives for its
    /// timeout after the last packet that the device sees. Fails if the device, or the kernel for it, finds connections by itself.
    fn add_connection(&self, connection: &Connection) -> Result<(), Refusal>;

    /// Forgets the connections that are selected. Returns how many there were.
    fn flush_connections(&self, of: &Selection) -> Result<usize, Refusal>;

    /// Returns how many connections there are in each bucket of the table, including expired ones that have not been removed yet.
    fn connection_buckets(&self) -> Result<Vec<usize>, Refusal>;

    /// Returns how many connections there are, including expired ones that have not been removed yet.
    fn connection_count(&self) -> Result<usize, Refusal>;

    /// Returns how many connections there may be.
    fn connection_limit(&self) -> Result<u32, Refusal>;

    /// Limits how many connections there may be. What there is stays.
    fn set_connection_limit(&self, limit: u32) -> Result<(), Refusal>;

    /// Limits how many connections a zone may have, or each zone without a limit of its own; 0 for no limit. What there is stays.
    fn set_zone_limit(&self, zone: Option<u16>, limit: u32) -> Result<(), Refusal>;

    /// Removes the limit of a zone, so that the default one is in force; or the default one, so that there is none.
    fn remove_zone_limit(&self, zone: Option<u16>) -> Result<(), Refusal>;

    /// Returns the limits of some zones, in this order; of all that have one of their own if none is named.
    fn zone_limits(&self, zones: &[u16]) -> Result<ZoneLimits, Refusal>;
}
