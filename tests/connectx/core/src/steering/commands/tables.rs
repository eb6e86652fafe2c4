//! Commands on flow tables and flow groups, and on the roots.

use crate::steering::address::{Side, Terminal};
use crate::steering::domain::{Domain, TableKind};
use crate::steering::failure::Refusal;
use crate::steering::fields;
use crate::steering::format::ENTRY;
use crate::steering::layout::{self, bytes};
use crate::steering::mailbox::{answer, answer_with_id, needs};
use crate::steering::port::Port;
use crate::steering::state::Steering;
use crate::steering::table::{Group, Miss, Roots, Table};

/// Values of table_miss_action.
mod miss_action {
    pub(super) const DEFAULT: u8 = 0;
    pub(super) const FORWARD: u8 = 1;
    /// On to the tables of other packets that the function receives; from those of remote memory accesses only.
    pub(super) const SWITCH_DOMAIN: u8 = 2;
}

impl Steering {
    pub(super) fn create_flow_table(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        no_modifier(input)?;
        let domain = self.domain(input)?;
        let software = self.software_roots(input, domain.kind)?;
        let level = layout::LEVEL.u8(input);
        limit("level", level, self.profile.max_level)?;
        let log_size = layout::LOG_SIZE.u8(input);
        limit("log_size", log_size, self.profile.log_max_table_size)?;
        let miss = self.miss(uid, input, domain.kind, level)?;
        let table = Table {
            domain,
            level,
            log_size,
            reformat: layout::REFORMAT_ENABLED.is_set(input),
            decap: layout::DECAP_ENABLED.is_set(input),
            termination: layout::TERMINATION_TABLE.is_set(input),
            miss,
            software,
            groups: Default::default(),
        };
        let id = self.tables.add(uid, table)?;
        self.hold_miss(miss);
        let mut output = answer_with_id(id);
        if self.profile.software_owner {
            let address = Terminal::Table(id).address(Side::Receive);
            layout::OUT_ADDRESS_39_32.put(&mut output, u32::try_from(address >> 32).unwrap_or(0));
            layout::OUT_ADDRESS_31_0.put(&mut output, u32::try_from(address & 0xffff_ffff).unwrap_or(0));
        }
        Ok(output)
    }

