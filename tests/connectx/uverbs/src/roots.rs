//! The kernel's own tables that flows of programs go to.
//!
//! There is one for each kind and priority, and packets go from one to the next. An anchor is a table through which a program's own
//! tables lead packets back into one of these. In front of nothing, and behind all of the switch, is the slow path.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::{Field, layouts};
use sluice_connectx::profile::VPORT_UPLINK;
use sluice_connectx::steering::SHARED_UID;

use super::flow::may_steer;
use super::kernel::{Command, made, send};
use super::methods::Object;
use super::request::{Refused, Request};
use super::{ContextId, State};

layouts! {
    create_table 0x40 {
        TABLE_TYPE 0x10 [31:24], REFORMAT 0x18 [31], DECAP 0x18 [30], MISS_ACTION 0x18 [27:24], LEVEL 0x18 [23:16],
        LOG_SIZE 0x18 [7:0], MISS_TABLE 0x1c [23:0],
    }
    modify_table 0x40 {
        SELECT 0xc [15:0], TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], MISS_ACTION 0x18 [27:24], MISS_TABLE 0x1c [23:0],
    }
    /// Names a table, a group or an entry that is meant.
    named 0x40 { TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], GROUP_ID 0x18 [31:0], FLOW_INDEX 0x20 [31:0] }
    create_group 0x400 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], START 0x1c [31:0], END 0x24 [31:0], CRITERIA 0x3c [7:0],
    }
    /// Followed by lists of destinations and counters.
    set_entry 0x340 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], MODIFY_ENABLE 0x18 [7:0], FLOW_INDEX 0x20 [31:0], GROUP_ID 0x44 [31:0], TAG 0x48 [23:0],
        ACTION 0x4c [15:0], DESTINATIONS 0x50 [23:0], COUNTERS 0x54 [23:0], REFORMAT_ID 0x58 [31:0],
        MODIFY_HEADER_ID 0x5c [31:0],
    }
}

/// Bits of an entry's action field.
pub(super) mod action {
    pub(crate) const ALLOW: u64 = 0x1;
    pub(crate) const DROP: u64 = 0x2;
    pub(crate) const FORWARD: u64 = 0x4;
    pub(crate) const COUNT: u64 = 0x8;
    pub(crate) const REFORMAT: u64 = 0x10;
    pub(crate) const MODIFY_HEADER: u64 = 0x40;
}

/// Types of destinations.
pub(super) mod to {
    pub(crate) const VPORT: u32 = 0;
    pub(crate) const TABLE: u32 = 1;
    pub(crate) const TIR: u32 = 2;
}

/// Bytes of a match parameter that the device knows.
pub(super) const MATCH: usize = 512;
/// Where masks and values begin in commands.
pub(super) const MASK: usize = 0x40;
/// See [`MASK`].
pub(super) const VALUE: usize = 0x80;

/// Entries of a table, and of those so many for each matcher.
const LOG_SIZE: u64 = 16;
const MATCHER: u64 = 256;

/// The last priority that programs may use (`MLX5_IB_FLOW_LAST_PRIO`).
pub(super) const LAST_PRIORITY: u16 = 15;
/// Behind them come flows of verbs that are for multicast, and those for all that nobody takes.
pub(super) const MULTICAST: u16 = LAST_PRIORITY + 1;
/// See [`MULTICAST`].
pub(super) const LEFTOVERS: u16 = MULTICAST + 1;

/// Levels: of anchors, of the tables by priority from there on, and of what is behind them.
const ANCHORS: u64 = 1;
const PRIORITIES: u64 = 2;
const SLOW_PATH: u64 = PRIORITIES + LEFTOVERS as u64 + 1;

/// The switch's type of table.
const FDB: u8 = 4;
/// PRM types of the tables that programs may have flows in: of what a function receives, of what it sends, and of the switch.
pub(super) const TYPES: [u8; 3] = [0, 1, FDB];
/// What becomes of packets that a table does not take: another table has them.
const MISS_TO_TABLE: u64 = 1;

/// Tables by their PRM type and priority. The first who needs one makes it, and the last one takes it along.
#[derive(Debug, Default)]
pub(super) struct RootTables {
    tables: BTreeMap<(u8, u16), RootTable>,
    /// And what leads to them.
    anchors: BTreeMap<(u8, u16), AnchorTable>,
    /// Where packets of the switch go that no flow of a program takes.
    slow_path: Option<u64>,
}

#[derive(Debug)]
struct RootTable {
    id: u64,
    /// First indexes of the matchers that are in it.
    matchers: BTreeSet<u64>,
}

