//! Fields of the commands' mailboxes (PRM, chapter "Command Reference"; names and offsets also in `linux/mlx5/mlx5_ifc.h`).
//!
//! What is not here is not modelled: a command that sets such a bit is refused.

use crate::layout::layouts;

layouts! {
    /// What all inputs begin with.
    header 0x8 { OPCODE 0x0 [31:16], UID 0x0 [15:0], OP_MOD 0x4 [15:0] }
    /// What all outputs begin with.
    output 0x10 { STATUS 0x0 [31:24], SYNDROME 0x4 [31:0] }
}

/// Inputs: [`layouts!`] with the header in front.
macro_rules! inputs {
    ($($(#[$meta:meta])* $module:ident $length:literal {
        $($field:ident $offset:literal [$high:literal $(: $low:literal)?]),* $(,)?
    })*) => {
        layouts! { $( $(#[$meta])* $module $length {
            OPCODE 0x0 [31:16], UID 0x0 [15:0], OP_MOD 0x4 [15:0],
            $($field $offset [$high $(: $low)?]),*
        } )* }
    };
}

inputs! {
    /// Nothing but the header.
    plain 0x8 {}
    /// The function that is meant.
    function 0x10 { EMBEDDED_CPU_FUNCTION 0x8 [31], FUNCTION_ID 0x8 [15:0] }
    set_issi 0x10 { CURRENT_ISSI 0x8 [15:0] }
    manage_pages 0x10 { EMBEDDED_CPU_FUNCTION 0x8 [31], FUNCTION_ID 0x8 [15:0], INPUT_NUM_ENTRIES 0xc [31:0] }
    query_hca_cap 0x10 { OTHER_FUNCTION 0x8 [31], FUNCTION_ID 0x8 [15:0] }
    /// Followed by the capabilities.
    set_hca_cap 0x10 { OTHER_FUNCTION 0x8 [31], FUNCTION_ID 0x8 [15:0] }
    init_hca 0x20 { SW_VHCA_ID 0xc [29:16], SW_OWNER_ID_0 0x10 [63:0], SW_OWNER_ID_1 0x18 [63:0] }
    teardown_hca 0x10 { PROFILE 0x8 [15:0] }
    access_register 0x10 { REGISTER_ID 0x8 [15:0], ARGUMENT 0xc [31:0] }
    /// The object that goes, or is asked for.
    object 0x10 { ID 0x8 [23:0] }
    /// As [`object`], of a kind with at most 256 of it.
    small_object 0x10 { ID 0x8 [7:0] }

    create_mkey 0x110 {
        PG_ACCESS 0xc [31], MKEY_UMEM_VALID 0xc [30], FREE 0x10 [30], ACCESS_MODE_4_2 0x10 [28:26],
        RELAXED_ORDERING_WRITE 0x10 [18], UMR_EN 0x10 [15], A 0x10 [14], RW 0x10 [13], RR 0x10 [12], LW 0x10 [11],
        LR 0x10 [10], ACCESS_MODE_1_0 0x10 [9:8], QPN 0x14 [31:8], MKEY_7_0 0x14 [7:0], LENGTH64 0x1c [31], BSF_EN 0x1c [30],
        PD 0x1c [23:0], START_ADDR 0x20 [63:0], LEN 0x28 [63:0], BSF_OCTWORD_SIZE 0x30 [31:0],
        TRANSLATIONS_OCTWORD_SIZE 0x44 [31:0], RELAXED_ORDERING_READ 0x48 [6], LOG_PAGE_SIZE 0x48 [4:0],
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE 0x60 [31:0], MKEY_UMEM_ID 0x64 [31:0], MKEY_UMEM_OFFSET 0x68 [63:0],
    }
    /// Followed by the addresses of pages.
    create_umem 0x30 { ATS 0x20 [31], LOG_PAGE_SIZE 0x20 [4:0], PAGE_OFFSET 0x24 [31:0], NUM_OF_MTT 0x28 [63:0] }
    create_qp 0x110 {
        ECE 0x14 [31:0], ST 0x18 [23:16], ISOLATE_VL_TC 0x18 [13], PM_STATE 0x18 [12:11], LATENCY_SENSITIVE 0x1c [28], PD 0x1c [23:0],
        LOG_RQ_SIZE 0x20 [22:19], LOG_RQ_STRIDE 0x20 [18:16], NO_SQ 0x20 [15], LOG_SQ_SIZE 0x20 [14:11], TS_FORMAT 0x20 [7:6],
        RLKY 0x20 [4], UAR_PAGE 0x24 [23:0], USER_INDEX 0x28 [23:0], LOG_PAGE_SIZE 0x2c [28:24], FRE 0x88 [11],
        CQN_SND 0x94 [23:0], PAGE_OFFSET 0xa8 [11:6], XRCD 0xb0 [23:0], CQN_RCV 0xb4 [23:0], DBR_ADDR 0xb8 [63:0],
        RQ_TYPE 0xc4 [26:24], SRQN_RMPN_XRQN 0xc4 [23:0], DBR_UMEM_VALID 0xe8 [28], DBR_UMEM_ID 0xfc [31:0],
        WQ_UMEM_ID 0x108 [31:0], WQ_UMEM_VALID 0x10c [31],
    }
    rst2init_qp 0x110 {
        QPN 0x8 [23:0], ECE 0x14 [31:0], ST 0x18 [23:16], PM_STATE 0x18 [12:11], PD 0x1c [23:0], MTU 0x20 [31:29],
        LOG_MSG_MAX 0x20 [28:24], RLKY 0x20 [4], COUNTER_SET_ID 0x24 [31:24], PKEY_INDEX 0x30 [15:0],
        VHCA_PORT_NUM 0x54 [23:16], LOG_ACK_REQ_FREQ 0x88 [31:28], CQN_SND 0x94 [23:0], RRE 0xa8 [15], RWE 0xa8 [14],
        CQN_RCV 0xb4 [23:0],
    }
    init2rtr_qp 0x110 {
        QPN 0x8 [23:0], ECE 0x14 [31:0], ST 0x18 [23:16], PM_STATE 0x18 [12:11], PD 0x1c [23:0], MTU 0x20 [31:29],
        LOG_MSG_MAX 0x20 [28:24], REMOTE_QPN 0x2c [23:0], FL 0x30 [31], PKEY_INDEX 0x30 [15:0], GRH 0x34 [23],
        SRC_ADDR_INDEX 0x38 [23:16], HOP_LIMIT 0x38 [7:0], TCLASS 0x3c [27:20], FLOW_LABEL 0x3c [19:0],
        RGID_0 0x40 [63:0], RGID_1 0x48 [63:0], UDP_SPORT 0x50 [15:0], SL 0x54 [27:24], VHCA_PORT_NUM 0x54 [23:16],
        RMAC_47_32 0x54 [15:0], RMAC_31_0 0x58 [31:0], LOG_ACK_REQ_FREQ 0x88 [31:28], CQN_SND 0x94 [23:0],
        LOG_RRA_MAX 0xa8 [23:21], MIN_RNR_NAK 0xac [28:24], NEXT_RCV_PSN 0xac [23:0], CQN_RCV 0xb4 [23:0],
    }
    rtr2rts_qp 0x110 {
        QPN 0x8 [23:0], ECE 0x14 [31:0], ST 0x18 [23:16], PM_STATE 0x18 [12:11], PD 0x1c [23:0], MTU 0x20 [31:29],
        LOG_MSG_MAX 0x20 [28:24], ACK_TIMEOUT 0x38 [31:27], LOG_ACK_REQ_FREQ 0x88 [31:28], LOG_SRA_MAX 0x88 [23:21],
        RETRY_COUNT 0x88 [18:16], RNR_RETRY 0x88 [15:13], NEXT_SEND_PSN 0x90 [23:0], CQN_SND 0x94 [23:0],
        CQN_RCV 0xb4 [23:0],
    }
    /// Followed by the addresses of pages.
    create_xrc_srq 0x110 {
        LOG_XRC_SRQ_SIZE 0x10 [27:24], LOG_RQ_STRIDE 0x14 [26:24], XRCD 0x14 [23:0], PAGE_OFFSET 0x18 [31:26], CQN 0x18 [23:0],
        LOG_PAGE_SIZE 0x20 [29:24], USER_INDEX 0x20 [23:0], PD 0x28 [23:0], LWM 0x2c [31:16], DBR_ADDR 0x38 [63:0],
    }
    /// Followed by the addresses of pages.
    create_rmp 0x110 {
        STATE 0x20 [23:20], PAGE_OFFSET 0x54 [20:16], LWM 0x54 [15:0], PD 0x58 [23:0], DBR_ADDR 0x60 [63:0],
        LOG_WQ_STRIDE 0x70 [19:16], LOG_WQ_PG_SZ 0x70 [12:8], LOG_WQ_SZ 0x70 [4:0],
    }
    create_user_context 0x20 { CAP 0x10 [31:0] }
    destroy_user_context 0x10 { ID 0x8 [15:0] }
    /// The operation modifier says of which type; followed by the body.
    general_object 0x10 { ID 0x8 [31:0], LOG_OBJ_RANGE 0xc [28:24] }
    create_eq 0x110 {
        STATUS 0x10 [31:28], EC 0x10 [18], OI 0x10 [17], ST 0x10 [11:8], PAGE_OFFSET 0x18 [11:6],
        LOG_EQ_SIZE 0x1c [28:24], UAR_PAGE 0x1c [23:0], INTR 0x24 [11:0], LOG_PAGE_SIZE 0x28 [28:24],
        EVENT_BITMASK_0 0x58 [63:0], EVENT_BITMASK_1 0x60 [63:0], EVENT_BITMASK_2 0x68 [63:0], EVENT_BITMASK_3 0x70 [63:0],
    }
    create_cq 0x110 {
        STATUS 0x10 [31:28], DBR_UMEM_VALID 0x10 [25], CQE_SZ 0x10 [23:21], CC 0x10 [20], OI 0x10 [17],
        CQ_PERIOD_MODE 0x10 [16:15], CQE_COMP_EN 0x10 [14], MINI_CQE_RES_FORMAT 0x10 [13:12], ST 0x10 [11:8],
        DBR_UMEM_ID 0x14 [31:0], PAGE_OFFSET 0x18 [11:6], LOG_CQ_SIZE 0x1c [28:24], UAR_PAGE 0x1c [23:0],
        CQ_PERIOD 0x20 [27:16], CQ_MAX_COUNT 0x20 [15:0], C_EQN 0x24 [31:0], LOG_PAGE_SIZE 0x28 [28:24],
        DBR_ADDR 0x48 [63:0], UMEM_OFFSET 0x50 [63:0], UMEM_ID 0x58 [31:0], UMEM_VALID 0x5c [31],
    }
    modify_cq 0x110 {
        CQN 0x8 [23:0], MODIFY_FIELD_SELECT 0xc [31:0], STATUS 0x10 [31:28], CQE_SZ 0x10 [23:21], CC 0x10 [20],
        OI 0x10 [17], CQ_PERIOD_MODE 0x10 [16:15], ST 0x10 [11:8], CQ_PERIOD 0x20 [27:16], CQ_MAX_COUNT 0x20 [15:0],
    }
    create_tis 0xc0 {
        STRICT_LAG_TX_PORT_AFFINITY 0x20 [31], LAG_TX_PORT_AFFINITY 0x20 [27:24], PRIO 0x20 [19:16],
        TRANSPORT_DOMAIN 0x44 [23:0], UNDERLAY_QPN 0x48 [23:0], PD 0x4c [23:0],
    }
    create_tir 0x110 {
        DISP_TYPE 0x24 [31:28], LRO_TIMEOUT_PERIOD_USECS 0x30 [27:12], PACKET_MERGE_MASK 0x30 [11:8],
        LRO_MAX_IP_PAYLOAD_SIZE 0x30 [7:0], INLINE_RQN 0x3c [23:0], RX_HASH_SYMMETRIC 0x40 [31],
        TUNNELED_OFFLOAD_EN 0x40 [29], INDIRECT_TABLE 0x40 [23:0], RX_HASH_FN 0x44 [31:28], SELF_LB_BLOCK 0x44 [25:24],
        TRANSPORT_DOMAIN 0x44 [23:0], TOEPLITZ_KEY_0 0x48 [63:0], TOEPLITZ_KEY_1 0x50 [63:0], TOEPLITZ_KEY_2 0x58 [63:0],
        TOEPLITZ_KEY_3 0x60 [63:0], TOEPLITZ_KEY_4 0x68 [63:0], OUTER_SELECTOR 0x70 [31:0], INNER_SELECTOR 0x74 [31:0],
    }
    modify_tir 0x110 {
        TIRN 0x8 [23:0], SELECT_SELF_LB_EN 0x14 [4], SELECT_HASH 0x14 [2], SELECT_PACKET_MERGE 0x14 [0],
        DISP_TYPE 0x24 [31:28], LRO_TIMEOUT_PERIOD_USECS 0x30 [27:12], PACKET_MERGE_MASK 0x30 [11:8],
        LRO_MAX_IP_PAYLOAD_SIZE 0x30 [7:0], INLINE_RQN 0x3c [23:0], RX_HASH_SYMMETRIC 0x40 [31],
        TUNNELED_OFFLOAD_EN 0x40 [29], INDIRECT_TABLE 0x40 [23:0], RX_HASH_FN 0x44 [31:28], SELF_LB_BLOCK 0x44 [25:24],
        TRANSPORT_DOMAIN 0x44 [23:0], TOEPLITZ_KEY_0 0x48 [63:0], TOEPLITZ_KEY_1 0x50 [63:0], TOEPLITZ_KEY_2 0x58 [63:0],
        TOEPLITZ_KEY_3 0x60 [63:0], TOEPLITZ_KEY_4 0x68 [63:0], OUTER_SELECTOR 0x70 [31:0], INNER_SELECTOR 0x74 [31:0],
    }
    /// Followed by the numbers of receive queues.
    create_rqt 0x110 { RQT_MAX_SIZE 0x34 [15:0], RQT_ACTUAL_SIZE 0x38 [15:0] }
    modify_rqt 0x110 { RQTN 0x8 [23:0], SELECT_RQN_LIST 0x14 [0], RQT_MAX_SIZE 0x34 [15:0], RQT_ACTUAL_SIZE 0x38 [15:0] }
    create_sq 0x110 {
        RLKY 0x20 [31], CD_MASTER 0x20 [30], FRE 0x20 [29], FLUSH_IN_ERROR_EN 0x20 [28],
        ALLOW_MULTI_PKT_SEND_WQE 0x20 [27], MIN_WQE_INLINE_MODE 0x20 [26:24], STATE 0x20 [23:20], REG_UMR 0x20 [19], ALLOW_SWP 0x20 [18],
        HAIRPIN 0x20 [17], HAIRPIN_WQ_BUFFER_TYPE 0x20 [10:8],
        TS_FORMAT 0x20 [5:4], USER_INDEX 0x24 [23:0], CQN 0x28 [23:0], TIS_LST_SZ 0x40 [31:16], TIS_NUM_0 0x4c [23:0],
        WQ_TYPE 0x50 [31:28], PAGE_OFFSET 0x54 [20:16], PD 0x58 [23:0], UAR_PAGE 0x5c [23:0], DBR_ADDR 0x60 [63:0],
        LOG_WQ_STRIDE 0x70 [19:16], LOG_WQ_PG_SZ 0x70 [12:8], LOG_WQ_SZ 0x70 [4:0], DBR_UMEM_VALID 0x74 [31],
        UMEM_VALID 0x74 [30], LOG_HAIRPIN_NUM_PACKETS 0x74 [28:24], LOG_HAIRPIN_DATA_SZ 0x74 [20:16],
        DBR_UMEM_ID 0x78 [31:0], UMEM_ID 0x7c [31:0], UMEM_OFFSET 0x80 [63:0],
    }
    modify_sq 0x110 {
        SQ_STATE 0x8 [31:28], SQN 0x8 [23:0], MODIFY_BITMASK 0x10 [63:0], STATE 0x20 [23:20],
        HAIRPIN_PEER_RQ 0x2c [23:0], HAIRPIN_PEER_VHCA 0x30 [15:0],
    }
    create_rq 0x110 {
        RLKY 0x20 [31], SCATTER_FCS 0x20 [29], VSD 0x20 [28], MEM_RQ_TYPE 0x20 [27:24], STATE 0x20 [23:20],
        FLUSH_IN_ERROR_EN 0x20 [18], HAIRPIN 0x20 [17], HAIRPIN_DATA_BUFFER_TYPE 0x20 [10:8],
        TS_FORMAT 0x20 [5:4], USER_INDEX 0x24 [23:0], CQN 0x28 [23:0], COUNTER_SET_ID 0x2c [31:24],
        WQ_TYPE 0x50 [31:28], END_PADDING_MODE 0x50 [26:25], PAGE_OFFSET 0x54 [20:16],
        PD 0x58 [23:0], UAR_PAGE 0x5c [23:0], DBR_ADDR 0x60 [63:0], LOG_WQ_STRIDE 0x70 [19:16], LOG_WQ_PG_SZ 0x70 [12:8],
        LOG_WQ_SZ 0x70 [4:0], DBR_UMEM_VALID 0x74 [31], UMEM_VALID 0x74 [30],
        LOG_HAIRPIN_NUM_PACKETS 0x74 [28:24], LOG_HAIRPIN_DATA_SZ 0x74 [20:16], DBR_UMEM_ID 0x78 [31:0], UMEM_ID 0x7c [31:0],
        UMEM_OFFSET 0x80 [63:0],
    }
    modify_rq 0x110 {
        RQ_STATE 0x8 [31:28], RQN 0x8 [23:0], MODIFY_BITMASK 0x10 [63:0], SCATTER_FCS 0x20 [29], VSD 0x20 [28],
        STATE 0x20 [23:20], COUNTER_SET_ID 0x2c [31:24], HAIRPIN_PEER_SQ 0x34 [23:0], HAIRPIN_PEER_VHCA 0x38 [15:0],
    }

    query_hca_vport_pkey 0x10 { OTHER_VPORT 0x8 [31], PORT_NUM 0x8 [19:16], VPORT_NUMBER 0x8 [15:0], PKEY_INDEX 0xc [15:0] }
    set_roce_address 0x30 {
        ROCE_ADDRESS_INDEX 0x8 [31:16], ADDRESS_0 0x10 [63:0], ADDRESS_1 0x18 [63:0], VLAN_VALID 0x20 [28], VLAN_ID 0x20 [27:16],
        SOURCE_MAC_47_32 0x20 [15:0], SOURCE_MAC_31_0 0x24 [31:0], ROCE_L3_TYPE 0x28 [11:8], ROCE_VERSION 0x28 [7:0],
    }
    vport 0x10 { OTHER_VPORT 0x8 [31], VPORT_NUMBER 0x8 [15:0] }
    modify_vport_state 0x10 { OTHER_VPORT 0x8 [31], VPORT_NUMBER 0x8 [15:0], ADMIN_STATE 0xc [7:4] }
    query_nic_vport_context 0x10 { OTHER_VPORT 0x8 [31], VPORT_NUMBER 0x8 [15:0], ALLOWED_LIST_TYPE 0xc [26:24] }
    /// Followed by a list of addresses.
    modify_nic_vport_context 0x200 {
        OTHER_VPORT 0x8 [31], VPORT_NUMBER 0x8 [15:0], SELECT_DISABLE_UC_LOCAL_LB 0xc [11], SELECT_DISABLE_MC_LOCAL_LB 0xc [10],
        SELECT_NODE_GUID 0xc [9], SELECT_PORT_GUID 0xc [8], SELECT_MIN_INLINE 0xc [7], SELECT_MTU 0xc [6],
        SELECT_CHANGE_EVENT 0xc [5], SELECT_PROMISC 0xc [4], SELECT_PERMANENT_ADDRESS 0xc [3], SELECT_ADDRESSES_LIST 0xc [2],
        SELECT_ROCE_EN 0xc [1], ROCE_EN 0x100 [0], MIN_WQE_INLINE_MODE 0x100 [26:24], DISABLE_MC_LOCAL_LB 0x100 [2], DISABLE_UC_LOCAL_LB 0x100 [1],
        ARM_CHANGE_EVENT 0x104 [31], EVENTS 0x104 [4:0], MTU 0x124 [15:0], PORT_GUID 0x130 [63:0], NODE_GUID 0x138 [63:0],
        PROMISC 0x1f0 [31:29], ALLOWED_LIST_TYPE 0x1f0 [26:24], ALLOWED_LIST_SIZE 0x1f0 [11:0],
        PERMANENT_ADDRESS 0x1f4 [47:0],
    }
    modify_esw_vport_context 0x110 {
        OTHER_VPORT 0x8 [31], VPORT_NUMBER 0x8 [15:0], SELECT_FDB_TO_VPORT_REG_C_ID 0xc [4], SELECT_CVLAN_INSERT 0xc [3],
        SELECT_SVLAN_INSERT 0xc [2], SELECT_CVLAN_STRIP 0xc [1], SELECT_SVLAN_STRIP 0xc [0], FDB_TO_VPORT_REG_C 0x10 [31],
        VPORT_SVLAN_STRIP 0x10 [28], VPORT_CVLAN_STRIP 0x10 [27], VPORT_SVLAN_INSERT 0x10 [26],
        VPORT_CVLAN_INSERT 0x10 [25:24], FDB_TO_VPORT_REG_C_ID 0x10 [23:16], CVLAN 0x18 [15:0],
    }
    query_vport_counter 0x20 { OTHER_VPORT 0x8 [31], PORT_NUM 0x8 [19:16], VPORT_NUMBER 0x8 [15:0], CLEAR 0x18 [31] }
    query_q_counter 0x20 { CLEAR 0x18 [31], COUNTER_SET_ID 0x1c [7:0] }
    set_l2_table_entry 0x40 {
        TABLE_INDEX 0x14 [23:0], VLAN_VALID 0x1c [12], VLAN 0x1c [11:0], MAC_ADDRESS 0x20 [47:0],
    }
    l2_table_entry 0x40 { TABLE_INDEX 0x14 [23:0] }
}

