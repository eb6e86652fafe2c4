//! The connections of an eswitch: tables that find the connection of a packet, and what follows in a flow once it is found.
//!
//! A flow with `ct()` has at least two rules. The first is in the table of its chain: it notes the zone and the flow, and leads to the
//! connections of the zone. There each direction of a connection has a rule, which notes state, mark and label, translates if the flow
//! wants that, and leads on to the rules behind, of which the next one of the flow counts and does the rest. Tables are entered by
//! ascending levels only, so the connections of a zone have a table (a stage) for each level at which flows need them; in most zones
//! there is one.
//!
//! A packet of no connection, and one that matches nothing later on, goes to its representor as it came in. If it was translated, a
//! rule in the last table takes that back: every table leads there in the end but that of the first chain.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use sluice_flow::Cause;
use sluice_flow::connection::{Connection, Direction};
use sluice_flow::refusal::Refusal;

use super::actions::Actions;
use super::counters::Counters;
use super::ids::Ids;
use super::refusal::refuse;
use super::rule_id::RuleId;
use super::stages::{Restoration, Stage};
use crate::mlx5::{Action, Domain, Rule};
use crate::translate::registers::TRANSLATION;
use crate::translate::{Tracking, Way, connection_rule, is_for_hardware, is_translated, restoration};

/// Tables between that of a flow with `ct()` and those of its rules that follow the next one: connections, and that one's.
pub(super) const TABLES_TO_CONNECTIONS: u32 = 2;

/// What happens to connections, as a source of them tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// There is a connection, new or not as it was.
    Is(Box<Connection>),
    /// There is none any more with this original direction.
    Gone {
        /// Its zone.
        zone: u16,
        /// Its original direction.
        original: Direction,
        /// Which one it was, if a later one may be there by now that is to stay (`Connection::id`).
        id: Option<u32>,
    },
}

/// What became of changes.
#[derive(Debug, Default)]
pub struct Connected {
    /// Connections that the device did not take: their packets go to their representors.
    pub refused: usize,
    /// Why it did not take the first of them.
    pub reason: Option<Refusal>,
    /// Whether connections wait to be brought to tables that flows have opened.
    pub is_unfinished: bool,
}

/// What rules of connections share with those of flows.
pub(super) struct Parts<'a> {
    pub(super) actions: &'a mut Actions,
    pub(super) counters: &'a mut Counters,
}

/// The connections.
pub(super) struct Connections {
    zones: HashMap<u16, HashMap<Direction, Tracked>>,
    stages: BTreeMap<StageId, Zone>,
    /// Connections that are to come to stages.
    unfilled: VecDeque<(StageId, Direction)>,
    translation_ids: Ids,
    /// Counters of connections that are gone, until the device is done with their rules.
    gone: Vec<RuleId>,
    /// Their translations: a packet that has passed such a rule may still miss behind it.
    left: Vec<Translation>,
    /// Counts the listings of all connections.
    listing: u64,
    /// Connections that the last listing did not have.
    unlisted: VecDeque<(u16, Direction)>,
    restoration: Restoration,
    domain: Domain,
}

/// A connection with its rules, which go before what they refer to.
struct Tracked {
    rules: Vec<(StageId, [Rule; 2])>,
    translation: Option<Translation>,
    /// The place of its counter, of both directions together.
    counter: RuleId,
    /// Packets that it had counted when it was asked last.
    packets: u64,
    connection: Connection,
    /// The last one that had it.
    listing: u64,
    /// Whether it could not be brought to a stage that was opened after it came. It is tried again when the connection is told next, which
    /// it is by each listing.
    lacks_stage: bool,
}

/// How the translations of both directions are known, and the rules that take them back.
struct Translation {
    ids: [u32; 2],
    _rules: [Rule; 2],
}

/// The connections of a zone, with or without translation, of packets in a tunnel or not, at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StageId {
    zone: u16,
    translates: bool,
    is_inside: bool,
    level: u32,
}

impl StageId {
    /// Whether a connection of the zone has rules there: the device does not rewrite headers inside a tunnel.
    fn takes(self, connection: &Connection) -> bool {
        !(self.is_inside && self.translates && is_translated(connection))
    }
}

/// A stage, and where packets go whose connection is found there.
struct Zone {
    stage: Stage,
    found: Action,
}

