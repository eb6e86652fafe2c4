//! The assured connections of the kernel, and which flow is whose.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_ctnetlink::Mark;
use sluice_ctnetlink::wire::{Name, status};
use sluice_flow::Ufid;
use sluice_flow::connection::Direction;
use sluice_flow::source::Standing;
use sluice_netdev::Target;

use crate::entry::Entry;
use crate::judge::Reason;
use crate::kernel::Timeouts;
use crate::plan::VARIANTS;

/// A direction that has counted nothing for so long has flows for any TTL again: its packets may have another one now, and pass by in
/// software.
const REOPEN: Duration = Duration::from_secs(30);

/// By how much the kernel's word of when it saw a packet may be off: it tells whole seconds, and what was counted is looked at now and then.
const SLACK: Duration = Duration::from_secs(5);

/// Senders whose TTL is remembered, at most.
const MOST_SENDERS: usize = 1 << 16;

/// At most so long after packets were counted, the timeout of a connection is set anew. Of TCP, the kernel has shorter ones for data that
/// was not acknowledged, 300 s by default, and sees data in software whose acknowledgement passes by in the device.
const PACE: Duration = Duration::from_secs(30);

/// Connections by their original direction.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) connections: HashMap<Direction, Connection>,
    owners: HashMap<Ufid, Owner>,
    usual: Usual,
    /// How long a connection that begins has no flows.
    after: Duration,
    /// Those that began lately, with the time from when on they may have some.
    young: VecDeque<(Instant, Direction)>,
    /// How many connections have flows.
    placed: usize,
    /// Those of them of whose changes the kernel tells nothing.
    silent: usize,
    /// The number of the last comparison.
    round: u32,
    /// The number of the last look at all flows.
    look: u32,
}

/// Which variants have counted packets of who sends them. The packets of a sender have one TTL as a rule, so that its next connection need not
/// begin with a flow for each.
type Usual = HashMap<IpAddr, [bool; VARIANTS]>;

/// Whose a flow is.
struct Owner {
    original: Direction,
    side: usize,
    variant: usize,
    /// When it was last wanted.
    look: u32,
}

/// A connection.
pub(crate) struct Connection {
    /// What was told of it last.
    pub(crate) entry: Entry,
    /// Whether the kernel tells of its changes: of one that began before anybody listened it does not (`nf_conntrack_events` of 2).
    pub(crate) is_told: bool,
    /// Whether the kernel was told to be liberal about it.
    pub(crate) is_liberal: bool,
    /// Whether the kernel has refused to change it, as it is now.
    pub(crate) is_refused: bool,
    /// How long the kernel keeps it without a packet.
    pub(crate) life: Duration,
    /// Whether a policy of its own says that, and not what the kernel is set to.
    has_policy: bool,
    /// From when on its timeout is worth being set anew.
    pub(crate) due: Instant,
    /// When it was set last.
    pub(crate) refreshed: Option<Instant>,
    /// Packets were counted since.
    pub(crate) has_moved: bool,
    /// When the kernel saw a packet last, as far as a dump has told.
    seen: Option<Instant>,
    /// From when on it may have flows.
    ripe: Instant,
    /// The targets whose next hops it needs.
    pub(crate) targets: Vec<Target>,
    /// Both directions, the original one first.
    pub(crate) sides: [Placed; 2],
    /// When it was last seen.
    round: u32,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Why it has no flow, as far as that is known.
    pub(crate) reason: Option<Reason>,
    /// Its flows.
    pub(crate) variants: [Variant; VARIANTS],
    /// When it last counted a packet, or was opened.
    counted: Instant,
}

/// The flow of a direction for some values of the TTL.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant {
    /// Whether it is not wanted, since others count the packets.
    pub(crate) is_closed: bool,
    /// Its flow, if it has one.
    pub(crate) ufid: Option<Ufid>,
    packets: u64,
    /// Its packets when the direction was opened.
    base: u64,
}

/// How the table has heard of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// By an event of a packet, which says how long it is kept from that packet on.
    Packet,
    /// By an event of a change that somebody has asked for, at any time of its life.
    Request,
    /// By a dump, which says how long it is still kept.
    Dump,
}

