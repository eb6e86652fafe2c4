//! All connections of a device, and what `ct` does with a packet.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use sluice_flow::action::Commit;
use sluice_flow::time::Timestamp;

use crate::engine::Packet;
use crate::packet::{ip_proto, parse};

use super::expectation::Expectations;
use super::fragmentation::{self, Cut, Pieces};
use super::gateway::Helper;
use super::icmp::{self, Role};
use super::ip::Ip;
use super::losses::{Losses, Stop, lose};
use super::membership::{Membership, Relation};
use super::protocol::{self, Protocol, Verdict};
use super::reassembly::{Outcome, Reassembly};
use super::request::Request;
use super::state::{ConnectionKey, bit};
use super::table::{Clash, Connection, Table, status};
use super::tuple::{Direction, Family, GRE, Located, Tuple, UDP_LITE, locate};
use super::zones::Zones;

/// Connections that there can be at most, give or take the packets under way (`nf_conntrack_max` of a machine with more
/// than 4 GiB).
pub const LIMIT: u32 = 262_144;

/// All connections of a device, and the fragments that wait.
pub struct Conntrack {
    pub(super) table: Table,
    pub(super) expectations: Expectations,
    reassembly: Reassembly,
    pub(super) losses: Losses,
    pub(super) randomness: RandomState,
    drawn: AtomicU64,
}

impl Conntrack {
    pub(crate) fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    pub(super) fn with_limit(limit: u32) -> Self {
        Self {
            table: Table::new(limit),
            expectations: Expectations::default(),
            reassembly: Reassembly::new(),
            losses: Losses::default(),
            randomness: RandomState::default(),
            drawn: AtomicU64::new(0),
        }
    }

    /// Copies of all connections and of what they expect, which go their own way. Fragments that wait are not among
    /// them.
    pub(crate) fn fork(&self, now: Timestamp) -> Self {
        let table = self.table.fork(now);
        let copy = |old: &Connection| table.find(old.zone, &old.original, now).map(|(copy, _)| copy);
        let expectations = self.expectations.fork(copy);
        Self { table, expectations, ..Self::new() }
    }

    /// Connections in the table, those included that expired and were not looked at since.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections that had to go for others.
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// Connections and limits by zone.
    pub(crate) fn zones(&self) -> &Zones {
        self.table.zones()
    }

    /// Packets that went no further.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Fragments that waited in vain: their packet never became whole.
    pub fn lost_fragments(&self) -> u64 {
        self.reassembly.lost()
    }

    /// Does a `ct` action (`ovs_ct_execute`).
    pub(crate) fn execute(&self, action: &Request, packet: &mut Packet, now: Timestamp) -> Result<(), Stop> {
        self.table.sweep(now);
        let Some(ip) = Ip::of(packet) else {
            packet.tracked.member = None;
            packet.metadata.connection = ConnectionKey::invalid(action.zone);
            return Ok(());
        };
        ip.trim(packet);
        let ip = if ip.is_fragment(packet) { self.reassemble(action.zone, packet, ip, now)? } else { ip };
        if action.commit != Commit::No {
            self.look_up(action, packet, ip, now)?;
            self.commit(action, packet, now)?;
        } else if !self.is_expected(action.zone, packet, ip, now) {
            self.look_up(action, packet, ip, now)?;
        }
        packet.tracked.tuple = ip.tuple(packet);
        Ok(())
    }

    /// The last fragment becomes the whole packet (`handle_fragments`). One that goes on alone counts as whole, too.
    fn reassemble(&self, zone: u16, packet: &mut Packet, ip: Ip, now: Timestamp) -> Result<Ip, Stop> {
        packet.metadata.is_whole = true;
        packet.tracked.pieces = None;
        match self.reassembly.add(zone, packet.in_port, ip.family, &packet.bytes, ip.at, now) {
            Outcome::Waits => Err(Stop::Waits),
            Outcome::Dropped => Err(lose(&self.losses.fragment)),
            Outcome::Alone => Ok(ip),
            Outcome::Whole(bytes, pieces) => {
                packet.bytes = bytes;
                packet.layout = parse(&packet.bytes, packet.in_port, &packet.metadata).layout;
                let ip = Ip::of(packet).ok_or_else(|| lose(&self.losses.fragment))?;
                let read = packet.layout.transport_end().saturating_sub(ip.at);
                packet.tracked.pieces = Some(pieces.of_which_is_read(read));
                Ok(ip)
            }
        }
    }