/// A table whose only entry leads to another one, or drops.
#[derive(Debug)]
struct AnchorTable {
    table_type: u8,
    id: u64,
    group: u64,
    /// How many objects of programs' stand for it. If there are none any more, entries may still lead to it.
    uses: u32,
    drops: bool,
}

/// A way back into the tables, from a priority on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    table_type: u8,
    priority: u16,
}

/// Indexes of a table that are a matcher's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) table_type: u8,
    priority: u16,
    pub(super) table: u64,
    pub(super) first: u64,
}

impl Place {
    /// The last of them.
    pub(super) fn last(&self) -> u64 {
        self.first + MATCHER - 1
    }
}

/// The PRM's type of table for one of the interface.
pub(super) fn table_type(kind: u64) -> Result<u8, Refused> {
    let known = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind)).copied();
    known.ok_or_else(|| Refused::new(Errno::EOPNOTSUPP, format!("flow tables of type {kind} are not modelled")))
}

/// An element of an entry's lists.
pub(super) fn destination(kind: u32, id: u64) -> [u8; 8] {
    let word = u64::from(kind) << 24 | id & 0xff_ffff;
    // A counter has all 32 bits for its id, of which 24 are used.
    (word << 32).to_be_bytes()
}

/// Indexes that nobody has, for a matcher of this priority.
pub(super) fn place(state: &mut State, table_type: u8, priority: u16) -> Result<Place, Refused> {
    let table = table(state, table_type, priority)?;
    let free = (0..1 << LOG_SIZE).step_by(256).find(|first| !table.matchers.contains(first));
    let full = || Refused::new(Errno::ENOSPC, format!("no room for one more matcher of priority {priority}"));
    let first = free.ok_or_else(full)?;
    table.matchers.insert(first);
    Ok(Place { table_type, priority, table: table.id, first })
}

/// Gives a matcher's indexes back.
pub(super) fn give_back(state: &mut State, place: Place) -> Result<(), Refused> {
    if let Some(table) = state.roots.tables.get_mut(&(place.table_type, place.priority)) {
        table.matchers.remove(&place.first);
    }
    leave(state, place.table_type, place.priority)
}

pub(super) fn create_anchor(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    may_steer(state)?;
    let table_type = table_type(request.value(0x1001)?)?;
    let [.., high, low] = request.value(0x1002)?.to_be_bytes();
    let priority = u16::from_be_bytes([high, low]);
    if priority > LAST_PRIORITY {
        return Err(Refused::new(Errno::ENOMEM, format!("priority {priority} is behind the last, {LAST_PRIORITY}")));
    }
    let anchor = match anchor(state, table_type, priority) {
        Ok(anchor) => anchor,
        Err(refused) => {
            leave(state, table_type, priority)?;
            return Err(refused);
        }
    };
    let handle = state.keep(context, Object::Anchor(Anchor { table_type, priority }))?;
    request.answer(0x1000, handle)?;
    request.output(0x1003, &u32::try_from(anchor).unwrap_or_default().to_le_bytes())
}

/// The table that leads to one of this priority, for one more object.
fn anchor(state: &mut State, table_type: u8, priority: u16) -> Result<u64, Refused> {
    let to = table(state, table_type, priority)?.id;
    let State { roots, hca, .. } = state;
    let anchor = match roots.anchors.entry((table_type, priority)) {
        Entry::Occupied(anchor) => anchor.into_mut(),
        Entry::Vacant(place) => place.insert(AnchorTable::create(hca, table_type)?),
    };
    if anchor.uses == 0 {
        anchor.stop(hca)?;
        let AnchorTable { id, group, .. } = *anchor;
        forward(hca, (table_type, id), (0, group), &[], (to::TABLE, to))?;
    }
    anchor.uses += 1;
    Ok(anchor.id)
}

impl AnchorTable {
    /// One that nobody uses yet.
    fn create(hca: &mut Hca, table_type: u8) -> Result<Self, Refused> {
        let fields = [(create_table::TABLE_TYPE, table_type.into()), (create_table::LEVEL, ANCHORS)];
        let command = Command::new(0x930, &create_table::LAYOUT, &fields).of(SHARED_UID);
        let id = made(hca, &command)?;
        let fields = [(create_group::TABLE_TYPE, table_type.into()), (create_group::TABLE_ID, id)];
        let group = made(hca, &Command::new(0x933, &create_group::LAYOUT, &fields))?;
        Ok(Self { table_type, id, group, uses: 0, drops: false })
    }

