//! Flows of verbs (`ibv_create_flow`), in the kernel's tables, as `mlx5_ib_create_flow` makes them; and what counts their packets.
//!
//! Frozen: no test of Sluice needs them.

use std::collections::BTreeMap;

use nix::errno::Errno;
use sluice_connectx::layout::layouts;

use super::command::{Command, send};
use super::device::ports;
use super::flow;
use super::ids::UHW_IN;
use super::objects::{Counters, Entry, Group, Key, Object, Placed, Shared, VerbsFlow, Wanted};
use super::request::{Native, NativeOut, Refused, Request};
use super::roots::{LAST_PRIORITY, LEFTOVERS, MULTICAST};
use super::specs::Specs;
use super::state::{ContextId, State, may_steer};
use super::tables::{MATCH, action, destination, numbered, to};

layouts! {
    query_counter 0x20 { ID 0x1c [31:0] }
    query_counter_out 0x20 { PACKETS 0x10 [63:0], BYTES 0x18 [63:0] }
}

/// Types of `enum ib_flow_attr_type`, other than 0, which has matches.
const ALL_DEFAULT: u32 = 1;
const MULTICAST_DEFAULT: u32 = 2;
const SNIFFER: u32 = 3;

const RECEIVE_TABLE: u8 = 0;
const TRANSMIT_TABLE: u8 = 1;

/// `struct ib_uverbs_create_flow`.
pub(crate) fn create(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const HEADER: usize = 24;
    const DOES_NOT_TRAP: u32 = 1 << 1;
    const EGRESS: u32 = 1 << 2;
    const MOST_SPECS: u8 = 10;
    let invalid = |why: String| Err(Refused::new(Errno::EINVAL, why));
    may_steer(state)?;
    let given = request.input(0)?;
    let native = Native(&given);
    let short = || Refused::new(Errno::EINVAL, "CREATE_FLOW ends too early");
    let word = |at| native.u32(at).ok_or_else(short);
    let (pair, kind, flags) = (word(4)?, word(8)?, word(20)?);
    let (size, priority) = (native.u16(12).ok_or_else(short)?, native.u16(14).ok_or_else(short)?);
    let [count, reserved @ .., port] = [given[16], given[17], given[18], given[19]];
    if word(0)? != 0 || reserved != [0, 0] || count > MOST_SPECS || flags & !(DOES_NOT_TRAP | EGRESS) != 0 {
        return invalid(format!("flags {flags:#x}, {count} specs, and what is not in use"));
    }
    let is_default = matches!(kind, ALL_DEFAULT | MULTICAST_DEFAULT);
    if is_default && flags != 0 || usize::from(port) > ports(state.hca.profile()).len() || kind > SNIFFER {
        return invalid(format!("a flow of type {kind} with flags {flags:#x} at port {port}"));
    }
    if priority > LAST_PRIORITY {
        return Err(Refused::new(Errno::ENOMEM, format!("priority {priority} is behind the last, {LAST_PRIORITY}")));
    }
    if flags & DOES_NOT_TRAP != 0 || kind == SNIFFER {
        return Err(Refused::new(Errno::EOPNOTSUPP, "the device does not give packets to several"));
    }
    let tir = match state.object(context, pair.into())? {
        Object::QueuePair(pair) => pair.tir(),
        other => return invalid(format!("{other} is no QP")),
    };
    let list = given.get(HEADER..HEADER + usize::from(size)).filter(|list| list.len() + HEADER == given.len());
    let specs = Specs::parse(list.ok_or_else(short)?, count)?;
    let is_egress = flags & EGRESS != 0;
    let (table_type, rank) = match kind {
        _ if is_default => (RECEIVE_TABLE, LEFTOVERS),
        _ if specs.is_multicast => (if is_egress { TRANSMIT_TABLE } else { RECEIVE_TABLE }, MULTICAST),
        _ => (if is_egress { TRANSMIT_TABLE } else { RECEIVE_TABLE }, priority),
    };
    let mut used = vec![pair];
    used.extend(&specs.actions);
    used.extend(specs.counters);
    let mut entry = Entry::tagged(specs.tag.map(u64::from));
    if specs.drops {
        entry.actions |= action::DROP;
    } else if is_egress {
        entry.actions |= action::ALLOW;
    } else {
        let tir = tir.ok_or_else(|| Refused::new(Errno::EINVAL, "a QP that receives nothing"))?;
        entry.actions |= action::FORWARD;
        entry.destinations.push(destination(to::TIR, tir));
    }
    for handle in &specs.actions {
        let Object::FlowAction(flow_action) = state.object(context, (*handle).into())? else {
            return invalid(format!("object {handle} is no flow action"));
        };
        if !entry.also(flow_action) {
            return invalid("two actions of a kind".to_owned());
        }
    }
    if let Some(handle) = specs.counters.filter(|_| !is_default) {
        entry.actions |= action::COUNT;
        entry.counters.push(destination(0, bind_counters(state, context, request, handle)?));
    }
    let matches = match kind {
        ALL_DEFAULT => vec![Specs::of_groups(true), Specs::of_groups(false)],
        MULTICAST_DEFAULT => vec![Specs::of_groups(true)],
        _ => vec![specs.clone()],
    };
    let mut flow = VerbsFlow { entries: Vec::new(), counters: specs.counters };
    for specs in matches {
        if let Err(refused) = insert(state, (table_type, rank), &specs, &entry, &mut flow) {
            destroy(state, &flow)?;
            forget_counters(state, context, specs.counters)?;
            return Err(refused);
        }
    }
    let handle = state.keep_using(context, Object::VerbsFlow(flow), used)?;
    request.output(1, NativeOut::new(8).u32(4, u32::try_from(handle).unwrap_or_default()).bytes())
}

