//! Connections that gateways expect because another connection spoke of them.
//!
//! The effect is that of `net/netfilter/nf_conntrack_expect.c` for the gateways that are here: each expects at most one
//! connection at a time of each of its own, from a known host and any port.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use sluice_flow::time::Timestamp;

use super::table::{Connection, status};
use super::tuple::Direction;
use super::tuple::Tuple;

/// Expectations that there can be at most (`nf_ct_expect_max` of a machine with more than 4 GiB).
const LIMIT: usize = 4096;
/// How long a connection is expected, by both gateways (`expect_policy`).
const TIMEOUT: Duration = Duration::from_secs(300);

/// The connection that is expected; its source port is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) destination_port: u16,
}

impl Expected {
    fn of(tuple: &Tuple) -> Self {
        Self {
            source: tuple.source,
            destination: tuple.destination,
            protocol: tuple.protocol,
            destination_port: tuple.destination_port,
        }
    }
}

/// How an expected connection is translated: as its master is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Follow {
    /// The direction of the master that the expected connection goes in.
    pub(crate) direction: Direction,
    /// The port that the one who waits for it has said, before it was translated.
    pub(crate) port: u16,
}

/// An expectation.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// The connection that spoke of it.
    pub(crate) master: Arc<Connection>,
    pub(crate) follow: Option<Follow>,
    expires: Timestamp,
}

impl Expectation {
    fn is_alive(&self, now: Timestamp) -> bool {
        self.expires > now && !self.master.has(status::GONE) && !self.master.is_expired(now)
    }
}

/// Why nothing is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The same is expected because of another connection.
    Busy,
    /// There are too many.
    Full,
}

/// All expectations.
#[derive(Default)]
pub(crate) struct Expectations {
    /// As many as there are, so that who expects nothing need not look.
    count: AtomicUsize,
    entries: Mutex<HashMap<(u16, Expected), Expectation, RandomState>>,
}

impl Expectations {
    /// Expects a connection; what its master expected before is expected no more (`nf_ct_expect_related`).
    pub(crate) fn expect(
        &self,
        master: &Arc<Connection>,
        expected: Expected,
        follow: Option<Follow>,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let key = (master.zone, expected);
        let mut entries = self.entries.lock();
        let other = entries.get(&key).filter(|other| other.is_alive(now));
        if other.is_some_and(|other| !Arc::ptr_eq(&other.master, master)) {
            return Err(Refused::Busy);
        }
        entries.retain(|_, other| other.is_alive(now) && !Arc::ptr_eq(&other.master, master));
        let result = if entries.len() < LIMIT {
            let master = Arc::clone(master);
            entries.insert(key, Expectation { master, follow, expires: now.after(TIMEOUT) });
            Ok(())
        } else {
            Err(Refused::Full)
        };
        self.count.store(entries.len(), Ordering::SeqCst);
        result
    }

    /// Expects nothing more because of a connection.
    pub(crate) fn forget(&self, master: &Arc<Connection>) {
        let mut entries = self.entries.lock();
        entries.retain(|_, other| !Arc::ptr_eq(&other.master, master));
        self.count.store(entries.len(), Ordering::SeqCst);
    }

    /// The connection because of which one is expected that begins with a packet (`__nf_ct_expect_find`).
    pub(crate) fn master(&self, zone: u16, tuple: &Tuple, now: Timestamp) -> Option<Arc<Connection>> {
        if self.is_empty() {
            return None;
        }
        let entries = self.entries.lock();
        let found = entries.get(&(zone, Expected::of(tuple)))?;
        found.is_alive(now).then(|| Arc::clone(&found.master))
    }

    /// The expectation that a new connection fulfils: it is not expected a second time (`nf_ct_find_expectation`).
    pub(crate) fn take(&self, zone: u16, tuple: &Tuple, now: Timestamp) -> Option<Expectation> {
        if self.is_empty() {
            return None;
        }
        let key = (zone, Expected::of(tuple));
        let mut entries = self.entries.lock();
        // Who never entered the table cannot have been heard by the other end.
        if !entries.get(&key)?.master.has(status::CONFIRMED) {
            return None;
        }
        let taken = entries.remove(&key);
        self.count.store(entries.len(), Ordering::SeqCst);
        taken.filter(|taken| taken.is_alive(now))
    }

