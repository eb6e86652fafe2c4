//! Ports of the switch: what the commands know of them, and what went through them.

use super::state::Hca;
use super::vport::{ByKind, Counters, SYSTEM_IMAGE_GUID, UP, Vport, Way};
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, modifier, require};
use crate::layout::{Field, layouts};
use crate::memory::Memory;
use crate::profile::VPORT_UPLINK;
use crate::steering::address::{Side, Terminal};
use crate::steering::{Port, vhca_id};

impl Hca {
    /// Virtual functions that the host has.
    #[must_use]
    pub fn host_vfs(&self) -> u16 {
        self.host_vfs
    }

    /// Sets how many virtual functions the host has, at most as many as there can be, and tells the driver.
    pub fn set_host_vfs(&mut self, memory: &dyn Memory, number: u16) {
        const FUNCTIONS_CHANGED: u8 = 0x0e;
        self.host_vfs = number.min(self.profile.host_total_vfs);
        self.raise(memory, FUNCTIONS_CHANGED, [0; 28]);
    }

    /// Counts a packet at a port. A port that the profile does not have counts nothing.
    pub(crate) fn count(&mut self, port: Port, frame: &[u8], way: Way) {
        const UNICAST: usize = 0;
        const MULTICAST: usize = 1;
        const BROADCAST: usize = 2;
        let number = match port {
            Port::Wire => VPORT_UPLINK,
            Port::Vport(number) => number,
        };
        let Some(vport) = self.vports.get_mut(&number) else { return };
        let kind = match frame.get(..6) {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => BROADCAST,
            Some([first, ..]) if first & 1 == 1 => MULTICAST,
            _ => UNICAST,
        };
        // A vport has transmitted what comes in from it.
        let counter = match way {
            Way::In => &mut vport.counters.transmitted[kind],
            Way::Out => &mut vport.counters.received[kind],
        };
        counter.0 += 1;
        counter.1 += frame.len() as u64;
    }

    /// The vport that a command is on.
    fn vport(&mut self, other: bool, number: u16) -> Result<&mut Vport, Failure> {
        let profile = self.profile;
        let number = if other { number } else { profile.own_vport() };
        let manager = !other || profile.eswitch_manager;
        require(manager, Status::BadParameter, 0x0201, "the function does not manage the switch")?;
        let missing = || Failure::new(Status::BadParameter, 0x0202, format!("there is no vport {number:#x}"));
        self.vports.get_mut(&number).ok_or_else(missing)
    }
}

/// Packets and bytes of the physical port: received from the wire, sent to it.
pub(crate) fn port_counters(hca: &Hca) -> (ByKind, ByKind) {
    let counters = hca.vports.get(&VPORT_UPLINK).map(|vport| vport.counters).unwrap_or_default();
    (counters.transmitted, counters.received)
}

pub(crate) fn query_esw_functions(hca: &mut Hca, _: &Input<'_>) -> Answer {
    require(hca.profile.embedded_cpu, Status::BadOperation, 0x0203, "only an embedded CPU has host functions")?;
    Ok(Output::new(&l::query_esw_functions_out::LAYOUT)
        .set(l::query_esw_functions_out::HOST_NUM_OF_VFS, hca.host_vfs)
        .set(l::query_esw_functions_out::HOST_TOTAL_VFS, hca.profile.host_total_vfs)
        .set(l::query_esw_functions_out::HOST_PF_VHCA_ID_VALID, true)
        .set(l::query_esw_functions_out::HOST_PF_VHCA_ID, vhca_id(0)))
}

pub(crate) fn query_vport_state(hca: &mut Hca, input: &Input<'_>) -> Answer {
    const UPLINK: u16 = 2;
    let wire_up = hca.port.is_up();
    let vport = if input.op_mod() == UPLINK {
        hca.vport(true, VPORT_UPLINK)?
    } else {
        require(input.op_mod() < UPLINK, Status::BadOperation, 0x0204, "there are two kinds of vports and the uplink")?;
        hca.vport(input.is_set(l::vport::OTHER_VPORT), input.get_u16(l::vport::VPORT_NUMBER))?
    };
    const FOLLOW: u8 = 2;
    let up = vport.admin_state == UP && input.op_mod() != UPLINK
        || vport.admin_state == FOLLOW && wire_up
        || input.op_mod() == UPLINK && vport.admin_state != 0 && wire_up;
    Ok(Output::new(&l::query_vport_state_out::LAYOUT)
        .set(l::query_vport_state_out::ADMIN_STATE, vport.admin_state)
        .set(l::query_vport_state_out::STATE, up))
}

pub(crate) fn modify_vport_state(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_vport_state as f;
    const UPLINK: u16 = 2;
    let (other, number) = match input.op_mod() {
        UPLINK => (true, VPORT_UPLINK),
        0 | 1 => (input.is_set(f::OTHER_VPORT), input.get_u16(f::VPORT_NUMBER)),
        op_mod => return Err(modifier(op_mod)),
    };
    let state = input.get(f::ADMIN_STATE).to_be_bytes()[7];
    require(state <= 2, Status::BadParameter, 0x0205, format!("state {state} is neither down, up nor follow"))?;
    hca.vport(other, number)?.admin_state = state;
    Ok(Output::empty())
}