/// One more entry of a flow, in a group with others that look at the same bits.
fn insert(
    state: &mut State,
    (table_type, rank): (u8, u16),
    specs: &Specs,
    entry: &Entry,
    flow: &mut VerbsFlow,
) -> Result<(), Refused> {
    let key = (table_type, rank, specs.mask);
    if !state.flows.contains_key(&key) {
        let matcher = flow::make_matcher(state, (table_type, rank), specs.criteria(), &specs.mask)?;
        state.flows.insert(key, Group { matcher, shared: BTreeMap::new() });
    }
    let part = match add(state, &key, specs.value, entry) {
        Ok(part) => part,
        Err(refused) => {
            leave(state, &key)?;
            return Err(refused);
        }
    };
    flow.entries.push(Placed { group: key, value: specs.value, part });
    Ok(())
}

/// A part of an entry: of a new one, or of one that there is for the same packets (`mlx5_add_flow_rules`). Its number.
fn add(state: &mut State, key: &Key, value: [u8; MATCH], entry: &Entry) -> Result<u32, Refused> {
    let missing = || Refused::new(Errno::EINVAL, "there is no such group");
    let matcher = state.flows.get(key).ok_or_else(missing)?.matcher.clone();
    if !state.flows.get(key).is_some_and(|group| group.shared.contains_key(&value)) {
        let made = flow::insert(state, &matcher, &value, entry)?;
        let shared = Shared { made, next: 1, parts: BTreeMap::from([(0, entry.clone())]), tag: entry.tag };
        state.flows.get_mut(key).ok_or_else(missing)?.shared.insert(value, shared);
        return Ok(0);
    }
    let group = state.flows.get_mut(key).ok_or_else(missing)?;
    let shared = group.shared.get_mut(&value).ok_or_else(missing)?;
    let whole = shared.whole().and_then(|whole| whole.with(entry));
    let whole = whole.ok_or_else(|| Refused::new(Errno::EEXIST, "another flow does something else with them"))?;
    let made = shared.made.clone();
    flow::change(state, &matcher, &made, &value, &whole)?;
    let group = state.flows.get_mut(key).ok_or_else(missing)?;
    let shared = group.shared.get_mut(&value).ok_or_else(missing)?;
    let part = shared.next;
    shared.next += 1;
    shared.parts.insert(part, entry.clone());
    Ok(part)
}

/// Takes a part of an entry back, and the entry with the last one.
fn take_back(state: &mut State, Placed { group: key, value, part }: &Placed) -> Result<(), Refused> {
    let Some(group) = state.flows.get_mut(key) else { return Ok(()) };
    let matcher = group.matcher.clone();
    let Some(shared) = group.shared.get_mut(value) else { return Ok(()) };
    shared.parts.remove(part);
    let (made, whole) = (shared.made.clone(), shared.whole());
    if let Some(whole) = whole {
        return flow::change(state, &matcher, &made, value, &whole);
    }
    group.shared.remove(value);
    flow::destroy_flow(state, &made)?;
    leave(state, key)
}

/// Takes a group away in which no flow is any more.
fn leave(state: &mut State, key: &Key) -> Result<(), Refused> {
    if state.flows.get(key).is_some_and(|group| group.shared.is_empty())
        && let Some(group) = state.flows.remove(key)
    {
        flow::destroy_matcher(state, &group.matcher)?;
    }
    Ok(())
}

/// Destroys a flow's entries.
pub(crate) fn destroy(state: &mut State, flow: &VerbsFlow) -> Result<(), Refused> {
    flow.entries.iter().try_for_each(|placed| take_back(state, placed))
}

