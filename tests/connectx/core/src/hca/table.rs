//! The commands that are modelled, besides those of [`crate::steering`].

use super::state::{Hca, Stage};
use super::{function, general, keys, pairs, queues, rdma, register, resources, vports};
use crate::command::{Answer, Input, layouts as l};
use crate::layout::Layout;

/// A command: what it is called, what it takes, from when on it may come, and what carries it out.
pub(super) struct Command {
    pub(super) opcode: u16,
    pub(super) name: &'static str,
    pub(super) input: &'static Layout,
    pub(super) from: Stage,
    pub(super) run: fn(&mut Hca, &Input<'_>) -> Answer,
}

pub(super) fn find(opcode: u16) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.opcode == opcode)
}

/// A command's name for people, also of those that are not modelled here.
pub fn name(opcode: u16) -> String {
    find(opcode).map_or_else(|| format!("command {opcode:#x}"), |command| command.name.to_owned())
}

macro_rules! commands {
    ($($opcode:literal $name:ident $input:ident $from:ident $($run:ident)::+),* $(,)?) => {
        &[$(Command {
            opcode: $opcode,
            name: stringify!($name),
            input: &l::$input::LAYOUT,
            from: Stage::$from,
            run: $($run)::+,
        }),*]
    };
}

pub(super) const COMMANDS: &[Command] = commands![
    0x100 QUERY_HCA_CAP query_hca_cap Enabled function::query_hca_cap,
    0x101 QUERY_ADAPTER plain Initialized function::query_adapter,
    0x102 INIT_HCA init_hca Enabled function::init_hca,
    0x103 TEARDOWN_HCA teardown_hca Enabled function::teardown_hca,
    0x104 ENABLE_HCA function Down function::enable_hca,
    0x105 DISABLE_HCA function Enabled function::disable_hca,
    0x107 QUERY_PAGES function Enabled function::query_pages,
    0x108 MANAGE_PAGES manage_pages Enabled function::manage_pages,
    0x109 SET_HCA_CAP set_hca_cap Enabled function::set_hca_cap,
    0x10a QUERY_ISSI plain Enabled function::query_issi,
    0x10b SET_ISSI set_issi Enabled function::set_issi,
    0x200 CREATE_MKEY create_mkey Initialized keys::create_mkey,
    0x202 DESTROY_MKEY object Initialized keys::destroy_mkey,
    0x203 QUERY_SPECIAL_CONTEXTS plain Initialized resources::query_special_contexts,
    0x301 CREATE_EQ create_eq Initialized queues::create_eq,
    0x302 DESTROY_EQ small_object Initialized queues::destroy_eq,
    0x303 QUERY_EQ small_object Initialized queues::query_eq,
    0x400 CREATE_CQ create_cq Initialized queues::create_cq,
    0x401 DESTROY_CQ object Initialized queues::destroy_cq,
    0x403 MODIFY_CQ modify_cq Initialized queues::modify_cq,
    0x500 CREATE_QP create_qp Initialized pairs::create_qp,
    0x501 DESTROY_QP object Initialized pairs::destroy_qp,
    0x502 RST2INIT_QP rst2init_qp Initialized pairs::rst2init_qp,
    0x503 INIT2RTR_QP init2rtr_qp Initialized pairs::init2rtr_qp,
    0x504 RTR2RTS_QP rtr2rts_qp Initialized pairs::rtr2rts_qp,
    0x507 TO_ERR_QP object Initialized pairs::fail_qp,
    0x50a TO_RST_QP object Initialized pairs::reset_qp,
    0x50b QUERY_QP object Initialized pairs::query_qp,
    0x705 CREATE_XRC_SRQ create_xrc_srq Initialized rdma::create_xrc_srq,
    0x706 DESTROY_XRC_SRQ object Initialized rdma::destroy_xrc_srq,
    0x740 QUERY_ESW_FUNCTIONS plain Initialized vports::query_esw_functions,
    0x750 QUERY_VPORT_STATE vport Initialized vports::query_vport_state,
    0x751 MODIFY_VPORT_STATE modify_vport_state Initialized vports::modify_vport_state,
    0x752 QUERY_ESW_VPORT_CONTEXT vport Initialized vports::query_esw_vport_context,
    0x753 MODIFY_ESW_VPORT_CONTEXT modify_esw_vport_context Initialized vports::modify_esw_vport_context,
    0x754 QUERY_NIC_VPORT_CONTEXT query_nic_vport_context Initialized vports::query_nic_vport_context,
    0x755 MODIFY_NIC_VPORT_CONTEXT modify_nic_vport_context Initialized vports::modify_nic_vport_context,
    0x761 SET_ROCE_ADDRESS set_roce_address Initialized rdma::set_roce_address,
    0x765 QUERY_HCA_VPORT_PKEY query_hca_vport_pkey Initialized rdma::query_hca_vport_pkey,
    0x770 QUERY_VPORT_COUNTER query_vport_counter Initialized vports::query_vport_counter,
    0x771 ALLOC_Q_COUNTER plain Initialized resources::alloc_q_counter,
    0x772 DEALLOC_Q_COUNTER small_object Initialized resources::dealloc_q_counter,
    0x773 QUERY_Q_COUNTER query_q_counter Initialized resources::query_q_counter,
    0x800 ALLOC_PD plain Initialized resources::alloc_pd,
    0x801 DEALLOC_PD object Initialized resources::dealloc_pd,
    0x802 ALLOC_UAR plain Initialized resources::alloc_uar,
    0x803 DEALLOC_UAR object Initialized resources::dealloc_uar,
    0x805 ACCESS_REG access_register Enabled register::access,
    0x80e ALLOC_XRCD plain Initialized rdma::alloc_xrcd,
    0x80f DEALLOC_XRCD object Initialized rdma::dealloc_xrcd,
    0x816 ALLOC_TRANSPORT_DOMAIN plain Initialized resources::alloc_transport_domain,
    0x817 DEALLOC_TRANSPORT_DOMAIN object Initialized resources::dealloc_transport_domain,
    0x829 SET_L2_TABLE_ENTRY set_l2_table_entry Initialized vports::set_l2_table_entry,
    0x82b DELETE_L2_TABLE_ENTRY l2_table_entry Initialized vports::delete_l2_table_entry,
    0x900 CREATE_TIR create_tir Initialized resources::create_tir,
    0x901 MODIFY_TIR modify_tir Initialized resources::modify_tir,
    0x902 DESTROY_TIR object Initialized resources::destroy_tir,
    0x904 CREATE_SQ create_sq Initialized queues::create_sq,
    0x905 MODIFY_SQ modify_sq Initialized queues::modify_sq,
    0x906 DESTROY_SQ object Initialized queues::destroy_sq,
    0x907 QUERY_SQ object Initialized queues::query_sq,
    0x908 CREATE_RQ create_rq Initialized queues::create_rq,
    0x909 MODIFY_RQ modify_rq Initialized queues::modify_rq,
    0x90a DESTROY_RQ object Initialized queues::destroy_rq,
    0x90b QUERY_RQ object Initialized queues::query_rq,
    0x90c CREATE_RMP create_rmp Initialized rdma::create_rmp,
    0x90e DESTROY_RMP object Initialized rdma::destroy_rmp,
    0x912 CREATE_TIS create_tis Initialized resources::create_tis,
    0x914 DESTROY_TIS object Initialized resources::destroy_tis,
    0x916 CREATE_RQT create_rqt Initialized resources::create_rqt,
    0x917 MODIFY_RQT modify_rqt Initialized resources::modify_rqt,
    0x918 DESTROY_RQT object Initialized resources::destroy_rqt,
    0xa00 CREATE_GENERAL_OBJECT general_object Initialized general::create,
    0xa01 MODIFY_GENERAL_OBJECT general_object Initialized general::modify,
    0xa02 QUERY_GENERAL_OBJECT general_object Initialized general::query,
    0xa03 DESTROY_GENERAL_OBJECT general_object Initialized general::destroy,
    0xa04 CREATE_UCTX create_user_context Initialized resources::create_user_context,
    0xa06 DESTROY_UCTX destroy_user_context Initialized resources::destroy_user_context,
    0xa08 CREATE_UMEM create_umem Initialized keys::create_umem,
    0xa0a DESTROY_UMEM object Initialized keys::destroy_umem,
    0xb00 SYNC_STEERING plain Initialized resources::sync_steering,
];
