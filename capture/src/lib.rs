//! Captures: the frames of a pcap or pcapng file, one after the other, with the place of what is wrong.
//!
//! ```
//! use sluice_capture::{Capture, CaptureError};
//!
//! let picture = Capture::open(&b"GIF89a"[..]);
//! assert!(matches!(picture, Err(CaptureError::Format(_))));
//! ```
//!
//! The `pcap-file` crate finds where a record of a pcap file begins and ends. What is in a record is read here, and all of pcapng, for the
//! crate's own reading refuses captures with a short snap length or with options that it does not expect, takes every pcapng time for
//! nanoseconds, and leaves the padding on simple packets.

mod blocks;

use std::io::{self, Read};
use std::time::Duration;

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};
use pcap_file::{DataLink, PcapError, PcapResult, TsResolution};

use blocks::{Block, Fields, Interface, Section};

/// The longest record that is taken for one; a length beyond it is a wrong length.
const RECORD_LIMIT: usize = 16 << 20;

/// How much is read at once.
const PIECE: usize = 256 << 10;

const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP_MAGICS: [u32; 4] = [0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it was captured, since 1970; simple packets do not say.
    pub time: Option<Duration>,
    /// Its bytes, without FCS.
    pub data: Vec<u8>,
    /// Whether the capture left its end out.
    pub is_cut: bool,
}

impl Frame {
    /// That of a record which says how long the frame was with its FCS, and of an interface which says how long that was.
    fn new(time: Option<Duration>, mut data: Vec<u8>, original_length: u32, check_sequence: usize) -> Self {
        let original_length = usize::try_from(original_length).unwrap_or(usize::MAX);
        let missing = original_length.saturating_sub(data.len());
        data.truncate(data.len().saturating_sub(check_sequence.saturating_sub(missing)));
        Self { time, data, is_cut: missing > check_sequence }
    }
}

/// Why a capture cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is something else; these are its first bytes.
    #[error("neither pcap nor pcapng: it begins with {0:02x?}")]
    Format(Vec<u8>),
    /// It ends too early; the record begins at this byte.
    #[error("the file ends within the record that begins at byte {0}")]
    Truncated(u64),
    /// A record says what cannot be.
    #[error("corrupt record at byte {position}: {reason}")]
    Corrupt {
        /// Where the record begins.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// It holds something else than Ethernet frames.
    #[error("link type {link} at byte {position}; only Ethernet can be replayed")]
    LinkType {
        /// Where that is said.
        position: u64,
        /// What it holds.
        link: String,
    },
}

/// An open capture.
pub struct Capture<R> {
    source: Source<R>,
    format: Format,
}

enum Format {
    Classic(PcapParser),
    Blocks(Section),
}

impl<R: Read> Capture<R> {
    /// Reads the beginning of a capture and says whether it is one that can be replayed.
    pub fn open(reader: R) -> Result<Self, CaptureError> {
        let mut source = Source { reader, buffer: Vec::new(), start: 0, position: 0, ended: false };
        while source.rest().len() < 4 && !source.ended {
            source.fill()?;
        }
        let Some(&magic) = source.rest().first_chunk::<4>() else {
            return Err(CaptureError::Format(source.rest().to_vec()));
        };
        if magic == PCAPNG_MAGIC {
            let section = source.record(Section::begin)?.ok_or(CaptureError::Truncated(0))?;
            return Ok(Self { source, format: Format::Blocks(section) });
        }
        if !PCAP_MAGICS.contains(&u32::from_be_bytes(magic)) {
            return Err(CaptureError::Format(magic.to_vec()));
        }
        let parser = source.record(PcapParser::new)?.ok_or(CaptureError::Truncated(0))?;
        check_link(parser.header().datalink, 20)?;
        Ok(Self { source, format: Format::Classic(parser) })
    }

    /// The next frame, none at the end.
    #[expect(clippy::should_implement_trait, reason = "what is wrong with a capture ends it")]
    pub fn next(&mut self) -> Result<Option<Frame>, CaptureError> {
        let Self { source, format } = self;
        match format {
            Format::Classic(parser) => next_record(source, parser),
            Format::Blocks(section) => next_block(source, section),
        }
    }

    /// How many bytes have been read.
    pub fn position(&self) -> u64 {
        self.source.position
    }
}

fn next_record<R: Read>(source: &mut Source<R>, parser: &PcapParser) -> Result<Option<Frame>, CaptureError> {
    let record = source.record(|bytes| {
        let (rest, record) = parser.next_raw_packet(bytes)?;
        Ok((rest, (record.ts_sec, record.ts_frac, record.orig_len, record.data.into_owned())))
    })?;
    let Some((seconds, fraction, original_length, data)) = record else { return Ok(None) };
    // Some writers put a second and more behind the point; readers such as tcpdump and Wireshark add it.
    let fraction = match parser.header().ts_resolution {
        TsResolution::MicroSecond => Duration::from_micros(fraction.into()),
        TsResolution::NanoSecond => Duration::from_nanos(fraction.into()),
    };
    let time = Some(Duration::from_secs(seconds.into()) + fraction);
    let check_sequence = check_sequence(u32::from(parser.header().datalink));
    Ok(Some(Frame::new(time, data, original_length, check_sequence)))
}

