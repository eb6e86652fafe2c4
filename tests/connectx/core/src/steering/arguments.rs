//! Arguments of rewrites: values for patterns, which software writes through its send queues.

use std::collections::BTreeMap;

/// Bytes of one argument: eight actions.
pub(crate) const ARGUMENT: usize = 64;

/// The smallest block, as a power of two.
pub(crate) const LOG_GRANULARITY: u64 = 0;
/// The largest.
pub(crate) const LOG_MAX_ALLOCATION: u64 = 12;
/// All that there are.
pub(crate) const LOG_ALL: u64 = 20;

/// All arguments, in blocks by the number of their first.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    next: u32,
    blocks: BTreeMap<u32, Vec<[u8; ARGUMENT]>>,
}

impl Arguments {
    /// A block of 2^`log` arguments, all zero: the number of the first. Numbers come back as late as possible, so that a stale one is found
    /// out.
    pub(crate) fn allocate(&mut self, log: u64) -> Result<u32, String> {
        if log > LOG_MAX_ALLOCATION {
            return Err(format!("blocks of 2^{log} arguments are not handed out"));
        }
        let size = 1 << log;
        let first = self.room(self.next, size).or_else(|| self.room(0, size)).ok_or("no arguments are left")?;
        self.next = first + size;
        self.blocks.insert(first, vec![[0; ARGUMENT]; 1 << log]);
        Ok(first)
    }

    /// The first number from one on with so many that nobody has.
    fn room(&self, from: u32, size: u32) -> Option<u32> {
        let mut first = from;
        for (start, block) in &self.blocks {
            let end = start + u32::try_from(block.len()).ok()?;
            if end > first && *start < first + size {
                first = end;
            }
        }
        (first + size <= 1 << LOG_ALL).then_some(first)
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, first: u32) -> Result<(), String> {
        self.blocks.remove(&first).map(|_| ()).ok_or(format!("there is no block of arguments {first:#x}"))
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Writes one argument.
    pub(crate) fn write(&mut self, number: u32, bytes: &[u8; ARGUMENT]) -> Result<(), String> {
        let (first, block) = self.blocks.range_mut(..=number).next_back().ok_or_else(|| missing(number))?;
        let place = usize::try_from(number - first).ok().and_then(|place| block.get_mut(place));
        place.map(|argument| *argument = *bytes).ok_or_else(|| missing(number))
    }

    /// Fills a pattern in: its bits and those of arguments from `number` on. None if these end before.
    pub(super) fn fill(&self, number: u32, pattern: &mut [u8]) -> Option<()> {
        let (first, block) = self.blocks.range(..=number).next_back()?;
        let place = usize::try_from(number - first).ok()?;
        for (part, argument) in pattern.chunks_mut(ARGUMENT).enumerate().map(|(part, bytes)| (bytes, place + part)) {
            let argument = block.get(argument)?;
            part.iter_mut().zip(argument).for_each(|(byte, value)| *byte |= value);
        }
        Some(())
    }
}

fn missing(number: u32) -> String {
    format!("there is no argument {number:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_given_back_are_handed_out_again_once_all_others_were() {
        let mut arguments = Arguments::default();
        let blocks: Vec<_> =
            (0..1 << (LOG_ALL - LOG_MAX_ALLOCATION)).map(|_| arguments.allocate(LOG_MAX_ALLOCATION).unwrap()).collect();
        assert!(arguments.allocate(0).is_err(), "all are handed out");
        arguments.free(blocks[5]).unwrap();
        assert_eq!(arguments.allocate(0), Ok(blocks[5]));
        assert_eq!(arguments.allocate(0), Ok(blocks[5] + 1));
        assert!(arguments.allocate(LOG_MAX_ALLOCATION).is_err(), "the block is not whole");
    }

    #[test]
    fn a_pattern_is_filled_in_from_arguments_of_one_block_only() {
        let mut arguments = Arguments::default();
        let (first, second) = (arguments.allocate(1).unwrap(), arguments.allocate(0).unwrap());
        assert!(arguments.allocate(LOG_MAX_ALLOCATION + 1).is_err());
        arguments.write(first, &[1; ARGUMENT]).unwrap();
        arguments.write(first + 1, &[2; ARGUMENT]).unwrap();
        arguments.write(second, &[4; ARGUMENT]).unwrap();
        assert!(arguments.write(second + 1, &[0; ARGUMENT]).is_err());
        let mut pattern = [0x80; 72];
        assert_eq!(arguments.fill(first, &mut pattern), Some(()));
        assert_eq!((pattern[63], pattern[64]), (0x81, 0x82));
        assert_eq!(arguments.fill(first + 1, &mut pattern), None, "the next block is somebody else's");
        arguments.free(first).unwrap();
        assert!(arguments.free(first).is_err());
        assert_eq!(arguments.fill(first, &mut pattern[..8]), None);
        assert_eq!(arguments.len(), 1);
    }
}
