//! Flows that the kernel installs for a program: tables of level 0, through which packets get to those that the program owns.
//!
//! The kernel has a table for each priority, and takes packets from one to the next. Here there is one table for each kind, in which
//! the indexes are ordered by priority: what packets see is the same.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;

use super::kernel::{Command, made, send};
use super::methods::Object;
use super::request::{Refused, Request};
use super::{ContextId, State};
use crate::hca::Hca;
use crate::layout::layouts;
use crate::profile::VPORT_UPLINK;

layouts! {
    create_table 0x40 {
        TABLE_TYPE 0x10 [31:24], REFORMAT 0x18 [31], DECAP 0x18 [30], MISS_ACTION 0x18 [27:24], LEVEL 0x18 [23:16],
        LOG_SIZE 0x18 [7:0], MISS_TABLE 0x1c [23:0],
    }
    set_root 0x40 { TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0] }
    /// Names a table, a group or an entry that is to go.
    named 0x40 { TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], GROUP_ID 0x18 [31:0], FLOW_INDEX 0x20 [31:0] }
    create_group 0x400 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], START 0x1c [31:0], END 0x24 [31:0], CRITERIA 0x3c [7:0],
    }
    /// Followed by lists of destinations and counters.
    set_entry 0x340 {
        TABLE_TYPE 0x10 [31:24], TABLE_ID 0x14 [23:0], FLOW_INDEX 0x20 [31:0], GROUP_ID 0x44 [31:0], TAG 0x48 [23:0],
        ACTION 0x4c [15:0], DESTINATIONS 0x50 [23:0], COUNTERS 0x54 [23:0], REFORMAT_ID 0x58 [31:0],
        MODIFY_HEADER_ID 0x5c [31:0],
    }
    modify_header 0x10 { TABLE_TYPE 0xc [31:24], NUM_OF_ACTIONS 0xc [7:0] }
    /// Followed by the rest of the header.
    reformat 0x22 { TYPE 0x1c [31:24], SIZE 0x1c [9:0] }
    numbered 0x10 { ID 0x8 [31:0] }
}

/// Bytes of a match parameter that the device knows.
const MATCH: usize = 512;
/// Where masks and values begin in commands.
const MASK: usize = 0x40;
const VALUE: usize = 0x80;

/// Indexes of a table of level 0: so many for each priority, and of those so many for each matcher.
const LOG_SIZE: u64 = 24;
const PRIORITY: u64 = 256;
const MATCHER: u64 = 64;

/// The switch's type of table.
const FDB: u8 = 4;
/// What becomes of packets that a table does not take: another table has them.
const MISS_TO_TABLE: u64 = 1;
/// Type of a destination.
const TO_VPORT: u32 = 0;

/// Tables of level 0, by their PRM type. The first matcher makes one, and the last one takes it along.
#[derive(Debug, Default)]
pub(super) struct RootTables {
    tables: BTreeMap<u8, RootTable>,
    /// Where packets of the switch go that no flow of a program takes.
    slow_path: Option<u64>,
}

#[derive(Debug)]
struct RootTable {
    id: u64,
    /// First indexes of the matchers that are in it.
    matchers: BTreeSet<u64>,
}

/// A mask with a priority: a group of a table.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    table_type: u8,
    group: u64,
    first: u64,
}

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    table_type: u8,
    table: u64,
    index: u64,
}

/// A context for entries: the opcode that takes it back, and its id.
#[derive(Debug, Clone)]
pub(super) struct FlowAction {
    undo: u16,
    id: u64,
}

const UNDO_MODIFY_HEADER: u16 = 0x941;
const UNDO_REFORMAT: u16 = 0x93e;

impl FlowAction {
    pub(super) fn destroy(&self, hca: &mut Hca) -> Result<(), Refused> {
        send(hca, &Command::new(self.undo, &numbered::LAYOUT, &[(numbered::ID, self.id)])).map(|_| ())
    }
}

/// The PRM's type of table for one of the interface.
fn table_type(kind: u64) -> Result<u8, Refused> {
    match kind {
        0 => Ok(0),
        1 => Ok(1),
        2 => Ok(FDB),
        kind => Err(Refused::new(Errno::EOPNOTSUPP, format!("flow tables of type {kind} are not modelled"))),
    }
}

fn may_steer(state: &State) -> Result<(), Refused> {
    if state.privileges.net_raw { Ok(()) } else { Err(Refused::new(Errno::EPERM, "flows need CAP_NET_RAW")) }
}