fn next_block<R: Read>(source: &mut Source<R>, section: &mut Section) -> Result<Option<Frame>, CaptureError> {
    loop {
        let position = source.position;
        let block = source.record(|bytes| {
            let (rest, Block { kind, body }) = section.next_block(bytes)?;
            let is_packet = matches!(kind, ENHANCED_PACKET_BLOCK | SIMPLE_PACKET_BLOCK | PACKET_BLOCK);
            Ok((rest, is_packet.then(|| (kind, body.to_vec()))))
        })?;
        let (kind, body) = match block {
            None => return Ok(None),
            Some(None) => continue,
            Some(Some(packet)) => packet,
        };
        let corrupt = |reason: &str| CaptureError::Corrupt { position, reason: reason.to_owned() };
        let packet = Packet::read(kind, &Fields { bytes: &body, endianness: section.endianness });
        let packet = packet.ok_or_else(|| corrupt("it is too short for what it says is in it"))?;
        let interface = usize::try_from(packet.interface).ok().and_then(|index| section.interfaces.get(index));
        let interface = interface.ok_or_else(|| corrupt("it is of an interface that is not described before it"))?;
        check_link(interface.link, position)?;
        return Ok(Some(packet.into_frame(interface)));
    }
}

/// A packet of a pcapng file.
struct Packet<'a> {
    interface: u32,
    /// In units of the interface.
    time: Option<u64>,
    original_length: u32,
    data: &'a [u8],
    /// Bytes of FCS, if it says so itself.
    check_sequence: Option<u8>,
}

impl<'a> Packet<'a> {
    /// Reads the body of a block of a kind that holds a packet.
    fn read(kind: u32, body: &Fields<'a>) -> Option<Self> {
        if kind == SIMPLE_PACKET_BLOCK {
            let (original_length, data) = (body.word(0)?, body.bytes.get(4..)?);
            return Some(Self { interface: 0, time: None, original_length, data, check_sequence: None });
        }
        let interface = match (kind, body.word(0)?) {
            (ENHANCED_PACKET_BLOCK, interface) => interface,
            // The old packet block has a half-word for the interface, and one for drops behind it.
            (_, halves) if body.endianness.is_big() => halves >> 16,
            (_, halves) => halves & 0xffff,
        };
        let length = usize::try_from(body.word(12)?).ok()?;
        Some(Self {
            interface,
            time: Some(u64::from(body.word(4)?) << 32 | u64::from(body.word(8)?)),
            original_length: body.word(16)?,
            data: body.bytes.get(20..)?.get(..length)?,
            check_sequence: body.check_sequence(20 + length.next_multiple_of(4)),
        })
    }

    fn into_frame(self, interface: &Interface) -> Frame {
        let original_length = usize::try_from(self.original_length).unwrap_or(usize::MAX);
        let mut data = self.data;
        if self.time.is_none() {
            // A simple packet does not say how much of it was captured; the rest is padding.
            let snap_length = usize::try_from(interface.snap_length).unwrap_or(usize::MAX);
            let most = if snap_length == 0 { original_length } else { original_length.min(snap_length) };
            data = data.get(..most).unwrap_or(data);
        }
        let time = self.time.map(|units| interface.time(units));
        let check_sequence = self.check_sequence.unwrap_or(interface.check_sequence);
        Frame::new(time, data.to_vec(), self.original_length, check_sequence.into())
    }
}

/// Bytes of FCS that every frame has, by the upper bits of the field that says the link type in a classic header: whether it is said,
/// and how many half-words (draft-ietf-opsawg-pcap, 4).
fn check_sequence(link: u32) -> usize {
    const IS_SAID: u32 = 0x0400_0000;
    if link & IS_SAID == 0 { 0 } else { 2 * (link >> 28) as usize }
}

fn check_link(link: DataLink, position: u64) -> Result<(), CaptureError> {
    if u32::from(link) & 0x03ff_ffff == u32::from(DataLink::ETHERNET) {
        return Ok(());
    }
    let link = match link {
        DataLink::Unknown(number) => number.to_string(),
        known => format!("{known:?} ({})", u32::from(known)),
    };
    Err(CaptureError::LinkType { position, link })
}

/// Bytes of a file, and where they are in it.
struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Where in `buffer` the next record begins.
    start: usize,
    /// Where in the file it begins.
    position: u64,
    ended: bool,
}

impl<R: Read> Source<R> {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads a record by a parser that gives what is behind it, reading on for as long as it wants more. None at the end.
    fn record<T>(&mut self, mut parse: impl FnMut(&[u8]) -> PcapResult<(&[u8], T)>) -> Result<Option<T>, CaptureError> {
        loop {
            let position = self.position;
            let corrupt = |reason: String| CaptureError::Corrupt { position, reason };
            let bytes = &self.buffer[self.start..];
            match parse(bytes) {
                Ok((behind, record)) => {
                    let length = bytes.len() - behind.len();
                    self.start += length;
                    self.position += length as u64;
                    return Ok(Some(record));
                }
                Err(PcapError::IncompleteBuffer) if bytes.is_empty() && self.ended => return Ok(None),
                Err(PcapError::IncompleteBuffer) if self.ended => return Err(CaptureError::Truncated(position)),
                Err(PcapError::IncompleteBuffer) if bytes.len() > RECORD_LIMIT => {
                    return Err(corrupt(format!("it would be longer than {RECORD_LIMIT} bytes")));
                }
                Err(PcapError::IncompleteBuffer) => self.fill()?,
                Err(error) => return Err(corrupt(error.to_string())),
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let read = self.reader.by_ref().take(PIECE as u64).read_to_end(&mut self.buffer)?;
        self.ended = read == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
