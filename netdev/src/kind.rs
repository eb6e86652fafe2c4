//! Kinds of messages of rtnetlink (`RTM_*` in `include/uapi/linux/rtnetlink.h`).

pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const DELETE_LINK: u16 = 17;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const GET_STATISTICS: u16 = 94;
pub(crate) const NEW_QDISC: u16 = 36;
pub(crate) const DELETE_QDISC: u16 = 37;
pub(crate) const NEW_FILTER: u16 = 44;
pub(crate) const DELETE_FILTER: u16 = 45;
pub(crate) const NEW_ACTION: u16 = 48;
pub(crate) const DELETE_ACTION: u16 = 49;
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const DELETE_ROUTE: u16 = 25;
pub(crate) const GET_ROUTE: u16 = 26;
pub(crate) const NEW_RULE: u16 = 32;
pub(crate) const GET_RULE: u16 = 34;
pub(crate) const NEW_NEIGHBOUR: u16 = 28;
pub(crate) const DELETE_NEIGHBOUR: u16 = 29;
pub(crate) const GET_NEIGHBOUR: u16 = 30;