impl Connections {
    pub(super) fn open(domain: &Domain) -> Result<Self, Refusal> {
        Ok(Self {
            zones: HashMap::new(),
            stages: BTreeMap::new(),
            unfilled: VecDeque::new(),
            translation_ids: Ids::of(TRANSLATION),
            gone: Vec::new(),
            left: Vec::new(),
            listing: 0,
            unlisted: VecDeque::new(),
            restoration: Restoration::open(domain).map_err(refuse)?,
            domain: domain.clone(),
        })
    }

    /// Returns what packets do that match nothing in a table.
    pub(super) fn rest(&self) -> &Action {
        &self.restoration.jump
    }

    /// Returns what leads to the connections of a zone at a level, for which a table is opened if need be. Packets of those that are
    /// found go where `found` leads, which is the table of the next level.
    pub(super) fn open_stage(
        &mut self,
        Tracking { zone, translates, is_inside }: Tracking,
        level: u32,
        found: Action,
    ) -> Result<Action, Refusal> {
        let id = StageId { zone, translates, is_inside, level };
        if let Some(zone) = self.stages.get(&id) {
            return Ok(zone.stage.jump.clone());
        }
        let stage = Stage::open(&self.domain, level, Some(&self.restoration.jump)).map_err(refuse)?;
        let jump = stage.jump.clone();
        self.stages.insert(id, Zone { stage, found });
        let known = self.zones.get(&zone).into_iter().flat_map(HashMap::keys);
        self.unfilled.extend(known.map(|original| (id, *original)));
        Ok(jump)
    }

    /// Makes changes. Packets are found by them once the writes are in the device.
    pub(super) fn change(&mut self, changes: Vec<ConnectionChange>, parts: &mut Parts<'_>) -> Connected {
        let mut connected = Connected::default();
        for change in changes {
            match change {
                ConnectionChange::Gone { zone, original, id } => {
                    if id.is_none_or(|id| self.is_the_one(zone, &original, id)) {
                        self.forget(zone, &original);
                    }
                }
                ConnectionChange::Is(connection) => connected.take(self.track(*connection, parts)),
            }
        }
        connected.is_unfinished = self.is_unfinished();
        connected
    }

    /// Brings at most `most` connections to stages that were opened after they came.
    pub(super) fn fill(&mut self, most: usize, parts: &mut Parts<'_>) -> Connected {
        let mut connected = Connected::default();
        for _ in 0..most {
            let Some((stage, original)) = self.unfilled.pop_front() else { break };
            connected.take(self.enter(stage, &original, parts));
        }
        connected.is_unfinished = self.is_unfinished();
        connected
    }

