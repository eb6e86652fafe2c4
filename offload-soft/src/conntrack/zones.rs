//! How many connections each zone has, and how many it may have (`ovs_ct_check_limit` in net/openvswitch/conntrack.c).
//!
//! Other than in the kernel, connections are counted whether or not there is a limit, so that one that comes later counts
//! those that are there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use sluice_flow::connection::{ZoneLimit, ZoneLimits};
use sluice_flow::time::Timestamp;

/// How long the table is not searched for expired connections again, though a zone is full.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Counts and limits of all zones.
pub(crate) struct Zones {
    counts: Box<[AtomicU32]>,
    /// Whether any zone has a limit: without one, nothing is locked.
    is_limited: AtomicBool,
    limits: RwLock<Limits>,
    /// When the next search may be, in nanoseconds of the device's clock: one for all zones, for each is rid of what has expired by it.
    next_search: AtomicU64,
}

/// Limits; 0 is none.
#[derive(Clone, Default)]
struct Limits {
    default: u32,
    zones: BTreeMap<u16, u32>,
}

impl Zones {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..=u16::MAX).map(|_| AtomicU32::new(0)).collect(),
            is_limited: AtomicBool::new(false),
            limits: RwLock::default(),
            next_search: AtomicU64::new(0),
        }
    }

    /// Takes the limits of others over.
    pub(crate) fn follow(&self, others: &Self) {
        self.change(|limits| limits.clone_from(&others.limits.read()));
    }

    /// Counts a new connection; false if there are as many as there may be.
    pub(crate) fn enter(&self, zone: u16) -> bool {
        let count = &self.counts[usize::from(zone)];
        let limit = self.limit(zone);
        let admit = |count: u32| (limit == 0 || count < limit).then(|| count.saturating_add(1));
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, admit).is_ok()
    }

    /// Counts a connection that is gone.
    pub(crate) fn leave(&self, zone: u16) {
        self.counts[usize::from(zone)].fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a zone is full and the table should be searched for connections that have expired, in all zones: they are counted until
    /// they are found.
    pub(crate) fn is_search_due(&self, zone: u16, now: Timestamp) -> bool {
        let limit = self.limit(zone);
        if limit == 0 || self.counts[usize::from(zone)].load(Ordering::SeqCst) < limit {
            return false;
        }
        let due = |next: u64| (next <= now.0).then(|| now.after(SEARCH_INTERVAL).0);
        self.next_search.fetch_update(Ordering::SeqCst, Ordering::SeqCst, due).is_ok()
    }

    pub(crate) fn set_limit(&self, zone: Option<u16>, limit: u32) {
        self.change(|limits| match zone {
            Some(zone) => drop(limits.zones.insert(zone, limit)),
            None => limits.default = limit,
        });
    }

    pub(crate) fn remove_limit(&self, zone: Option<u16>) {
        self.change(|limits| match zone {
            Some(zone) => drop(limits.zones.remove(&zone)),
            None => limits.default = 0,
        });
    }

    /// The limits of these zones, or of all that have one of their own.
    pub(crate) fn limits(&self, zones: &[u16]) -> ZoneLimits {
        let limits = self.limits.read();
        let show = |zone: u16| ZoneLimit {
            zone,
            limit: limits.of(zone),
            count: self.counts[usize::from(zone)].load(Ordering::SeqCst),
        };
        let zones = if zones.is_empty() {
            limits.zones.keys().copied().map(show).collect()
        } else {
            zones.iter().copied().map(show).collect()
        };
        ZoneLimits { default: limits.default, zones }
    }

    fn limit(&self, zone: u16) -> u32 {
        if self.is_limited.load(Ordering::Acquire) { self.limits.read().of(zone) } else { 0 }
    }

    fn change(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.limits.write();
        change(&mut limits);
        let is_limited = limits.default != 0 || limits.zones.values().any(|limit| *limit != 0);
        self.is_limited.store(is_limited, Ordering::Release);
    }
}

