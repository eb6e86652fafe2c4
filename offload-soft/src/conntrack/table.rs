//! All connections, found by the tuple of either direction.
//!
//! The table is cut into shards by the hash of zone and tuple; a connection stands in two of them. Locks: the two shards
//! of a connection are taken together only to enter it, the lower number first; nothing else is locked while a shard is
//! held, so a packet waits at most for another packet's map access.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use sluice_flow::time::Timestamp;

use super::adjustment::Adjustment;
use super::gateway::Helper;
use super::policies::Policy;
use super::protocol::Protocol;
use super::timeouts::Timeouts;
use super::tuple::Direction;
use super::tuple::Tuple;
use super::zones::Zones;

const SHARDS: usize = 64;
/// Connections that are looked at in search of one that may be evicted.
const EVICTION_SEARCH: usize = 64;
/// Connections that one packet looks at in search of expired ones.
const SWEEP: usize = 4;

/// Bits of [`Connection::has`] (`enum ip_conntrack_status`).
pub(crate) mod status {
    /// It was seen in both directions.
    pub(crate) const SEEN_REPLY: u32 = 1 << 0;
    /// It is not evicted early.
    pub(crate) const ASSURED: u32 = 1 << 1;
    /// It is or was in the table.
    pub(crate) const CONFIRMED: u32 = 1 << 2;
    /// It was taken out of the table.
    pub(crate) const GONE: u32 = 1 << 3;
    /// The source of its original direction is translated.
    pub(crate) const SOURCE_NAT: u32 = 1 << 4;
    /// The destination of its original direction is translated.
    pub(crate) const DESTINATION_NAT: u32 = 1 << 5;
    /// It is decided whether and how the source is translated.
    pub(crate) const SOURCE_DONE: u32 = 1 << 6;
    /// It is decided whether and how the destination is translated.
    pub(crate) const DESTINATION_DONE: u32 = 1 << 7;
    /// A gateway changed the length of what an end said.
    pub(crate) const ADJUSTED: u32 = 1 << 8;
}

/// A connection. What is read without its lock is atomic.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) zone: u16,
    pub(crate) original: Tuple,
    /// The connection because of which this one was expected.
    pub(crate) master: Option<Arc<Connection>>,
    /// Set where its timeouts are not the usual ones.
    pub(crate) policy: Option<Arc<Policy>>,
    status: AtomicU32,
    /// Nanoseconds of the device's clock.
    expires: AtomicU64,
    mark: AtomicU32,
    state: Mutex<State>,
}

/// What of a connection is read and written together.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The direction of answers as they come in: the inverse of the original, or of what it is translated into. It does
    /// not change any more once the connection is in the table.
    pub(crate) reply: Tuple,
    pub(crate) label: u128,
    pub(crate) protocol: Protocol,
    pub(crate) helper: Option<Helper>,
    /// Of the sequence numbers of each direction.
    pub(crate) adjustments: [Adjustment; 2],
}

impl Connection {
    pub(crate) fn new(zone: u16, original: Tuple, reply: Tuple) -> Self {
        Self {
            zone,
            original,
            master: None,
            policy: None,
            status: AtomicU32::new(0),
            expires: AtomicU64::new(0),
            mark: AtomicU32::new(0),
            state: Mutex::new(State {
                reply,
                label: 0,
                protocol: Protocol::Unseen,
                helper: None,
                adjustments: [Adjustment::default(); 2],
            }),
        }
    }

    fn fork(&self) -> Self {
        Self {
            zone: self.zone,
            original: self.original,
            master: self.master.clone(),
            policy: self.policy.clone(),
            status: AtomicU32::new(self.status.load(Ordering::SeqCst)),
            expires: AtomicU64::new(self.expires.load(Ordering::SeqCst)),
            mark: AtomicU32::new(self.mark()),
            state: Mutex::new(self.lock().clone()),
        }
    }

