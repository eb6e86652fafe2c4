//! Where the blocks of a pcapng file begin and end, and what of sections and interfaces matters to frames.
//!
//! The `pcap-file` crate reads sections and interfaces with all their options. It refuses those that name a time zone, that have a comment
//! or a name that is not UTF-8, or whose list of options has no end mark, which the format allows. Here all of that is passed over.

use std::time::Duration;

use pcap_file::pcapng::blocks::{INTERFACE_DESCRIPTION_BLOCK, SECTION_HEADER_BLOCK};
use pcap_file::{DataLink, Endianness, PcapError, PcapResult};

/// Numbers of options (draft-ietf-opsawg-pcapng, 3.5, 4.2 and 4.3).
mod option {
    pub(super) const END: u16 = 0;
    /// Of a packet.
    pub(super) const FLAGS: u16 = 2;
    pub(super) const TIME_RESOLUTION: u16 = 9;
    pub(super) const CHECK_SEQUENCE: u16 = 13;
    pub(super) const TIME_OFFSET: u16 = 14;
}

/// The shortest block: its kind and its length, and its length again.
const SHORTEST: usize = 12;
/// The shortest body of a section header: byte order, version and length of the section.
const SHORTEST_SECTION: usize = 16;

/// A section of a file, up to where it has been read.
pub(crate) struct Section {
    pub(crate) endianness: Endianness,
    pub(crate) interfaces: Vec<Interface>,
}

/// What an interface says of the frames that were captured at it.
pub(crate) struct Interface {
    pub(crate) link: DataLink,
    /// Bytes that were captured of a frame at most; 0 if there was no limit.
    pub(crate) snap_length: u32,
    /// The unit of time: a negative power of ten, or of two with the highest bit set.
    pub(crate) resolution: u8,
    /// Seconds that are added to each time.
    pub(crate) offset: i64,
    /// Bytes of FCS that each frame has that does not say otherwise.
    pub(crate) check_sequence: u8,
}

/// A block without what is around its body.
pub(crate) struct Block<'a> {
    pub(crate) kind: u32,
    pub(crate) body: &'a [u8],
}

impl Section {
    /// Reads the block that a file begins with, which is that of a section.
    pub(crate) fn begin(bytes: &[u8]) -> PcapResult<(&[u8], Self)> {
        // The block says its byte order itself.
        let mut section = Self { endianness: Endianness::Big, interfaces: Vec::new() };
        let (rest, _) = section.next_block(bytes)?;
        Ok((rest, section))
    }

    /// Finds the next block, and what is behind it. Takes note of a new section and of an interface.
    pub(crate) fn next_block<'a>(&mut self, bytes: &'a [u8]) -> PcapResult<(&'a [u8], Block<'a>)> {
        let (rest, endianness, block) = block(bytes, self.endianness)?;
        match block.kind {
            SECTION_HEADER_BLOCK if block.body.len() < SHORTEST_SECTION => {
                return Err(PcapError::InvalidField("a section that is too short"));
            }
            SECTION_HEADER_BLOCK => *self = Self { endianness, interfaces: Vec::new() },
            INTERFACE_DESCRIPTION_BLOCK => {
                let interface = Interface::read(&Fields { bytes: block.body, endianness });
                let wrong = "an interface that is too short for what it says is in it";
                self.interfaces.push(interface.ok_or(PcapError::InvalidField(wrong))?);
            }
            _ => {}
        }
        Ok((rest, block))
    }
}

