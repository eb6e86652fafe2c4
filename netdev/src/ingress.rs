//! The queueing disciplines that hold filters: `ingress` and `clsact`. A device has at most one of them.

use std::fmt;

use rustix::io::Errno;

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::netlink::attribute::{Malformed, Writer};
use crate::netlink::message::flag;
use crate::touched_filters::{Attachment, Block};
use crate::traffic_control::{TcHeader, TcView};

/// The queueing discipline that holds the filters of a device, and the blocks by which it shares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IngressQdisc {
    /// `ingress` or `clsact`.
    pub kind: IngressKind,
    /// The block of filters for received packets, if it can be shared.
    pub ingress_block: Option<Block>,
    /// The block of filters for sent packets, if it can be shared.
    pub egress_block: Option<Block>,
}

/// The kinds of queueing disciplines that hold filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IngressKind {
    /// Filters for received packets only.
    Ingress,
    /// Filters for received and for sent packets.
    Clsact,
}

/// Who made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// We did, and may remove it.
    Made,
    /// Somebody else did; it was there already.
    Adopted,
}

/// Why a device does not have the queueing discipline that is wanted.
#[derive(Debug, thiserror::Error)]
pub enum IngressError {
    /// It has another one, which is not ours to remove.
    #[error("device {ifindex} has {found} where {wanted} is wanted")]
    Taken {
        /// The device.
        ifindex: Ifindex,
        /// What it has.
        found: IngressQdisc,
        /// What it should have.
        wanted: IngressQdisc,
    },
    /// The kernel refused, or could not be asked.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Why a queueing discipline was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRemoved {
    /// Somebody else made it.
    #[error("it was not made here")]
    Adopted,
    /// It holds filters.
    #[error("there are filters at {0}")]
    InUse(Attachment),
    /// Somebody put another one in its place.
    #[error("there is {0} in its place")]
    Replaced(IngressQdisc),
    /// It is gone already, or the device is.
    #[error("it is gone")]
    Gone,
}

const NEW: u16 = 36;
const DELETE: u16 = 37;
const GET: u16 = 38;
pub(crate) const GET_FILTER: u16 = 46;
const KIND: u16 = 1;
const INGRESS_BLOCK: u16 = 13;
const EGRESS_BLOCK: u16 = 14;
/// The number that both kinds have at every device.
const HANDLE: u32 = 0xffff_0000;
/// `TC_H_INGRESS`, which is also `TC_H_CLSACT`.
const PARENT: u32 = 0xffff_fff1;

impl IngressQdisc {
    /// Filters for received and sent packets, shared with no other device.
    pub const CLSACT: Self = Self { kind: IngressKind::Clsact, ingress_block: None, egress_block: None };
    /// Filters for received packets, shared with no other device.
    pub const INGRESS: Self = Self { kind: IngressKind::Ingress, ingress_block: None, egress_block: None };

    /// The same, with a block of filters for received packets that other devices share.
    pub const fn with_ingress_block(self, block: Block) -> Self {
        Self { ingress_block: Some(block), ..self }
    }

    /// The same, with a block of filters for sent packets that other devices share.
    pub const fn with_egress_block(self, block: Block) -> Self {
        Self { egress_block: Some(block), ..self }
    }

    /// Returns whether it can be used where `wanted` is wanted: a `clsact` can where an `ingress` is, if the blocks are the same.
    pub fn serves(&self, wanted: &Self) -> bool {
        (self.kind == wanted.kind || self.kind == IngressKind::Clsact)
            && self.ingress_block == wanted.ingress_block
            && (self.egress_block == wanted.egress_block || wanted.kind == IngressKind::Ingress)
    }

    /// Where its filters are.
    pub(crate) fn attachments(self, ifindex: Ifindex) -> impl Iterator<Item = Attachment> {
        let ingress = self.ingress_block.map_or(Attachment::Ingress(ifindex), Attachment::Block);
        let egress = self.egress_block.map_or(Attachment::Egress(ifindex), Attachment::Block);
        [Some(ingress), (self.kind == IngressKind::Clsact).then_some(egress)].into_iter().flatten()
    }

    /// Writes what is behind the header of a message about it.
    pub(crate) fn emit(&self, ifindex: Ifindex, writer: &mut Writer<'_>) {
        self.emit_name(ifindex, writer);
        for (attribute, block) in [(INGRESS_BLOCK, self.ingress_block), (EGRESS_BLOCK, self.egress_block)] {
            if let Some(Block(number)) = block {
                writer.put(attribute, &number.to_ne_bytes());
            }
        }
    }

    /// Writes what is behind the header of a message that names it and says no more.
    fn emit_name(&self, ifindex: Ifindex, writer: &mut Writer<'_>) {
        TcHeader { ifindex: ifindex.0, handle: HANDLE, parent: PARENT, info: 0 }.emit(writer);
        writer.put_text(KIND, self.kind.name());
    }