impl Table {
    /// A table of connections that may have flows so long after they began.
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, ..Self::default() }
    }

    /// Takes what was told of a connection that is assured. `settings` say how long the kernel keeps such connections without a packet.
    /// Returns whether its flows may have to change.
    pub(crate) fn put(&mut self, entry: Entry, by: By, settings: &Timeouts, now: Instant) -> bool {
        // What is told is cut off to whole seconds.
        let told = entry.timeout.unwrap_or_default() + Duration::from_secs(1);
        let usual = settings.of(entry.original.protocol).map_or(told, |setting| setting.max(told));
        let (round, is_event) = (self.round, by != By::Dump);
        let Some(known) = self.connections.get_mut(&entry.original) else {
            // One that a dump tells of may have been there for long.
            let ripe = if is_event { now + self.after } else { now };
            if ripe > now {
                self.young.push_back((ripe, entry.original));
            }
            let sides = [&entry.original, &entry.reply].map(|sent| Placed::new(now, self.usual.get(&sent.source)));
            let has_policy = by == By::Packet && entry.has_policy(settings);
            let connection = Connection {
                is_told: is_event,
                is_liberal: false,
                is_refused: false,
                life: if has_policy { told } else { usual },
                has_policy,
                due: now,
                refreshed: None,
                has_moved: false,
                seen: None,
                ripe,
                targets: Vec::new(),
                sides,
                round,
                entry,
            };
            self.connections.insert(connection.entry.original, connection);
            return true;
        };
        known.round = round;
        let was_silent = known.is_silent();
        known.is_told |= is_event;
        self.silent -= usize::from(was_silent && !known.is_silent());
        let is_same = known.entry.is_of_same(&entry);
        let is_established = entry.is_established.or(known.entry.is_established.filter(|_| is_same));
        let entry = Entry { is_established, ..entry };
        let has_changed = !known.entry.is_alike(&entry);
        if !is_same {
            // Nothing was said of it to the kernel, which has not told of the end of the one before.
            (known.is_liberal, known.refreshed, known.has_policy) = (false, None, false);
        }
        known.is_refused &= !has_changed;
        if is_event && entry.timeout.is_some() {
            known.due = now;
        }
        if by == By::Packet && entry.timeout.is_some() {
            // A policy has shorter timeouts, too.
            known.life = match (known.has_policy, entry.has_policy(settings)) {
                (true, _) => known.life.max(told),
                (false, true) => told,
                (false, false) if has_changed => usual,
                (false, false) => known.life.max(usual),
            };
            known.has_policy |= entry.has_policy(settings);
        }
        if by == By::Dump && entry.timeout.is_some() {
            known.seen = known.life.checked_sub(told).and_then(|since| now.checked_sub(since));
        }
        known.entry = entry;
        has_changed
    }

    /// Returns which connections have just become old enough for flows.
    pub(crate) fn ripened(&mut self, now: Instant) -> Vec<Direction> {
        let due = self.young.iter().take_while(|(ripe, _)| *ripe <= now).count();
        let due = self.young.drain(..due).map(|(_, original)| original);
        // One may have ended, and begun anew.
        due.filter(|original| self.connections.get(original).is_some_and(|known| known.is_ripe(now))).collect()
    }

    /// Takes a connection out, to be taken care of by the caller.
    pub(crate) fn remove(&mut self, original: &Direction) -> Option<Connection> {
        let connection = self.connections.remove(original)?;
        connection.ufids().for_each(|ufid| _ = self.owners.remove(&ufid));
        self.placed -= usize::from(connection.has_flows());
        self.silent -= usize::from(connection.is_silent());
        Some(connection)
    }

    /// Notes of which connections the kernel has refused a change. It may agree once something of them is another way.
    pub(crate) fn refuse(&mut self, refused: &[Name]) {
        for Name { original, .. } in refused {
            if let Some(connection) = self.connections.get_mut(original) {
                connection.is_refused = true;
            }
        }
    }

    /// Notes which flow a direction has for some values of the TTL. Returns the one that it had before, if that was another one.
    pub(crate) fn own(&mut self, original: Direction, side: usize, variant: usize, ufid: Option<Ufid>) -> Option<Ufid> {
        if !self.connections.contains_key(&original) {
            return None;
        }
        let before = self.set_flow(&original, side, variant, ufid).filter(|before| Some(*before) != ufid);
        before.iter().for_each(|before| _ = self.owners.remove(before));
        if let Some(ufid) = ufid {
            let owner = Owner { original, side, variant, look: self.look };
            // One whose end is not told yet may have had the same answers. What ends with it is not the flow of this one.
            if let Some(other) = self.owners.insert(ufid, owner).filter(|other| other.original != original) {
                self.set_flow(&other.original, other.side, other.variant, None);
            }
        }
        before
    }

    /// Sets the flow of a direction for some values of the TTL. Returns the one that it had before.
    fn set_flow(&mut self, original: &Direction, side: usize, variant: usize, ufid: Option<Ufid>) -> Option<Ufid> {
        let connection = self.connections.get_mut(original)?;
        let (had_flows, was_silent) = (connection.has_flows(), connection.is_silent());
        let of = &mut connection.sides[side].variants[variant];
        let before = std::mem::replace(&mut of.ufid, ufid);
        if before != ufid {
            (of.packets, of.base) = (0, 0);
        }
        self.placed = self.placed + usize::from(connection.has_flows()) - usize::from(had_flows);
        self.silent = self.silent + usize::from(connection.is_silent()) - usize::from(was_silent);
        before
    }

    /// How many connections have flows.
    pub(crate) const fn placed(&self) -> usize {
        self.placed
    }

    /// Whether some connection has flows of whose changes the kernel tells nothing.
    pub(crate) const fn has_silent(&self) -> bool {
        self.silent > 0
    }

    /// Begins a comparison: all that is there is put again.
    pub(crate) fn begin_comparison(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Returns what was not put again.
    pub(crate) fn gone(&self) -> Vec<Direction> {
        let gone = self.connections.values().filter(|connection| connection.round != self.round);
        gone.map(|connection| connection.entry.original).collect()
    }

    /// How many flows connections have.
    pub(crate) fn owned(&self) -> usize {
        self.owners.len()
    }

    /// Begins a look at all flows.
    pub(crate) fn begin_look(&mut self) {
        self.look = self.look.wrapping_add(1);
    }

    /// Takes what was counted for a flow. Returns whether the flow is that of a connection.
    pub(crate) fn count(&mut self, standing: &Standing, now: Instant) -> bool {
        let Some(owner) = self.owners.get_mut(&standing.ufid) else { return false };
        owner.look = self.look;
        let Some(connection) = self.connections.get_mut(&owner.original) else { return false };
        let side = &mut connection.sides[owner.side];
        let variant = &mut side.variants[owner.variant];
        if standing.packets < variant.packets {
            // The flow was made anew.
            (variant.packets, variant.base) = (0, 0);
        }
        if standing.packets > variant.packets {
            connection.has_moved = true;
            side.counted = now;
        }
        variant.packets = standing.packets;
        true
    }

    /// After a look at all flows, returns the connections some of whose flows are not wanted any more by the agent.
    pub(crate) fn missing(&self) -> Vec<Direction> {
        let missing = self.owners.values().filter(|owner| owner.look != self.look);
        missing.map(|owner| owner.original).collect()
    }

    /// Returns the connections some of whose flows are no longer wanted by themselves, or are again.
    pub(crate) fn narrow(&mut self, now: Instant) -> Vec<Direction> {
        let Self { connections, usual, .. } = self;
        let narrowed = connections
            .values_mut()
            .filter_map(|connection| connection.narrow(now, usual).then_some(connection.entry.original));
        narrowed.collect()
    }
}