pub(super) fn create_matcher(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const EGRESS: u64 = 1 << 2;
    const NORMAL: u8 = 0;
    may_steer(state)?;
    let egress = request.value_or(0x1004, 0) & EGRESS != 0;
    let table_type = table_type(request.value_or(0x1005, egress.into()))?;
    let kind = if request.has(0x1002) { request.element(0x1002)? } else { NORMAL };
    if kind != NORMAL {
        return Err(Refused::new(Errno::EOPNOTSUPP, format!("flows of type {kind} are not modelled")));
    }
    let [.., high, low] = request.value_or(0x1002, 0).to_be_bytes();
    let priority = u64::from(u16::from_be_bytes([high, low]));
    let [.., criteria] = request.value_or(0x1003, 0).to_be_bytes();
    let mut mask = request.input(0x1001)?;
    mask.resize(MATCH, 0);
    let (table, first) = place(state, table_type, priority)?;
    let fields = [
        (create_group::TABLE_TYPE, table_type.into()),
        (create_group::TABLE_ID, table),
        (create_group::START, first),
        (create_group::END, first + MATCHER - 1),
        (create_group::CRITERIA, criteria.into()),
    ];
    let command = Command::new(0x933, &create_group::LAYOUT, &fields).put(MASK, &mask);
    let group = match made(&mut state.hca, &command) {
        Ok(group) => group,
        Err(refused) => {
            forget(state, table_type, first)?;
            return Err(refused);
        }
    };
    let handle = state.keep(context, Object::Matcher(Matcher { table_type, group, first }))?;
    request.answer(0x1000, handle)
}

/// Has packets of the switch that no flow takes go to the function that manages it, and what that one sends to the wire, as the kernel
/// has it for the uplink's representor in switchdev mode. (The kernel knows its own packets by their send queues.)
pub(super) fn open_slow_path(state: &mut State) -> Result<(), Refused> {
    /// Place of the source's vport in a match, and the bit that says that it is looked at.
    const SOURCE_PORT: usize = 70;
    const MISC: u64 = 2;
    let hca = &mut state.hca;
    let manager = hca.profile().own_vport();
    let fields = [(create_table::TABLE_TYPE, FDB.into()), (create_table::LEVEL, 1), (create_table::LOG_SIZE, 1)];
    let table = made(hca, &Command::new(0x930, &create_table::LAYOUT, &fields))?;
    let both = [0xff; 2];
    for (index, criteria, mask, value, to) in
        [(0, MISC, both, manager.to_be_bytes(), VPORT_UPLINK), (1, 0, [0; 2], [0; 2], manager)]
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
        let fields = [
            (set_entry::TABLE_TYPE, FDB.into()),
            (set_entry::TABLE_ID, table),
            (set_entry::FLOW_INDEX, index),
            (set_entry::GROUP_ID, group),
            (set_entry::ACTION, action::FORWARD),
            (set_entry::DESTINATIONS, 1),
        ];
        let command = Command::new(0x936, &set_entry::LAYOUT, &fields).put(VALUE + SOURCE_PORT, &value);
        send(hca, &command.followed_by(&destination(TO_VPORT, to.into())))?;
    }
    set_root(hca, table)?;
    state.roots.slow_path = Some(table);
    state.kernel.own = state.hca.left();
    Ok(())
}

fn set_root(hca: &mut Hca, table: u64) -> Result<(), Refused> {
    let fields = [(set_root::TABLE_TYPE, FDB.into()), (set_root::TABLE_ID, table)];
    send(hca, &Command::new(0x92f, &set_root::LAYOUT, &fields)).map(|_| ())
}

/// A table of this type, made if it is not there, and free indexes in it for a matcher.
fn place(state: &mut State, table_type: u8, priority: u64) -> Result<(u64, u64), Refused> {
    let table = match state.roots.tables.get_mut(&table_type) {
        Some(table) => table,
        None => {
            let slow_path = state.roots.slow_path.filter(|_| table_type == FDB);
            let fields = [
                (create_table::TABLE_TYPE, table_type.into()),
                (create_table::REFORMAT, 1),
                (create_table::DECAP, 1),
                (create_table::MISS_ACTION, slow_path.map_or(0, |_| MISS_TO_TABLE)),
                (create_table::MISS_TABLE, slow_path.unwrap_or(0)),
                (create_table::LOG_SIZE, LOG_SIZE),
            ];
            let id = made(&mut state.hca, &Command::new(0x930, &create_table::LAYOUT, &fields))?;
            if slow_path.is_some() {
                set_root(&mut state.hca, id)?;
            }
            state.roots.tables.entry(table_type).or_insert(RootTable { id, matchers: BTreeSet::new() })
        }
    };
    let start = priority * PRIORITY;
    let free = (start..start + PRIORITY).step_by(64).find(|first| !table.matchers.contains(first));
    let full = || Refused::new(Errno::ENOSPC, format!("{} matchers of priority {priority}", PRIORITY / MATCHER));
    let first = free.ok_or_else(full)?;
    table.matchers.insert(first);
    Ok((table.id, first))
}

