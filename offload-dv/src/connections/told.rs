//! Connections that commands tell of: whoever tracks them in software adds them here, and flushes them when they end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_flow::connection::{Connection, Direction, Selection};
use sluice_flow::time::{Clock, Timestamp};

use super::source::{ConnectionSource, SourceError};
use super::table::ConnectionTable;
use crate::switch::ConnectionChange;

/// As many connections as Linux takes by default on a machine with much memory (`nf_conntrack_max`).
const LIMIT: u32 = 262_144;
/// Flushed connections that are shown at once.
const SHOWN: usize = 64;

/// The connections. They go with the agent.
pub struct ToldConnections(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There are changes that nobody has taken yet.
    changed: Condvar,
    clock: Arc<dyn Clock>,
}

struct State {
    known: HashMap<Name, Told>,
    /// The same by when they end, so that nobody walks all of them to find those that have.
    ends: BTreeMap<End, Name>,
    /// The number of the last end.
    last: u64,
    changes: Vec<ConnectionChange>,
    limit: u32,
}

struct Told {
    connection: Connection,
    ends: End,
}

/// A zone, and the direction that a connection of it began in.
type Name = (u16, Direction);
/// When a connection ends without another packet, and a number that no other end has.
type End = (Timestamp, u64);

impl ToldConnections {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (known, ends, last, changes) = Default::default();
        let state = State { known, ends, last, changes, limit: LIMIT };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), clock }))
    }
}

impl ConnectionSource for ToldConnections {
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        let mut state = self.0.state.lock();
        state.expire(self.0.clock.now());
        // The listing says the same.
        state.changes.clear();
        state.known.values().for_each(|told| visit(told.connection.clone()));
        Ok(())
    }

    fn wait(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        let mut state = self.0.state.lock();
        if state.changes.is_empty() {
            self.0.changed.wait_for(&mut state, patience);
        }
        state.expire(self.0.clock.now());
        changes.append(&mut state.changes);
        Ok(())
    }

    fn keep(&mut self, connections: &[Connection]) -> Result<(), SourceError> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        connections.iter().for_each(|connection| state.keep(connection, now));
        Ok(())
    }

    fn table(&self) -> Option<Box<dyn ConnectionTable>> {
        Some(Box::new(self.0.clone()))
    }
}

impl ConnectionTable for Arc<Shared> {
    fn visit(&self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        let now = self.clock.now();
        let all: Vec<_> = {
            let state = self.state.lock();
            let left = |told: &Told| Connection { timeout: told.ends.0.since(now), ..told.connection.clone() };
            state.known.values().filter(|told| told.ends.0 > now).map(left).collect()
        };
        all.into_iter().for_each(visit);
        Ok(())
    }

    fn add(&self, connection: Connection) -> Result<(), SourceError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.expire(now);
        let is_new = !state.known.contains_key(&name(&connection));
        if is_new && state.known.len() >= state.limit as usize {
            return Err(SourceError::Failed(format!("there are as many as there may be ({})", state.limit)));
        }
        state.changes.push(ConnectionChange::Is(Box::new(connection.clone())));
        state.put(connection, now);
        self.changed.notify_one();
        Ok(())
    }

    fn flush(&self, of: &Selection, show: &mut dyn FnMut(Vec<ConnectionChange>)) -> Result<usize, SourceError> {
        let mut state = self.state.lock();
        let gone: Vec<_> = state.remove(of).iter().map(gone).collect();
        // Before another one can be added in the place of one of them.
        gone.chunks(SHOWN).for_each(|some| show(some.to_vec()));
        let count = gone.len();
        state.changes.extend(gone);
        self.changed.notify_one();
        Ok(count)
    }

    fn count(&self) -> Result<usize, SourceError> {
        Ok(self.state.lock().known.len())
    }

    fn limit(&self) -> Result<u32, SourceError> {
        Ok(self.state.lock().limit)
    }

    fn set_limit(&self, limit: u32) -> Result<(), SourceError> {
        self.state.lock().limit = limit;
        Ok(())
    }
}

