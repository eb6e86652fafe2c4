//! The kernel's own tables that flows of programs go to.
//!
//! There is one for each kind and priority, and packets go from one to the next. An anchor is a table through which a program's own
//! tables lead packets back into one of these. In front of nothing, and behind all of the switch, is the slow path.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use nix::errno::Errno;
use sluice_connectx::hca::Hca;
use sluice_connectx::layout::Field;
use sluice_connectx::profile::VPORT_UPLINK;
use sluice_connectx::steering::SHARED_UID;

use super::command::{Command, made, send};
use super::objects::{Anchor, AnchorTable, LOG_SIZE, Object, Place, RootTable};
use super::request::{Refused, Request};
use super::state::{ContextId, State, may_steer};
use super::tables::{
    FDB, MASK, VALUE, action, create_group, create_table, destination, modify_table, named, set_entry, set_root,
    table_type, to,
};

/// The last priority that programs may use (`MLX5_IB_FLOW_LAST_PRIO`).
pub(crate) const LAST_PRIORITY: u16 = 15;
/// Behind them come flows of verbs that are for multicast, and those for all that nobody takes.
pub(crate) const MULTICAST: u16 = LAST_PRIORITY + 1;
/// See [`MULTICAST`].
pub(crate) const LEFTOVERS: u16 = MULTICAST + 1;

/// Levels: of anchors, of the tables by priority from there on, and of what is behind them.
const ANCHORS: u64 = 1;
const PRIORITIES: u64 = 2;
const SLOW_PATH: u64 = PRIORITIES + LEFTOVERS as u64 + 1;

/// What becomes of packets that a table does not take: another table has them.
const MISS_TO_TABLE: u64 = 1;

/// Indexes that nobody has, for a matcher of this priority.
pub(crate) fn place(state: &mut State, table_type: u8, priority: u16) -> Result<Place, Refused> {
    let table = table(state, table_type, priority)?;
    let free = (0..1 << LOG_SIZE).step_by(256).find(|first| !table.matchers.contains(first));
    let full = || Refused::new(Errno::ENOSPC, format!("no room for one more matcher of priority {priority}"));
    let first = free.ok_or_else(full)?;
    table.matchers.insert(first);
    Ok(Place { table_type, priority, table: table.id, first })
}

/// Gives a matcher's indexes back.
pub(crate) fn give_back(state: &mut State, place: Place) -> Result<(), Refused> {
    if let Some(table) = state.roots.tables.get_mut(&(place.table_type, place.priority)) {
        table.matchers.remove(&place.first);
    }
    leave(state, place.table_type, place.priority)
}

pub(crate) fn create_anchor(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
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

pub(crate) fn destroy_anchor(state: &mut State, anchor: Anchor) -> Result<(), Refused> {
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
pub(crate) fn sweep(state: &mut State) -> Result<(), Refused> {
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
            if let Err(refused) = state.lead_to_next(table_type, priority, Some(id)) {
                destroy_table(&mut state.hca, table_type, id)?;
                return Err(refused);
            }
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
    destroy_table(&mut state.hca, table_type, id)
}

fn destroy_table(hca: &mut Hca, table_type: u8, id: u64) -> Result<(), Refused> {
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, id)];
    send(hca, &Command::new(0x931, &named::LAYOUT, &fields)).map(|_| ())
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

/// Has packets of the switch that no flow takes go to the function that manages it, and what that one sends to the wire, as the kernel
/// has it for the uplink's representor in switchdev mode. (The kernel knows its own packets by their send queues.)
pub(crate) fn open_slow_path(state: &mut State) -> Result<(), Refused> {
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
