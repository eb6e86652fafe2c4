//! When a packet is translated, and which of its sides (`ovs_ct_nat` in `net/openvswitch/conntrack.c`).

use std::sync::Arc;

use sluice_flow::action::{Commit, Nat, NatSide};
use sluice_flow::time::Timestamp;

use crate::engine::Packet;
use crate::packet::ip_proto;

use super::connections::Conntrack;
use super::expectation::Follow;
use super::ip::Ip;
use super::losses::Stop;
use super::membership::{Membership, Relation};
use super::nat::{self, Range, Surroundings};
use super::request::Request;
use super::rewrite;
use super::state::bit;
use super::table::{Connection, status};
use super::tuple::Direction;
use super::tuple::{Family, locate};

/// `None`: the packet cannot be translated.
type Failure = Option<Stop>;

impl Conntrack {
    /// Translates a packet as its connection is, or as the action says if the connection is new.
    pub(super) fn translate(
        &self,
        action: &Request,
        nat: &Nat,
        packet: &mut Packet,
        ip: Ip,
        (connection, membership): (&Arc<Connection>, Membership),
        now: Timestamp,
    ) -> Result<(), Failure> {
        let is_translated = connection.has(status::SOURCE_NAT | status::DESTINATION_NAT);
        let is_related_original =
            membership == Membership { relation: Relation::Related, direction: Direction::Original };
        let (range, new_side) = match nat {
            Nat::Existing => (None, None),
            Nat::New(translation) => (Range::new(translation), Some(translation.side)),
        };
        let goes_on = membership.relation != Relation::New
            && is_translated
            && (!is_related_original || action.commit != Commit::No);
        let side = if goes_on {
            let of_source = connection.has(status::SOURCE_NAT);
            match membership.direction {
                Direction::Original if of_source => NatSide::Source,
                Direction::Original => NatSide::Destination,
                Direction::Reply if of_source => NatSide::Destination,
                Direction::Reply => NatSide::Source,
            }
        } else if let Some(side) = new_side {
            side
        } else {
            return Ok(());
        };
        self.translate_side(packet, ip, (connection, membership), range, side, now)?;
        if connection.has(status::DESTINATION_NAT) {
            if connection.has(status::SOURCE_NAT) {
                self.translate_side(packet, ip, (connection, membership), range, other(side), now)?;
            } else if membership.direction == Direction::Original {
                // Two that are sent to one server from the same port must be told apart.
                self.translate_side(packet, ip, (connection, membership), None, NatSide::Source, now)?;
            }
        }
        Ok(())
    }

    /// `ovs_ct_nat_execute`.
    fn translate_side(
        &self,
        packet: &mut Packet,
        ip: Ip,
        (connection, membership): (&Arc<Connection>, Membership),
        range: Option<Range>,
        side: NatSide,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let is_error = membership.relation == Relation::Related && is_icmp(ip, packet);
        let is_decided = connection.has(match side {
            NatSide::Source => status::SOURCE_DONE,
            NatSide::Destination => status::DESTINATION_DONE,
        });
        if is_error && is_redirect(ip, packet) {
            // It tells of a route that the host cannot use under another address.
            let both = connection.has(status::SOURCE_DONE) && connection.has(status::DESTINATION_DONE);
            if !both || connection.has(status::SOURCE_NAT | status::DESTINATION_NAT) {
                return Err(None);
            }
        }
        if !is_error && membership.relation != Relation::Established && !is_decided {
            self.decide(connection, range, side, now);
        }
        let sides = [status::SOURCE_NAT, status::DESTINATION_NAT];
        let is_source = (side == NatSide::Source) == (membership.direction == Direction::Original);
        if connection.has(sides[usize::from(!is_source)]) {
            let answered = connection.tuple(membership.direction.other());
            let target = answered.inverse().ok_or(None)?;
            let bytes = packet.bytes.get_mut(ip.at..).ok_or(None)?;
            let done = if is_error {
                rewrite::translate_error(bytes, ip.family, [&answered, &target], side)
            } else {
                rewrite::translate(bytes, ip.family, &target, side)
            };
            done.ok_or(None)?;
        }
        packet.metadata.connection.state |= match side {
            NatSide::Source => bit::SOURCE_NAT,
            NatSide::Destination => bit::DESTINATION_NAT,
        };
        Ok(())
    }

    /// Translates a new connection as the one because of which it was expected (`nf_nat_follow_master`).
    pub(super) fn follow_master(&self, connection: &Connection, master: &Connection, follow: Follow, now: Timestamp) {
        let along = master.tuple(follow.direction.other());
        let source = Range::to(NatSide::Source, along.destination, None);
        self.decide(connection, Some(source), NatSide::Source, now);
        let destination = Range::to(NatSide::Destination, along.source, Some(follow.port));
        self.decide(connection, Some(destination), NatSide::Destination, now);
    }

    /// Decides into what a side of a new connection is translated (`nf_nat_setup_info`).
    fn decide(&self, connection: &Connection, range: Option<Range>, side: NatSide, now: Timestamp) {
        if connection.has(status::CONFIRMED) {
            return;
        }
        let Some(current) = connection.tuple(Direction::Reply).inverse() else {
            return;
        };
        let range = range.unwrap_or_else(|| Range::own(side, &current));
        let zone = connection.zone;
        let surroundings = Surroundings {
            zone,
            is_taken: &|reply| self.table.is_taken(zone, reply, &connection.original, now),
            alike: &|tuple| self.table.replies_to(zone, tuple),
            random: &|| self.random(),
        };
        let chosen = nat::choose(&current, &range, &surroundings);
        let (done, translated) = match side {
            NatSide::Source => (status::SOURCE_DONE, status::SOURCE_NAT),
            NatSide::Destination => (status::DESTINATION_DONE, status::DESTINATION_NAT),
        };
        if chosen != current
            && let Some(reply) = chosen.inverse()
        {
            connection.lock().reply = reply;
            connection.set(translated);
        }
        connection.set(done);
    }
}

fn other(side: NatSide) -> NatSide {
    match side {
        NatSide::Source => NatSide::Destination,
        NatSide::Destination => NatSide::Source,
    }
}

fn is_icmp(ip: Ip, packet: &Packet) -> bool {
    let own = if ip.family == Family::V4 { ip_proto::ICMP } else { ip_proto::ICMPV6 };
    locate(ip.bytes(packet), ip.family).is_some_and(|located| located.protocol == own)
}

/// Whether an ICMP message is a redirect. That of IPv6 is no error, and never comes here.
fn is_redirect(ip: Ip, packet: &Packet) -> bool {
    const REDIRECT: u8 = 5;
    let bytes = ip.bytes(packet);
    let kind = locate(bytes, ip.family).and_then(|located| bytes.get(located.transport).copied());
    ip.family == Family::V4 && kind == Some(REDIRECT)
}
