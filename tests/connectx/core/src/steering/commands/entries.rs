//! Commands on flow table entries, and what an entry may say.

use crate::steering::domain::{TableKind, Target};
use crate::steering::failure::Refusal;
use crate::steering::fields::MATCH_BYTES;
use crate::steering::layout::{self, bytes, flow_context as context};
use crate::steering::mailbox::{answer, needs};
use crate::steering::meter::aso::Metered;
use crate::steering::meter::{Color, check_register};
use crate::steering::port::Port;
use crate::steering::reformat::ReformatKind;
use crate::steering::state::Steering;
use crate::steering::table::{Destination, Entry, FlowSource, Table, Verdict};

/// Bits of the flow context's action field.
mod action {
    pub(super) const ALLOW: u16 = 0x1;
    pub(super) const DROP: u16 = 0x2;
    pub(super) const FORWARD: u16 = 0x4;
    pub(super) const COUNT: u16 = 0x8;
    pub(super) const REFORMAT: u16 = 0x10;
    pub(super) const DECAP: u16 = 0x20;
    pub(super) const MODIFY_HEADER: u16 = 0x40;
    pub(super) const POP_VLAN: u16 = 0x80;
    pub(super) const PUSH_VLAN: u16 = 0x100;
    pub(super) const POP_VLAN_2: u16 = 0x400;
    pub(super) const PUSH_VLAN_2: u16 = 0x800;
    pub(super) const EXECUTE_ASO: u16 = 0x4000;
    pub(super) const ALL: u16 = ALLOW
        | DROP
        | FORWARD
        | COUNT
        | REFORMAT
        | DECAP
        | MODIFY_HEADER
        | POP_VLAN
        | PUSH_VLAN
        | POP_VLAN_2
        | PUSH_VLAN_2
        | EXECUTE_ASO;
}

/// Actions with their names, and the kinds of tables that may hold them.
const ALLOWED: [(u16, &str, &[TableKind]); 9] = {
    use TableKind::{EgressAcl, Fdb, IngressAcl, NicReceive, NicTransmit, RdmaReceive};
    [
        (action::ALLOW, "allow", &[NicReceive, NicTransmit, EgressAcl, IngressAcl, RdmaReceive]),
        (action::FORWARD, "forward", &[NicReceive, NicTransmit, EgressAcl, IngressAcl, Fdb]),
        (action::REFORMAT, "packet reformat", &[NicReceive, NicTransmit, Fdb]),
        (action::DECAP, "decap", &[NicReceive, Fdb]),
        (action::MODIFY_HEADER, "modify header", &[NicReceive, NicTransmit, IngressAcl, Fdb]),
        (action::POP_VLAN | action::POP_VLAN_2, "VLAN pop", &[NicReceive, EgressAcl, Fdb]),
        (action::PUSH_VLAN | action::PUSH_VLAN_2, "VLAN push", &[NicTransmit, IngressAcl, Fdb]),
        (action::EXECUTE_ASO, "execute ASO", &[Fdb]),
        (action::COUNT, "count", &[NicReceive, NicTransmit, EgressAcl, IngressAcl, Fdb]),
    ]
};

/// Bits of modify_enable_mask.
mod modify {
    pub(super) const ACTION: u8 = 0x1;
    pub(super) const FLOW_TAG: u8 = 0x2;
    pub(super) const DESTINATIONS: u8 = 0x4;
    pub(super) const COUNTERS: u8 = 0x8;
    pub(super) const ALL: u8 = ACTION | FLOW_TAG | DESTINATIONS | COUNTERS;
}

impl Steering {
    pub(super) fn set_flow_table_entry(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::FLOW_CONTEXT + context::LIST)?;
        let id = self.named_table(uid, input)?;
        let index = layout::FLOW_INDEX.u32(input);
        let given = &input[bytes::FLOW_CONTEXT..];
        let table = self.tables.seen_by(uid, id)?;
        let (context, group) = match layout::OP_MOD.u16(input) {
            0 => {
                let group = context::GROUP_ID.u32(given);
                if table.entry(index).is_some() {
                    return Err(Refusal::EntryExists { table: id, index });
                }
                if table.domain.kind == TableKind::Fdb && self.entries >= self.profile.entries {
                    return Err(Refusal::Full { what: "entries of the switch", limit: self.profile.entries });
                }
                (given.to_vec(), group)
            }
            1 => {
                let (group, entry) = table.entry(index).ok_or(Refusal::NoEntry { table: id, index })?;
                let said = context::GROUP_ID.u32(given);
                if said != group.id {
                    return Err(Refusal::OtherGroup { index, group: group.id, said });
                }
                (modified(&entry.context, given, layout::MODIFY_ENABLE.u8(input))?, group.id)
            }
            modifier => return Err(Refusal::Modifier(modifier)),
        };
        let entry = Entry::decode(index, layout::IGNORE_FLOW_LEVEL.is_set(input), context)?;
        self.check_place(table, group, &entry)?;
        self.check_entry(uid, table, &entry)?;

