//! Connections that commands tell of: whoever tracks them in software adds them here, and flushes them when they end.

use std::collections::HashMap;
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
    known: HashMap<(u16, Direction), Told>,
    changes: Vec<ConnectionChange>,
    limit: u32,
}

struct Told {
    connection: Connection,
    ends: Timestamp,
}

impl ToldConnections {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State { known: HashMap::new(), changes: Vec::new(), limit: LIMIT };
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
        for connection in connections {
            if let Some(told) = state.known.get_mut(&name(connection)) {
                told.ends = now.after(connection.timeout);
            }
        }
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
            let left = |told: &Told| Connection { timeout: told.ends.since(now), ..told.connection.clone() };
            state.known.values().filter(|told| told.ends > now).map(left).collect()
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
        let ends = now.after(connection.timeout);
        state.known.insert(name(&connection), Told { connection, ends });
        self.changed.notify_one();
        Ok(())
    }

    fn flush(&self, of: &Selection, show: &mut dyn FnMut(Vec<ConnectionChange>)) -> Result<usize, SourceError> {
        let mut state = self.state.lock();
        let flushed = state.known.extract_if(|_, told| of.has(&told.connection));
        let gone: Vec<_> = flushed.map(|(_, told)| gone(&told.connection)).collect();
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
    /// Ends the connections without a packet for their timeout.
    fn expire(&mut self, now: Timestamp) {
        let ended = self.known.extract_if(|_, told| told.ends <= now);
        self.changes.extend(ended.map(|(_, told)| gone(&told.connection)));
    }
}

fn name(connection: &Connection) -> (u16, Direction) {
    (connection.zone, connection.original)
}

fn gone(connection: &Connection) -> ConnectionChange {
    ConnectionChange::Gone { zone: connection.zone, original: connection.original, id: None }
}
