//! Filters that the kernel says somebody has touched: put in or replaced (`RTM_NEWTFILTER`), or taken away (`RTM_DELTFILTER`).

use std::fmt;

use crate::device::Ifindex;
use crate::netlink::attribute::Malformed;
use crate::traffic_control::TcView;

/// Filters that somebody has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TouchedFilters {
    /// Where they were.
    pub attachment: Attachment,
    /// In which chain.
    pub chain: u32,
    /// At which priority.
    pub priority: u16,
    /// For which Ethernet type.
    pub protocol: u16,
    /// Which one of the priority; `None` if it is all of them.
    pub handle: Option<u32>,
    /// The socket that asked for it ([`Control::port`](crate::Control::port)); 0 is the kernel.
    pub by: u32,
}

/// Where filters hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attachment {
    /// At what a device receives.
    Ingress(Ifindex),
    /// At what a device sends.
    Egress(Ifindex),
    /// At a block.
    Block(Block),
}

/// The number of a block: a list of filters that several devices may share. Not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

const CHAIN: u16 = 11;
/// `TCM_IFINDEX_MAGIC_BLOCK`
const IS_BLOCK: u32 = u32::MAX;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)` and the same for egress.
const AT_INGRESS: u32 = 0xffff_fff2;
const AT_EGRESS: u32 = 0xffff_fff3;
/// The number of the queueing discipline, by which its filters for what is received may be named as well.
const AT_QDISC: u32 = 0xffff_0000;

impl Attachment {
    pub(crate) const fn index_and_parent(self) -> (u32, u32) {
        match self {
            Self::Ingress(Ifindex(index)) => (index, AT_INGRESS),
            Self::Egress(Ifindex(index)) => (index, AT_EGRESS),
            Self::Block(Block(number)) => (IS_BLOCK, number),
        }
    }

    const fn new(ifindex: u32, parent: u32) -> Option<Self> {
        match (ifindex, parent) {
            (IS_BLOCK, number) => Some(Self::Block(Block(number))),
            (index, AT_INGRESS | AT_QDISC) => Some(Self::Ingress(Ifindex(index))),
            (index, AT_EGRESS) => Some(Self::Egress(Ifindex(index))),
            _ => None,
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ingress(ifindex) => write!(out, "the ingress of device {ifindex}"),
            Self::Egress(ifindex) => write!(out, "the egress of device {ifindex}"),
            Self::Block(Block(number)) => write!(out, "block {number}"),
        }
    }
}

impl TouchedFilters {
    /// `None` if they were for queueing and not for packets that pass.
    pub(crate) fn read(view: &TcView<'_>, by: u32) -> Result<Option<Self>, Malformed> {
        let header = view.header;
        let Some(attachment) = Attachment::new(header.ifindex, header.parent) else { return Ok(None) };
        let mut chain = 0;
        for attribute in view.attributes() {
            let attribute = attribute?;
            if attribute.kind == CHAIN {
                chain = attribute.u32()?;
            }
        }
        let [priority, protocol] = header.priority_and_protocol();
        let handle = Some(header.handle).filter(|handle| *handle != 0);
        Ok(Some(Self { attachment, chain, priority, protocol, handle, by }))
    }
}
