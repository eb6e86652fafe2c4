//! Numbers of objects, methods and attributes (`rdma/ib_user_ioctl_cmds.h`, `rdma/mlx5_user_ioctl_cmds.h`). Those from 0x1000 on
//! are the driver's own.

/// Of an attribute: the driver's part of a request, and of an answer.
pub(crate) const UHW_IN: u16 = 0x1000;
pub(crate) const UHW_OUT: u16 = 0x1001;

pub(crate) mod object {
    pub(crate) const DEVICE: u16 = 0;
    pub(crate) const PD: u16 = 1;
    pub(crate) const CQ: u16 = 3;
    pub(crate) const QP: u16 = 4;
    pub(crate) const SRQ: u16 = 5;
    pub(crate) const MR: u16 = 7;
    pub(crate) const FLOW: u16 = 9;
    pub(crate) const RWQ_IND_TBL: u16 = 11;
    pub(crate) const WQ: u16 = 12;
    pub(crate) const FLOW_ACTION: u16 = 13;
    pub(crate) const DM: u16 = 14;
    pub(crate) const COUNTERS: u16 = 15;
    pub(crate) const ASYNC_EVENT: u16 = 16;
    pub(crate) const DEVX: u16 = 0x1000;
    pub(crate) const DEVX_OBJ: u16 = 0x1001;
    pub(crate) const DEVX_UMEM: u16 = 0x1002;
    pub(crate) const FLOW_MATCHER: u16 = 0x1003;
    pub(crate) const DEVX_ASYNC_CMD_FD: u16 = 0x1004;
    pub(crate) const UAR: u16 = 0x1008;
    pub(crate) const STEERING_ANCHOR: u16 = 0x1009;
}

/// Commands of the older interface, which come inside a request.
pub(crate) mod write {
    /// Marks the extended ones.
    pub(crate) const EXTENDED: u32 = 1 << 31;
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const MODIFY_QP_EXTENDED: u32 = EXTENDED | MODIFY_QP;
    pub(crate) const CREATE_FLOW: u32 = EXTENDED | 50;
    pub(crate) const MODIFY_WQ: u32 = EXTENDED | 53;
    pub(crate) const CREATE_RWQ_IND_TBL: u32 = EXTENDED | 55;
}