    /// Reads one with its device; `None` if it is a queueing discipline that no filters for packets hang on.
    pub(crate) fn read(view: &TcView<'_>) -> Result<Option<(Ifindex, Self)>, Malformed> {
        if view.header.parent != PARENT {
            return Ok(None);
        }
        let mut kind = None;
        let [mut ingress_block, mut egress_block] = [None, None];
        for attribute in view.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                KIND => kind = Some(attribute.text()?),
                INGRESS_BLOCK => ingress_block = Some(Block(attribute.u32()?)),
                EGRESS_BLOCK => egress_block = Some(Block(attribute.u32()?)),
                _ => {}
            }
        }
        let kind = match kind {
            Some("clsact") => IngressKind::Clsact,
            Some("ingress") => IngressKind::Ingress,
            _ => return Ok(None),
        };
        Ok(Some((Ifindex(view.header.ifindex), Self { kind, ingress_block, egress_block })))
    }
}

impl IngressKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Clsact => "clsact",
        }
    }
}

impl fmt::Display for IngressQdisc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind.name())?;
        self.ingress_block.map_or(Ok(()), |Block(number)| write!(out, " ingress_block {number}"))?;
        self.egress_block.map_or(Ok(()), |Block(number)| write!(out, " egress_block {number}"))
    }
}

/// Makes sure that a device has a queueing discipline that [serves](IngressQdisc::serves). Returns the one that it has, and who
/// made it.
pub fn ensure_ingress(
    control: &mut Control,
    ifindex: Ifindex,
    wanted: IngressQdisc,
) -> Result<(IngressQdisc, Ownership), IngressError> {
    let mut is_second = false;
    loop {
        match find_ingress(control, ifindex)? {
            Some(found) if found.serves(&wanted) => return Ok((found, Ownership::Adopted)),
            Some(found) => return Err(IngressError::Taken { ifindex, found, wanted }),
            None => {}
        }
        let flags = flag::CREATE | flag::EXCLUSIVE;
        let body = |writer: &mut Writer<'_>| wanted.emit(ifindex, writer);
        match control.request("add queueing discipline", NEW, flags, body, |_| Ok(())) {
            Ok(()) => return Ok((wanted, Ownership::Made)),
            // Somebody was faster. Twice in a row it is something else.
            Err(error) if error.is(Errno::EXIST) && !is_second => is_second = true,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes a queueing discipline that we made, if it is still there and holds no filters. One that somebody put
/// in its place and that looks the same can only be told from it by the events of a [`Monitor`](crate::Monitor): after
/// [`QdiscRemoved`](crate::Event::QdiscRemoved) it is no longer [`Ownership::Made`]. A filter that somebody adds between the
/// last look and the removal goes with it: the kernel has no removal on condition.
pub fn remove_ingress(
    control: &mut Control,
    ifindex: Ifindex,
    qdisc: IngressQdisc,
    ownership: Ownership,
) -> Result<Result<(), NotRemoved>, LinkError> {
    if ownership == Ownership::Adopted {
        return Ok(Err(NotRemoved::Adopted));
    }
    match find_ingress(control, ifindex)? {
        Some(found) if found == qdisc => {}
        Some(found) => return Ok(Err(NotRemoved::Replaced(found))),
        None => return Ok(Err(NotRemoved::Gone)),
    }
    // As long as another device has a block, its filters outlive this.
    let is_shared = |attachment: &Attachment| matches!(attachment, Attachment::Block(_));
    for attachment in qdisc.attachments(ifindex) {
        if is_shared(&attachment) && sharers(control, attachment)? > 1 {
            continue;
        }
        if has_filters(control, attachment)? {
            return Ok(Err(NotRemoved::InUse(attachment)));
        }
    }
    let body = |writer: &mut Writer<'_>| qdisc.emit_name(ifindex, writer);
    match control.request("remove queueing discipline", DELETE, 0, body, |_| Ok(())) {
        Ok(()) => Ok(Ok(())),
        Err(error) if error.is(Errno::NOENT) || error.is(Errno::NODEV) => {
            // Between look and removal it went.
            if find_ingress(control, ifindex)?.is_none() { Ok(Err(NotRemoved::Gone)) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Reads the queueing disciplines that hold filters, of all devices.
pub(crate) fn all(control: &mut Control) -> Result<Vec<(Ifindex, IngressQdisc)>, LinkError> {
    control.dump(
        "list queueing disciplines",
        GET,
        |writer| TcHeader::default().emit(writer),
        |found: &mut Vec<_>, message| {
            found.extend(IngressQdisc::read(&TcView::new(message.payload)?)?);
            Ok(())
        },
    )
}

/// Reads the queueing discipline that holds the filters of a device, if it has one.
pub fn find_ingress(control: &mut Control, ifindex: Ifindex) -> Result<Option<IngressQdisc>, LinkError> {
    Ok(all(control)?.into_iter().find(|(at, _)| *at == ifindex).map(|(_, qdisc)| qdisc))
}

/// Counts the devices that have a block on one of their sides.
fn sharers(control: &mut Control, attachment: Attachment) -> Result<usize, LinkError> {
    let has = |(ifindex, qdisc): &(Ifindex, IngressQdisc)| qdisc.attachments(*ifindex).any(|at| at == attachment);
    Ok(all(control)?.iter().filter(|entry| has(entry)).count())
}

/// Returns whether there are filters, of whatever kind.
fn has_filters(control: &mut Control, attachment: Attachment) -> Result<bool, LinkError> {
    let (ifindex, parent) = attachment.index_and_parent();
    control.dump(
        "list filters",
        GET_FILTER,
        |writer| TcHeader { ifindex, parent, ..TcHeader::default() }.emit(writer),
        |found: &mut bool, _| {
            *found = true;
            Ok(())
        },
    )
}