    /// Whether a packet will begin an expected connection, which it does not until it is committed: nothing but that is
    /// noted (`ovs_ct_lookup`).
    fn is_expected(&self, zone: u16, packet: &mut Packet, ip: Ip, now: Timestamp) -> bool {
        let Some(tuple) = ip.tuple(packet) else {
            return false;
        };
        let Some(master) = self.expectations.master(zone, &tuple, now) else {
            return false;
        };
        // What is there already stands in the way of what is expected (`ovs_ct_expect_find`).
        if let Some((connection, _)) = self.table.find(zone, &tuple, now) {
            self.table.remove(&connection);
        }
        packet.metadata.connection = ConnectionKey::expected(&master);
        true
    }

    /// Finds the connection of a packet, translates it and shows it to its gateway, each once for a zone
    /// (`__ovs_ct_lookup`).
    fn look_up(&self, action: &Request, packet: &mut Packet, ip: Ip, now: Timestamp) -> Result<(), Stop> {
        let is_known = self.is_known(action, packet, ip, now);
        if !is_known {
            let member = self.track(action, ip.bytes(packet), ip.family, now)?;
            packet.metadata.connection = match &member {
                Some((connection, membership)) => ConnectionKey::of(connection, *membership),
                None => ConnectionKey::invalid(action.zone),
            };
            packet.tracked.member = member;
        }
        let Some((connection, membership)) = packet.tracked.member.clone() else {
            return Ok(());
        };
        let is_confirmed = connection.has(status::CONFIRMED);
        let is_due = is_confirmed || action.commit != Commit::No;
        if let Some(nat) = action.nat.as_ref().filter(|_| is_due && packet.metadata.connection.state & bit::NAT == 0) {
            self.translate(action, nat, packet, ip, (&connection, membership), now)
                .map_err(|stop| stop.unwrap_or_else(|| lose(&self.losses.translation)))?;
        }
        let mut is_helped = if is_confirmed { !is_known } else { is_due };
        if let Some(kind) = action.helper.filter(|_| action.commit != Commit::No) {
            let mut state = connection.lock();
            if state.helper.is_none() {
                state.helper = Some(Helper::new(kind));
                is_helped = true;
            }
        }
        if is_helped {
            let member = (&connection, membership);
            self.help(packet, ip, member, now).ok_or_else(|| lose(&self.losses.helper))?;
        }
        // OVS cannot know that hardware does not show it every segment.
        if is_confirmed
            && connection.has(status::ASSURED)
            && let Protocol::Tcp(tracker) = &mut connection.lock().protocol
            && tracker.is_established()
        {
            tracker.be_liberal();
        }
        Ok(())
    }

    /// Whether the packet has been through the zone already (`skb_nfct_cached`).
    fn is_known(&self, action: &Request, packet: &mut Packet, ip: Ip, now: Timestamp) -> bool {
        let tuple = ip.tuple(packet);
        if packet.tracked.tuple != tuple {
            packet.tracked.member = None;
        }
        let key = packet.metadata.connection;
        let mut was_tracked = true;
        if packet.tracked.member.is_none() {
            was_tracked = key.state & (bit::TRACKED | bit::INVALID) == bit::TRACKED && key.zone == action.zone;
            if was_tracked || key.state == 0 && action.commit == Commit::Force {
                let is_translated = key.state & bit::NAT != 0;
                packet.tracked.member = tuple.and_then(|tuple| self.find_again(action.zone, tuple, is_translated, now));
            }
        }
        let Some((connection, membership)) = &packet.tracked.member else {
            return false;
        };
        if connection.zone != action.zone {
            return false;
        }
        let helper = connection.lock().helper.as_ref().map(Helper::kind);
        if action.helper.is_some() && helper.is_some() && helper != action.helper {
            return false;
        }
        if action.policy.as_ref().is_some_and(|policy| !connection.follows(policy)) {
            return false;
        }
        if action.commit == Commit::Force && membership.direction == Direction::Reply {
            self.table.remove(connection);
            packet.tracked.member = None;
            return false;
        }
        was_tracked
    }