    /// Whether it has a bit of [`status`].
    pub(crate) fn has(&self, status: u32) -> bool {
        self.status.load(Ordering::SeqCst) & status != 0
    }

    /// Sets bits of [`status`]; true if one was not set before.
    pub(crate) fn set(&self, status: u32) -> bool {
        self.status.fetch_or(status, Ordering::SeqCst) & status != status
    }

    pub(crate) fn mark(&self) -> u32 {
        self.mark.load(Ordering::SeqCst)
    }

    /// Sets the masked bits of the mark; the new one comes back.
    pub(crate) fn set_mark(&self, value: u32, mask: u32) -> u32 {
        let merge = |old: u32| value & mask | old & !mask;
        let old = self.mark.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(merge(old)));
        merge(old.unwrap_or_else(|old| old))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The tuple of the packets of one direction, as they come in.
    pub(crate) fn tuple(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.original,
            Direction::Reply => self.lock().reply,
        }
    }

    pub(crate) fn refresh(&self, now: Timestamp, timeout: Duration) {
        self.expires.store(now.after(timeout).0, Ordering::SeqCst);
    }

    /// How long it is remembered in which state.
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.policy.as_ref().map_or(Timeouts::DEFAULT, |policy| policy.timeouts())
    }

    /// Whether it has the timeouts of a policy.
    pub(crate) fn follows(&self, policy: &Arc<Policy>) -> bool {
        self.policy.as_ref().is_some_and(|own| Arc::ptr_eq(own, policy))
    }

    /// How long it would live without another packet.
    pub(crate) fn remaining(&self, now: Timestamp) -> Duration {
        Timestamp(self.expires.load(Ordering::SeqCst)).since(now)
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.load(Ordering::SeqCst) <= now.0
    }
}

/// Why a connection was not entered.
#[derive(Debug)]
pub(crate) enum Clash {
    /// One of its directions is one of this connection, which another packet has begun meanwhile.
    With(Arc<Connection>),
    /// Its zone has as many connections as it may have.
    Full,
}

type Slots = HashMap<(u16, Tuple), (Arc<Connection>, Direction), RandomState>;
/// Zone, protocol, source address and source port of an original direction.
type Source = (u16, u8, IpAddr, u16);
type Sources = HashMap<Source, Vec<Arc<Connection>>, RandomState>;

#[derive(Default)]
struct Shard {
    slots: Slots,
    /// The connections whose original direction is here, and some that are gone, in the order in which they are looked
    /// at in search of expired ones.
    round: VecDeque<Arc<Connection>>,
}

impl Shard {
    /// The connections whose original direction is here. By its slot a connection cannot be told whose directions are
    /// equal, for it has only one.
    fn originals(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.round.iter().filter(|connection| !connection.has(status::GONE))
    }
}

/// The table.
pub(crate) struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// Where hosts are translated to, so that another connection from there is translated alike.
    sources: Box<[Mutex<Sources>]>,
    hasher: RandomState,
    length: AtomicUsize,
    limit: AtomicU32,
    next_sweep: AtomicUsize,
    evicted: AtomicU64,
    zones: Zones,
}