impl Limits {
    fn of(&self, zone: u16) -> u32 {
        self.zones.get(&zone).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::Stop;
    use crate::conntrack::stories::{World, commit, in_zone, look, udp};
    use sluice_flow::connection::Selection;
    use sluice_flow::time::Clock as _;

    /// A packet of a connection of its own for each port.
    fn send(world: &World, zone: u16, port: u16) -> Result<(), Stop> {
        world.send(&in_zone(zone, commit()), &udp("10.0.0.1", port, "192.0.2.9", 53)).map(drop)
    }

    fn count(world: &World, zone: u16) -> u32 {
        world.conntrack.zones().limits(&[zone]).zones[0].count
    }

    #[test]
    fn a_full_zone_takes_no_new_connection_and_keeps_those_that_it_has() {
        let world = World::new();
        world.conntrack.zones().set_limit(Some(7), 2);
        assert_eq!([send(&world, 7, 1), send(&world, 7, 2)], [Ok(()), Ok(())]);
        assert_eq!(send(&world, 7, 3), Err(Stop::Dropped));
        assert_eq!(world.conntrack.losses().limit.load(Ordering::Relaxed), 1);
        assert_eq!([send(&world, 7, 1), send(&world, 8, 3)], [Ok(()), Ok(())], "known, and of another zone");
        let looked = world.send(&in_zone(7, look()), &udp("10.0.0.1", 3, "192.0.2.9", 53));
        assert!(looked.is_ok(), "who only looks is not limited");
        assert_eq!((count(&world, 7), count(&world, 8)), (2, 1));
    }

    #[test]
    fn room_is_made_by_flushing_and_by_expiring() {
        let world = World::new();
        world.conntrack.zones().set_limit(Some(7), 1);
        send(&world, 7, 1).unwrap();
        let of_zone = Selection { zone: Some(7), ..Selection::default() };
        assert_eq!(world.conntrack.flush(&of_zone, world.clock.now()), 1);
        send(&world, 7, 2).unwrap();
        assert_eq!(send(&world, 7, 3), Err(Stop::Dropped));
        world.wait(31);
        send(&world, 7, 3).unwrap();
        assert_eq!(count(&world, 7), 1);
    }

    #[test]
    fn a_full_zone_does_not_keep_another_from_being_searched() {
        let world = World::new();
        for zone in [7, 8] {
            world.conntrack.zones().set_limit(Some(zone), 1);
            send(&world, zone, 1).unwrap();
        }
        world.wait(31);
        assert_eq!([send(&world, 7, 2), send(&world, 8, 2)], [Ok(()), Ok(())], "in the same second");
        assert_eq!([send(&world, 7, 3), send(&world, 8, 3)], [Err(Stop::Dropped), Err(Stop::Dropped)]);
    }

    #[test]
    fn a_zone_without_a_limit_of_its_own_has_the_default() {
        let world = World::new();
        let zones = world.conntrack.zones();
        zones.set_limit(None, 1);
        zones.set_limit(Some(7), 0);
        assert_eq!([send(&world, 7, 1), send(&world, 7, 2)], [Ok(()), Ok(())], "0 is no limit");
        assert_eq!([send(&world, 8, 1), send(&world, 8, 2)], [Ok(()), Err(Stop::Dropped)]);
        zones.remove_limit(Some(7));
        assert_eq!(send(&world, 7, 3), Err(Stop::Dropped), "what was there before counts");
        zones.remove_limit(None);
        assert_eq!(send(&world, 8, 2), Ok(()));
        let limits = zones.limits(&[8, 7]);
        let shown: Vec<_> = limits.zones.iter().map(|zone| (zone.zone, zone.limit, zone.count)).collect();
        assert_eq!((limits.default, shown), (0, vec![(8, 0, 2), (7, 0, 2)]));
    }

    #[test]
    fn a_dry_run_is_limited_like_the_device() {
        let world = World::new();
        send(&world, 7, 1).unwrap();
        send(&world, 7, 2).unwrap();
        world.conntrack.zones().set_limit(Some(7), 1);
        let fork = World { conntrack: world.conntrack.fork(world.clock.now()), ..World::new() };
        assert_eq!(count(&fork, 7), 2, "all are copied");
        assert_eq!(send(&fork, 7, 3), Err(Stop::Dropped));
    }
}