impl State {
    /// Puts a connection in, in place of one with the same name.
    fn put(&mut self, connection: Connection, now: Timestamp) {
        let name = name(&connection);
        let ends = self.end(now.after(connection.timeout), name);
        if let Some(old) = self.known.insert(name, Told { connection, ends }) {
            self.ends.remove(&old.ends);
        }
    }

    /// Has a connection live for its timeout from now, if it is still there.
    fn keep(&mut self, connection: &Connection, now: Timestamp) {
        let name = name(connection);
        if !self.known.contains_key(&name) {
            return;
        }
        let ends = self.end(now.after(connection.timeout), name);
        if let Some(told) = self.known.get_mut(&name) {
            self.ends.remove(&std::mem::replace(&mut told.ends, ends));
        }
    }

    fn end(&mut self, at: Timestamp, name: Name) -> End {
        self.last += 1;
        self.ends.insert((at, self.last), name);
        (at, self.last)
    }

    /// Removes the connections that are selected, and returns them.
    fn remove(&mut self, of: &Selection) -> Vec<Connection> {
        let Self { known, ends, .. } = self;
        let take = |(_, told): (Name, Told)| {
            ends.remove(&told.ends);
            told.connection
        };
        known.extract_if(|_, told| of.has(&told.connection)).map(take).collect()
    }

    /// Ends the connections without a packet for their timeout.
    fn expire(&mut self, now: Timestamp) {
        while let Some(first) = self.ends.first_entry().filter(|first| first.key().0 <= now) {
            let ended = self.known.remove(&first.remove());
            self.changes.extend(ended.map(|told| gone(&told.connection)));
        }
    }
}

fn name(connection: &Connection) -> Name {
    (connection.zone, connection.original)
}

fn gone(connection: &Connection) -> ConnectionChange {
    ConnectionChange::Gone { zone: connection.zone, original: connection.original, id: None }
}

#[cfg(test)]
mod tests {
    use sluice_flow::connection::DirectionSelection;
    use sluice_flow::time::ManualClock;

    use super::super::begun_from;
    use super::*;

    fn living_for(port: u16, seconds: u64) -> Connection {
        Connection { timeout: Duration::from_secs(seconds), ..begun_from(port) }
    }

    /// The ports of connections that ended, of what was told meanwhile.
    fn ended(source: &mut ToldConnections) -> Vec<u16> {
        let mut changes = Vec::new();
        source.wait(Duration::ZERO, &mut changes).unwrap();
        let ports = changes.into_iter().filter_map(|change| match change {
            ConnectionChange::Gone { original, .. } => Some(original.source_port),
            ConnectionChange::Is(_) => None,
        });
        ports.collect()
    }

    #[test]
    fn a_connection_ends_when_it_was_last_said_to_and_those_in_the_order_that_do() {
        let clock = Arc::new(ManualClock::default());
        let mut source = ToldConnections::new(clock.clone());
        let table = source.table().unwrap();
        for (port, seconds) in [(1, 30), (2, 20), (3, 10), (4, 10), (5, 10), (6, 10)] {
            table.add(living_for(port, seconds)).unwrap();
        }
        // One lives longer than it was said first, one shorter, one is added anew, and one is gone before.
        source.keep(&[living_for(3, 40), living_for(1, 5), living_for(7, 5)]).unwrap();
        table.add(living_for(4, 25)).unwrap();
        let flushed = DirectionSelection { source_port: Some(5), ..DirectionSelection::default() };
        let flushed = Selection { original: flushed, ..Selection::default() };
        assert_eq!(table.flush(&flushed, &mut |_| {}).unwrap(), 1);
        assert_eq!(ended(&mut source), [5]);
        for wanted in [[1].as_slice(), &[6], &[], &[2], &[4], &[], &[], &[3]] {
            clock.advance(Duration::from_secs(5));
            assert_eq!(ended(&mut source), wanted);
        }
        assert_eq!(table.count().unwrap(), 0);
        let state = source.0.state.lock();
        assert!(state.ends.is_empty() && state.known.is_empty());
    }
}