impl Table {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sources: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            length: AtomicUsize::new(0),
            limit: AtomicU32::new(limit),
            next_sweep: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            zones: Zones::new(),
        }
    }

    /// Connections and limits by zone.
    pub(crate) fn zones(&self) -> &Zones {
        &self.zones
    }

    /// A table with copies of all connections, which goes its own way.
    pub(crate) fn fork(&self, now: Timestamp) -> Self {
        let fork = Self::new(self.limit());
        for connection in self.connections() {
            // A clash can only be with one that took its place meanwhile, which is copied as well.
            let _ = fork.insert(&Arc::new(connection.fork()), now);
        }
        fork.zones.follow(&self.zones);
        fork
    }

    /// All connections, those included that expired and were not looked at since. No lock is held between them.
    pub(crate) fn connections(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        self.shards.iter().flat_map(|shard| shard.lock().originals().cloned().collect::<Vec<_>>())
    }

    /// Connections in the table, those included that expired and were not looked at since.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// Connections that there may be.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes how many connections there may be. What there is stays.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Connections by the shard of their original direction, those included that expired and were not looked at since.
    pub(crate) fn buckets(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.lock().originals().count()).collect()
    }

    /// Connections that had to go for others.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn shard_of(&self, key: &(u16, Tuple)) -> usize {
        self.spread(self.hasher.hash_one(key))
    }

    fn source_shard(&self, source: &Source) -> &Mutex<Sources> {
        &self.sources[self.spread(self.hasher.hash_one(source))]
    }

    fn spread(&self, hash: u64) -> usize {
        (hash >> 32) as usize % SHARDS
    }

    /// The connection that a packet belongs to, and its direction.
    pub(crate) fn find(&self, zone: u16, tuple: &Tuple, now: Timestamp) -> Option<(Arc<Connection>, Direction)> {
        let key = (zone, *tuple);
        let found = self.shards[self.shard_of(&key)].lock().slots.get(&key).cloned();
        let (connection, direction) = found?;
        if connection.is_expired(now) {
            self.remove(&connection);
            return None;
        }
        Some((connection, direction))
    }

    /// Makes room for one more; false if there is none (`early_drop` in nf_conntrack_core.c, with another measure of
    /// how far it looks).
    pub(crate) fn make_room(&self, zone: u16, tuple: &Tuple, now: Timestamp) -> bool {
        if self.len() < self.limit() as usize {
            return true;
        }
        let start = self.shard_of(&(zone, *tuple));
        let mut looked_at = 0;
        for index in (start..SHARDS).chain(0..start) {
            let mut shard = self.shards[index].lock();
            for _ in 0..shard.round.len() {
                let Some(connection) = shard.round.pop_front() else {
                    break;
                };
                if connection.has(status::GONE) {
                    continue;
                }
                if !connection.has(status::ASSURED) || connection.is_expired(now) {
                    drop(shard);
                    if self.remove(&connection) && !connection.is_expired(now) {
                        self.evicted.fetch_add(1, Ordering::Relaxed);
                    }
                    return true;
                }
                shard.round.push_back(connection);
                looked_at += 1;
                if looked_at >= EVICTION_SEARCH {
                    return false;
                }
            }
        }
        false
    }

    /// Enters a connection under both of its directions (`__nf_conntrack_confirm`).
    pub(crate) fn insert(&self, connection: &Arc<Connection>, now: Timestamp) -> Result<(), Clash> {
        if self.zones.is_search_due(connection.zone, now) {
            self.expire(now);
        }
        let reply = connection.tuple(Direction::Reply);
        let keys = [(connection.zone, connection.original), (connection.zone, reply)];
        for key in &keys {
            // What has expired does not stand in the way.
            self.find(key.0, &key.1, now);
        }
        let [first, second] = keys.each_ref().map(|key| self.shard_of(key));
        let mut lower = self.shards[first.min(second)].lock();
        let mut higher = (first != second).then(|| self.shards[first.max(second)].lock());
        for (key, index) in keys.iter().zip([first, second]) {
            let shard = if index == first.min(second) { &lower } else { higher.as_ref().unwrap_or(&lower) };
            if let Some((other, _)) = shard.slots.get(key) {
                return Err(Clash::With(Arc::clone(other)));
            }
        }
        if !self.zones.enter(connection.zone) {
            return Err(Clash::Full);
        }
        connection.set(status::CONFIRMED);
        for (key, index, direction) in [(keys[0], first, Direction::Original), (keys[1], second, Direction::Reply)] {
            let shard = if index == first.min(second) { &mut lower } else { higher.as_mut().unwrap_or(&mut lower) };
            shard.slots.insert(key, (Arc::clone(connection), direction));
            if direction == Direction::Original {
                shard.round.push_back(Arc::clone(connection));
            }
        }
        self.length.fetch_add(1, Ordering::SeqCst);
        drop((lower, higher));
        if connection.has(status::SOURCE_DONE) {
            self.note_source(connection);
        }
        Ok(())
    }

    /// Notes where the host of a connection that is in the table is translated to.
    fn note_source(&self, connection: &Arc<Connection>) {
        let source = source_of(connection);
        self.source_shard(&source).lock().entry(source).or_default().push(Arc::clone(connection));
        // It could be found, and removed, before this.
        if connection.has(status::GONE) {
            self.forget_source(connection);
        }
    }

    fn forget_source(&self, connection: &Arc<Connection>) {
        let source = source_of(connection);
        let mut sources = self.source_shard(&source).lock();
        if let Some(alike) = sources.get_mut(&source) {
            alike.retain(|other| !Arc::ptr_eq(other, connection));
            if alike.is_empty() {
                sources.remove(&source);
            }
        }
    }

    /// Takes a connection out; true if it was in.
    pub(crate) fn remove(&self, connection: &Arc<Connection>) -> bool {
        if !connection.has(status::CONFIRMED) || !connection.set(status::GONE) {
            return false;
        }
        for tuple in [connection.original, connection.tuple(Direction::Reply)] {
            let key = (connection.zone, tuple);
            self.shards[self.shard_of(&key)].lock().slots.remove(&key);
        }
        if connection.has(status::SOURCE_DONE) {
            self.forget_source(connection);
        }
        self.length.fetch_sub(1, Ordering::SeqCst);
        self.zones.leave(connection.zone);
        true
    }

    /// Takes out what has expired.
    fn expire(&self, now: Timestamp) {
        for connection in self.connections().filter(|connection| connection.is_expired(now)) {
            self.remove(&connection);
        }
    }

    /// Whether answers that come in as `reply` would be taken for those of another connection than the one that begins
    /// with `original` (`nf_conntrack_tuple_taken`).
    pub(crate) fn is_taken(&self, zone: u16, reply: &Tuple, original: &Tuple, now: Timestamp) -> bool {
        self.find(zone, reply, now).is_some_and(|(other, _)| other.original != *original)
    }

    /// The reply directions of connections from the same host and port.
    pub(crate) fn replies_to(&self, zone: u16, tuple: &Tuple) -> Vec<Tuple> {
        let source = (zone, tuple.protocol, tuple.source, tuple.source_port);
        let alike = self.source_shard(&source).lock().get(&source).cloned().unwrap_or_default();
        alike.iter().map(|connection| connection.tuple(Direction::Reply)).collect()
    }

    /// Looks at a few connections and takes out those that have expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let index = self.next_sweep.fetch_add(1, Ordering::Relaxed) % SHARDS;
        // Somebody else is there, and another packet comes by.
        let Some(mut shard) = self.shards[index].try_lock() else {
            return;
        };
        let mut expired: [Option<Arc<Connection>>; SWEEP] = [const { None }; SWEEP];
        for place in &mut expired {
            let Some(connection) = shard.round.pop_front() else {
                break;
            };
            if connection.has(status::GONE) {
                continue;
            }
            if connection.is_expired(now) {
                *place = Some(connection);
            } else {
                shard.round.push_back(connection);
            }
        }
        drop(shard);
        for connection in expired.iter().flatten() {
            self.remove(connection);
        }
    }
}