/// Destroys a flow; counters that no other one has forget what was wanted of them.
pub(crate) fn destroy_flow(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let handle = request.value(0)?;
    let counters = match state.object(context, handle)? {
        Object::VerbsFlow(flow) => flow.counters,
        _ => None,
    };
    state.destroy(context, handle)?;
    forget_counters(state, context, counters)
}

fn forget_counters(state: &mut State, context: ContextId, handle: Option<u32>) -> Result<(), Refused> {
    let Some(handle) = handle else { return Ok(()) };
    let context = state.context(context)?;
    let is_used = context.uses.values().flatten().any(|used| *used == handle);
    if let Some(Object::Counters(counters)) = context.objects.get_mut(&handle).filter(|_| !is_used) {
        counters.wanted.clear();
    }
    Ok(())
}

/// The device's counter of a program's counters, made if it is not there. What the program wants to know comes with its first flow
/// (`mlx5_ib_flow_counters_set_data`).
fn bind_counters(state: &mut State, context: ContextId, request: &Request<'_>, handle: u32) -> Result<u64, Refused> {
    const MOST: u32 = 1 << 13;
    let invalid = |why: &str| Refused::new(Errno::EINVAL, why);
    // `struct mlx5_ib_create_flow`.
    let given = if request.has(UHW_IN) { request.input(UHW_IN)? } else { Vec::new() };
    let native = Native(&given);
    let mut wanted = Vec::new();
    let lists = native.u32(0).unwrap_or(0);
    if lists > 1 {
        return Err(invalid("what is wanted of several counters"));
    }
    if lists == 1 {
        let (Some(address), Some(count)) = (native.u64(8), native.u32(16)) else {
            return Err(invalid("the driver's part of CREATE_FLOW ends too early"));
        };
        if count > MOST {
            return Err(invalid("too many counters"));
        }
        let mut bytes = vec![0; count as usize * 8];
        request.memory().read(address, &mut bytes)?;
        for pair in bytes.chunks_exact(8).map(Native) {
            let kind = match pair.u32(0) {
                Some(0) => Wanted::Packets,
                Some(1) => Wanted::Bytes,
                _ => return Err(invalid("a counter of neither packets nor bytes")),
            };
            wanted.push((kind, pair.u32(4).unwrap_or(0) as usize));
        }
    }
    let Object::Counters(counters) = state.object(context, handle.into())? else {
        return Err(Refused::new(Errno::EINVAL, format!("object {handle} is no counters")));
    };
    if !wanted.is_empty() && !counters.wanted.is_empty() {
        return Err(invalid("counters of which something else is wanted already"));
    }
    if wanted.is_empty() && counters.wanted.is_empty() {
        return Err(invalid("counters of which nothing is wanted"));
    }
    let id = match counters.id {
        Some(id) => id,
        None => {
            let answer = send(&mut state.hca, &Command::new(0x939, &numbered::LAYOUT, &[]))?;
            numbered::ID.read(&answer).unwrap_or_default()
        }
    };
    let object = state.context(context)?.objects.get_mut(&handle);
    if let Some(Object::Counters(counters)) = object {
        counters.id = Some(id);
        counters.wanted.extend(wanted);
    }
    Ok(id)
}

pub(crate) fn create_counters(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    let handle = state.keep(context, Object::Counters(Counters::default()))?;
    request.answer(0, handle)
}

/// Tells what is wanted of counters, in numbers of 8 bytes.
pub(crate) fn read_counters(state: &mut State, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const ANSWER: u16 = 1;
    const PREFERS_CACHED: u64 = 1;
    if request.value_or(2, 0) & !PREFERS_CACHED != 0 {
        return Err(Refused::new(Errno::EINVAL, "reading counters in a way that there is not"));
    }
    let Object::Counters(counters) = state.object(context, request.value(0)?)?.clone() else {
        return Err(Refused::new(Errno::EINVAL, "reading what is no counters"));
    };
    let room = request.length(ANSWER)? / 8;
    let mut answer = vec![0_u64; room];
    if let Some(id) = counters.id {
        let command = Command::new(0x93b, &query_counter::LAYOUT, &[(query_counter::ID, id)]);
        let told = send(&mut state.hca, &command)?;
        for (wanted, place) in &counters.wanted {
            let field = match wanted {
                Wanted::Packets => query_counter_out::PACKETS,
                Wanted::Bytes => query_counter_out::BYTES,
            };
            let place = answer.get_mut(*place).ok_or_else(|| Refused::new(Errno::EINVAL, "too little room"))?;
            *place += field.read(&told).unwrap_or_default();
        }
    }
    request.output(ANSWER, &answer.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
}