    /// Has packets end here that still come.
    fn drop_packets(&mut self, hca: &mut Hca) -> Result<(), Refused> {
        self.send(hca, 0x938, &[])?;
        let fields = [
            (set_entry::TABLE_TYPE, self.table_type.into()),
            (set_entry::TABLE_ID, self.id),
            (set_entry::GROUP_ID, self.group),
            (set_entry::ACTION, action::DROP),
        ];
        send(hca, &Command::new(0x936, &set_entry::LAYOUT, &fields))?;
        self.drops = true;
        Ok(())
    }

    /// Has them end no more.
    fn stop(&mut self, hca: &mut Hca) -> Result<(), Refused> {
        if std::mem::take(&mut self.drops) { self.send(hca, 0x938, &[]) } else { Ok(()) }
    }

    fn destroy(mut self, hca: &mut Hca) -> Result<(), Refused> {
        self.stop(hca)?;
        self.send(hca, 0x934, &[(named::GROUP_ID, self.group)])?;
        self.send(hca, 0x931, &[])
    }

    /// A command on it, or on what is in it.
    fn send(&self, hca: &mut Hca, opcode: u16, fields: &[(Field, u64)]) -> Result<(), Refused> {
        let table = [(named::TABLE_TYPE, self.table_type.into()), (named::TABLE_ID, self.id)];
        send(hca, &Command::new(opcode, &named::LAYOUT, &[&table, fields].concat())).map(|_| ())
    }
}

/// Sets an entry, by index and group, that leads packets on.
fn forward(
    hca: &mut Hca,
    (table_type, table): (u8, u64),
    (index, group): (u64, u64),
    value: &[(usize, [u8; 2])],
    (kind, to): (u32, u64),
) -> Result<(), Refused> {
    let fields = [
        (set_entry::TABLE_TYPE, table_type.into()),
        (set_entry::TABLE_ID, table),
        (set_entry::FLOW_INDEX, index),
        (set_entry::GROUP_ID, group),
        (set_entry::ACTION, action::FORWARD),
        (set_entry::DESTINATIONS, 1),
    ];
    let command = Command::new(0x936, &set_entry::LAYOUT, &fields);
    let command = value.iter().fold(command, |command, (at, bytes)| command.put(VALUE + at, bytes));
    send(hca, &command.followed_by(&destination(kind, to))).map(|_| ())
}

pub(super) fn destroy_anchor(state: &mut State, anchor: Anchor) -> Result<(), Refused> {
    let Anchor { table_type, priority } = anchor;
    let State { roots, hca, .. } = state;
    let Some(anchor) = roots.anchors.get_mut(&(table_type, priority)) else { return Ok(()) };
    anchor.uses = anchor.uses.saturating_sub(1);
    if anchor.uses > 0 {
        return Ok(());
    }
    anchor.drop_packets(hca)?;
    leave(state, table_type, priority)?;
    sweep(state)
}

/// Destroys anchors that nobody has any more, and nothing leads to.
pub(super) fn sweep(state: &mut State) -> Result<(), Refused> {
    let State { roots, hca, .. } = state;
    let is_left = |anchor: &AnchorTable| {
        anchor.uses == 0 && hca.steering().uses_of_table(u32::try_from(anchor.id).unwrap_or_default()) == 0
    };
    let left: Vec<_> = roots.anchors.iter().filter(|(_, anchor)| is_left(anchor)).map(|(key, _)| *key).collect();
    left.iter().filter_map(|key| roots.anchors.remove(key)).try_for_each(|anchor| anchor.destroy(hca))
}

/// The table of this type and priority, made if it is not there.
fn table(state: &mut State, table_type: u8, priority: u16) -> Result<&mut RootTable, Refused> {
    let key = (table_type, priority);
    let id = match state.roots.tables.get(&key) {
        Some(table) => table.id,
        None => {
            let next = state.roots.behind(table_type, priority);
            let fields = [
                (create_table::TABLE_TYPE, table_type.into()),
                (create_table::REFORMAT, 1),
                (create_table::DECAP, 1),
                (create_table::LEVEL, PRIORITIES + u64::from(priority)),
                (create_table::MISS_ACTION, next.map_or(0, |_| MISS_TO_TABLE)),
                (create_table::MISS_TABLE, next.unwrap_or(0)),
                (create_table::LOG_SIZE, LOG_SIZE),
            ];
            let id = made(&mut state.hca, &Command::new(0x930, &create_table::LAYOUT, &fields))?;
            state.lead_to_next(table_type, priority, Some(id))?;
            id
        }
    };
    Ok(state.roots.tables.entry(key).or_insert(RootTable { id, matchers: BTreeSet::new() }))
}