/// Gives a matcher's indexes back, and the table with the last one.
fn forget(state: &mut State, table_type: u8, first: u64) -> Result<(), Refused> {
    let Some(table) = state.roots.tables.get_mut(&table_type) else { return Ok(()) };
    table.matchers.remove(&first);
    if !table.matchers.is_empty() {
        return Ok(());
    }
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, table.id)];
    state.roots.tables.remove(&table_type);
    if let Some(slow_path) = state.roots.slow_path.filter(|_| table_type == FDB) {
        set_root(&mut state.hca, slow_path)?;
    }
    send(&mut state.hca, &Command::new(0x931, &named::LAYOUT, &fields)).map(|_| ())
}

pub(super) fn destroy_matcher(state: &mut State, matcher: &Matcher) -> Result<(), Refused> {
    let Matcher { table_type, group, first } = *matcher;
    let Some(table) = state.roots.tables.get(&table_type) else { return Ok(()) };
    let fields = [(named::TABLE_TYPE, table_type.into()), (named::TABLE_ID, table.id), (named::GROUP_ID, group)];
    send(&mut state.hca, &Command::new(0x934, &named::LAYOUT, &fields))?;
    forget(state, table_type, first)
}

/// Bits of an entry's action field.
mod action {
    pub(super) const ALLOW: u64 = 0x1;
    pub(super) const DROP: u64 = 0x2;
    pub(super) const FORWARD: u64 = 0x4;
    pub(super) const COUNT: u64 = 0x8;
    pub(super) const REFORMAT: u64 = 0x10;
    pub(super) const MODIFY_HEADER: u64 = 0x40;
}

pub(super) fn create_flow(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const TO_TABLE: u32 = 1;
    const TO_TIR: u32 = 2;
    const DEFAULT_MISS: u64 = 1;
    const DROP: u64 = 2;
    may_steer(state)?;
    let matcher = match state.object(context, request.value(0x1004)?)? {
        Object::Matcher(matcher) => matcher.clone(),
        other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no matcher"))),
    };
    let mut actions = 0;
    let mut list = Vec::new();
    if request.has(0x1003) {
        let element = match state.object(context, request.value(0x1003)?)? {
            Object::Devx(object) => match (object.flow_table(), object.tir()) {
                (Some((id, kind)), _) if kind == matcher.table_type => destination(TO_TABLE, id),
                (_, Some(id)) => destination(TO_TIR, id),
                _ => return Err(Refused::new(Errno::EINVAL, format!("{object} is no place to send packets"))),
            },
            other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no place to send packets"))),
        };
        actions |= action::FORWARD;
        list.extend(element);
    }
    match request.value_or(0x1009, 0) {
        0 => {}
        DROP => actions |= action::DROP,
        DEFAULT_MISS if matcher.table_type != 0 => actions |= action::ALLOW,
        flags => return Err(Refused::new(Errno::EOPNOTSUPP, format!("flow flags {flags:#x} are not modelled"))),
    }
    let counters = request.list(0x1007)?;
    let offsets = request.list(0x1008)?;
    for (place, handle) in counters.iter().enumerate() {
        let first = match state.object(context, (*handle).into())? {
            Object::Devx(object) => object.flow_counter(),
            _ => None,
        };
        let first = first.ok_or_else(|| Refused::new(Errno::EINVAL, format!("object {handle} is no flow counter")))?;
        let id = first + u64::from(offsets.get(place).copied().unwrap_or(0));
        actions |= action::COUNT;
        list.extend(destination(0, id));
    }
    let (mut reformat, mut rewrite) = (0, 0);
    for handle in request.list(0x1005)? {
        match state.object(context, handle.into())? {
            Object::FlowAction(FlowAction { undo: UNDO_REFORMAT, id }) => {
                actions |= action::REFORMAT;
                reformat = *id;
            }
            Object::FlowAction(FlowAction { id, .. }) => {
                actions |= action::MODIFY_HEADER;
                rewrite = *id;
            }
            other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no flow action"))),
        }
    }
    let table = state.roots.tables.get(&matcher.table_type).map(|table| table.id).unwrap_or_default();
    let mut value = request.input(0x1001)?;
    value.resize(MATCH, 0);
    let index = free_index(state, &matcher, table)?;
    let fields = [
        (set_entry::TABLE_TYPE, matcher.table_type.into()),
        (set_entry::TABLE_ID, table),
        (set_entry::FLOW_INDEX, index),
        (set_entry::GROUP_ID, matcher.group),
        (set_entry::TAG, request.value_or(0x1006, 0)),
        (set_entry::ACTION, actions),
        (set_entry::DESTINATIONS, u64::from(actions & action::FORWARD != 0)),
        (set_entry::COUNTERS, counters.len() as u64),
        (set_entry::REFORMAT_ID, reformat),
        (set_entry::MODIFY_HEADER_ID, rewrite),
    ];
    send(&mut state.hca, &Command::new(0x936, &set_entry::LAYOUT, &fields).put(VALUE, &value).followed_by(&list))?;
    let handle = state.keep(context, Object::Flow(Flow { table_type: matcher.table_type, table, index }))?;
    request.answer(0x1000, handle)
}

