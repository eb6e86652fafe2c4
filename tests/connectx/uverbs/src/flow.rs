//! Flows that the kernel installs for a program, in its own tables ([`super::roots`]): through them packets get to those that the
//! program owns.

use nix::errno::Errno;
use sluice_connectx::layout::layouts;

use super::command::{Command, made, send};
use super::objects::{Entry, Flow, FlowAction, Matcher, Object, Place, UNDO_MODIFY_HEADER, UNDO_REFORMAT};
use super::request::{Refused, Request};
use super::roots::{self, LAST_PRIORITY};
use super::state::{ContextId, State, may_steer};
use super::tables::{
    MASK, MATCH, VALUE, action, create_group, destination, named, numbered, set_entry, table_type, to,
};

layouts! {
    modify_header 0x10 { TABLE_TYPE 0xc [31:24], NUM_OF_ACTIONS 0xc [7:0] }
    /// Followed by the rest of the header.
    reformat 0x22 { TYPE 0x1c [31:24], SIZE 0x1c [9:0] }
}

pub(crate) fn create_matcher(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
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
    let priority = u16::from_be_bytes([high, low]);
    let [.., criteria] = request.value_or(0x1003, 0).to_be_bytes();
    let mut mask = request.input(0x1001)?;
    mask.resize(MATCH, 0);
    if priority > LAST_PRIORITY {
        return Err(Refused::new(Errno::ENOMEM, format!("priority {priority} is behind the last, {LAST_PRIORITY}")));
    }
    let matcher = make_matcher(state, (table_type, priority), criteria.into(), &mask)?;
    let handle = state.keep(context, Object::Matcher(matcher))?;
    request.answer(0x1000, handle)
}

/// A group of entries that look at the same bits, in a table of the kernel's.
pub(crate) fn make_matcher(
    state: &mut State,
    (table_type, priority): (u8, u16),
    criteria: u64,
    mask: &[u8],
) -> Result<Matcher, Refused> {
    let place = roots::place(state, table_type, priority)?;
    let fields = [
        (create_group::TABLE_TYPE, table_type.into()),
        (create_group::TABLE_ID, place.table),
        (create_group::START, place.first),
        (create_group::END, place.last()),
        (create_group::CRITERIA, criteria),
    ];
    let command = Command::new(0x933, &create_group::LAYOUT, &fields).put(MASK, mask);
    let group = match made(&mut state.hca, &command) {
        Ok(group) => group,
        Err(refused) => {
            roots::give_back(state, place)?;
            return Err(refused);
        }
    };
    Ok(Matcher { place, group })
}

pub(crate) fn destroy_matcher(state: &mut State, matcher: &Matcher) -> Result<(), Refused> {
    let Matcher { place, group } = *matcher;
    let fields =
        [(named::TABLE_TYPE, place.table_type.into()), (named::TABLE_ID, place.table), (named::GROUP_ID, group)];
    send(&mut state.hca, &Command::new(0x934, &named::LAYOUT, &fields))?;
    roots::give_back(state, place)
}