impl Connection {
    /// Its flows.
    pub(crate) fn ufids(&self) -> impl Iterator<Item = Ufid> + use<'_> {
        self.sides.iter().flat_map(|side| side.variants.iter().filter_map(|variant| variant.ufid))
    }

    /// Of TCP that ends and of which was told that it is kept for so long: how long it is to be kept instead, if that is the timeout of an
    /// established connection, which was set here when its end was not known yet. `ending` is how long the kernel keeps those that end.
    pub(crate) fn correction(&self, told: Duration, ending: Duration, now: Instant) -> Option<Duration> {
        let since = now.saturating_duration_since(self.refreshed?);
        // What is told is cut off to whole seconds.
        let is_own = told + since + Duration::from_secs(1) >= self.life;
        (is_own && told > ending).then_some(ending)
    }

    /// Its timeout is set anew. Returns it.
    pub(crate) fn refresh(&mut self, now: Instant) -> Duration {
        (self.has_moved, self.refreshed) = (false, Some(now));
        self.due = now + (self.life / 4).min(PACE);
        self.life
    }

    /// Closes what counts nothing beside others that count. Opens all of a direction again that has stopped to count while packets go on: those
    /// that answer it, or the kernel's. Nothing is opened for a connection that only rests. Returns whether that changes anything.
    fn narrow(&mut self, now: Instant, usual: &mut Usual) -> bool {
        let has_stopped = |side: &Placed| now.saturating_duration_since(side.counted) >= REOPEN;
        let last = self.sides.iter().map(|side| side.counted).chain(self.refreshed).max().unwrap_or(now);
        let is_seen = self.seen.is_some_and(|seen| seen > last + SLACK);
        let goes_on = is_seen || !self.sides.iter().all(has_stopped);
        let senders = [self.entry.original.source, self.entry.reply.source];
        let mut has_changed = false;
        for (side, sender) in self.sides.iter_mut().zip(senders) {
            if !side.is_narrow() {
                has_changed |= side.close(sender, usual);
            } else if goes_on && has_stopped(side) {
                side.open(now);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Whether it is old enough for flows.
    pub(crate) fn is_ripe(&self, now: Instant) -> bool {
        self.ripe <= now
    }

    /// Whether it has flows, and the kernel tells nothing of its changes.
    fn is_silent(&self) -> bool {
        !self.is_told && self.has_flows()
    }

    /// Whether it has a flow.
    pub(crate) fn has_flows(&self) -> bool {
        self.ufids().next().is_some()
    }

    /// Whether it may have flows at all: the kernel calls it assured, and it has the mark that is asked for.
    pub(crate) fn is_meant(entry: &Entry, mark: Mark) -> bool {
        entry.status & status::ASSURED != 0 && mark.is_in(entry.mark)
    }
}

impl Placed {
    /// One that begins with the flows that count what its sender sends as a rule, or with all.
    fn new(now: Instant, usual: Option<&[bool; VARIANTS]>) -> Self {
        let wanted = usual.copied().unwrap_or([true; VARIANTS]);
        let variants = wanted.map(|is_wanted| Variant { is_closed: !is_wanted, ..Variant::default() });
        Self { reason: None, variants, counted: now }
    }

    /// Whether it has a flow.
    pub(crate) fn has_flow(&self) -> bool {
        self.variants.iter().any(|variant| variant.ufid.is_some())
    }

    fn is_narrow(&self) -> bool {
        self.variants.iter().any(|variant| variant.is_closed)
    }

    /// Closes what counts nothing beside others that count. Returns whether there is any.
    fn close(&mut self, sender: IpAddr, usual: &mut Usual) -> bool {
        let counting = self.variants.map(|variant| variant.packets > variant.base);
        if counting == [false; VARIANTS] {
            return false;
        }
        if usual.len() >= MOST_SENDERS && !usual.contains_key(&sender) {
            // What is forgotten is learned anew, at the price of some flows for a moment.
            usual.clear();
        }
        let usual = usual.entry(sender).or_default();
        for ((variant, usual), counts) in self.variants.iter_mut().zip(usual).zip(counting) {
            variant.is_closed = !counts;
            *usual |= counts;
        }
        self.is_narrow()
    }

    /// Wants all flows again, of which each counts from here on.
    fn open(&mut self, now: Instant) {
        self.counted = now;
        self.variants.iter_mut().for_each(|variant| (variant.is_closed, variant.base) = (false, variant.packets));
    }
}
