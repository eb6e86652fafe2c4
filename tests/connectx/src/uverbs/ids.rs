//! Numbers of objects, methods and attributes (`rdma/ib_user_ioctl_cmds.h`, `rdma/mlx5_user_ioctl_cmds.h`). Those from 0x1000 on
//! are the driver's own.

/// Of an attribute: the driver's part of a request, and of an answer.
pub(super) const UHW_IN: u16 = 0x1000;
pub(super) const UHW_OUT: u16 = 0x1001;

pub(super) mod object {
    pub(in crate::uverbs) const DEVICE: u16 = 0;
    pub(in crate::uverbs) const PD: u16 = 1;
    pub(in crate::uverbs) const CQ: u16 = 3;
    pub(in crate::uverbs) const QP: u16 = 4;
    pub(in crate::uverbs) const MR: u16 = 7;
    pub(in crate::uverbs) const FLOW: u16 = 9;
    pub(in crate::uverbs) const RWQ_IND_TBL: u16 = 11;
    pub(in crate::uverbs) const WQ: u16 = 12;
    pub(in crate::uverbs) const FLOW_ACTION: u16 = 13;
    pub(in crate::uverbs) const DM: u16 = 14;
    pub(in crate::uverbs) const COUNTERS: u16 = 15;
    pub(in crate::uverbs) const ASYNC_EVENT: u16 = 16;
    pub(in crate::uverbs) const DEVX: u16 = 0x1000;
    pub(in crate::uverbs) const DEVX_OBJ: u16 = 0x1001;
    pub(in crate::uverbs) const DEVX_UMEM: u16 = 0x1002;
    pub(in crate::uverbs) const FLOW_MATCHER: u16 = 0x1003;
    pub(in crate::uverbs) const DEVX_ASYNC_CMD_FD: u16 = 0x1004;
    pub(in crate::uverbs) const UAR: u16 = 0x1008;
    pub(in crate::uverbs) const STEERING_ANCHOR: u16 = 0x1009;
}

/// Commands of the older interface, which come inside a request.
pub(super) mod write {
    /// Marks the extended ones.
    pub(in crate::uverbs) const EXTENDED: u32 = 1 << 31;
    pub(in crate::uverbs) const QUERY_DEVICE: u32 = 1;
    pub(in crate::uverbs) const ALLOC_PD: u32 = 3;
    pub(in crate::uverbs) const REG_MR: u32 = 9;
    pub(in crate::uverbs) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(in crate::uverbs) const QUERY_QP: u32 = 25;
    pub(in crate::uverbs) const MODIFY_QP: u32 = 26;
    pub(in crate::uverbs) const CREATE_FLOW: u32 = EXTENDED | 50;
    pub(in crate::uverbs) const MODIFY_WQ: u32 = EXTENDED | 53;
    pub(in crate::uverbs) const CREATE_RWQ_IND_TBL: u32 = EXTENDED | 55;
}
