//! Connections as they are listed for operators.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use sluice_flow::connection;
use sluice_flow::time::Timestamp;

use super::connections::Conntrack;
use super::gateway::Helper;
use super::protocol::Protocol;
use super::table::{Connection, status};
use super::tuple::Tuple;

/// Bits of a connection in the order of [`connection::STATUS`], but for the first, which is having a master.
const STATUS: [u32; 9] = [
    status::SEEN_REPLY,
    status::ASSURED,
    status::CONFIRMED,
    status::SOURCE_NAT,
    status::DESTINATION_NAT,
    status::ADJUSTED,
    status::SOURCE_DONE,
    status::DESTINATION_DONE,
    status::GONE,
];

impl Conntrack {
    /// Lists the connections of a zone, or all.
    pub(crate) fn list(&self, zone: Option<u16>, now: Timestamp, visit: &mut dyn FnMut(connection::Connection)) {
        for connection in self.in_zone(zone) {
            if !connection.is_expired(now) {
                visit(self.describe(&connection, now));
            }
        }
    }

    /// Forgets the connections that are meant; returns how many there were.
    pub(crate) fn flush(&self, of: &connection::Selection, now: Timestamp) -> usize {
        let is_meant = |connection: &Arc<Connection>| of.has(&self.describe(connection, now));
        self.in_zone(of.zone).filter(|connection| is_meant(connection) && self.table.remove(connection)).count()
    }

    /// How many connections there are in each bucket.
    pub(crate) fn buckets(&self) -> Vec<usize> {
        self.table.buckets()
    }

    /// How many connections there may be.
    pub(crate) fn limit(&self) -> u32 {
        self.table.limit()
    }

    /// Changes how many connections there may be.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.table.set_limit(limit);
    }

    fn in_zone(&self, zone: Option<u16>) -> impl Iterator<Item = Arc<Connection>> + '_ {
        self.table.connections().filter(move |connection| zone.is_none_or(|zone| zone == connection.zone))
    }

    #[expect(clippy::cast_possible_truncation, reason = "any 32 bits of the hash will do")]
    fn describe(&self, connection: &Connection, now: Timestamp) -> connection::Connection {
        let flags = STATUS.iter().zip(1..).filter(|(bit, _)| connection.has(**bit));
        let flags = flags.fold(0, |flags, (_, place)| flags | 1 << place);
        let state = connection.lock();
        connection::Connection {
            zone: connection.zone,
            id: self.randomness.hash_one((connection.zone, connection.original)) as u32,
            original: direction(&connection.original),
            reply: direction(&state.reply),
            status: flags | u32::from(connection.master.is_some()),
            mark: connection.mark(),
            label: state.label,
            timeout: connection.remaining(now),
            state: match &state.protocol {
                Protocol::Tcp(tracker) => tracker.shown(),
                Protocol::Sctp(tracker) => tracker.shown(),
                _ => connection::State::Other,
            },
            helper: state.helper.as_ref().map(|helper| Helper::kind(helper).name()),
            parent: connection.master.as_ref().map(|master| direction(&master.original)),
        }
    }
}

fn direction(tuple: &Tuple) -> connection::Direction {
    let Tuple { source, destination, protocol, source_port, destination_port } = *tuple;
    connection::Direction { source, destination, protocol, source_port, destination_port }
}

#[cfg(test)]
mod tests {
    use sluice_flow::connection::{STATUS, State, TcpState};
    use sluice_flow::time::Clock as _;

    use super::*;
    use crate::conntrack::stories::{World, commit, in_zone, look, tcp, udp};

    fn listed(world: &World, zone: Option<u16>) -> Vec<connection::Connection> {
        let mut all = Vec::new();
        world.conntrack.list(zone, world.clock.now(), &mut |connection| all.push(connection));
        all
    }

    #[test]
    fn a_connection_is_listed_with_its_state_until_it_expires() {
        let world = World::new();
        world.send(&commit(), &tcp("10.0.0.1", 1000, "192.0.2.9", 80, 0x02, 100, 0)).unwrap();
        world.send(&look(), &tcp("192.0.2.9", 80, "10.0.0.1", 1000, 0x12, 500, 101)).unwrap();
        world.wait(20);
        let [shown] = <[_; 1]>::try_from(listed(&world, None)).unwrap();
        let names: Vec<_> = (0..).zip(STATUS).filter(|(bit, _)| shown.status >> bit & 1 == 1).map(|(_, n)| n).collect();
        assert_eq!(names, ["SEEN_REPLY", "CONFIRMED"]);
        assert!(matches!(shown.state, State::Tcp { state: TcpState::SynRecv, .. }), "{shown:?}");
        assert_eq!((shown.timeout.as_secs(), shown.original.source_port, shown.reply.source_port), (40, 1000, 80));
        world.wait(40);
        assert_eq!(listed(&world, None), []);
    }

    #[test]
    fn zones_are_listed_and_flushed_apart() {
        let world = World::new();
        for (zone, port) in [(1, 1000), (2, 1000), (2, 1001)] {
            world.send(&in_zone(zone, commit()), &udp("10.0.0.1", port, "192.0.2.9", 53)).unwrap();
        }
        let count = |zone| listed(&world, zone).len();
        assert_eq!([count(None), count(Some(1)), count(Some(2)), count(Some(3))], [3, 1, 2, 0]);
        let flush = |of: connection::Selection| world.conntrack.flush(&of, world.clock.now());
        let of_zone = |zone| connection::Selection { zone: Some(zone), ..Default::default() };
        let from = connection::DirectionSelection { source_port: Some(1000), ..Default::default() };
        assert_eq!(flush(connection::Selection { original: from, ..of_zone(2) }), 1);
        assert_eq!([count(Some(1)), count(Some(2))], [1, 1]);
        assert_eq!(flush(of_zone(2)), 1);
        assert_eq!(count(None), 1);
        assert_eq!(flush(connection::Selection::default()), 1);
        assert!(world.conntrack.is_empty());
    }
}