    /// The connection of a packet that has been tracked, and perhaps translated, before (`ovs_ct_find_existing`).
    fn find_again(
        &self,
        zone: u16,
        tuple: Tuple,
        is_translated: bool,
        now: Timestamp,
    ) -> Option<(Arc<Connection>, Membership)> {
        let sought = if is_translated { tuple.inverse()? } else { tuple };
        let (connection, direction) = self.table.find(zone, &sought, now)?;
        let direction = if is_translated { direction.other() } else { direction };
        let membership = Membership::of(&connection, direction);
        Some((connection, membership))
    }

    /// The connection of a packet, which is new if there is none; `None` if the packet is none of a connection's
    /// (`nf_conntrack_in`).
    fn track(
        &self,
        action: &Request,
        packet: &[u8],
        family: Family,
        now: Timestamp,
    ) -> Result<Option<(Arc<Connection>, Membership)>, Stop> {
        let zone = action.zone;
        let Some(located) = locate(packet, family) else {
            return Ok(None);
        };
        let own_icmp = if family == Family::V4 { ip_proto::ICMP } else { ip_proto::ICMPV6 };
        if located.protocol == own_icmp {
            let message = packet.get(located.transport..).unwrap_or_default();
            if message.len() < icmp::HEADER || !protocol::is_summed(message, &located, message.len()) {
                return Ok(None);
            }
            match icmp::role(own_icmp, message[0]) {
                Role::Query => {}
                Role::Error => return Ok(self.relate(zone, &message[icmp::HEADER..], family, &located, now)),
                Role::Untracked | Role::Unknown => return Ok(None),
            }
        }
        let Some(tuple) = Tuple::read(packet, &located) else {
            return Ok(None);
        };
        loop {
            let (connection, direction) = match self.table.find(zone, &tuple, now) {
                Some(found) => found,
                None => {
                    let Some(reply) = tuple.inverse() else {
                        return Ok(None);
                    };
                    if !self.table.make_room(zone, &tuple, now) {
                        return Err(lose(&self.losses.full));
                    }
                    (self.begin(action, tuple, reply, now), Direction::Original)
                }
            };
            let membership = Membership::of(&connection, direction);
            match protocol::follow(&connection, membership, packet, &located, now) {
                Verdict::Invalid => return Ok(None),
                Verdict::Reopen if self.table.remove(&connection) => continue,
                // Another packet is about to reopen it.
                Verdict::Reopen => return Err(lose(&self.losses.clash)),
                Verdict::End => {
                    self.table.remove(&connection);
                }
                Verdict::Accept => {}
            }
            if direction == Direction::Reply {
                connection.set(status::SEEN_REPLY);
            }
            return Ok(Some((connection, membership)));
        }
    }

    /// A new connection, as it is expected if it is (`init_conntrack`).
    fn begin(&self, action: &Request, original: Tuple, reply: Tuple, now: Timestamp) -> Arc<Connection> {
        let mut connection = Connection::new(action.zone, original, reply);
        connection.policy.clone_from(&action.policy);
        let Some(expectation) = self.expectations.take(action.zone, &original, now) else {
            connection.lock().helper = action.helper.map(Helper::new);
            return Arc::new(connection);
        };
        let master = expectation.master;
        connection.set_mark(master.mark(), u32::MAX);
        connection.master = Some(Arc::clone(&master));
        if let Some(follow) = expectation.follow {
            self.follow_master(&connection, &master, follow, now);
        }
        Arc::new(connection)
    }

    /// The connection that an ICMP error is about: that of the packet in it (`nf_conntrack_inet_error`).
    fn relate(
        &self,
        zone: u16,
        inner: &[u8],
        family: Family,
        outer: &Located,
        now: Timestamp,
    ) -> Option<(Arc<Connection>, Membership)> {
        let tuple = Tuple::read(inner, &locate(inner, family)?)?.inverse()?;
        let (connection, direction) = self.table.find(zone, &tuple, now)?;
        // An error must go to the end that sent what it is about.
        (tuple.destination == outer.destination)
            .then_some((connection, Membership { relation: Relation::Related, direction }))
    }

