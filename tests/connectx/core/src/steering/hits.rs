//! ASO objects of first hits: which of their lines a packet has hit.

use std::collections::{BTreeMap, BTreeSet};

/// Lines of one object.
const LINES: u16 = 512;
/// Bytes of one, with a bit for each line.
pub(crate) const OBJECT: usize = LINES as usize / 8;

/// The largest block of objects, as a power of two.
const LOG_MAX_ALLOCATION: u64 = 10;

/// All objects, in blocks by the number of their first.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    next: u32,
    blocks: BTreeMap<u32, Block>,
}

#[derive(Debug)]
struct Block {
    objects: u32,
    /// The protection domain of queues that may read and write.
    domain: u32,
    /// Those that were hit, by object.
    lines: BTreeSet<(u32, u16)>,
}

impl Hits {
    /// A block of 2^`log` objects of a protection domain, of which no line was hit: the number of the first.
    pub(crate) fn allocate(&mut self, domain: u32, log: u64) -> Result<u32, String> {
        if log > LOG_MAX_ALLOCATION {
            return Err(format!("blocks of 2^{log} ASO objects are not handed out"));
        }
        let (first, objects) = (self.next, 1 << log);
        if first + objects > 1 << 24 {
            return Err("no ASO objects are left".to_owned());
        }
        self.next = first + objects;
        self.blocks.insert(first, Block { objects, domain, lines: BTreeSet::new() });
        Ok(first)
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, first: u32) -> Result<(), String> {
        self.blocks.remove(&first).map(|_| ()).ok_or_else(|| missing(first))
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Which lines of an object were hit: the first is the lowest bit of the last byte, as DPDK's driver reads it.
    pub(crate) fn bytes(&self, object: u32) -> Result<[u8; OBJECT], String> {
        let (first, block) = self.blocks.range(..=object).next_back().ok_or_else(|| missing(object))?;
        if object - first >= block.objects {
            return Err(missing(object));
        }
        let mut bytes = [0; OBJECT];
        for (_, line) in block.lines.range((object, 0)..=(object, LINES - 1)) {
            bytes[byte_of(*line)] |= 1 << (line % 8);
        }
        Ok(bytes)
    }

    /// Has those bytes of an object that a mask names, its highest bit the first byte, be as given, for a queue of a protection
    /// domain.
    pub(crate) fn write(&mut self, domain: u32, object: u32, mask: u64, data: &[u8; OBJECT]) -> Result<(), String> {
        let block = self.block(object)?;
        if block.domain != domain {
            return Err(format!("object {object:#x} is of PD {:#x}, and the queue of {domain:#x}", block.domain));
        }
        for line in (0..LINES).filter(|line| mask << byte_of(*line) >> 63 == 1) {
            if data[byte_of(line)] >> (line % 8) & 1 == 1 {
                block.lines.insert((object, line));
            } else {
                block.lines.remove(&(object, line));
            }
        }
        Ok(())
    }

    /// Whether a line was hit before; if it is to be set, it was from now on.
    pub(super) fn hit(&mut self, object: u32, line: u16, set: bool) -> Result<bool, String> {
        let block = self.block(object)?;
        Ok(if set { !block.lines.insert((object, line)) } else { block.lines.contains(&(object, line)) })
    }

    fn block(&mut self, object: u32) -> Result<&mut Block, String> {
        let found = self.blocks.range_mut(..=object).next_back();
        found
            .filter(|(first, block)| object - **first < block.objects)
            .map(|(_, block)| block)
            .ok_or_else(|| missing(object))
    }
}

/// In which byte of an object a line is.
const fn byte_of(line: u16) -> usize {
    OBJECT - 1 - line as usize / 8
}

fn missing(object: u32) -> String {
    format!("there is no ASO object {object:#x} of first hits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_hit_once_and_others_are_not() {
        let mut hits = Hits::default();
        let first = hits.allocate(5, 1).unwrap();
        assert!(hits.allocate(5, LOG_MAX_ALLOCATION + 1).is_err());
        assert_eq!(hits.hit(first + 1, 7, false), Ok(false), "only read");
        assert_eq!(hits.hit(first + 1, 7, true), Ok(false));
        assert_eq!(hits.hit(first + 1, 7, true), Ok(true));
        assert_eq!(hits.bytes(first), Ok([0; OBJECT]));
        assert_eq!(hits.bytes(first + 1).map(|bytes| (bytes[63], bytes[62])), Ok((0x80, 0)));
        assert!(hits.hit(first + 2, 0, true).is_err());
        hits.free(first).unwrap();
        assert!(hits.free(first).is_err() && hits.bytes(first).is_err());
        assert_eq!(hits.len(), 0);
    }

    #[test]
    fn what_is_written_is_as_given_and_the_rest_as_it_was() {
        let mut hits = Hits::default();
        let object = hits.allocate(5, 0).unwrap();
        for line in [0, 8] {
            hits.hit(object, line, true).unwrap();
        }
        let mut data = [0; OBJECT];
        data[62] = 0x04;
        hits.write(5, object, 0b10, &data).unwrap();
        assert_eq!([0, 8, 10].map(|line| hits.hit(object, line, false).unwrap()), [true, false, true]);
        assert!(hits.write(6, object, u64::MAX, &data).unwrap_err().contains("is of PD 0x5"));
        assert!(hits.write(5, object + 1, u64::MAX, &data).is_err());
    }
}