/// Finds a block: what is behind it, its byte order and itself. A section may have another byte order than the one before it.
fn block(bytes: &[u8], endianness: Endianness) -> PcapResult<(&[u8], Endianness, Block<'_>)> {
    let Some((kind, byte_order)) = bytes.get(..4).zip(bytes.get(8..SHORTEST)) else {
        return Err(PcapError::IncompleteBuffer);
    };
    let endianness = match byte_order {
        _ if kind != SECTION_HEADER_BLOCK.to_be_bytes() => endianness,
        [0x1a, 0x2b, 0x3c, 0x4d] => Endianness::Big,
        [0x4d, 0x3c, 0x2b, 0x1a] => Endianness::Little,
        _ => return Err(PcapError::InvalidField("a section in an unknown byte order")),
    };
    let fields = Fields { bytes, endianness };
    let (kind, length) = fields.word(0).zip(fields.word(4)).ok_or(PcapError::IncompleteBuffer)?;
    let length = usize::try_from(length).map_err(|_| PcapError::IncompleteBuffer)?;
    if length < SHORTEST || !length.is_multiple_of(4) {
        return Err(PcapError::InvalidField("a length that no block has"));
    }
    let (block, rest) = bytes.split_at_checked(length).ok_or(PcapError::IncompleteBuffer)?;
    if fields.word(length - 4) != fields.word(4) {
        return Err(PcapError::InvalidField("another length at the end of a block than at its beginning"));
    }
    Ok((rest, endianness, Block { kind, body: &block[8..length - 4] }))
}

impl Interface {
    /// Reads the body of its block.
    fn read(body: &Fields<'_>) -> Option<Self> {
        let link = DataLink::from(u32::from(body.half(0)?));
        // If it does not say otherwise, times are in microseconds since 1970.
        let mut interface = Self { link, snap_length: body.word(4)?, resolution: 6, offset: 0, check_sequence: 0 };
        for option in body.options(8) {
            let (code, value) = option?;
            match code {
                option::TIME_RESOLUTION => [interface.resolution] = <[u8; 1]>::try_from(value).ok()?,
                option::CHECK_SEQUENCE => [interface.check_sequence] = <[u8; 1]>::try_from(value).ok()?,
                option::TIME_OFFSET => {
                    let value = value.try_into().ok()?;
                    let is_big = body.endianness.is_big();
                    interface.offset = if is_big { i64::from_be_bytes(value) } else { i64::from_le_bytes(value) };
                }
                _ => {}
            }
        }
        Some(interface)
    }

    /// The time since 1970 that a number of its units means.
    pub(crate) fn time(&self, units: u64) -> Duration {
        const SECOND: u128 = 1_000_000_000;
        let exponent = u32::from(self.resolution & 0x7f);
        let nanoseconds = if self.resolution & 0x80 != 0 {
            (u128::from(units) * SECOND) >> exponent
        } else {
            // Beyond 10^-38 nothing is left of 64 bits.
            10_u128.checked_pow(exponent).map_or(0, |per_second| u128::from(units) * SECOND / per_second)
        };
        let seconds = u64::try_from(nanoseconds / SECOND).unwrap_or(u64::MAX);
        let below = u32::try_from(nanoseconds % SECOND).unwrap_or(0);
        Duration::new(seconds.saturating_add_signed(self.offset), below)
    }
}

/// The numbers in a block.
pub(crate) struct Fields<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) endianness: Endianness,
}

impl<'a> Fields<'a> {
    /// Bytes of FCS that a packet says that it has, in the flags among the options from a place on: in a half-byte, of which zero says
    /// nothing. One that is cut off is passed over, with all behind it.
    pub(crate) fn check_sequence(&self, at: usize) -> Option<u8> {
        let flags = self.options(at).flatten().find(|(code, _)| *code == option::FLAGS);
        let flags = Fields { bytes: flags?.1, endianness: self.endianness }.word(0)?;
        u8::try_from(flags >> 5 & 0xf).ok().filter(|length| *length != 0)
    }

    /// The options from a place on, number and value of each; none for one that is cut off, which is the last then.
    fn options(&self, mut at: usize) -> impl Iterator<Item = Option<(u16, &'a [u8])>> {
        std::iter::from_fn(move || {
            // The end of the block is the end of the list, too.
            let (code, length) = self.half(at).zip(self.half(at + 2)).filter(|(code, _)| *code != option::END)?;
            let length = usize::from(length);
            let value = self.bytes.get(at + 4..).and_then(|rest| rest.get(..length));
            at = if value.is_some() { at + 4 + length.next_multiple_of(4) } else { self.bytes.len() };
            Some(value.map(|value| (code, value)))
        })
    }

    fn half(&self, at: usize) -> Option<u16> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.endianness.is_big() { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    pub(crate) fn word(&self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.endianness.is_big() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}