    /// Copies, with the masters that `find` gives for theirs.
    pub(crate) fn fork(&self, find: impl Fn(&Connection) -> Option<Arc<Connection>>) -> Self {
        let copy = |(key, old): (&(u16, Expected), &Expectation)| {
            find(&old.master).map(|master| (*key, Expectation { master, ..old.clone() }))
        };
        let entries: HashMap<_, _, _> = self.entries.lock().iter().filter_map(copy).collect();
        Self { count: AtomicUsize::new(entries.len()), entries: Mutex::new(entries) }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::tuple;

    const NOW: Timestamp = Timestamp(1);

    fn master(port: u16) -> Arc<Connection> {
        let original = tuple(6, &format!("10.0.0.1:{port}"), "192.0.2.9:21");
        let connection = Connection::new(0, original, original.inverse().unwrap());
        connection.refresh(NOW, Duration::from_secs(1000));
        connection.set(status::CONFIRMED);
        Arc::new(connection)
    }

    fn data(port: u16) -> (Expected, Tuple) {
        let tuple = tuple(6, "192.0.2.9:20", &format!("10.0.0.1:{port}"));
        (Expected::of(&tuple), tuple)
    }

    #[test]
    fn a_connection_is_expected_once_from_any_port_of_one_host() {
        let (expectations, master) = (Expectations::default(), master(1000));
        let (expected, first) = data(5000);
        expectations.expect(&master, expected, None, NOW).unwrap();
        let other_host = tuple(6, "192.0.2.8:20", "10.0.0.1:5000");
        assert!(expectations.take(0, &other_host, NOW).is_none());
        assert!(expectations.take(1, &first, NOW).is_none(), "another zone");
        let from_elsewhere = Tuple { source_port: 4711, ..first };
        assert!(Arc::ptr_eq(&expectations.master(0, &from_elsewhere, NOW).unwrap(), &master));
        assert!(expectations.take(0, &from_elsewhere, NOW).is_some());
        assert!(expectations.take(0, &first, NOW).is_none(), "only once");
    }

    #[test]
    fn nothing_is_expected_for_longer_than_five_minutes_or_than_its_master_lives() {
        let expectations = Expectations::default();
        let (first, second) = (master(1000), master(1001));
        let ((one, one_tuple), (two, two_tuple)) = (data(5000), data(5001));
        expectations.expect(&first, one, None, NOW).unwrap();
        expectations.expect(&second, two, None, NOW).unwrap();
        second.set(status::GONE);
        assert!(expectations.master(0, &two_tuple, NOW).is_none());
        assert!(expectations.master(0, &one_tuple, NOW.after(Duration::from_secs(299))).is_some());
        assert!(expectations.take(0, &one_tuple, NOW.after(Duration::from_secs(300))).is_none());
    }

    #[test]
    fn a_later_expectation_of_a_master_takes_the_place_of_the_earlier_one() {
        let (expectations, master) = (Expectations::default(), master(1000));
        let ((one, one_tuple), (two, two_tuple)) = (data(5000), data(5001));
        expectations.expect(&master, one, None, NOW).unwrap();
        expectations.expect(&master, two, None, NOW).unwrap();
        assert!(expectations.master(0, &one_tuple, NOW).is_none());
        assert!(expectations.master(0, &two_tuple, NOW).is_some());
        expectations.forget(&master);
        assert!(expectations.master(0, &two_tuple, NOW).is_none());
    }

    #[test]
    fn two_masters_do_not_expect_the_same() {
        let expectations = Expectations::default();
        let (expected, _) = data(5000);
        expectations.expect(&master(1000), expected, None, NOW).unwrap();
        assert_eq!(expectations.expect(&master(1001), expected, None, NOW), Err(Refused::Busy));
    }

    #[test]
    fn a_master_that_is_not_in_the_table_yet_brings_nobody() {
        let expectations = Expectations::default();
        let original = tuple(6, "10.0.0.1:1", "192.0.2.9:21");
        let stranger = Arc::new(Connection::new(0, original, original.inverse().unwrap()));
        stranger.refresh(NOW, Duration::from_secs(9));
        let (expected, tuple) = data(5000);
        expectations.expect(&stranger, expected, None, NOW).unwrap();
        assert!(expectations.take(0, &tuple, NOW).is_none());
        stranger.set(status::CONFIRMED);
        assert!(expectations.take(0, &tuple, NOW).is_some());
    }

    #[test]
    fn there_are_only_so_many() {
        let expectations = Expectations::default();
        let masters: Vec<_> = (0..4097).map(master).collect();
        let results: Vec<_> =
            (5000..).zip(&masters).map(|(port, master)| expectations.expect(master, data(port).0, None, NOW)).collect();
        assert!(results[..4096].iter().all(Result::is_ok));
        assert_eq!(results[4096], Err(Refused::Full));
    }
}