pub(crate) fn query_esw_vport_context(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::query_esw_vport_context_out as out;
    let (profile, other) = (hca.profile, input.is_set(l::vport::OTHER_VPORT));
    let number = input.get_u16(l::vport::VPORT_NUMBER);
    let vport = hca.vport(other, number)?;
    let output = Output::new(&out::LAYOUT)
        .set(out::FDB_TO_VPORT_REG_C, vport.registers.0)
        .set(out::FDB_TO_VPORT_REG_C_ID, vport.registers.1);
    if !profile.software_steering {
        return Ok(output);
    }
    let terminal = Terminal::Vport(if other { number } else { profile.own_vport() });
    Ok(output
        .set(out::ICM_ADDRESS_RX, terminal.address(Side::Receive))
        .set(out::ICM_ADDRESS_TX, terminal.address(Side::Transmit)))
}

pub(crate) fn modify_esw_vport_context(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_esw_vport_context as f;
    let tags = [f::SELECT_CVLAN_INSERT, f::SELECT_SVLAN_INSERT, f::SELECT_CVLAN_STRIP, f::SELECT_SVLAN_STRIP];
    let tagging = tags.into_iter().any(|field| input.is_set(field));
    require(!tagging, Status::BadParameter, 0x0206, "tags by vport are not modelled, as the capabilities say")?;
    let vport = hca.vport(input.is_set(f::OTHER_VPORT), input.get_u16(f::VPORT_NUMBER))?;
    if input.is_set(f::SELECT_FDB_TO_VPORT_REG_C_ID) {
        let ids = input.get(f::FDB_TO_VPORT_REG_C_ID).to_be_bytes()[7];
        require(
            ids & !0x3 == 0,
            Status::BadParameter,
            0x0207,
            format!("of registers {ids:#x} only 0 and 1 reach a vport"),
        )?;
        let registers = (input.is_set(f::FDB_TO_VPORT_REG_C), ids);
        vport.registers = registers;
        let own = !input.is_set(f::OTHER_VPORT) || input.get_u16(f::VPORT_NUMBER) == hca.profile.own_vport();
        if own {
            // The kernel names the registers and leaves the other bit alone.
            hca.steering.set_fdb_to_vport_registers(ids);
        }
    }
    Ok(Output::empty())
}

pub(crate) fn query_nic_vport_context(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::{query_nic_vport_context as f, query_nic_vport_context_out as out};
    let vport = hca.vport(input.is_set(f::OTHER_VPORT), input.get_u16(f::VPORT_NUMBER))?;
    let list = list_of(vport, input.get(f::ALLOWED_LIST_TYPE))?.clone();
    let mut output = Output::new(&out::LAYOUT)
        .set(out::MIN_WQE_INLINE_MODE, vport.min_inline)
        .set(out::DISABLE_UC_LOCAL_LB, vport.disable_local_loopback.0)
        .set(out::DISABLE_MC_LOCAL_LB, vport.disable_local_loopback.1)
        .set(out::ROCE_EN, vport.roce)
        .set(out::ARM_CHANGE_EVENT, vport.change_event.0)
        .set(out::EVENTS, vport.change_event.1)
        .set(out::MTU, vport.mtu)
        .set(out::SYSTEM_IMAGE_GUID, SYSTEM_IMAGE_GUID)
        .set(out::PORT_GUID, vport.port_guid)
        .set(out::NODE_GUID, vport.node_guid)
        .set(out::PROMISC, vport.promiscuous)
        .set(out::ALLOWED_LIST_TYPE, input.get(f::ALLOWED_LIST_TYPE))
        .set(out::ALLOWED_LIST_SIZE, list.len() as u64)
        .set(out::PERMANENT_ADDRESS, vport.permanent_address);
    for entry in list {
        output = output.append(&entry.to_be_bytes());
    }
    Ok(output)
}

fn list_of(vport: &mut Vport, kind: u64) -> Result<&mut Vec<u64>, Failure> {
    let missing = || Failure::new(Status::BadParameter, 0x0208, format!("there is no list of type {kind}"));
    usize::try_from(kind).ok().and_then(|kind| vport.lists.get_mut(kind)).ok_or_else(missing)
}

