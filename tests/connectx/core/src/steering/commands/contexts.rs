//! What entries do to packets, kept apart from them: contexts of modify-header and of packet reformat.

use crate::steering::domain::TableKind;
use crate::steering::failure::Refusal;
use crate::steering::format::Format;
use crate::steering::layout::{self, bytes, rewrite as list};
use crate::steering::mailbox::{answer, answer_with_id, needs};
use crate::steering::reformat::{Anchor, Reformat, ReformatKind};
use crate::steering::rewrite::{Action, GTPU_ENDPOINT, Rewrite};
use crate::steering::state::Steering;

/// Values of reformat_type.
mod kind {
    pub(super) const L2_TO_VXLAN: u8 = 0x0;
    pub(super) const L2_TO_NVGRE: u8 = 0x1;
    pub(super) const L2_TO_L2_TUNNEL: u8 = 0x2;
    pub(super) const L3_TUNNEL_TO_L2: u8 = 0x3;
    pub(super) const L2_TO_L3_TUNNEL: u8 = 0x4;
    pub(super) const INSERT_HEADER: u8 = 0xf;
    pub(super) const REMOVE_HEADER: u8 = 0x10;
}

impl Steering {
    pub(super) fn alloc_packet_reformat_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::REFORMAT_DATA)?;
        let size = usize::from(layout::REFORMAT_SIZE.u16(input));
        let offset = layout::REFORMAT_OFFSET.u8(input);
        let number = layout::REFORMAT_TYPE.u8(input);
        let takes_data = number != kind::REMOVE_HEADER;
        if takes_data && size == 0 {
            return Err(Refusal::Value { what: "reformat_data_size", value: 0, problem: "leaves nothing to put in" });
        }
        let max = self.profile.max_encap_header_size;
        if size > max {
            return Err(Refusal::Limit { what: "reformat_data_size", value: size, limit: max });
        }
        let kind = match number {
            kind::L2_TO_VXLAN | kind::L2_TO_NVGRE | kind::L2_TO_L2_TUNNEL => ReformatKind::L2ToTunnel,
            kind::L3_TUNNEL_TO_L2 => ReformatKind::L3TunnelToL2,
            kind::L2_TO_L3_TUNNEL => ReformatKind::L2ToL3Tunnel,
            kind::INSERT_HEADER => ReformatKind::InsertHeader { anchor: anchor(input)?, offset },
            kind::REMOVE_HEADER => ReformatKind::RemoveHeader { anchor: anchor(input)?, offset, size },
            value => return Err(Refusal::NotModelled { what: "reformat_type", value: value.into() }),
        };
        let data = if takes_data {
            needs(input, bytes::REFORMAT_DATA + size)?;
            input[bytes::REFORMAT_DATA..bytes::REFORMAT_DATA + size].to_vec()
        } else {
            Vec::new()
        };
        Ok(answer_with_id(self.reformats.add(uid, Reformat { kind, data })?))
    }

    pub(super) fn dealloc_packet_reformat_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.reformats.remove(uid, layout::IN_ID.u32(input))?;
        Ok(answer(layout::SHORT_OUTPUT))
    }

    pub(super) fn alloc_modify_header_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        needs(input, bytes::REWRITE_LIST)?;
        let number = layout::REWRITE_TABLE_TYPE.u8(input);
        let kind = TableKind::from_prm(number).ok_or(Refusal::Kind(number))?;
        let number = usize::from(layout::REWRITE_ACTIONS.u8(input));
        let limit = self.profile.max_modify_header_actions;
        if number == 0 || number > limit {
            return Err(Refusal::Limit { what: "num_of_actions", value: number, limit });
        }
        let end = bytes::REWRITE_LIST + number * list::ELEMENT;
        needs(input, end)?;
        let actions = input[bytes::REWRITE_LIST..end]
            .chunks(list::ELEMENT)
            .enumerate()
            .map(|(number, bytes)| {
                let action = Action::decode(bytes).and_then(|action| self.has_fields_of(action));
                action.map_err(|problem| Refusal::Rewrite { number, problem })
            })
            .collect::<Result<_, _>>()?;
        Ok(answer_with_id(self.rewrites.add(uid, Rewrite { kind, actions })?))
    }

    pub(super) fn dealloc_modify_header_context(&mut self, uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.rewrites.remove(uid, layout::IN_ID.u32(input))?;
        Ok(answer(layout::SHORT_OUTPUT))
    }

    /// An action, if the device rewrites its fields: what the flexible parser finds, only where the capabilities say so.
    fn has_fields_of(&self, action: Action) -> Result<Action, String> {
        let rewrites_samples = self.profile.software_owner && self.profile.steering_format != Format::Zero;
        let (one, other) = match &action {
            Action::Set { field, .. } | Action::Add { field, .. } => (*field, None),
            Action::Copy { from, to, .. } => (*from, Some(*to)),
        };
        if !rewrites_samples && [Some(one), other].into_iter().flatten().any(|field| field.id == GTPU_ENDPOINT) {
            return Err("what the flexible parser finds is not rewritten by this device".to_owned());
        }
        Ok(action)
    }
}

fn anchor(input: &[u8]) -> Result<Anchor, Refusal> {
    match layout::REFORMAT_ANCHOR.u8(input) {
        0x1 => Ok(Anchor::Mac),
        0x7 => Ok(Anchor::Ip),
        0x9 => Ok(Anchor::Transport),
        value => Err(Refusal::NotModelled { what: "reformat anchor", value: value.into() }),
    }
}
