//! What all messages about traffic control begin with.

use crate::netlink::attribute::{Attributes, Malformed, Writer};

const PLACE: &str = "traffic control";

/// `struct tcmsg`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcHeader {
    /// The device, or -1 for a block.
    pub(crate) ifindex: u32,
    /// The number of what the message is about.
    pub(crate) handle: u32,
    /// What it hangs on, or the number of the block.
    pub(crate) parent: u32,
    /// Of a filter, priority and protocol.
    pub(crate) info: u32,
}

impl TcHeader {
    const LENGTH: usize = 20;

    pub(crate) fn emit(&self, writer: &mut Writer<'_>) {
        let family_and_holes = [0; 4];
        writer.raw(&family_and_holes);
        for word in [self.ifindex, self.handle, self.parent, self.info] {
            writer.raw(&word.to_ne_bytes());
        }
    }

    /// The protocol is in the order of networks.
    pub(crate) const fn priority_and_protocol(&self) -> [u16; 2] {
        let [a, b, c, d] = self.info.to_be_bytes();
        [u16::from_be_bytes([a, b]), u16::from_be(u16::from_be_bytes([c, d]))]
    }
}

/// A message about traffic control.
pub(crate) struct TcView<'a> {
    pub(crate) header: TcHeader,
    attributes: &'a [u8],
}

impl<'a> TcView<'a> {
    /// Reads what is behind the header of a message.
    pub(crate) fn new(payload: &'a [u8]) -> Result<Self, Malformed> {
        let cut = Malformed::Truncated { place: PLACE };
        let (fixed, attributes) = payload.split_first_chunk::<{ TcHeader::LENGTH }>().ok_or(cut)?;
        let [_, _, _, _, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *fixed;
        let header = TcHeader {
            ifindex: u32::from_ne_bytes([a, b, c, d]),
            handle: u32::from_ne_bytes([e, f, g, h]),
            parent: u32::from_ne_bytes([i, j, k, l]),
            info: u32::from_ne_bytes([m, n, o, p]),
        };
        Ok(Self { header, attributes })
    }

    pub(crate) const fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.attributes, PLACE)
    }
}
