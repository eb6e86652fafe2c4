//! Meters: token buckets that drop, as in the OVS datapaths (`ovs_meter_execute` in `net/openvswitch/meter.c`,
//! `dpif_netdev_run_meter` in `lib/dpif-netdev.c`), but refilled to the nanosecond.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use sluice_flow::action::ActionKind;
use sluice_flow::backend::MeterCounters;
use sluice_flow::cause::Cause;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Timestamp;

/// All meters. The lock is taken by flows that have one, and then only to install them.
#[derive(Default)]
pub(crate) struct Meters(RwLock<HashMap<MeterId, Arc<MeterState>, foldhash::fast::RandomState>>);

/// One meter.
pub(crate) struct MeterState {
    bands: Mutex<Bands>,
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped_packets: AtomicU64,
    dropped_bytes: AtomicU64,
    /// Actions of installed rules that name it.
    users: AtomicUsize,
}

/// The bands, which are looked at together.
#[derive(Clone)]
struct Bands {
    unit: MeterUnit,
    buckets: Box<[Bucket]>,
    filled: Timestamp,
}

/// Tokens are millionths of a bit, or of a thousandth of a packet: a rate of one kilobit or packet per second brings
/// one token per nanosecond.
#[derive(Clone)]
struct Bucket {
    rate: u64,
    depth: u128,
    tokens: u128,
    dropped: u64,
}

/// Tokens for one bit, or for a thousandth of a packet.
const UNIT: u128 = 1_000_000;

impl Meters {
    /// Makes a meter, or changes it; its counters go on, and its buckets are full. True if it is new.
    pub(crate) fn set(&self, meter: &Meter, now: Timestamp) -> Result<bool, Refusal> {
        let bands = Bands::new(meter, now)?;
        let mut meters = self.0.write();
        if let Some(state) = meters.get(&meter.id) {
            *state.bands.lock() = bands;
            return Ok(false);
        }
        meters.insert(meter.id, Arc::new(MeterState::new(bands)));
        Ok(true)
    }

    /// Removes a meter that no rule uses.
    pub(crate) fn remove(&self, id: MeterId) -> Result<(), Refusal> {
        let mut meters = self.0.write();
        let Some(state) = meters.get(&id) else {
            return Err(unknown(id));
        };
        let users = state.users.load(Ordering::SeqCst);
        if users > 0 {
            let reason = format!("meter {id} is used by {users} actions of installed rules");
            return Err(Refusal::Action { action: ActionKind::Meter, reason: reason.into() });
        }
        meters.remove(&id);
        Ok(())
    }

    /// A meter for a dry run.
    pub(crate) fn get(&self, id: MeterId) -> Result<Arc<MeterState>, Refusal> {
        self.0.read().get(&id).cloned().ok_or_else(|| unknown(id))
    }

    /// A meter for a rule: it cannot be removed until [`MeterState::release`].
    pub(crate) fn acquire(&self, id: MeterId) -> Result<Arc<MeterState>, Refusal> {
        let meters = self.0.read();
        let state = meters.get(&id).ok_or_else(|| unknown(id))?;
        state.users.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::clone(state))
    }

    pub(crate) fn counters(&self, id: MeterId) -> Option<MeterCounters> {
        let meters = self.0.read();
        let state = meters.get(&id)?;
        Some(MeterCounters {
            packets: state.packets.load(Ordering::Relaxed),
            bytes: state.bytes.load(Ordering::Relaxed),
            dropped_packets: state.dropped_packets.load(Ordering::Relaxed),
            dropped_bytes: Some(state.dropped_bytes.load(Ordering::Relaxed)),
            bands: state.bands.lock().buckets.iter().map(|bucket| bucket.dropped).collect(),
        })
    }
}

fn unknown(id: MeterId) -> Refusal {
    let reason = format!("there is no meter {id}").into();
    Refusal::Action { action: ActionKind::Meter, reason }.until(Cause::Meter)
}

impl MeterState {
    fn new(bands: Bands) -> Self {
        Self {
            bands: Mutex::new(bands),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped_packets: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            users: AtomicUsize::new(0),
        }
    }

    /// Whether a packet of so many bytes passes.
    pub(crate) fn passes(&self, bytes: usize, now: Timestamp) -> bool {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let passes = self.bands.lock().take(bytes, now);
        if !passes {
            self.dropped_packets.fetch_add(1, Ordering::Relaxed);
            self.dropped_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        passes
    }

    /// A meter in the same state, which goes its own way.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.bands.lock().clone())
    }

