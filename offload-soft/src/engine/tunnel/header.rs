//! What is put into a tunnel, and what the header of one says.

use std::ops::Range;

use crate::packet::TunnelOptions;
use crate::packet::checksum::Sum;
use crate::packet::headers::Udp;

pub(super) const UDP: usize = Udp::<&[u8]>::LENGTH;

/// What is put into a tunnel.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) bytes: &'a [u8],
    /// Its Ethernet type, if it has no Ethernet header.
    pub(crate) layer3: Option<u16>,
}

/// What a tunnel header says, and where its payload is.
pub(super) struct TunnelHeader {
    pub(super) id: u64,
    pub(super) flags: u8,
    pub(super) options: TunnelOptions,
    /// Where the payload is, from the start of the tunnel header on.
    pub(super) payload: Range<usize>,
    /// The Ethernet type of the payload, if it has no Ethernet header.
    pub(super) layer3: Option<u16>,
}

/// The Internet checksum over all of the bytes is right.
pub(super) fn is_checksum_right(bytes: &[u8]) -> bool {
    Sum::default().bytes(bytes).finish() == 0
}
