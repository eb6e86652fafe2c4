//! A TCP segment as tracking sees it.

use super::connection::Kind;
use crate::packet::{BytesAt, Headers, Transport};

/// Flags of TCP.
mod flag {
    pub(super) const FIN: u16 = 0x01;
    pub(super) const SYN: u16 = 0x02;
    pub(super) const RST: u16 = 0x04;
    pub(super) const ACK: u16 = 0x10;
    pub(super) const URG: u16 = 0x20;
    /// PSH, ECE, CWR and NS say nothing of a connection's state, and may stand with all others.
    pub(super) const OF_CONNECTIONS: u16 = FIN | SYN | RST | ACK | URG;
}

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) kind: Kind,
    pub(super) sequence: u32,
    /// Behind what it carries; a SYN and a FIN count for a byte each.
    pub(super) end: u32,
    pub(super) acknowledgement: u32,
    /// Whether that means anything.
    pub(super) acknowledges: bool,
    /// The end of the last block that it acknowledges beyond that, if it has any.
    pub(super) selective: Option<u32>,
    /// As it stands there.
    pub(super) window: u16,
    pub(super) synchronizes: bool,
}

impl Segment {
    /// None if there is no TCP header, if it is longer than the packet, or if its flags make no sense together, which is
    /// what Linux checks in `tcp_error`. Checksums are not looked at: those of frames that leave a queue are not there yet.
    pub(super) fn parse(frame: &[u8], headers: &Headers) -> Option<Self> {
        let ip = headers.outer.ip.as_ref()?;
        let Some(Transport::Tcp { at, sequence, acknowledgement, flags, .. }) = headers.outer.transport else {
            return None;
        };
        // The frame may be longer, by what Ethernet fills it up with.
        let end = match ip.version {
            4 => ip.at + usize::from(frame.u16_at(ip.at + 2)?),
            _ => ip.at + 40 + usize::from(frame.u16_at(ip.at + 4)?),
        };
        let data = at + usize::from(frame.u8_at(at + 12)? >> 4) * 4;
        if data < at + 20 || data > end || end > frame.len() {
            return None;
        }
        let has = |flag| flags & flag != 0;
        let kind = kind(flags)?;
        let length = u32::try_from(end - data).ok()? + u32::from(has(flag::SYN)) + u32::from(has(flag::FIN));
        Some(Self {
            kind,
            sequence,
            end: sequence.wrapping_add(length),
            acknowledgement,
            acknowledges: has(flag::ACK),
            selective: last_block(&frame[at + 20..data], acknowledgement),
            window: frame.u16_at(at + 14)?,
            synchronizes: has(flag::SYN),
        })
    }
}

/// What flags say, if they may stand together (Linux' `tcp_valid_flags`).
fn kind(flags: u16) -> Option<Kind> {
    use flag::{ACK, FIN, OF_CONNECTIONS, RST, SYN, URG};
    const URGENT_SYN: u16 = SYN | URG;
    const SYN_ACK: u16 = SYN | ACK;
    const RST_ACK: u16 = RST | ACK;
    const FIN_ACK: u16 = FIN | ACK;
    const URGENT_FIN_ACK: u16 = FIN | ACK | URG;
    const URGENT_ACK: u16 = ACK | URG;
    match flags & OF_CONNECTIONS {
        SYN | URGENT_SYN => Some(Kind::Syn),
        SYN_ACK => Some(Kind::SynAck),
        RST | RST_ACK => Some(Kind::Rst),
        FIN_ACK | URGENT_FIN_ACK => Some(Kind::Fin),
        ACK | URGENT_ACK => Some(Kind::Ack),
        _ => None,
    }
}

/// The highest end of the blocks that are acknowledged selectively (RFC 2018), beyond an acknowledgement.
fn last_block(mut options: &[u8], acknowledgement: u32) -> Option<u32> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const BLOCKS: u8 = 5;
    let mut last = None;
    while let [kind, rest @ ..] = options {
        if *kind == END {
            break;
        }
        if *kind == NOTHING {
            options = rest;
            continue;
        }
        let length = usize::from(*rest.first()?);
        let option = options.get(..length).filter(|option| option.len() >= 2)?;
        if *kind == BLOCKS {
            for block in option[2..].as_chunks::<8>().0 {
                let end = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
                if is_after(end, last.unwrap_or(acknowledgement)) {
                    last = Some(end);
                }
            }
        }
        options = &options[length..];
    }
    last
}

/// Whether a sequence number comes after another one (RFC 793, 3.3).
pub(super) fn is_after(number: u32, other: u32) -> bool {
    other.wrapping_sub(number) >= 1 << 31
}