pub(crate) fn modify_nic_vport_context(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::modify_nic_vport_context as f;
    let byte = |field: Field| input.get(field).to_be_bytes()[7];
    let has_roce = hca.profile.software_steering;
    let vport = hca.vport(input.is_set(f::OTHER_VPORT), input.get_u16(f::VPORT_NUMBER))?;
    if input.is_set(f::SELECT_ADDRESSES_LIST) {
        let entries = usize::from(input.get_u16(f::ALLOWED_LIST_SIZE));
        let given = input.quadwords();
        require(given.len() >= entries, Status::BadInputLength, 0x0209, "the list is shorter than it says")?;
        *list_of(vport, input.get(f::ALLOWED_LIST_TYPE))? = given[..entries].to_vec();
    }
    if input.is_set(f::SELECT_MTU) {
        vport.mtu = input.get_u16(f::MTU);
    }
    if input.is_set(f::SELECT_PROMISC) {
        vport.promiscuous = byte(f::PROMISC);
    }
    if input.is_set(f::SELECT_PERMANENT_ADDRESS) {
        vport.permanent_address = input.get(f::PERMANENT_ADDRESS);
    }
    if input.is_set(f::SELECT_MIN_INLINE) {
        vport.min_inline = byte(f::MIN_WQE_INLINE_MODE);
    }
    if input.is_set(f::SELECT_CHANGE_EVENT) {
        vport.change_event = (input.is_set(f::ARM_CHANGE_EVENT), byte(f::EVENTS));
    }
    if input.is_set(f::SELECT_DISABLE_UC_LOCAL_LB) {
        vport.disable_local_loopback.0 = input.is_set(f::DISABLE_UC_LOCAL_LB);
    }
    if input.is_set(f::SELECT_DISABLE_MC_LOCAL_LB) {
        vport.disable_local_loopback.1 = input.is_set(f::DISABLE_MC_LOCAL_LB);
    }
    if input.is_set(f::SELECT_ROCE_EN) {
        let wanted = input.is_set(f::ROCE_EN);
        require(!wanted || has_roce, Status::BadParameter, 0x020d, "the device has no RoCE")?;
        vport.roce = wanted;
    }
    if input.is_set(f::SELECT_NODE_GUID) {
        vport.node_guid = input.get(f::NODE_GUID);
    }
    if input.is_set(f::SELECT_PORT_GUID) {
        vport.port_guid = input.get(f::PORT_GUID);
    }
    Ok(Output::empty())
}

layouts! {
    /// Ethernet part of the vport counters: broadcast, unicast, multicast.
    counters_out 0x210 {
        BROADCAST_IN 0x70 [63:0], BROADCAST_IN_OCTETS 0x78 [63:0], BROADCAST_OUT 0x80 [63:0], BROADCAST_OUT_OCTETS 0x88 [63:0],
        UNICAST_IN 0x90 [63:0], UNICAST_IN_OCTETS 0x98 [63:0], UNICAST_OUT 0xa0 [63:0], UNICAST_OUT_OCTETS 0xa8 [63:0],
        MULTICAST_IN 0xb0 [63:0], MULTICAST_IN_OCTETS 0xb8 [63:0], MULTICAST_OUT 0xc0 [63:0], MULTICAST_OUT_OCTETS 0xc8 [63:0],
    }
}

pub(crate) fn query_vport_counter(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use counters_out as out;
    use l::query_vport_counter as f;
    let vport = hca.vport(input.is_set(f::OTHER_VPORT), input.get_u16(f::VPORT_NUMBER))?;
    let [unicast, multicast, broadcast] = vport.counters.received;
    let output = Output::new(&out::LAYOUT)
        .set(out::UNICAST_IN, unicast.0)
        .set(out::UNICAST_IN_OCTETS, unicast.1)
        .set(out::MULTICAST_IN, multicast.0)
        .set(out::MULTICAST_IN_OCTETS, multicast.1)
        .set(out::BROADCAST_IN, broadcast.0)
        .set(out::BROADCAST_IN_OCTETS, broadcast.1);
    let [unicast, multicast, broadcast] = vport.counters.transmitted;
    let output = output
        .set(out::UNICAST_OUT, unicast.0)
        .set(out::UNICAST_OUT_OCTETS, unicast.1)
        .set(out::MULTICAST_OUT, multicast.0)
        .set(out::MULTICAST_OUT_OCTETS, multicast.1)
        .set(out::BROADCAST_OUT, broadcast.0)
        .set(out::BROADCAST_OUT_OCTETS, broadcast.1);
    if input.is_set(f::CLEAR) {
        vport.counters = Counters::default();
    }
    Ok(output)
}

pub(crate) fn set_l2_table_entry(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::set_l2_table_entry as f;
    let index = l2_index(input.get_u32(f::TABLE_INDEX))?;
    require(!input.is_set(f::VLAN_VALID), Status::BadParameter, 0x020a, "entries with a VLAN are not modelled")?;
    hca.l2_table.insert(index, input.get(f::MAC_ADDRESS));
    Ok(Output::empty())
}

pub(crate) fn delete_l2_table_entry(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let index = l2_index(input.get_u32(l::l2_table_entry::TABLE_INDEX))?;
    let was = hca.l2_table.remove(&index);
    require(was.is_some(), Status::BadIndex, 0x020b, format!("entry {index} is empty"))?;
    Ok(Output::empty())
}

fn l2_index(index: u32) -> Result<u32, Failure> {
    const LOG_MAX_L2_TABLE: u32 = 7;
    require(index >> LOG_MAX_L2_TABLE == 0, Status::BadIndex, 0x020c, format!("the table has no entry {index}"))?;
    Ok(index)
}
