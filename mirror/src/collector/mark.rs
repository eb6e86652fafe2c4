//! Marks in capture files: how far each class of each sender was taken over. They are written together with the frames, so that a
//! collector that starts again knows exactly what is in its files, and neither loses nor doubles what was under way when it ended.
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

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use pcap_file::pcapng::blocks::unknown::UnknownBlock;
use sluice_control::mirror::{CLASSES, Class};

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
}

impl Mark {
    fn bytes(&self) -> [u8; BODY] {
        let mut bytes = [0; BODY];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6] = self.class.code();
        bytes[8..16].copy_from_slice(&self.sender.to_be_bytes());
        bytes[16..].copy_from_slice(&self.next.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, next) = bytes.split_last_chunk::<8>()?;
        let (head, sender) = head.split_last_chunk::<8>()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let &[high, low, class, 0] = rest else { return None };
        if *magic != MAGIC || u16::from_be_bytes([high, low]) != VERSION {
            return None;
        }
        let class = Class::of_code(class)?;
        Some(Self { sender: u64::from_be_bytes(*sender), class, next: u64::from_be_bytes(*next) })
    }

    /// Returns the block.
    pub(super) fn block(&self) -> UnknownBlock<'static> {
        UnknownBlock { type_: BLOCK, length: 0, value: Cow::Owned(self.bytes().to_vec()) }
    }
}

/// The last mark of each class of each sender.
pub(super) type Marks = HashMap<u64, [Option<u64>; CLASSES]>;

/// Reads the marks of a file of ours, up to where it ends or is no such file any more.
///
/// # Errors
/// Fails if it cannot be opened or read.
pub(super) fn read(path: &Path) -> io::Result<Marks> {
    const HEAD: usize = 8;
    const TAIL: u32 = 4;
    let mut file = BufReader::new(File::open(path)?);
    let mut marks = Marks::new();
    loop {
        let mut head = [0; HEAD];
        let [a, b, c, d, rest @ ..] = match file.read_exact(&mut head) {
            Ok(()) => head,
            // Cut off, which the end of a process cannot do and that of a machine can.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(marks),
            Err(error) => return Err(error),
        };
        let (kind, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(rest));
        let Some(body) = length.checked_sub(8 + TAIL) else { return Ok(marks) };
        if kind != BLOCK {
            // Beyond the end of the file, the next read finds nothing.
            file.seek_relative(i64::from(body) + i64::from(TAIL))?;
            continue;
        }
        let mut block = Vec::new();
        (&mut file).take(u64::from(body) + u64::from(TAIL)).read_to_end(&mut block)?;
        if let Some(mark) = block.get(..BODY).and_then(Mark::parse) {
            marks.entry(mark.sender).or_default()[mark.class.index()] = Some(mark.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use pcap_file::Endianness;
    use pcap_file::pcapng::PcapNgWriter;

    use super::*;

    #[test]
    fn the_last_mark_of_each_class_counts_also_if_the_file_is_cut_off() {
        let mark = |class, next| Mark { sender: 7, class, next };
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Big).unwrap();
        for mark in [mark(Class::Arp, 3), mark(Class::Bfd, 10), mark(Class::Arp, u64::MAX)] {
            writer.write_pcapng_block(mark.block()).unwrap();
        }
        let bytes = writer.into_inner();
        let mut expected = [None; CLASSES];
        expected[Class::Arp.index()] = Some(u64::MAX);
        expected[Class::Bfd.index()] = Some(10);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        assert_eq!(read(&path).unwrap(), Marks::from([(7, expected)]));
        for cut in 0..bytes.len() {
            File::create(&path).unwrap().write_all(&bytes[..cut]).unwrap();
            let marks = read(&path).unwrap();
            let next = marks.get(&7).and_then(|marks| marks[Class::Arp.index()]);
            assert!([None, Some(3)].contains(&next) || cut >= bytes.len() - 4, "{cut}: {next:?}");
        }
    }
}
