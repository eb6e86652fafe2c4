//! Where the fields of the steering commands lie, as PRM structures give it.

use super::bits::Bits;

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident $at:literal $width:literal,)*) => {
        $($(#[$doc])* pub(in crate::steering) const $name: Bits = Bits::new($at, $width);)*
    };
}

/// Bytes of an output that has no more than status, syndrome and one id.
pub(super) const SHORT_OUTPUT: usize = 0x10;

/// The commands' opcodes.
pub(super) mod opcode {
    pub(in crate::steering) const ADD_VXLAN_UDP_DPORT: u16 = 0x827;
    pub(in crate::steering) const DELETE_VXLAN_UDP_DPORT: u16 = 0x828;
    pub(in crate::steering) const SET_FLOW_TABLE_ROOT: u16 = 0x92f;
    pub(in crate::steering) const CREATE_FLOW_TABLE: u16 = 0x930;
    pub(in crate::steering) const DESTROY_FLOW_TABLE: u16 = 0x931;
    pub(in crate::steering) const QUERY_FLOW_TABLE: u16 = 0x932;
    pub(in crate::steering) const CREATE_FLOW_GROUP: u16 = 0x933;
    pub(in crate::steering) const DESTROY_FLOW_GROUP: u16 = 0x934;
    pub(in crate::steering) const QUERY_FLOW_GROUP: u16 = 0x935;
    pub(in crate::steering) const SET_FLOW_TABLE_ENTRY: u16 = 0x936;
    pub(in crate::steering) const QUERY_FLOW_TABLE_ENTRY: u16 = 0x937;
    pub(in crate::steering) const DELETE_FLOW_TABLE_ENTRY: u16 = 0x938;
    pub(in crate::steering) const ALLOC_FLOW_COUNTER: u16 = 0x939;
    pub(in crate::steering) const DEALLOC_FLOW_COUNTER: u16 = 0x93a;
    pub(in crate::steering) const QUERY_FLOW_COUNTER: u16 = 0x93b;
    pub(in crate::steering) const MODIFY_FLOW_TABLE: u16 = 0x93c;
    pub(in crate::steering) const ALLOC_PACKET_REFORMAT_CONTEXT: u16 = 0x93d;
    pub(in crate::steering) const DEALLOC_PACKET_REFORMAT_CONTEXT: u16 = 0x93e;
    pub(in crate::steering) const ALLOC_MODIFY_HEADER_CONTEXT: u16 = 0x940;
    pub(in crate::steering) const DEALLOC_MODIFY_HEADER_CONTEXT: u16 = 0x941;
}

layout! {
    /// Operation modifier, in every command.
    OP_MOD 0x30 16,
    /// What an alloc or create command answers with; 24 bits of it for tables and groups.
    OUT_ID 0x40 32,
    /// What a dealloc command names.
    IN_ID 0x40 32,

    // Commands on flow tables, groups and entries begin alike.
    OTHER_VPORT 0x40 1,
    VPORT_NUMBER 0x50 16,
    TABLE_TYPE 0x80 8,
    TABLE_ID 0xa8 24,
    GROUP_ID 0xc0 32,

    // create_flow_table_in, modify_flow_table_in and query_flow_table_out: flow_table_context.
    MODIFY_FIELD_SELECT 0x70 16,
    REFORMAT_ENABLED 0xc0 1,
    DECAP_ENABLED 0xc1 1,
    SOFTWARE_OWNER 0xc2 1,
    TERMINATION_TABLE 0xc3 1,
    MISS_ACTION 0xc4 4,
    LEVEL 0xc8 8,
    LOG_SIZE 0xd8 8,
    MISS_TABLE 0xe8 24,
    SOFTWARE_ROOT_1 0x180 64,
    SOFTWARE_ROOT_0 0x1c0 64,

    // create_flow_table_out.
    OUT_ADDRESS_39_32 0x40 8,
    OUT_ADDRESS_31_0 0x60 32,

    // set_flow_table_root_in.
    TABLE_OF_OTHER_VPORT 0x8f 1,
    UNDERLAY_QPN 0xc8 24,
    TABLE_OWNER_VALID 0xe0 1,

    // create_flow_group_in and query_flow_group_out.
    GROUP_TYPE 0x8c 4,
    START_INDEX 0xe0 32,
    END_INDEX 0x120 32,
    MATCH_DEFINER 0x150 16,
    MATCH_CRITERIA_ENABLE 0x1f8 8,

    // set_fte_in.
    IGNORE_FLOW_LEVEL 0xc0 1,
    MODIFY_ENABLE 0xd8 8,
    FLOW_INDEX 0x100 32,

    // alloc_flow_counter_in and query_flow_counter_in.
    COUNTER_BULK_LOG 0x73 5,
    COUNTER_BULK 0x78 8,
    COUNTER_DUMP_KEY 0x60 32,
    COUNTER_DUMP_ADDRESS 0x80 64,
    COUNTER_CLEAR 0xc0 1,
    COUNTER_DUMP 0xc1 1,
    COUNTER_NUMBER 0xc2 30,
    COUNTER_ID 0xe0 32,

    // alloc_modify_header_context_in.
    REWRITE_TABLE_TYPE 0x60 8,
    REWRITE_ACTIONS 0x78 8,

    // alloc_packet_reformat_context_in.
    REFORMAT_TYPE 0xe0 8,
    REFORMAT_ANCHOR 0xec 4,
    REFORMAT_SIZE 0xf6 10,
    REFORMAT_OFFSET 0x100 8,

    VXLAN_UDP_PORT 0x70 16,
}

/// Byte offsets and sizes.
pub(super) mod bytes {
    /// Of the commands on flow tables, without what follows in some.
    pub(in crate::steering) const TABLE_COMMAND: usize = 0x40;
    pub(in crate::steering) const GROUP_COMMAND: usize = 0x400;
    pub(in crate::steering) const GROUP_CRITERIA: usize = 0x40;
    /// Where the flow context begins in set_fte_in and query_fte_out.
    pub(in crate::steering) const FLOW_CONTEXT: usize = 0x40;
    pub(in crate::steering) const QUERY_COUNTER: usize = 0x20;
    pub(in crate::steering) const REWRITE_LIST: usize = 0x10;
    pub(in crate::steering) const REFORMAT_DATA: usize = 0x22;
}

/// Fields of the flow context, from its own beginning.
pub(super) mod flow_context {
    use super::Bits;

    layout! {
        PUSH_VLAN 0x00 32,
        GROUP_ID 0x20 32,
        FLOW_TAG 0x48 24,
        ACTION 0x70 16,
        EXTENDED_DESTINATION 0x80 1,
        FLOW_SOURCE 0x82 2,
        DESTINATIONS 0x88 24,
        COUNTERS 0xa8 24,
        REFORMAT_ID 0xc0 32,
        MODIFY_HEADER_ID 0xe0 32,
        PUSH_VLAN_2 0x100 32,

        // execute_aso, from the beginning of one; of the control word that of a meter.
        ASO_VALID 0x00 1,
        ASO_OBJECT 0x08 24,
        ASO_RETURN_REGISTER 0x20 4,
        ASO_TYPE 0x24 4,
        ASO_ACTION 0x3c 1,
        ASO_INITIAL_COLOR 0x3d 2,
        ASO_METER 0x3f 1,

        // dest_format_struct, from the beginning of one list element.
        DESTINATION_TYPE 0x00 8,
        DESTINATION_ID 0x08 24,
        DESTINATION_OWNER_VALID 0x20 1,
        DESTINATION_REFORMAT 0x21 1,
        DESTINATION_OWNER 0x30 16,
        DESTINATION_REFORMAT_ID 0x40 32,
        COUNTER_ID 0x00 32,
    }

    /// Where the match value begins, in bytes.
    pub(in crate::steering) const MATCH_VALUE: usize = 0x40;
    /// Where what is done to ASO objects begins, and how many bytes each of four takes.
    pub(in crate::steering) const ASO: usize = 0x240;
    pub(in crate::steering) const ASO_ELEMENT: usize = 8;
    pub(in crate::steering) const ASO_ELEMENTS: usize = 4;
    /// Where the list of destinations, then counters, begins.
    pub(in crate::steering) const LIST: usize = 0x300;
    pub(in crate::steering) const ELEMENT: usize = 8;
    pub(in crate::steering) const EXTENDED_ELEMENT: usize = 16;
}

/// Fields of one action of a modify-header list.
pub(super) mod rewrite {
    use super::Bits;

    layout! {
        ACTION_TYPE 0x00 4,
        FIELD 0x04 12,
        OFFSET 0x13 5,
        LENGTH 0x1b 5,
        DATA 0x20 32,
        DESTINATION_FIELD 0x24 12,
        DESTINATION_OFFSET 0x33 5,
    }

    pub(in crate::steering) const ELEMENT: usize = 8;
}