        let is_switch = table.domain.kind == TableKind::Fdb;
        self.hold_all(&entry);
        let old = self.tables.seen_by_mut(uid, id)?.group_mut(group).and_then(|group| {
            let old = group.remove(index);
            group.insert(index, entry);
            old
        });
        match old {
            Some(old) => self.release_all(&old),
            None => self.entries += usize::from(is_switch),
        }
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn delete_flow_table_entry(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let id = self.named_table(uid, input)?;
        let index = layout::FLOW_INDEX.u32(input);
        let no_entry = Refusal::NoEntry { table: id, index };
        let table = self.tables.seen_by_mut(uid, id)?;
        let is_switch = table.domain.kind == TableKind::Fdb;
        let group = table.entry(index).map(|(group, _)| group.id).ok_or(no_entry.clone())?;
        let entry = table.group_mut(group).and_then(|group| group.remove(index)).ok_or(no_entry)?;
        self.entries -= usize::from(is_switch);
        self.release_all(&entry);
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn query_flow_table_entry(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let id = self.queried_table(uid, input)?;
        let index = layout::FLOW_INDEX.u32(input);
        let table = self.tables.seen_by(uid, id)?;
        let (_, entry) = table.entry(index).ok_or(Refusal::NoEntry { table: id, index })?;
        let mut output = answer(bytes::FLOW_CONTEXT);
        output.extend(&entry.context);
        Ok(output)
    }

    fn check_place(&self, table: &Table, id: u32, entry: &Entry) -> Result<(), Refusal> {
        let group = table.group(id).ok_or(Refusal::Unknown { what: "flow group", id })?;
        let index = entry.index;
        if !(group.first..=group.last).contains(&index) {
            return Err(Refusal::OutsideGroup { group: id, index, first: group.first, last: group.last });
        }
        match group.outside_mask(entry.value()) {
            Some(fields) => Err(Refusal::OutsideMask { group: id, fields }),
            None => Ok(()),
        }
    }

    /// Whether a table may hold an entry, and everything that it names exists.
    fn check_entry(&self, uid: u16, table: &Table, entry: &Entry) -> Result<(), Refusal> {
        let kind = table.domain.kind;
        let actions = context::ACTION.u16(&entry.context);
        for (bits, action, kinds) in ALLOWED {
            if actions & bits != 0 && !kinds.contains(&kind) {
                return Err(Refusal::Action { action, kind });
            }
        }
        if entry.decap && !table.decap {
            return Err(Refusal::Incomplete { action: "decap", problem: "needs a table made with decap_en" });
        }
        for &id in &entry.counters {
            self.counters.exists(uid, id)?;
        }
        for metered in &entry.meters {
            self.meter_objects.check(uid, metered.object)?;
        }
        if let Some(id) = entry.rewrite {
            let rewrite = self.rewrites.seen_by(uid, id)?;
            if rewrite.kind != kind {
                let problem = "is a context for another table type";
                return Err(Refusal::Value { what: "modify header context", value: id, problem });
            }
        }
        for id in entry.reformats() {
            let reformat = self.reformats.seen_by(uid, id)?;
            let decaps = matches!(reformat.kind, ReformatKind::L3TunnelToL2 | ReformatKind::RemoveHeader { .. });
            if !(table.reformat || decaps && table.decap) {
                let problem = "needs a table made with reformat_en";
                return Err(Refusal::Incomplete { action: "packet reformat", problem });
            }
        }
        entry.destinations().iter().try_for_each(|destination| {
            let decaps = destination.reformat.is_some_and(|id| {
                self.reformats.get(id).is_some_and(|reformat| reformat.kind == ReformatKind::L3TunnelToL2)
            });
            if decaps {
                let problem = "for one destination cannot take tunnel headers away";
                return Err(Refusal::Incomplete { action: "packet reformat", problem });
            }
            match destination.owner {
                Some(owner) if owner != self.profile.vhca_id => {
                    Err(Refusal::Unknown { what: "destination_eswitch_owner_vhca_id", id: owner.into() })
                }
                _ => self.check_target(uid, table, entry, destination.target),
            }
        })
    }

    fn check_target(&self, uid: u16, table: &Table, entry: &Entry, target: Target) -> Result<(), Refusal> {
        let kind = table.domain.kind;
        match target {
            Target::Port(port) => {
                if !matches!(kind, TableKind::Fdb | TableKind::EgressAcl) {
                    return Err(Refusal::Destination { kind: "vport", table: kind });
                }
                self.check_port(port)
            }
            Target::Tir(id) => {
                if kind != TableKind::NicReceive {
                    return Err(Refusal::Destination { kind: "TIR", table: kind });
                }
                self.tirs.get(&id).map(|_| ()).ok_or(Refusal::Unknown { what: "TIR", id })
            }
            Target::Table(id) => {
                let to = self.tables.named_by(uid, id)?;
                if to.domain.kind != kind {
                    return Err(Refusal::CrossKind { table: id, is: to.domain.kind, from: kind });
                }
                // Software orders its own tables itself, and gives them all the highest level.
                if to.level <= table.level && !entry.ignore_level && to.software.is_none() {
                    return Err(Refusal::Level { table: id, from: table.level, to: to.level });
                }
                Ok(())
            }
            Target::Sampler(id) => {
                let is = self.sampler_kind(uid, id)?;
                if is != Some(kind) {
                    return Err(Refusal::Destination { kind: "sampler of other tables", table: kind });
                }
                Ok(())
            }
        }
    }

    fn hold_all(&mut self, entry: &Entry) {
        entry.counters.iter().for_each(|id| self.counters.hold(*id));
        entry.rewrite.iter().for_each(|id| self.rewrites.hold(*id));
        entry.meters.iter().for_each(|metered| self.meter_objects.hold(metered.object));
        entry.reformats().for_each(|id| self.reformats.hold(id));
        for destination in entry.destinations() {
            match destination.target {
                Target::Table(id) => self.tables.hold(id),
                Target::Tir(id) => *self.tirs.entry(id).or_default() += 1,
                Target::Sampler(id) => self.samplers.hold(id),
                Target::Port(_) => {}
            }
        }
    }

    fn release_all(&mut self, entry: &Entry) {
        entry.counters.iter().for_each(|id| self.counters.release(*id));
        entry.rewrite.iter().for_each(|id| self.rewrites.release(*id));
        entry.meters.iter().for_each(|metered| self.meter_objects.release(metered.object));
        entry.reformats().for_each(|id| self.reformats.release(id));
        for destination in entry.destinations() {
            match destination.target {
                Target::Table(id) => self.tables.release(id),
                Target::Tir(id) => {
                    if let Some(uses) = self.tirs.get_mut(&id) {
                        *uses = uses.saturating_sub(1);
                    }
                }
                Target::Sampler(id) => self.samplers.release(id),
                Target::Port(_) => {}
            }
        }
    }
}

impl Entry {
    /// Reads a flow context with its lists, and checks what needs no other object.
    fn decode(index: u32, ignore_level: bool, mut bytes: Vec<u8>) -> Result<Self, Refusal> {
        let actions = context::ACTION.u16(&bytes);
        let has = |bit: u16| actions & bit != 0;
        if actions & !action::ALL != 0 {
            return Err(Refusal::ActionBits(actions & !action::ALL));
        }
        let lists = Lists::read(&mut bytes)?;
        let verdict = match (has(action::ALLOW), has(action::DROP), has(action::FORWARD)) {
            (true, false, false) => Verdict::Allow,
            (false, true, false) => Verdict::Drop,
            (false, false, true) => Verdict::Forward(lists.destinations),
            _ => return Err(Refusal::Verdict(actions)),
        };
        let incomplete = |action, problem| Err(Refusal::Incomplete { action, problem });
        match &verdict {
            Verdict::Forward(destinations) if destinations.is_empty() => {
                return incomplete("forward", "has no destination");
            }
            Verdict::Allow | Verdict::Drop if context::DESTINATIONS.is_set(&bytes) => {
                return incomplete("allow or drop", "has destinations");
            }
            _ => {}
        }
        match (has(action::COUNT), lists.counters.is_empty()) {
            (true, true) => return incomplete("count", "has no counter"),
            (false, false) => return incomplete("count", "is not set, and there are counters"),
            _ => {}
        }
        if has(action::PUSH_VLAN_2) && !has(action::PUSH_VLAN) || has(action::POP_VLAN_2) && !has(action::POP_VLAN) {
            return incomplete("second VLAN tag", "comes without the first");
        }
        let source = match context::FLOW_SOURCE.u8(&bytes) {
            0 => FlowSource::Any,
            1 => FlowSource::Wire,
            2 => FlowSource::Vports,
            value => {
                return Err(Refusal::Value {
                    what: "flow_source",
                    value: value.into(),
                    problem: "is not one that the PRM knows",
                });
            }
        };
        let tag = |field: crate::steering::bits::Bits| {
            let [a, b, c, d] = field.u32(&bytes).to_be_bytes();
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        };
        let pushes = [(action::PUSH_VLAN, context::PUSH_VLAN), (action::PUSH_VLAN_2, context::PUSH_VLAN_2)];
        Ok(Self {
            index,
            ignore_level,
            source,
            tag: context::FLOW_TAG.u32(&bytes),
            counters: lists.counters,
            decap: has(action::DECAP),
            pops: usize::from(has(action::POP_VLAN)) + usize::from(has(action::POP_VLAN_2)),
            pushes: pushes.into_iter().filter(|(bit, _)| has(*bit)).map(|(_, field)| tag(field)).collect(),
            rewrite: has(action::MODIFY_HEADER).then(|| context::MODIFY_HEADER_ID.u32(&bytes)),
            reformat: has(action::REFORMAT)
                .then(|| context::REFORMAT_ID.u32(&bytes))
                .filter(|_| !context::EXTENDED_DESTINATION.is_set(&bytes)),
            meters: meters(has(action::EXECUTE_ASO), &bytes)?,
            verdict,
            context: bytes,
        })
    }
}

/// The meters that an entry has color its packets; of other ASO objects there are none here.
fn meters(executes: bool, context: &[u8]) -> Result<Vec<Metered>, Refusal> {
    const FLOW_METER: u32 = 2;
    let elements = context[context::ASO..].chunks(context::ASO_ELEMENT).take(context::ASO_ELEMENTS);
    let meters = elements.filter(|element| context::ASO_VALID.is_set(element)).map(|element| {
        let kind = context::ASO_TYPE.u32(element);
        if kind != FLOW_METER {
            return Err(Refusal::NotModelled { what: "aso_type", value: kind });
        }
        if context::ASO_ACTION.is_set(element) {
            return Err(Refusal::NotModelled { what: "action of an ASO", value: 1 });
        }
        let initial = context::ASO_INITIAL_COLOR.u32(element);
        if !Color::begins(initial) {
            return Err(Refusal::NotModelled { what: "init_color", value: initial });
        }
        let register = context::ASO_RETURN_REGISTER.u8(element);
        check_register(register)?;
        Ok(Metered {
            object: context::ASO_OBJECT.u32(element),
            meter: usize::from(context::ASO_METER.u8(element)),
            register: register.into(),
        })
    });
    let meters = meters.collect::<Result<Vec<_>, _>>()?;
    match (executes, meters.is_empty()) {
        (true, true) => Err(Refusal::Incomplete { action: "execute ASO", problem: "has no object" }),
        (false, false) => {
            Err(Refusal::Incomplete { action: "execute ASO", problem: "is not set, and there are objects" })
        }
        _ => Ok(meters),
    }
}

/// The lists at the end of a flow context.
struct Lists {
    destinations: Vec<Destination>,
    counters: Vec<u32>,
}

impl Lists {
    /// Reads them, and cuts off what follows.
    fn read(bytes: &mut Vec<u8>) -> Result<Self, Refusal> {
        let element = element(bytes);
        let end = list_end(bytes, context::DESTINATIONS.u32(bytes)).max(context::LIST);
        let whole = end + list_end(bytes, context::COUNTERS.u32(bytes)) - context::LIST;
        needs(bytes, whole)?;
        bytes.truncate(whole);
        let extended = element == context::EXTENDED_ELEMENT;
        let destinations = bytes[context::LIST..end]
            .chunks(element)
            .map(|element| destination(element, extended))
            .collect::<Result<_, _>>()?;
        let counters = bytes[end..].chunks(element).map(|element| context::COUNTER_ID.u32(element)).collect();
        Ok(Self { destinations, counters })
    }
}

fn element(context: &[u8]) -> usize {
    if context::EXTENDED_DESTINATION.is_set(context) { context::EXTENDED_ELEMENT } else { context::ELEMENT }
}

/// Where a list of this many elements ends if it begins at the lists' place.
fn list_end(context: &[u8], elements: u32) -> usize {
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    context::LIST.saturating_add(elements.saturating_mul(element(context)))
}

fn destination(element: &[u8], extended: bool) -> Result<Destination, Refusal> {
    let id = context::DESTINATION_ID.u32(element);
    let vport = context::DESTINATION_ID.u16(element);
    let target = match context::DESTINATION_TYPE.u8(element) {
        0 if u32::from(vport) == id => Target::Port(Port::of_vport(vport)),
        0 => return Err(Refusal::Unknown { what: "vport", id }),
        1 => Target::Table(id),
        2 => Target::Tir(id),
        6 => Target::Sampler(id),
        8 => Target::Port(Port::Wire),
        kind => return Err(Refusal::NotModelled { what: "destination type", value: kind.into() }),
    };
    let encaps = extended && context::DESTINATION_REFORMAT.is_set(element);
    Ok(Destination {
        target,
        owner: context::DESTINATION_OWNER_VALID.is_set(element).then(|| context::DESTINATION_OWNER.u16(element)),
        reformat: encaps.then(|| context::DESTINATION_REFORMAT_ID.u32(element)),
    })
}

/// The old context with those parts of the new one that the mask names. The match stays.
fn modified(old: &[u8], new: &[u8], mask: u8) -> Result<Vec<u8>, Refusal> {
    if mask & !modify::ALL != 0 {
        return Err(Refusal::NotModelled { what: "modify_enable_mask", value: mask.into() });
    }
    let takes = |bit: u8| mask & bit != 0;
    let from = |bit: u8| if takes(bit) { new } else { old };
    let (destinations, counters) = (from(modify::DESTINATIONS), from(modify::COUNTERS));
    if element(destinations) != element(counters) {
        let problem = "changes in one of the two lists of an entry only";
        return Err(Refusal::Incomplete { action: "extended_destination", problem });
    }
    let mut merged = old.get(..context::MATCH_VALUE + MATCH_BYTES).unwrap_or(old).to_vec();
    merged.resize(context::LIST, 0);
    let mut take = |field: crate::steering::bits::Bits, source: &[u8]| field.put(&mut merged, field.u32(source));
    for field in [
        context::ACTION,
        context::PUSH_VLAN,
        context::PUSH_VLAN_2,
        context::REFORMAT_ID,
        context::MODIFY_HEADER_ID,
        context::FLOW_SOURCE,
    ] {
        take(field, from(modify::ACTION));
    }
    for word in 0..context::ASO_ELEMENTS * context::ASO_ELEMENT / 4 {
        take(crate::steering::bits::Bits::new(0, 32).after(context::ASO + word * 4), from(modify::ACTION));
    }
    take(context::FLOW_TAG, from(modify::FLOW_TAG));
    take(context::EXTENDED_DESTINATION, destinations);
    take(context::DESTINATIONS, destinations);
    take(context::COUNTERS, counters);
    let list = |source: &[u8], from: usize, to: usize| -> Result<Vec<u8>, Refusal> {
        needs(source, to)?;
        Ok(source[from..to].to_vec())
    };
    let destinations_end = list_end(destinations, context::DESTINATIONS.u32(destinations));
    let counters_start = list_end(counters, context::DESTINATIONS.u32(counters));
    let counters_end =
        counters_start.saturating_add(list_end(counters, context::COUNTERS.u32(counters)) - context::LIST);
    merged.extend(list(destinations, context::LIST, destinations_end)?);
    merged.extend(list(counters, counters_start, counters_end)?);
    Ok(merged)
}