    /// Returns whether connections are to come to stages that were opened after them.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.unfilled.is_empty()
    }

    /// Begins a listing of all connections.
    pub(super) fn begin_listing(&mut self) {
        self.listing += 1;
    }

    /// Ends a listing: connections that were in no change since it began are gone, and to be [forgotten](Self::forget_unlisted).
    pub(super) fn end_listing(&mut self) {
        let Self { zones, listing, .. } = self;
        let left = zones.iter().flat_map(|(zone, known)| {
            let left = known.iter().filter(|(_, tracked)| tracked.listing != *listing);
            left.map(|(name, _)| (*zone, *name))
        });
        self.unlisted = left.collect();
    }

    /// Forgets at most `most` connections that the last listing did not have. Returns whether there are more.
    pub(super) fn forget_unlisted(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some((zone, original)) = self.unlisted.pop_front() else { break };
            let known = self.zones.get(&zone).and_then(|known| known.get(&original));
            // It may have been told since.
            if known.is_some_and(|tracked| tracked.listing != self.listing) {
                self.forget(zone, &original);
            }
        }
        !self.unlisted.is_empty()
    }

    /// Returns whether something belonged to rules that are gone.
    pub(super) fn has_freed(&self) -> bool {
        !self.gone.is_empty() || !self.left.is_empty() || self.translation_ids.has_resting()
    }

    /// Frees what belonged to rules that are gone, after the device has let go of them.
    pub(super) fn settle(&mut self, counters: &mut Counters) {
        self.left.clear();
        self.translation_ids.settle();
        counters.rest(self.gone.drain(..));
    }

    /// Lets the tables go that no flow leads to. One that a connection has come to stays as long as its zone has connections.
    pub(super) fn prune(&mut self) {
        let zones = &self.zones;
        let is_there = |tracked: &Tracked, id: StageId| tracked.rules.iter().any(|(stage, _)| *stage == id);
        self.stages.retain(|id, zone| {
            let has_come = || zones.get(&id.zone).is_some_and(|known| known.values().any(|one| is_there(one, *id)));
            zone.stage.jump.is_shared() || has_come()
        });
    }

    /// Returns the places of their counters.
    pub(super) fn counters(&self) -> impl Iterator<Item = RuleId> {
        self.zones.values().flat_map(HashMap::values).map(|tracked| tracked.counter)
    }

    /// Returns the connections whose packets were counted between the time when this was asked last, and when counters were told last.
    pub(super) fn moved(&mut self, counters: &Counters) -> Vec<Connection> {
        let mut moved = Vec::new();
        for tracked in self.zones.values_mut().flat_map(HashMap::values_mut) {
            let packets = counters.count(tracked.counter).packets;
            if std::mem::replace(&mut tracked.packets, packets) != packets {
                moved.push(tracked.connection.clone());
            }
        }
        moved
    }

    /// Returns how many connections there are.
    pub(super) fn len(&self) -> usize {
        self.zones.values().map(HashMap::len).sum()
    }

    fn track(&mut self, connection: Connection, parts: &mut Parts<'_>) -> Result<(), Refusal> {
        let (zone, original, listing) = (connection.zone, connection.original, self.listing);
        if !is_for_hardware(&connection) {
            self.forget(zone, &original);
            return Ok(());
        }
        let known = self.zones.get_mut(&zone).and_then(|known| known.get_mut(&original));
        let (counter, packets) = match known {
            Some(tracked) => {
                tracked.listing = listing;
                tracked.connection.timeout = tracked.connection.timeout.max(connection.timeout);
                // It may have ended and begun anew.
                tracked.connection.id = connection.id;
                if is_same(&tracked.connection, &connection) {
                    if std::mem::take(&mut tracked.lacks_stage) {
                        let stages = self.stages.keys().filter(|id| id.zone == zone);
                        self.unfilled.extend(stages.map(|id| (*id, original)));
                    }
                    return Ok(());
                }
                (tracked.counter, tracked.packets)
            }
            None => (parts.counters.take()?, 0),
        };
        match self.make(connection, counter, parts) {
            Ok(made) => {
                // The old rules act until they go.
                let made = Tracked { packets, ..made };
                if let Some(old) = self.zones.entry(zone).or_default().insert(original, made) {
                    self.take_back(old.translation);
                }
                Ok(())
            }
            Err(refusal) => {
                let is_known = self.zones.get(&zone).is_some_and(|known| known.contains_key(&original));
                if is_known {
                    // What its rules say is not true any more.
                    self.forget(zone, &original);
                } else {
                    self.gone.push(counter);
                }
                Err(refusal)
            }
        }
    }

    fn make(&mut self, connection: Connection, counter: RuleId, parts: &mut Parts<'_>) -> Result<Tracked, Refusal> {
        let translation = if is_translated(&connection) { Some(self.translation(&connection)?) } else { None };
        let ids = translation.as_ref().map(|translation| translation.ids);
        let has_rules = |id: &&StageId| id.zone == connection.zone && id.takes(&connection);
        let stages: Vec<_> = self.stages.keys().filter(has_rules).copied().collect();
        let made = stages.into_iter().map(|stage| {
            let rules = self.rules(stage, &connection, ids, counter, parts)?;
            Ok((stage, rules))
        });
        match made.collect::<Result<Vec<_>, Refusal>>() {
            Ok(rules) => {
                let listing = self.listing;
                Ok(Tracked { rules, translation, counter, packets: 0, connection, listing, lacks_stage: false })
            }
            Err(refusal) => {
                self.take_back(translation);
                Err(refusal)
            }
        }
    }

    /// Makes the rules of a connection in a stage.
    fn rules(
        &mut self,
        stage: StageId,
        connection: &Connection,
        translation: Option<[u32; 2]>,
        counter: RuleId,
        parts: &mut Parts<'_>,
    ) -> Result<[Rule; 2], Refusal> {
        let Some(Zone { stage: table, found }) = self.stages.get_mut(&stage) else {
            return Err(gone("the table of the zone"));
        };
        let translation = translation.filter(|_| stage.translates);
        let mut make = |way: Way| {
            let rule = connection_rule(connection, way, stage.is_inside, translation.map(|ids| ids[way as usize]))?;
            let change = match translation {
                // Nobody else does the same.
                Some(_) => Action::modify_header(&self.domain, &rule.modifications).map_err(refuse)?,
                None => parts.actions.modify(rule.modifications)?,
            };
            let count = parts.counters.action(counter)?;
            table.rule(&rule.mask, &rule.value, [change, found.clone()].into(), Some(count)).map_err(refuse)
        };
        Ok([make(Way::Original)?, make(Way::Reply)?])
    }

    fn translation(&mut self, connection: &Connection) -> Result<Translation, Refusal> {
        let ids = [self.translation_ids.take(), self.translation_ids.take()];
        let [Some(first), Some(second)] = ids else {
            ids.into_iter().flatten().for_each(|id| self.translation_ids.rest(id));
            return Err(no_room("translated connections"));
        };
        let make = |way, id| self.restoration.rule(&restoration(connection, way, id)?).map_err(refuse);
        let made = make(Way::Original, first).and_then(|original| Ok([original, make(Way::Reply, second)?]));
        match made {
            Ok(rules) => Ok(Translation { ids: [first, second], _rules: rules }),
            Err(refusal) => {
                [first, second].into_iter().for_each(|id| self.translation_ids.rest(id));
                Err(refusal)
            }
        }
    }

    /// Brings a connection to a stage, if both are still there.
    fn enter(&mut self, stage: StageId, original: &Direction, parts: &mut Parts<'_>) -> Result<(), Refusal> {
        let zone = stage.zone;
        let known = self.zones.get_mut(&zone).and_then(|known| known.remove(original));
        let Some(mut tracked) = known else { return Ok(()) };
        let is_there = tracked.rules.iter().any(|(id, _)| *id == stage);
        let ids = tracked.translation.as_ref().map(|translation| translation.ids);
        let made = match is_there || !self.stages.contains_key(&stage) || !stage.takes(&tracked.connection) {
            true => Ok(None),
            false => self.rules(stage, &tracked.connection, ids, tracked.counter, parts).map(Some),
        };
        tracked.lacks_stage |= made.is_err();
        let result = made.map(|rules| tracked.rules.extend(rules.map(|rules| (stage, rules))));
        self.zones.entry(zone).or_default().insert(*original, tracked);
        result
    }

    fn is_the_one(&self, zone: u16, original: &Direction, id: u32) -> bool {
        let known = self.zones.get(&zone).and_then(|known| known.get(original));
        known.is_some_and(|tracked| tracked.connection.id == id)
    }

    fn forget(&mut self, zone: u16, original: &Direction) {
        let Entry::Occupied(mut known) = self.zones.entry(zone) else { return };
        let Some(Tracked { rules, translation, counter, .. }) = known.get_mut().remove(original) else { return };
        if known.get().is_empty() {
            known.remove();
        }
        drop(rules);
        self.take_back(translation);
        self.gone.push(counter);
    }

    fn take_back(&mut self, translation: Option<Translation>) {
        let ids = translation.iter().flat_map(|translation| translation.ids);
        ids.for_each(|id| self.translation_ids.rest(id));
        self.left.extend(translation);
    }
}

impl Connected {
    /// Adds what became of later changes.
    pub(crate) fn add(&mut self, later: Self) {
        self.refused += later.refused;
        self.reason = self.reason.take().or(later.reason);
        self.is_unfinished = later.is_unfinished;
    }

    fn take(&mut self, result: Result<(), Refusal>) {
        if let Err(refusal) = result {
            self.refused += 1;
            self.reason.get_or_insert(refusal);
        }
    }
}

/// Whether rules for two states of a connection are the same.
fn is_same(one: &Connection, other: &Connection) -> bool {
    let facts = |of: &Connection| (of.reply, is_translated(of), of.mark, of.label);
    facts(one) == facts(other)
}

fn no_room(of: &str) -> Refusal {
    Refusal::Device { reason: format!("there are as many {of} as registers tell apart").into() }.until(Cause::Room)
}

fn gone(what: &str) -> Refusal {
    Refusal::Device { reason: format!("{what} is gone").into() }
}
