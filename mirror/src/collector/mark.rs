//! Marks in capture files: how far each class of each sender was taken over, and which of its drops files tell of. They are written together
//! with the frames, so that a collector that starts again knows exactly what is in its files, and neither loses nor doubles what was under
//! way when it ended. Frames without a mark behind them were being written when their collector was killed. Their sender has no
//! acknowledgement of them and sends them again, so that they are [cut off](mend).
//!
//! A mark is a block of pcapng of a type for local use, which other programs skip:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic, `SLMK` |
//! | 4..6 | version |
//! | 6 | class |
//! | 7 | zero |
//! | 8..16 | sender |
//! | 16..24 | sequence number behind the last frame that was taken over |
//! | 24.. | drops that files tell of, by cause, 8 bytes each; left out where none were told of since the last mark |

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::path::Path;

use pcap_file::pcapng::blocks::unknown::UnknownBlock;
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, SECTION_HEADER_BLOCK};
use sluice_control::mirror::{CLASSES, Class};
use tracing::warn;

use super::capture::PROGRAM;
use crate::wire::{Cause, Drops};

/// Type of the block; the highest bit says that it is for local use (pcapng, section 3.1).
const BLOCK: u32 = 0x8000_5348;
const MAGIC: [u8; 4] = *b"SLMK";
const VERSION: u16 = 1;
const BODY: usize = 24;

/// How far a class of a sender was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) sender: u64,
    pub(super) class: Class,
    pub(super) next: u64,
    /// The drops that files tell of, if these are others than at the last mark.
    pub(super) told: Option<Drops>,
}

impl Mark {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BODY];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6] = self.class.code();
        bytes[8..16].copy_from_slice(&self.sender.to_be_bytes());
        bytes[16..].copy_from_slice(&self.next.to_be_bytes());
        let told = self.told.iter().flat_map(Drops::iter);
        bytes.extend(told.flat_map(|(_, count)| count.to_be_bytes()));
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (bytes, drops) = bytes.split_at_checked(BODY)?;
        let mut told = Drops::default();
        for (cause, count) in Cause::ALL.into_iter().zip(drops.as_chunks().0) {
            told[cause] = u64::from_be_bytes(*count);
        }
        let told = (!drops.is_empty()).then_some(told);
        let (head, next) = bytes.split_last_chunk::<8>()?;
        let (head, sender) = head.split_last_chunk::<8>()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let &[high, low, class, 0] = rest else { return None };
        if *magic != MAGIC || u16::from_be_bytes([high, low]) != VERSION {
            return None;
        }
        let class = Class::of_code(class)?;
        Some(Self { sender: u64::from_be_bytes(*sender), class, next: u64::from_be_bytes(*next), told })
    }

    /// Returns the block.
    pub(super) fn block(&self) -> UnknownBlock<'static> {
        UnknownBlock { type_: BLOCK, length: 0, value: Cow::Owned(self.bytes()) }
    }
}

/// What the marks of a file say of each sender.
pub(super) type Marks = HashMap<u64, Marked>;

/// What marks say of a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marked {
    /// Of each class, how far it was taken over, and the drops that files tell of.
    pub(super) classes: [Option<(u64, Drops)>; CLASSES],
    /// Which of all marks the last one is.
    pub(super) last: u64,
}

impl Marked {
    fn take(&mut self, mark: Mark, place: u64) {
        let (next, told) = self.classes[mark.class.index()].get_or_insert_default();
        *next = mark.next;
        *told = mark.told.unwrap_or(*told);
        self.last = place;
    }
}

/// What a file says once it is mended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mended {
    pub(super) marks: Marks,
    /// It is a file of ours in which there are no frames.
    pub(super) is_without_frames: bool,
}