    /// Enters a new connection, and sets mark and label (`ovs_ct_commit`).
    fn commit(&self, action: &Request, packet: &mut Packet, now: Timestamp) -> Result<(), Stop> {
        let Some((connection, membership)) = &packet.tracked.member else {
            return Ok(());
        };
        let key = &mut packet.metadata.connection;
        if let Some((value, mask)) = action.mark {
            key.mark = connection.set_mark(value, mask);
        }
        if !connection.has(status::CONFIRMED)
            && let Some(master) = &connection.master
        {
            let label = master.lock().label;
            connection.lock().label = label;
            key.label = label;
        }
        if let Some((value, mask)) = action.label {
            let mut state = connection.lock();
            state.label = state.label & !mask | value & mask;
            key.label = state.label;
        }
        if connection.has(status::CONFIRMED) || membership.direction != Direction::Original {
            return Ok(());
        }
        match self.table.insert(connection, now) {
            Ok(()) => Ok(()),
            Err(Clash::With(winner)) if is_resolved(connection, &winner) => {
                let membership = *membership;
                packet.tracked.member = Some((winner, membership));
                Ok(())
            }
            Err(Clash::Full) => Err(lose(&self.losses.limit)),
            Err(_) => Err(lose(&self.losses.clash)),
        }
    }

    /// A number that is hard to guess.
    #[expect(clippy::cast_possible_truncation, reason = "any 16 bits of the hash will do")]
    pub(super) fn random(&self) -> u16 {
        (self.randomness.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed)) >> 24) as u16
    }
}

/// Forgets what was found of a packet (`ovs_ct_clear`).
pub(crate) fn clear(packet: &mut Packet) {
    packet.metadata.connection = ConnectionKey::default();
    packet.tracked.member = None;
}

/// Bytes that a packet counts as where its length is asked for: of one that came in pieces those of the largest with its
/// link header, as it leaves in pieces again (`execute_check_pkt_len`).
pub(crate) fn length(packet: &Packet) -> usize {
    match &packet.tracked.pieces {
        Some(pieces) => pieces.largest + packet.layout.payload_at - packet.tag_length(),
        None => packet.length(),
    }
}

/// How a packet leaves that may have come in pieces. `frame` is the packet, or what was not cut off of it.
pub(crate) fn cut(packet: &Packet, frame: &[u8], is_last: bool) -> Cut {
    /// Bytes in front of the IP header that every piece can have (`MAX_L2_LEN`): those of two tags and three labels, or as many.
    const FRONT: usize = 30;
    let (tag, is_ethernet) = (packet.tag_length(), packet.metadata.layer3.is_none());
    let lets_pass = |pieces: &Pieces| pieces.let_pass(frame.len().saturating_sub(tag), is_ethernet);
    let Some(pieces) = packet.tracked.pieces.as_ref().filter(|pieces| !lets_pass(pieces)) else {
        return Cut::Whole;
    };
    let Some(ip) = Ip::under_labels(packet).filter(|ip| ip.at - tag <= FRONT) else {
        return Cut::Impossible;
    };
    // Linux cuts a copy anew.
    let ends = if is_last { pieces.ends_in(ip.bytes(packet).len()) } else { &[] };
    fragmentation::cut(frame, ip.at, ip.family, pieces, ends)
}

/// Whether the connection that was faster serves for this one, too (`__nf_ct_resolve_clash`): only where packets of one
/// connection may overtake each other before there is an answer, or the answer overtakes them.
fn is_resolved(connection: &Connection, winner: &Connection) -> bool {
    let allows = matches!(connection.original.protocol, ip_proto::UDP | UDP_LITE | GRE);
    let is_untranslated = !winner.has(status::SOURCE_DONE | status::DESTINATION_DONE);
    let is_same = || {
        winner.original == connection.original && winner.tuple(Direction::Reply) == connection.tuple(Direction::Reply)
    };
    allows && (is_untranslated || is_same())
}
