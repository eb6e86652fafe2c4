//! What a lookup can match of a packet that was tracked.

use std::net::IpAddr;

use sluice_flow::field::Field;
use sluice_flow::key::Key;

use super::membership::{Membership, Relation};
use super::table::Connection;
use super::tuple::{Direction, Tuple};

/// The bits of [`sluice_flow::field::CT_STATES`].
pub(crate) mod bit {
    pub(crate) const NEW: u8 = 0x01;
    pub(crate) const ESTABLISHED: u8 = 0x02;
    pub(crate) const RELATED: u8 = 0x04;
    pub(crate) const REPLY: u8 = 0x08;
    pub(crate) const INVALID: u8 = 0x10;
    pub(crate) const TRACKED: u8 = 0x20;
    pub(crate) const SOURCE_NAT: u8 = 0x40;
    pub(crate) const DESTINATION_NAT: u8 = 0x80;
    pub(crate) const NAT: u8 = SOURCE_NAT | DESTINATION_NAT;
}

impl Membership {
    /// That of a packet that goes in a direction of a connection (`resolve_normal_ct`).
    pub(crate) fn of(connection: &Connection, direction: Direction) -> Self {
        let has_answer = direction == Direction::Reply || connection.has(super::table::status::SEEN_REPLY);
        let relation = match (has_answer, &connection.master) {
            (true, _) => Relation::Established,
            (false, Some(_)) => Relation::Related,
            (false, None) => Relation::New,
        };
        Self { relation, direction }
    }

    /// The bits of a packet's state, without those of address translation (`ovs_ct_get_state`).
    fn bits(self) -> u8 {
        let relation = match self.relation {
            Relation::New => bit::NEW,
            Relation::Established => bit::ESTABLISHED,
            Relation::Related => bit::RELATED,
        };
        let direction = if self.direction == Direction::Reply { bit::REPLY } else { 0 };
        bit::TRACKED | relation | direction
    }
}

/// What the next lookup of a packet sees of its connection; all zero for a packet that was not tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionKey {
    /// Bits of [`sluice_flow::field::CT_STATES`].
    pub state: u8,
    /// Zone.
    pub zone: u16,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// The direction that the connection began in, before any address translation.
    pub original: Option<Tuple>,
}

impl ConnectionKey {
    /// That of a packet of a connection (`ovs_ct_update_key`, which leaves translation to what is done afterwards).
    pub(crate) fn of(connection: &Connection, membership: Membership) -> Self {
        // All connections are new until they are committed.
        let new = if connection.has(super::table::status::CONFIRMED) { 0 } else { bit::NEW };
        let related = if connection.master.is_some() { bit::RELATED } else { 0 };
        Self { state: membership.bits() | new | related, ..Self::without_state(connection) }
    }

    /// That of a packet that will begin an expected connection: what its master has.
    pub(crate) fn expected(master: &Connection) -> Self {
        Self { state: bit::TRACKED | bit::NEW | bit::RELATED, ..Self::without_state(master) }
    }

    /// `__ovs_ct_update_key`: an expected connection shows the tuple of its master.
    fn without_state(connection: &Connection) -> Self {
        Self {
            state: 0,
            zone: connection.zone,
            mark: connection.mark(),
            label: connection.lock().label,
            original: Some(connection.master.as_ref().map_or(connection.original, |master| master.original)),
        }
    }

    /// That of a packet that belongs to no connection and cannot begin one.
    pub(crate) fn invalid(zone: u16) -> Self {
        Self { state: bit::TRACKED | bit::INVALID, zone, ..Self::default() }
    }

    /// The fields of the key that tell of a connection.
    pub(crate) const FIELDS: [Field; 14] = [
        Field::CtState,
        Field::CtZone,
        Field::CtMark,
        Field::CtLabel,
        Field::CtTuple4Src,
        Field::CtTuple4Dst,
        Field::CtTuple4Proto,
        Field::CtTuple4TpSrc,
        Field::CtTuple4TpDst,
        Field::CtTuple6Src,
        Field::CtTuple6Dst,
        Field::CtTuple6Proto,
        Field::CtTuple6TpSrc,
        Field::CtTuple6TpDst,
    ];

    /// Sets [them](Self::FIELDS).
    pub(crate) fn write(&self, key: &mut Key) {
        key.set(Field::CtState, self.state.into());
        key.set(Field::CtZone, self.zone.into());
        key.set(Field::CtMark, self.mark.into());
        key.set(Field::CtLabel, self.label);
        let Some(original) = self.original else {
            return;
        };
        let (source_port, destination_port) = original.shown_ports();
        let [proto, source, destination] = match (original.source, original.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                key.set(Field::CtTuple4Src, from.to_bits().into());
                key.set(Field::CtTuple4Dst, to.to_bits().into());
                [Field::CtTuple4Proto, Field::CtTuple4TpSrc, Field::CtTuple4TpDst]
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                key.set(Field::CtTuple6Src, from.to_bits());
                key.set(Field::CtTuple6Dst, to.to_bits());
                [Field::CtTuple6Proto, Field::CtTuple6TpSrc, Field::CtTuple6TpDst]
            }
            _ => return,
        };
        key.set(proto, original.protocol.into());
        key.set(source, source_port.into());
        key.set(destination, destination_port.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::tuple;

    #[test]
    fn an_icmp_tuple_shows_type_and_code_instead_of_ports() {
        let mut key = Key::ZERO;
        let mut original = tuple(1, "10.0.0.1:4660", "10.0.0.2:0");
        original.destination_port = 0x0800;
        ConnectionKey { original: Some(original), ..ConnectionKey::default() }.write(&mut key);
        assert_eq!(key.get(Field::CtTuple4TpSrc), 8);
        assert_eq!(key.get(Field::CtTuple4TpDst), 0);
        assert_eq!(key.get(Field::CtTuple4Proto), 1);
        assert_eq!(key.get(Field::CtTuple4Src), 0x0a00_0001);
    }

    #[test]
    fn a_packet_that_was_not_tracked_has_no_field() {
        let mut key = Key::ZERO;
        ConnectionKey::default().write(&mut key);
        assert_eq!(key, Key::ZERO);
    }
}