/// An element of an entry's lists.
fn destination(kind: u32, id: u64) -> [u8; 8] {
    let word = u64::from(kind) << 24 | id & 0xff_ffff;
    // A counter has all 32 bits for its id, of which 24 are used.
    (word << 32).to_be_bytes()
}

fn free_index(state: &State, matcher: &Matcher, table: u64) -> Result<u64, Refused> {
    let table = u32::try_from(table).unwrap_or_default();
    let taken = |index: u64| u32::try_from(index).is_ok_and(|index| state.hca.steering.has_entry(table, index));
    let free = (matcher.first..matcher.first + MATCHER).find(|index| !taken(*index));
    free.ok_or_else(|| Refused::new(Errno::ENOSPC, format!("{MATCHER} flows of one matcher")))
}

pub(super) fn destroy_flow(state: &mut State, flow: &Flow) -> Result<(), Refused> {
    let fields =
        [(named::TABLE_TYPE, flow.table_type.into()), (named::TABLE_ID, flow.table), (named::FLOW_INDEX, flow.index)];
    send(&mut state.hca, &Command::new(0x938, &named::LAYOUT, &fields)).map(|_| ())
}

pub(super) fn create_modify_header(
    state: &mut State,
    context: ContextId,
    request: &Request<'_>,
) -> Result<(), Refused> {
    may_steer(state)?;
    let actions = request.input(0x1001)?;
    let fields = [
        (modify_header::TABLE_TYPE, table_type(request.value(0x1002)?)?.into()),
        (modify_header::NUM_OF_ACTIONS, (actions.len() / 8) as u64),
    ];
    let command = Command::new(0x940, &modify_header::LAYOUT, &fields).followed_by(&actions);
    keep_action(state, context, request, UNDO_MODIFY_HEADER, &command)
}

pub(super) fn create_packet_reformat(
    state: &mut State,
    context: ContextId,
    request: &Request<'_>,
) -> Result<(), Refused> {
    may_steer(state)?;
    let kind = match request.value(0x1001)? {
        1 => 0x2,
        2 => 0x3,
        3 => 0x4,
        kind => return Err(Refused::new(Errno::EOPNOTSUPP, format!("reformat of type {kind} is not modelled"))),
    };
    let data = request.input(0x1003)?;
    let fields = [(reformat::TYPE, kind), (reformat::SIZE, data.len() as u64)];
    let command = Command::new(0x93d, &reformat::LAYOUT, &fields).followed_by(&data);
    keep_action(state, context, request, UNDO_REFORMAT, &command)
}

fn keep_action(
    state: &mut State,
    context: ContextId,
    request: &Request<'_>,
    undo: u16,
    command: &Command,
) -> Result<(), Refused> {
    let answer = send(&mut state.hca, command)?;
    let id = numbered::ID.read(&answer).unwrap_or_default();
    let handle = state.keep(context, Object::FlowAction(FlowAction { undo, id }))?;
    request.answer(0x1000, handle)
}
