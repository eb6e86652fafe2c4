//! The PRM commands that build flow tables, and what stands beside them.

mod contexts;
mod counters;
mod entries;
mod meters;
mod samplers;
mod tables;

use crate::steering::failure::{Failure, Refusal};
use crate::steering::layout;
use crate::steering::layout::opcode;
use crate::steering::mailbox::{answer, needs};
use crate::steering::state::Steering;

impl Steering {
    /// Whether `opcode` is a command for [`Self::command`].
    pub fn handles(opcode: u16) -> bool {
        matches!(
            opcode,
            opcode::ADD_VXLAN_UDP_DPORT..=opcode::DELETE_VXLAN_UDP_DPORT
                // Up to QUERY_MODIFY_HEADER_CONTEXT.
                | opcode::SET_FLOW_TABLE_ROOT..=0x942
        )
    }

    /// Carries out one command. `input` is the whole input mailbox from the opcode on; the answer is the whole output
    /// mailbox, with status and syndrome zero. `uid` is the DevX user context, 0 for the kernel's own commands: a user context
    /// does not see objects of others.
    pub fn command(&mut self, opcode: u16, uid: u16, input: &[u8]) -> Result<Vec<u8>, Failure> {
        let carry_out = match opcode {
            opcode::ADD_VXLAN_UDP_DPORT => Self::add_vxlan_port,
            opcode::DELETE_VXLAN_UDP_DPORT => Self::delete_vxlan_port,
            opcode::SET_FLOW_TABLE_ROOT => Self::set_flow_table_root,
            opcode::CREATE_FLOW_TABLE => Self::create_flow_table,
            opcode::DESTROY_FLOW_TABLE => Self::destroy_flow_table,
            opcode::QUERY_FLOW_TABLE => Self::query_flow_table,
            opcode::MODIFY_FLOW_TABLE => Self::modify_flow_table,
            opcode::CREATE_FLOW_GROUP => Self::create_flow_group,
            opcode::DESTROY_FLOW_GROUP => Self::destroy_flow_group,
            opcode::QUERY_FLOW_GROUP => Self::query_flow_group,
            opcode::SET_FLOW_TABLE_ENTRY => Self::set_flow_table_entry,
            opcode::QUERY_FLOW_TABLE_ENTRY => Self::query_flow_table_entry,
            opcode::DELETE_FLOW_TABLE_ENTRY => Self::delete_flow_table_entry,
            opcode::ALLOC_FLOW_COUNTER => Self::alloc_flow_counter,
            opcode::DEALLOC_FLOW_COUNTER => Self::dealloc_flow_counter,
            opcode::QUERY_FLOW_COUNTER => Self::query_flow_counter,
            opcode::ALLOC_PACKET_REFORMAT_CONTEXT => Self::alloc_packet_reformat_context,
            opcode::DEALLOC_PACKET_REFORMAT_CONTEXT => Self::dealloc_packet_reformat_context,
            opcode::ALLOC_MODIFY_HEADER_CONTEXT => Self::alloc_modify_header_context,
            opcode::DEALLOC_MODIFY_HEADER_CONTEXT => Self::dealloc_modify_header_context,
            _ => return Err(Refusal::Opcode(opcode).into()),
        };
        needs(input, layout::SHORT_OUTPUT)?;
        Ok(carry_out(self, uid, input)?)
    }

    fn add_vxlan_port(&mut self, _uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        let port = layout::VXLAN_UDP_PORT.u16(input);
        if !self.tunnels.vxlan.contains(&port) {
            self.tunnels.vxlan.push(port);
        }
        Ok(answer(layout::SHORT_OUTPUT))
    }

    fn delete_vxlan_port(&mut self, _uid: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        let port = layout::VXLAN_UDP_PORT.u16(input);
        if !self.tunnels.vxlan.contains(&port) {
            return Err(Refusal::Unknown { what: "VXLAN port", id: port.into() });
        }
        self.tunnels.vxlan.retain(|known| *known != port);
        Ok(answer(layout::SHORT_OUTPUT))
    }
}