pub(crate) fn create_flow(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const DEFAULT_MISS: u64 = 1;
    const DROP: u64 = 2;
    may_steer(state)?;
    let matcher = request.value_u32(0x1004)?;
    let mut used = vec![matcher];
    let matcher = match state.object(context, matcher.into())? {
        Object::Matcher(matcher) => matcher.clone(),
        other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no matcher"))),
    };
    let mut entry = Entry::tagged(request.has(0x1006).then(|| request.value_or(0x1006, 0)));
    if request.has(0x1002) {
        let tir = match state.object(context, request.value(0x1002)?)? {
            Object::QueuePair(pair) => pair.tir(),
            _ => None,
        };
        let missing = || Refused::new(Errno::EINVAL, "the QP receives nothing, or there is none");
        let tir = tir.filter(|_| matcher.place.table_type == 0 && !request.has(0x1003));
        entry.actions |= action::FORWARD;
        entry.destinations.push(destination(to::TIR, tir.ok_or_else(missing)?));
        used.push(request.value_u32(0x1002)?);
    }
    if request.has(0x1003) {
        let element = match state.object(context, request.value(0x1003)?)? {
            Object::Devx(object) => match (object.flow_table(), object.tir()) {
                (Some((id, kind)), _) if kind == matcher.place.table_type => destination(to::TABLE, id),
                (_, Some(id)) => destination(to::TIR, id),
                _ => return Err(Refused::new(Errno::EINVAL, format!("{object} is no place to send packets"))),
            },
            other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no place to send packets"))),
        };
        entry.actions |= action::FORWARD;
        entry.destinations.push(element);
    }
    match request.value_or(0x1009, 0) {
        0 => {}
        DROP => entry.actions |= action::DROP,
        DEFAULT_MISS if matcher.place.table_type != 0 => entry.actions |= action::ALLOW,
        flags => return Err(Refused::new(Errno::EOPNOTSUPP, format!("flow flags {flags:#x} are not modelled"))),
    }
    let counters = request.list(0x1007)?;
    let offsets = request.list(0x1008)?;
    for (place, handle) in counters.iter().enumerate() {
        let offset = offsets.get(place).copied().unwrap_or(0);
        let id = match state.object(context, (*handle).into())? {
            Object::Devx(object) => object.flow_counter(offset),
            _ => None,
        };
        let missing = || Refused::new(Errno::EINVAL, format!("object {handle} has no flow counter {offset}"));
        let id = id.ok_or_else(missing)?;
        entry.actions |= action::COUNT;
        entry.counters.push(destination(0, id));
    }
    for handle in request.list(0x1005)? {
        used.push(handle);
        match state.object(context, handle.into())? {
            Object::FlowAction(action) if entry.also(action) => {}
            Object::FlowAction(_) => return Err(Refused::new(Errno::EINVAL, "two actions of a kind")),
            other => return Err(Refused::new(Errno::EINVAL, format!("{other} is no flow action"))),
        }
    }
    let mut value = request.input(0x1001)?;
    value.resize(MATCH, 0);
    let flow = insert(state, &matcher, &value, &entry)?;
    let handle = state.keep_using(context, Object::Flow(flow), used)?;
    request.answer(0x1000, handle)
}

/// An entry of a matcher's.
pub(crate) fn insert(state: &mut State, matcher: &Matcher, value: &[u8], entry: &Entry) -> Result<Flow, Refused> {
    let Place { table_type, table, .. } = matcher.place;
    let index = free_index(state, &matcher.place)?;
    let command = set_command(matcher, index, value, entry);
    send(&mut state.hca, &command)?;
    Ok(Flow { table_type, table, index })
}

/// Has an entry do something else with the same packets.
pub(crate) fn change(
    state: &mut State,
    matcher: &Matcher,
    flow: &Flow,
    value: &[u8],
    entry: &Entry,
) -> Result<(), Refused> {
    const MODIFY: u16 = 1;
    let command = set_command(matcher, flow.index, value, entry).modifier(MODIFY);
    send(&mut state.hca, &command).map(|_| ())
}

fn set_command(matcher: &Matcher, index: u64, value: &[u8], entry: &Entry) -> Command {
    /// Of an entry that is there: actions, destinations and counters.
    const CHANGES: u64 = 0xd;
    let Place { table_type, table, .. } = matcher.place;
    let fields = [
        (set_entry::TABLE_TYPE, table_type.into()),
        (set_entry::TABLE_ID, table),
        (set_entry::MODIFY_ENABLE, CHANGES),
        (set_entry::FLOW_INDEX, index),
        (set_entry::GROUP_ID, matcher.group),
        (set_entry::TAG, entry.tag.unwrap_or(0)),
        (set_entry::ACTION, entry.actions),
        (set_entry::DESTINATIONS, entry.destinations.len() as u64),
        (set_entry::COUNTERS, entry.counters.len() as u64),
        (set_entry::REFORMAT_ID, entry.reformat),
        (set_entry::MODIFY_HEADER_ID, entry.rewrite),
    ];
    let list: Vec<u8> = entry.destinations.iter().chain(&entry.counters).flatten().copied().collect();
    Command::new(0x936, &set_entry::LAYOUT, &fields).put(VALUE, value).followed_by(&list)
}

fn free_index(state: &State, place: &Place) -> Result<u64, Refused> {
    let table = u32::try_from(place.table).unwrap_or_default();
    let taken = |index: u64| u32::try_from(index).is_ok_and(|index| state.hca.steering().has_entry(table, index));
    let free = (place.first..=place.last()).find(|index| !taken(*index));
    free.ok_or_else(|| Refused::new(Errno::ENOSPC, "no room for one more flow of this matcher"))
}

pub(crate) fn destroy_flow(state: &mut State, flow: &Flow) -> Result<(), Refused> {
    let fields =
        [(named::TABLE_TYPE, flow.table_type.into()), (named::TABLE_ID, flow.table), (named::FLOW_INDEX, flow.index)];
    send(&mut state.hca, &Command::new(0x938, &named::LAYOUT, &fields)).map(|_| ())
}

pub(crate) fn create_modify_header(
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

pub(crate) fn create_packet_reformat(
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