    /// One user less.
    pub(crate) fn release(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bands {
    fn new(meter: &Meter, now: Timestamp) -> Result<Self, Refusal> {
        let refuse = |reason: String| Err(Refusal::Action { action: ActionKind::Meter, reason: reason.into() });
        if meter.bands.is_empty() || meter.bands.len() > MeterBand::LIMIT {
            return refuse(format!("meter {} needs one to {} bands", meter.id, MeterBand::LIMIT));
        }
        if meter.bands.iter().any(|band| band.rate == 0) {
            return refuse(format!("meter {} would let nothing pass: its rate is zero", meter.id));
        }
        Ok(Self { unit: meter.unit, buckets: meter.bands.iter().map(Bucket::new).collect(), filled: now })
    }

    /// Charges a packet to every band that has room for it; true if all have.
    fn take(&mut self, bytes: usize, now: Timestamp) -> bool {
        let passed = now.0.saturating_sub(self.filled.0);
        self.filled = self.filled.max(now);
        let cost = match self.unit {
            MeterUnit::Kilobits => bytes as u128 * 8 * UNIT,
            MeterUnit::Packets => 1000 * UNIT,
        };
        let mut exceeded: Option<&mut Bucket> = None;
        for bucket in &mut self.buckets {
            bucket.tokens = bucket.depth.min(bucket.tokens + u128::from(passed) * u128::from(bucket.rate));
            match bucket.tokens.checked_sub(cost) {
                Some(left) => bucket.tokens = left,
                None if exceeded.as_ref().is_none_or(|other| other.rate < bucket.rate) => exceeded = Some(bucket),
                None => {}
            }
        }
        match exceeded {
            Some(bucket) => {
                bucket.dropped += 1;
                false
            }
            None => true,
        }
    }
}

impl Bucket {
    fn new(band: &MeterBand) -> Self {
        // Without a burst, OVS's userspace takes what the rate brings in a second.
        let burst = if band.burst == 0 { band.rate } else { band.burst };
        let depth = u128::from(burst) * 1000 * UNIT;
        Self { rate: band.rate, depth, tokens: depth, dropped: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(meters: &Meters, count: usize, bytes: usize, now: u64) -> usize {
        let meter = meters.get(MeterId(1)).unwrap();
        (0..count).filter(|_| meter.passes(bytes, Timestamp(now))).count()
    }

    #[test]
    fn packets_pass_at_the_rate_and_with_the_burst() {
        let meters = Meters::default();
        meters.set(&Meter::simple(MeterId(1), MeterUnit::Packets, 100, 5), Timestamp(0)).unwrap();
        assert_eq!(passed(&meters, 9, 1500, 0), 5, "the burst");
        assert_eq!(passed(&meters, 9, 60, 9_999_999), 0, "a nanosecond too early");
        assert_eq!(passed(&meters, 9, 60, 10_000_000), 1);
        assert_eq!(passed(&meters, 9, 60, 1_000_000_000), 5, "no more than the burst is saved up");
        let counters = meters.counters(MeterId(1)).unwrap();
        assert_eq!((counters.packets, counters.dropped_packets), (36, 25));
        assert_eq!(counters.dropped_bytes, Some(4 * 1500 + 21 * 60));
    }

    #[test]
    fn bits_pass_at_the_rate() {
        let meters = Meters::default();
        meters.set(&Meter::simple(MeterId(1), MeterUnit::Kilobits, 8, 0), Timestamp(0)).unwrap();
        assert_eq!(passed(&meters, 20, 100, 0), 10, "a second's worth: 1000 bytes");
        assert_eq!(passed(&meters, 20, 100, 300_000_000), 3);
    }

    #[test]
    fn a_packet_passes_all_bands_or_is_counted_by_the_fastest_that_it_exceeds() {
        let meters = Meters::default();
        let bands = vec![MeterBand { rate: 10, burst: 2 }, MeterBand { rate: 1, burst: 3 }];
        meters.set(&Meter { id: MeterId(1), unit: MeterUnit::Packets, bands }, Timestamp(0)).unwrap();
        // The second band is charged for what the first drops, as long as it has room.
        assert_eq!(passed(&meters, 4, 60, 0), 2);
        assert_eq!(meters.counters(MeterId(1)).unwrap().bands, [2, 0]);
        assert_eq!(passed(&meters, 2, 60, 200_000_000), 0, "the first band has room, the second has not");
        assert_eq!(meters.counters(MeterId(1)).unwrap().bands, [2, 2]);
    }

    #[test]
    fn a_meter_has_one_to_eight_bands() {
        let set = |count| {
            let bands = vec![MeterBand { rate: 1, burst: 1 }; count];
            Meters::default().set(&Meter { id: MeterId(1), unit: MeterUnit::Packets, bands }, Timestamp(0)).is_ok()
        };
        assert_eq!([set(0), set(1), set(8), set(9)], [false, true, true, false]);
    }

    #[test]
    fn a_meter_in_use_stays() {
        let meters = Meters::default();
        assert!(meters.acquire(MeterId(1)).is_err());
        meters.set(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1), Timestamp(0)).unwrap();
        let used = meters.acquire(MeterId(1)).unwrap();
        assert_eq!(meters.remove(MeterId(1)).unwrap_err().label(), "action");
        used.release();
        meters.remove(MeterId(1)).unwrap();
        assert!(meters.counters(MeterId(1)).is_none());
    }
}