/// Takes a table away that nobody needs any more.
fn leave(state: &mut State, table_type: u8, priority: u16) -> Result<(), Refused> {
    let key = (table_type, priority);
    let Some(table) = state.roots.tables.get(&key) else { return Ok(()) };
    let is_led_to = state.roots.anchors.get(&key).is_some_and(|anchor| anchor.uses > 0);
    if !table.matchers.is_empty() || is_led_to {
        return Ok(());
    }
    let id = table.id;
    state.lead_to_next(table_type, priority, state.roots.behind(table_type, priority))?;
    state.roots.tables.remove(&key);
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, id)];
    send(&mut state.hca, &Command::new(0x931, &named::LAYOUT, &fields)).map(|_| ())
}

impl RootTables {
    /// The table that packets come to which one of this priority does not take.
    fn behind(&self, table_type: u8, priority: u16) -> Option<u64> {
        let mut others = self.tables.range((table_type, priority + 1)..=(table_type, u16::MAX));
        let next = others.next().map(|(_, table)| table.id);
        next.or(self.slow_path.filter(|_| table_type == FDB))
    }
}

impl State {
    /// Has packets come to `next` (or to nothing) that what is in front of a priority does not take.
    fn lead_to_next(&mut self, table_type: u8, priority: u16, next: Option<u64>) -> Result<(), Refused> {
        const MISS_TABLE: u64 = 1;
        let mut before = self.roots.tables.range((table_type, 0)..(table_type, priority));
        let Some((_, before)) = before.next_back() else {
            return set_root(&mut self.hca, table_type, next);
        };
        let fields = [
            (modify_table::SELECT, MISS_TABLE),
            (modify_table::TABLE_TYPE, table_type.into()),
            (modify_table::TABLE_ID, before.id),
            (modify_table::MISS_ACTION, next.map_or(0, |_| MISS_TO_TABLE)),
            (modify_table::MISS_TABLE, next.unwrap_or(0)),
        ];
        send(&mut self.hca, &Command::new(0x93c, &modify_table::LAYOUT, &fields)).map(|_| ())
    }
}

/// Has all packets of a kind come to a table first, or to none: those of programs are none, whatever their level.
pub(super) fn set_root(hca: &mut Hca, table_type: u8, table: Option<u64>) -> Result<(), Refused> {
    const DISCONNECT: u16 = 1;
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, table.unwrap_or(0))];
    let command = Command::new(0x92f, &named::LAYOUT, &fields);
    let command = if table.is_none() { command.modifier(DISCONNECT) } else { command };
    send(hca, &command).map(|_| ())
}

/// Has packets of the switch that no flow takes go to the function that manages it, and what that one sends to the wire, as the kernel
/// has it for the uplink's representor in switchdev mode. (The kernel knows its own packets by their send queues.)
pub(super) fn open_slow_path(state: &mut State) -> Result<(), Refused> {
    /// Place of the source's vport in a match, and the bit that says that it is looked at.
    const SOURCE_PORT: usize = 70;
    const MISC: u64 = 2;
    let hca = &mut state.hca;
    let manager = hca.profile().own_vport();
    let fields =
        [(create_table::TABLE_TYPE, FDB.into()), (create_table::LEVEL, SLOW_PATH), (create_table::LOG_SIZE, 1)];
    let table = made(hca, &Command::new(0x930, &create_table::LAYOUT, &fields))?;
    for (index, criteria, mask, value, to) in
        [(0, MISC, [0xff; 2], manager.to_be_bytes(), VPORT_UPLINK), (1, 0, [0; 2], [0; 2], manager)]
    {
        let fields = [
            (create_group::TABLE_TYPE, FDB.into()),
            (create_group::TABLE_ID, table),
            (create_group::START, index),
            (create_group::END, index),
            (create_group::CRITERIA, criteria),
        ];
        let command = Command::new(0x933, &create_group::LAYOUT, &fields).put(MASK + SOURCE_PORT, &mask);
        let group = made(hca, &command)?;
        forward(hca, (FDB, table), (index, group), &[(SOURCE_PORT, value)], (to::VPORT, to.into()))?;
    }
    set_root(hca, FDB, Some(table))?;
    state.roots.slow_path = Some(table);
    state.kernel.own = state.hca.left();
    Ok(())
}