    /// A root may be destroyed: the kernel does so when the last table of a kind goes. Then there is none.
    pub(super) fn destroy_flow_table(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let id = self.named_table(uid, input)?;
        let table = self.tables.seen_by(uid, id)?;
        let left = table.groups.len();
        if left > 0 {
            return Err(Refusal::NotEmpty { table: id, left, what: "groups" });
        }
        let table = self.tables.remove(uid, id)?;
        self.roots.retain(|_, root| *root != Some(id));
        self.release_miss(table.miss);
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn query_flow_table(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let id = self.queried_table(uid, input)?;
        let table = self.tables.seen_by(uid, id)?;
        let mut output = answer(bytes::TABLE_COMMAND);
        layout::REFORMAT_ENABLED.put(&mut output, table.reformat.into());
        layout::DECAP_ENABLED.put(&mut output, table.decap.into());
        layout::TERMINATION_TABLE.put(&mut output, table.termination.into());
        layout::LEVEL.put(&mut output, table.level.into());
        layout::LOG_SIZE.put(&mut output, table.log_size.into());
        if let Miss::Table(miss) = table.miss {
            layout::MISS_ACTION.put(&mut output, miss_action::FORWARD.into());
            layout::MISS_TABLE.put(&mut output, miss);
        }
        // For a table of firmware, where entries of software's lead to it.
        let of_firmware = || {
            let address = |side| Terminal::Table(id).address(side);
            Roots { first: address(Side::Receive), second: address(Side::Transmit) }
        };
        if self.profile.software_owner {
            let roots = table.software.unwrap_or_else(of_firmware);
            layout::SOFTWARE_OWNER.put(&mut output, table.software.is_some().into());
            layout::SOFTWARE_ROOT_0.put_u64(&mut output, roots.first);
            layout::SOFTWARE_ROOT_1.put_u64(&mut output, roots.second);
        }
        Ok(output)
    }

    /// Changes where misses go, which is all that can be changed.
    pub(super) fn modify_flow_table(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        const MISS_TABLE: u16 = 1;
        needs(input, bytes::TABLE_COMMAND)?;
        no_modifier(input)?;
        let id = self.named_table(uid, input)?;
        let select = layout::MODIFY_FIELD_SELECT.u16(input);
        if select != MISS_TABLE {
            return Err(Refusal::NotModelled { what: "modify_field_select", value: select.into() });
        }
        let table = self.tables.seen_by(uid, id)?;
        let miss = self.miss(uid, input, table.domain.kind, table.level)?;
        let old = std::mem::replace(&mut self.tables.seen_by_mut(uid, id)?.miss, miss);
        self.hold_miss(miss);
        self.release_miss(old);
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn set_flow_table_root(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        const SET: u16 = 0;
        const DISCONNECT: u16 = 1;
        needs(input, bytes::TABLE_COMMAND)?;
        let not_modelled = [
            ("underlay_qpn", layout::UNDERLAY_QPN),
            ("table_of_other_vport", layout::TABLE_OF_OTHER_VPORT),
            ("table_eswitch_owner_vhca_id_valid", layout::TABLE_OWNER_VALID),
        ];
        for (what, field) in not_modelled {
            if field.is_set(input) {
                return Err(Refusal::NotModelled { what, value: field.u32(input) });
            }
        }
        match layout::OP_MOD.u16(input) {
            SET => {
                let id = self.named_table(uid, input)?;
                self.roots.insert(self.tables.seen_by(uid, id)?.domain, Some(id));
            }
            DISCONNECT => {
                let domain = self.domain(input)?;
                self.roots.insert(domain, None);
            }
            modifier => return Err(Refusal::Modifier(modifier)),
        }
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn create_flow_group(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::GROUP_COMMAND)?;
        let table_id = self.named_table(uid, input)?;
        for (what, field) in [("group_type", layout::GROUP_TYPE), ("match_definer_id", layout::MATCH_DEFINER)] {
            if field.is_set(input) {
                return Err(Refusal::NotModelled { what, value: field.u32(input) });
            }
        }
        let enable = layout::MATCH_CRITERIA_ENABLE.u8(input);
        if enable >> fields::BLOCKS.len() != 0 {
            return Err(Refusal::Blocks(enable));
        }
        let mask = fields::enabled(&input[bytes::GROUP_CRITERIA..], enable);
        if let Some(bit) = fields::unknown_bit(&mask, self.profile.finds_more) {
            return Err(Refusal::MaskBit(bit));
        }
        let (first, last) = (layout::START_INDEX.u32(input), layout::END_INDEX.u32(input));
        let table = self.tables.seen_by(uid, table_id)?;
        if first > last || u64::from(last) >= table.size() {
            return Err(Refusal::OutsideTable { table: table_id, first, last, size: table.size() });
        }
        if let Some(group) = table.groups.values().find(|group| first <= group.last && group.first <= last) {
            return Err(Refusal::Overlap { group: group.id, first, last });
        }
        let id = self.next_group;
        // 24 bits, and never 0.
        self.next_group = id % 0xff_ffff + 1;
        let group = Group::new(id, first, last, enable, Box::new(mask));
        self.tables.seen_by_mut(uid, table_id)?.groups.insert(first, group);
        Ok(answer_with_id(id))
    }

    pub(super) fn destroy_flow_group(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let table = self.named_table(uid, input)?;
        let table = self.tables.seen_by_mut(uid, table)?;
        let id = layout::GROUP_ID.u32(input);
        let group = table.group(id).ok_or(Refusal::Unknown { what: "flow group", id })?;
        if group.len() > 0 {
            return Err(Refusal::GroupNotEmpty { group: id, left: group.len() });
        }
        let first = group.first;
        table.groups.remove(&first);
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn query_flow_group(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::TABLE_COMMAND)?;
        let table = self.queried_table(uid, input)?;
        let id = layout::GROUP_ID.u32(input);
        let group = self.tables.seen_by(uid, table)?.group(id).ok_or(Refusal::Unknown { what: "flow group", id })?;
        let mut output = answer(bytes::GROUP_COMMAND);
        layout::START_INDEX.put(&mut output, group.first);
        layout::END_INDEX.put(&mut output, group.last);
        layout::MATCH_CRITERIA_ENABLE.put(&mut output, group.enable.into());
        output[bytes::GROUP_CRITERIA..bytes::GROUP_CRITERIA + fields::MATCH_BYTES].copy_from_slice(&group.mask[..]);
        Ok(output)
    }

    /// The table that a command names, if its type and vport are those that the command says.
    pub(super) fn named_table(&self, uid: u16, input: &[u8]) -> Result<u32, Refusal> {
        let said = self.domain(input)?;
        let id = layout::TABLE_ID.u32(input);
        let is = self.tables.seen_by(uid, id)?.domain;
        if is != said {
            return Err(Refusal::OtherDomain { table: id, is: is.to_string(), said: said.to_string() });
        }
        Ok(id)
    }

    /// The same for queries, which do not name a vport.
    pub(super) fn queried_table(&self, uid: u16, input: &[u8]) -> Result<u32, Refusal> {
        let said = kind(input)?;
        let id = layout::TABLE_ID.u32(input);
        let is = self.tables.seen_by(uid, id)?.domain.kind;
        if is != said {
            return Err(Refusal::OtherDomain { table: id, is: is.to_string(), said: said.to_string() });
        }
        Ok(id)
    }

    fn domain(&self, input: &[u8]) -> Result<Domain, Refusal> {
        let kind = kind(input)?;
        let vport =
            if layout::OTHER_VPORT.is_set(input) { layout::VPORT_NUMBER.u16(input) } else { self.profile.manager };
        if kind == TableKind::Fdb {
            return Ok(Domain { kind, vport: 0 });
        }
        self.check_port(Port::of_vport(vport))?;
        Ok(Domain { kind, vport })
    }

    fn miss(&self, uid: u16, input: &[u8], kind: TableKind, level: u8) -> Result<Miss, Refusal> {
        match layout::MISS_ACTION.u8(input) {
            miss_action::DEFAULT => Ok(Miss::Default),
            miss_action::SWITCH_DOMAIN if kind == TableKind::RdmaReceive => Ok(Miss::Default),
            miss_action::FORWARD => {
                let id = layout::MISS_TABLE.u32(input);
                let to = self.tables.seen_by(uid, id)?;
                if to.domain.kind != kind {
                    return Err(Refusal::CrossKind { table: id, is: to.domain.kind, from: kind });
                }
                if to.level <= level {
                    return Err(Refusal::Level { table: id, from: level, to: to.level });
                }
                Ok(Miss::Table(id))
            }
            value => Err(Refusal::NotModelled { what: "table_miss_action", value: value.into() }),
        }
    }

    fn software_roots(&self, input: &[u8], kind: TableKind) -> Result<Option<Roots>, Refusal> {
        if !layout::SOFTWARE_OWNER.is_set(input) {
            return Ok(None);
        }
        let may_own = matches!(kind, TableKind::NicReceive | TableKind::NicTransmit | TableKind::Fdb);
        if !self.profile.software_owner || !may_own {
            return Err(Refusal::NotModelled { what: "sw_owner", value: 1 });
        }
        let roots = Roots { first: layout::SOFTWARE_ROOT_0.u64(input), second: layout::SOFTWARE_ROOT_1.u64(input) };
        let used = if kind == TableKind::Fdb { vec![roots.first, roots.second] } else { vec![roots.first] };
        match used.into_iter().find(|root| !self.icm.holds(*root, ENTRY as u64)) {
            Some(root) => Err(Refusal::Root(root)),
            None => Ok(Some(roots)),
        }
    }

    fn hold_miss(&mut self, miss: Miss) {
        if let Miss::Table(id) = miss {
            self.tables.hold(id);
        }
    }

    fn release_miss(&mut self, miss: Miss) {
        if let Miss::Table(id) = miss {
            self.tables.release(id);
        }
    }
}

fn kind(input: &[u8]) -> Result<TableKind, Refusal> {
    let number = layout::TABLE_TYPE.u8(input);
    TableKind::from_prm(number).ok_or(Refusal::Kind(number))
}

fn no_modifier(input: &[u8]) -> Result<(), Refusal> {
    match layout::OP_MOD.u16(input) {
        0 => Ok(()),
        modifier => Err(Refusal::Modifier(modifier)),
    }
}

fn limit(what: &'static str, value: u8, limit: u8) -> Result<(), Refusal> {
    if value > limit {
        return Err(Refusal::Limit { what, value: value.into(), limit: limit.into() });
    }
    Ok(())
}
