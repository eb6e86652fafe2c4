//! ASO objects of first hits: which of their lines a packet has hit.

use std::collections::{BTreeMap, BTreeSet};

/// Lines of one object.
pub(crate) const LINES: u16 = 512;

/// The largest block of objects, as a power of two.
const LOG_MAX_ALLOCATION: u64 = 10;

/// All objects, in blocks by the number of their first.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    next: u32,
    /// How many objects, and the lines that were hit.
    blocks: BTreeMap<u32, (u32, BTreeSet<(u32, u16)>)>,
}

impl Hits {
    /// A block of 2^`log` objects, of which no line was hit: the number of the first.
    pub(crate) fn allocate(&mut self, log: u64) -> Result<u32, String> {
        if log > LOG_MAX_ALLOCATION {
            return Err(format!("blocks of 2^{log} ASO objects are not handed out"));
        }
        let (first, objects) = (self.next, 1 << log);
        if first + objects > 1 << 24 {
            return Err("no ASO objects are left".to_owned());
        }
        self.next = first + objects;
        self.blocks.insert(first, (objects, BTreeSet::new()));
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

    /// Lines of one object that were hit.
    pub(crate) fn lines(&self, object: u32) -> Result<Vec<u16>, String> {
        let (first, (objects, lines)) = self.blocks.range(..=object).next_back().ok_or_else(|| missing(object))?;
        if object - first >= *objects {
            return Err(missing(object));
        }
        Ok(lines.range((object, 0)..=(object, u16::MAX)).map(|(_, line)| *line).collect())
    }

    /// Whether a line was hit before; if it is to be set, it was from now on.
    pub(super) fn hit(&mut self, object: u32, line: u16, set: bool) -> Result<bool, String> {
        let was = self.lines(object)?.contains(&line);
        if let Some((_, (_, lines))) = self.blocks.range_mut(..=object).next_back().filter(|_| set) {
            lines.insert((object, line));
        }
        Ok(was)
    }
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
        let first = hits.allocate(1).unwrap();
        assert!(hits.allocate(LOG_MAX_ALLOCATION + 1).is_err());
        assert_eq!(hits.hit(first + 1, 7, false), Ok(false), "only read");
        assert_eq!(hits.hit(first + 1, 7, true), Ok(false));
        assert_eq!(hits.hit(first + 1, 7, true), Ok(true));
        assert_eq!((hits.lines(first), hits.lines(first + 1)), (Ok(vec![]), Ok(vec![7])));
        assert!(hits.hit(first + 2, 0, true).is_err());
        hits.free(first).unwrap();
        assert!(hits.free(first).is_err() && hits.lines(first).is_err());
        assert_eq!(hits.len(), 0);
    }
}
