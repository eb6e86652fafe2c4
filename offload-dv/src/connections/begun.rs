//! Connections that have begun and are not for hardware yet. Who tracks one may have the kernel tell of its beginning and its end only, as Open
//! vSwitch does (`OVS_CT_EVENTMASK_DEFAULT`), so that what comes between is to be asked for.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use sluice_ctnetlink::wire::Name;
use sluice_flow::connection::{Connection, State, TcpState};

use crate::translate::status;

/// How long a connection is not asked for, from its beginning and then from one time to the next. One that takes longer comes with the next
/// listing of all.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
];
/// Connections at most that are asked for; others, too, come with a listing.
const MOST: usize = 65_536;

#[derive(Default)]
pub(super) struct Begun {
    connections: HashMap<Name, Connection>,
    /// Those in each of the pauses, with its beginning.
    paused: [VecDeque<(Instant, Name)>; PAUSES.len()],
}

impl Begun {
    /// Takes note of what a connection is now.
    pub(super) fn see(&mut self, connection: &Connection, now: Instant) {
        if is_beginning(connection) {
            self.add(connection.clone(), now);
        } else {
            self.remove(&Name::of(connection));
        }
    }

    fn add(&mut self, connection: Connection, now: Instant) {
        let name = Name::of(&connection);
        if self.connections.len() < MOST && self.connections.insert(name, connection).is_none() {
            self.paused[0].push_back((now, name));
        }
    }

    /// A connection is gone.
    pub(super) fn remove(&mut self, name: &Name) {
        self.connections.remove(name);
    }

    /// Returns the connections, `most` at most, that are to be asked for now.
    pub(super) fn due(&mut self, most: usize, now: Instant) -> Vec<Connection> {
        let mut due = Vec::new();
        for (place, pause) in PAUSES.into_iter().enumerate() {
            let is_over = |(since, _): &mut (Instant, Name)| now.duration_since(*since) >= pause;
            while due.len() < most
                && let Some((_, name)) = self.paused[place].pop_front_if(is_over)
            {
                let Some(connection) = self.connections.get(&name) else { continue };
                due.push(connection.clone());
                match self.paused.get_mut(place + 1) {
                    Some(next) => next.push_back((now, name)),
                    None => drop(self.connections.remove(&name)),
                }
            }
        }
        due
    }
}

/// Whether a connection may come to be for hardware with the next packet. An event may leave its state out; its status alone tells then.
fn is_beginning(connection: &Connection) -> bool {
    let is_shaking_hands = match &connection.state {
        State::Tcp { state: TcpState::SynSent | TcpState::SynRecv, .. } => true,
        State::Tcp { state: TcpState::Established, .. } => connection.status & status::ASSURED == 0,
        _ => false,
    };
    connection.status & status::SEEN_REPLY == 0 || is_shaking_hands
}

#[cfg(test)]
mod tests {
    use super::super::begun_from as connection;
    use super::*;

    #[test]
    fn a_connection_is_asked_for_after_longer_and_longer_pauses_and_then_no_more() {
        let mut begun = Begun::default();
        let start = Instant::now();
        begun.see(&connection(1), start);
        begun.see(&connection(1), start);
        let mut now = start;
        for pause in PAUSES {
            assert_eq!(begun.due(10, now + pause / 2), []);
            now += pause;
            assert_eq!(begun.due(10, now), [connection(1)]);
        }
        assert_eq!(begun.due(10, now + Duration::from_secs(3_600)), []);
        assert!(begun.connections.is_empty());
    }

    #[test]
    fn one_that_is_answered_is_not_asked_for_and_others_wait_for_their_turn() {
        let mut begun = Begun::default();
        let start = Instant::now();
        (1..=3).for_each(|port| begun.see(&connection(port), start));
        begun.see(&Connection { status: status::SEEN_REPLY, ..connection(2) }, start);
        let now = start + PAUSES[0];
        assert_eq!(begun.due(1, now), [connection(1)]);
        assert_eq!(begun.due(1, now), [connection(3)]);
        assert_eq!(begun.due(1, now), []);
    }
}