/// Reads the marks of a file of ours, and cuts off what is behind the last whole block, and frames without a mark. A file of somebody else
/// has no marks, and stays as it is.
///
/// # Errors
/// Fails if it cannot be opened, read or cut.
pub(super) fn mend(path: &Path) -> io::Result<Mended> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let Some(Found { marks, whole, has_frames }) = read(BufReader::new(file))? else { return Ok(Mended::default()) };
    if whole < length {
        OpenOptions::new().write(true).open(path)?.set_len(whole)?;
        let cut = length - whole;
        warn!("{} ended in {cut} bytes that no collector has finished: they are cut off", path.display());
    }
    Ok(Mended { marks, is_without_frames: !has_frames })
}

/// What is in a file.
struct Found {
    marks: Marks,
    /// Bytes of it that are to stay.
    whole: u64,
    /// There are frames in these.
    has_frames: bool,
}

/// Reads a file; `None` if no collector wrote it.
fn read(mut file: BufReader<File>) -> io::Result<Option<Found>> {
    let mut found = Found { marks: Marks::new(), whole: 0, has_frames: false };
    let (mut end, mut has_frames, mut count) = (0, false, 0);
    while let Some(Header { kind, body }) = Header::read(&mut file)? {
        let mut block = Vec::new();
        if kind == ENHANCED_PACKET_BLOCK {
            // Beyond the end of the file, the next read finds nothing.
            file.seek_relative(i64::from(body))?;
        } else {
            (&mut file).take(body.into()).read_to_end(&mut block)?;
        }
        let mut again = [0; 4];
        if !is_read(file.read_exact(&mut again))? || u32::from_le_bytes(again) != body + Header::BYTES {
            break;
        }
        end += u64::from(body + Header::BYTES);
        match kind {
            SECTION_HEADER_BLOCK => {
                let is_ours = block.windows(PROGRAM.len()).any(|words| words == PROGRAM.as_bytes());
                if !is_ours || !block.starts_with(&LITTLE_ENDIAN) {
                    return Ok(None);
                }
            }
            // Whatever begins otherwise is no capture.
            _ if found.whole == 0 => return Ok(None),
            ENHANCED_PACKET_BLOCK => has_frames = true,
            BLOCK => {
                if let Some(mark) = Mark::parse(&block) {
                    count += 1;
                    found.marks.entry(mark.sender).or_default().take(mark, count);
                    found.has_frames |= has_frames;
                    has_frames = false;
                }
            }
            _ => {}
        }
        if !has_frames {
            found.whole = end;
        }
    }
    Ok((found.whole > 0).then_some(found))
}

/// The magic of a section whose numbers are little endian.
const LITTLE_ENDIAN: [u8; 4] = 0x1a2b_3c4d_u32.to_le_bytes();

/// What a block begins with.
struct Header {
    kind: u32,
    /// Bytes between this and the length that ends the block.
    body: u32,
}

impl Header {
    /// Of what is around the body.
    const BYTES: u32 = 12;

    /// Reads one; `None` at the end of the file, or where no block is.
    fn read(file: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; 8];
        if !is_read(file.read_exact(&mut head))? {
            return Ok(None);
        }
        let [a, b, c, d, rest @ ..] = head;
        let length = u32::from_le_bytes(rest);
        let body = length.checked_sub(Self::BYTES).filter(|body| body.is_multiple_of(4));
        Ok(body.map(|body| Self { kind: u32::from_le_bytes([a, b, c, d]), body }))
    }
}