fn source_of(connection: &Connection) -> Source {
    let original = &connection.original;
    (connection.zone, original.protocol, original.source, original.source_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::tuple;

    const NOW: Timestamp = Timestamp(1);

    fn connection(zone: u16, port: u16) -> Arc<Connection> {
        let original = tuple(17, &format!("10.0.0.1:{port}"), "10.0.0.2:53");
        let connection = Connection::new(zone, original, original.inverse().unwrap());
        connection.refresh(NOW, Duration::from_secs(30));
        Arc::new(connection)
    }

    #[test]
    fn a_connection_is_found_from_both_ends_and_only_in_its_zone() {
        let table = Table::new(10);
        let entered = connection(7, 1000);
        table.insert(&entered, NOW).unwrap();
        let (_, direction) = table.find(7, &entered.original, NOW).unwrap();
        assert_eq!(direction, Direction::Original);
        let (found, direction) = table.find(7, &entered.original.inverse().unwrap(), NOW).unwrap();
        assert_eq!(direction, Direction::Reply);
        assert!(Arc::ptr_eq(&found, &entered));
        assert!(table.find(8, &entered.original, NOW).is_none());
    }

    #[test]
    fn what_has_expired_is_not_found_and_does_not_count() {
        let table = Table::new(10);
        let entered = connection(0, 1000);
        table.insert(&entered, NOW).unwrap();
        let late = NOW.after(Duration::from_secs(30));
        assert!(table.find(0, &entered.original, late).is_none());
        assert_eq!(table.len(), 0);
        assert!(!table.remove(&entered), "it is gone already");
    }

    #[test]
    fn a_sweep_of_all_shards_finds_what_nobody_asks_for() {
        let table = Table::new(1000);
        for port in 0..200 {
            table.insert(&connection(0, port), NOW).unwrap();
        }
        let late = NOW.after(Duration::from_secs(31));
        for _ in 0..SHARDS * 200 / SWEEP {
            table.sweep(late);
        }
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_connection_that_is_removed_while_it_is_entered_is_not_remembered_for_its_source() {
        let table = Table::new(10);
        let translated = connection(0, 1000);
        table.insert(&translated, NOW).unwrap();
        translated.set(status::SOURCE_DONE);
        assert!(table.remove(&translated), "another thread found it");
        // What the thread that enters it does last.
        table.note_source(&translated);
        assert_eq!(table.replies_to(0, &translated.original), []);
        assert_eq!(Arc::strong_count(&translated), 2, "this one, and one until the next sweep");
    }

    #[test]
    fn a_connection_of_a_port_with_itself_is_listed_and_counted() {
        let table = Table::new(10);
        let itself = tuple(17, "10.0.0.1:7", "10.0.0.1:7");
        let echo = Arc::new(Connection::new(0, itself, itself.inverse().unwrap()));
        echo.refresh(NOW, Duration::from_secs(30));
        table.insert(&echo, NOW).unwrap();
        assert_eq!(table.connections().count(), 1);
        assert_eq!(table.buckets().iter().sum::<usize>(), 1);
        assert!(table.remove(&echo));
        assert_eq!((table.connections().count(), table.buckets().iter().sum()), (0, 0usize));
    }

    #[test]
    fn the_same_connection_twice_is_a_clash_that_names_the_first() {
        let table = Table::new(10);
        let first = connection(0, 1000);
        table.insert(&first, NOW).unwrap();
        match table.insert(&connection(0, 1000), NOW) {
            Err(Clash::With(winner)) => assert!(Arc::ptr_eq(&winner, &first)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_table_evicts_what_is_not_assured_and_nothing_else() {
        let table = Table::new(2);
        let (probe, stream) = (connection(0, 1), connection(0, 2));
        stream.set(status::ASSURED);
        table.insert(&probe, NOW).unwrap();
        table.insert(&stream, NOW).unwrap();
        let newcomer = connection(0, 3);
        assert!(table.make_room(0, &newcomer.original, NOW));
        assert!(probe.has(status::GONE) && !stream.has(status::GONE));
        assert_eq!((table.len(), table.evicted()), (1, 1));
        newcomer.set(status::ASSURED);
        table.insert(&newcomer, NOW).unwrap();
        assert!(!table.make_room(0, &probe.original, NOW), "all are assured");
    }
}