layouts! {
    query_issi_out 0x70 { CURRENT_ISSI 0x8 [15:0], SUPPORTED_ISSI_DW0 0x6c [31:0] }
    query_pages_out 0x10 { EMBEDDED_CPU_FUNCTION 0x8 [31], FUNCTION_ID 0x8 [15:0], NUM_PAGES 0xc [31:0] }
    manage_pages_out 0x10 { OUTPUT_NUM_ENTRIES 0x8 [31:0] }
    query_adapter_out 0x110 { IEEE_VENDOR_ID 0x28 [23:0], VSD_VENDOR_ID 0x2c [15:0], PSID_0 0x100 [63:0], PSID_1 0x108 [63:0] }
    object_out 0x10 { ID 0x8 [23:0] }
    /// Of a queue pair: its number, and the options of connections that it takes.
    qp_out 0x10 { ID 0x8 [23:0], ECE 0xc [31:0] }
    query_special_contexts_out 0x20 { RESD_LKEY 0xc [31:0], NULL_MKEY 0x10 [31:0] }
    query_eq_out 0x110 {
        STATUS 0x10 [31:28], ST 0x10 [11:8], LOG_EQ_SIZE 0x1c [28:24], UAR_PAGE 0x1c [23:0], INTR 0x24 [11:0],
        LOG_PAGE_SIZE 0x28 [28:24], CONSUMER_COUNTER 0x38 [23:0], PRODUCER_COUNTER 0x3c [23:0],
    }
    query_qp_out 0x110 { STATE 0x18 [31:28], CQN_SND 0x94 [23:0], CQN_RCV 0xb4 [23:0] }
    query_rq_out 0x110 { VSD 0x20 [28], STATE 0x20 [23:20], CQN 0x28 [23:0] }
    query_sq_out 0x110 { STATE 0x20 [23:20], CQN 0x28 [23:0] }
    query_vport_state_out 0x10 { MAX_TX_SPEED 0x8 [31:16], ADMIN_STATE 0xc [7:4], STATE 0xc [3:0] }
    /// Followed by a list of addresses.
    query_nic_vport_context_out 0x110 {
        MIN_WQE_INLINE_MODE 0x10 [26:24], DISABLE_MC_LOCAL_LB 0x10 [2], DISABLE_UC_LOCAL_LB 0x10 [1],
        ROCE_EN 0x10 [0], ARM_CHANGE_EVENT 0x14 [31], EVENTS 0x14 [4:0], MTU 0x34 [15:0], SYSTEM_IMAGE_GUID 0x38 [63:0], PORT_GUID 0x40 [63:0],
        NODE_GUID 0x48 [63:0], PROMISC 0x100 [31:29], ALLOWED_LIST_TYPE 0x100 [26:24], ALLOWED_LIST_SIZE 0x100 [11:0],
        PERMANENT_ADDRESS 0x104 [47:0],
    }
    query_esw_vport_context_out 0x110 {
        FDB_TO_VPORT_REG_C 0x10 [31], VPORT_SVLAN_STRIP 0x10 [28], VPORT_CVLAN_STRIP 0x10 [27], VPORT_SVLAN_INSERT 0x10 [26],
        VPORT_CVLAN_INSERT 0x10 [25:24], FDB_TO_VPORT_REG_C_ID 0x10 [23:16], CVLAN 0x18 [15:0], ICM_ADDRESS_RX 0x100 [63:0],
        ICM_ADDRESS_TX 0x108 [63:0],
    }
    create_tir_out 0x10 { ICM_ADDRESS_39_32 0x8 [31:24], ICM_ADDRESS_31_0 0xc [31:0] }
    user_context_out 0x10 { UID 0x8 [15:0] }
    general_object_out 0x10 { ID 0x8 [31:0] }
    /// A general object's body, behind the header: a block of steering memory.
    steering_memory 0x40 { MODIFY_FIELD_SELECT 0x0 [63:0], LOG_SIZE 0x8 [7:0], START 0x10 [63:0] }
    /// The same of arguments of rewrites.
    modify_header_argument 0x14 { ACCESS_PD 0x10 [23:0] }
    /// The same of ASO objects of meters: both meters of an object.
    meter_object 0x80 {
        MODIFY_FIELD_SELECT 0x0 [63:0], ACCESS_PD 0x10 [23:0], FIRST_0 0x40 [63:0], FIRST_1 0x48 [63:0], FIRST_2 0x50 [63:0],
        FIRST_3 0x58 [63:0], SECOND_0 0x60 [63:0], SECOND_1 0x68 [63:0], SECOND_2 0x70 [63:0], SECOND_3 0x78 [63:0],
    }
    /// The same of ASO objects of first hits; followed by a bit for each line.
    first_hits 0x40 { MODIFY_FIELD_SELECT 0x0 [63:0], ACCESS_PD 0x10 [23:0] }
    /// The same of ASO objects of connection tracking; followed by an object.
    connection_tracking 0x40 { MODIFY_FIELD_SELECT 0x0 [63:0], ACCESS_PD 0x10 [23:0] }
    /// The same of an option of Geneve that is looked for.
    geneve_option 0x40 {
        MODIFY_FIELD_SELECT 0x0 [63:0], FTE_INDEX 0x8 [7:0], CLASS 0xc [31:16], TYPE 0xc [15:8], DATA_LENGTH 0xc [4:0],
    }
    /// The same of a match definer. Of the mask, words that only larger definers have are not there.
    match_definer 0x80 {
        MODIFY_FIELD_SELECT 0x0 [63:0], FORMAT_ID 0x10 [15:0], MASK_0 0x60 [63:0], MASK_1 0x68 [63:0], MASK_2 0x70 [63:0],
        MASK_3 0x78 [63:0],
    }
    /// The same of a sampler.
    sampler 0x28 {
        MODIFY_FIELD_SELECT 0x0 [63:0], TABLE_TYPE 0x8 [31:24], LEVEL 0x8 [23:16], IGNORE_FLOW_LEVEL 0x8 [0],
        SAMPLE_RATIO 0xc [31:0], SAMPLE_TABLE 0x10 [23:0], DEFAULT_TABLE 0x14 [23:0], ADDRESS_RX 0x18 [63:0],
        ADDRESS_TX 0x20 [63:0],
    }
    /// The same of a meter.
    meter 0x80 {
        MODIFY_FIELD_SELECT 0x0 [63:0], ACTIVE 0x8 [31], RETURN_REG_ID 0x8 [27:24], TABLE_TYPE 0x8 [23:16],
        TABLE 0xc [23:0], PARAMETERS_0 0x20 [63:0], PARAMETERS_1 0x28 [63:0], PARAMETERS_2 0x30 [63:0],
        PARAMETERS_3 0x38 [63:0], ADDRESS_RX 0x70 [63:0], ADDRESS_TX 0x78 [63:0],
    }
    query_esw_functions_out 0x80 {
        HOST_NUMBER 0x10 [31:24], HOST_PF_NOT_EXIST 0x10 [18], HOST_PF_VHCA_ID_VALID 0x10 [17], HOST_PF_DISABLED 0x10 [16], HOST_NUM_OF_VFS 0x10 [15:0],
        HOST_TOTAL_VFS 0x14 [31:16], HOST_PF_VHCA_ID 0x18 [31:16],
    }
}