/// Whether there was something to read, and not the end of the file.
fn is_read(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::capture::{Capture, Interface, Packet};

    fn mark(class: Class, next: u64) -> Mark {
        Mark { sender: 7, class, next, told: None }
    }

    #[test]
    fn wherever_a_file_is_cut_off_its_last_mark_counts_and_nothing_stays_behind_that_but_whole_blocks() {
        let interface = Interface { sender: 7, name: "client".to_owned(), description: String::new() };
        let packet = || Packet { captured: 1, length: 61, bytes: &[1; 61], ufid: Some(5), lost: None };
        let mut capture = Capture::new().unwrap();
        // Where the file may end, and the mark of ARP that counts there.
        let (mut bytes, mut ends) = (capture.bytes().as_ref().to_vec(), Vec::new());
        ends.push((bytes.len(), None));
        capture.packet(&interface, &packet()).unwrap();
        let before = capture.bytes().as_ref().to_vec();
        // The interface is described in front of its first frame.
        let frame = u32::from_le_bytes(*before.last_chunk().unwrap());
        let described = before.len() - usize::try_from(frame).unwrap();
        ends.push((bytes.len() + described, None));
        bytes.extend(before);
        for next in 1..4 {
            capture.packet(&interface, &packet()).unwrap();
            capture.mark(&mark(Class::Arp, next)).unwrap();
            bytes.extend(capture.bytes().as_ref());
            ends.push((bytes.len(), Some(next)));
        }
        capture.statistics(2, |_| "summary".to_owned()).unwrap();
        bytes.extend(capture.bytes().as_ref());
        ends.push((bytes.len(), Some(3)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let Mended { marks, is_without_frames } = mend(&path).unwrap();
            let next = marks.get(&7).and_then(|marked| marked.classes[Class::Arp.index()]).map(|(next, _)| next);
            assert_eq!(is_without_frames, next.is_none() && cut >= ends[0].0, "{cut}");
            let kept = std::fs::read(&path).unwrap();
            match ends.iter().rfind(|(end, _)| *end <= cut) {
                Some((end, expected)) => assert_eq!((kept.len(), next), (*end, *expected), "{cut}"),
                None => assert_eq!((kept.len(), next), (cut, None), "not even a section"),
            }
            // What a machine that went down has not written is zeroes.
            if kept.len() == cut && cut >= ends[0].0 {
                std::fs::write(&path, [&kept[..], &[0; 40]].concat()).unwrap();
                mend(&path).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), kept);
            }
        }
    }

    #[test]
    fn a_mark_without_drops_leaves_those_of_an_earlier_one_and_the_order_of_senders_is_that_of_their_last_marks() {
        let told = |count| {
            let mut drops = Drops::default();
            drops[Cause::TapFailed] = count;
            drops
        };
        let mut capture = Capture::new().unwrap();
        let other = Mark { sender: 8, ..mark(Class::Bfd, 1) };
        let all = [
            Mark { told: Some(told(5)), ..mark(Class::Arp, 3) },
            other,
            mark(Class::Arp, 4),
            Mark { told: Some(told(6)), ..mark(Class::Nd, 9) },
        ];
        for mark in all {
            assert_eq!(Mark::parse(&mark.bytes()), Some(mark));
            capture.mark(&mark).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        std::fs::write(&path, capture.bytes().as_ref()).unwrap();
        let Mended { marks, is_without_frames } = mend(&path).unwrap();
        assert!(is_without_frames);
        let of = |sender, class: Class| marks[&sender].classes[class.index()];
        assert_eq!((of(7, Class::Arp), of(7, Class::Nd)), (Some((4, told(5))), Some((9, told(6)))));
        assert_eq!(of(8, Class::Bfd), Some((1, Drops::default())));
        assert!(marks[&8].last < marks[&7].last);
    }

    #[test]
    fn a_capture_of_somebody_else_stays_as_it_is() {
        let mut capture = Capture::new().unwrap();
        capture.mark(&mark(Class::Arp, 3)).unwrap();
        let ours = capture.bytes().as_ref().to_vec();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        let name = ours.windows(6).position(|words| words == b"sluice").unwrap();
        for (at, byte) in [(0, 0), (8, 0), (name, b'S')] {
            let mut other = [&ours[..], b"torn"].concat();
            other[at] = byte;
            std::fs::write(&path, &other).unwrap();
            assert_eq!(mend(&path).unwrap(), Mended::default());
            assert_eq!(std::fs::read(&path).unwrap(), other);
        }
    }
}
