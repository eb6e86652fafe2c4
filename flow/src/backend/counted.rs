//! What a device counts, and what is found wrong with what is set in it.

use super::Placement;
use crate::counters::{Reading, Sampled};
use crate::meter::MeterId;
use crate::refusal::Refusal;

/// Reads the counters of all rules. The revalidator owns it, and calls it from its own thread, while workers change rules.
pub trait CounterReader: Send {
    /// Hands every rule's reading to `visit`, in batches of the backend's choosing, each with the time that it is of, which is at most
    /// [`max_lag`](super::Capabilities::max_lag) ago. A reading names the flow and the generation of the install, and counts from that
    /// install on, over all modifications and moves; it never goes backwards. A rule that is not shown was not read, which says nothing
    /// about it; a rule that was removed before the call is not shown. Fails if not all rules were read; what was shown holds all the
    /// same.
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal>;
}

/// Packets, bytes and drops at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
}

/// What became of lookups; `None` for what the device does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounters {
    /// Packets that a rule of chain 0 took.
    pub hits: Option<u64>,
    /// Packets that none of chain 0 took.
    pub misses: Option<u64>,
    /// Times that a packet went to a later chain and none took it there.
    pub chain_misses: Option<u64>,
    /// Packets that a rule took and that then went nowhere, though not by its actions.
    pub lost: Option<u64>,
}

/// What a meter let pass and held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterCounters {
    /// Packets that reached the meter.
    pub packets: u64,
    /// Bytes that reached the meter.
    pub bytes: u64,
    /// Packets that it dropped.
    pub dropped_packets: u64,
    /// Bytes that it dropped; `None` where the device does not count them.
    pub dropped_bytes: Option<u64>,
    /// Packets that each band dropped since it was set; empty where the device does not tell.
    pub bands: Vec<u64>,
}

/// What a mirror copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Packets that were copied, however many copies were made of each.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What copies them. Packets that hardware carries past a mirror in software are not copied.
    pub placement: Placement,
}

/// A meter that is not in the device as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterFault {
    /// Which.
    pub meter: MeterId,
    /// Whether the device has something in its place.
    pub is_there: bool,
    /// What came of putting it right; `None` if that was not wanted.
    pub mended: Option<Result<(), Refusal>>,
}

impl MeterFault {
    /// Whether it was put right, as far as that was wanted.
    pub fn is_mended(&self) -> bool {
        !matches!(self.mended, Some(Err(_)))
    }
}

/// A mirror that is not in the device as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorFault {
    /// Its name.
    pub name: String,
    /// Whether the device has something in its place.
    pub is_there: bool,
    /// What came of putting it right; `None` if that was not wanted.
    pub mended: Option<Result<(), Refusal>>,
}

impl MirrorFault {
    /// Whether it was put right, as far as that was wanted.
    pub fn is_mended(&self) -> bool {
        !matches!(self.mended, Some(Err(_)))
    }
}
