//! Match definers: which bits of 32 bytes of fields an entry matches. The fields are laid out by a format, of which the device has
//! some; entries name a definer by its number.

use std::collections::BTreeMap;

use super::ste::large::{self, FIELDS};

/// General object type.
pub(crate) const OBJECT_TYPE: u16 = 0x18;

/// Numbers of definers. Entries have 8 bits for one, and of the numbers below some that stand for lookups of their own.
const NUMBERS: std::ops::RangeInclusive<u8> = 0x10..=0xff;

/// All definers of a device, by number.
#[derive(Debug, Default)]
pub(crate) struct Definers {
    last: Option<u8>,
    by_number: BTreeMap<u8, Definer>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Definer {
    pub(crate) format: u16,
    pub(crate) mask: [u8; FIELDS],
}

/// Why there is no new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The format is not modelled, or the mask has a bit that is no field which is.
    NotModelled(String),
    Full,
}

impl Definers {
    /// A definer of a format with a mask: its number.
    pub(crate) fn add(&mut self, format: u16, mask: [u8; FIELDS]) -> Result<u32, Refused> {
        let known = large::known(format)
            .ok_or_else(|| Refused::NotModelled(format!("definers of format {format} are not modelled")))?;
        if let Some(at) = mask.iter().zip(known).position(|(wanted, known)| wanted & !known != 0) {
            let bits = mask[at] & !known[at];
            return Err(Refused::NotModelled(format!(
                "of format {format}, bits {bits:#04x} of byte {at} are no field that is modelled"
            )));
        }
        // Old numbers come back as late as possible, so that a stale one is found out.
        let from = self.last.map_or(*NUMBERS.start(), |last| last.checked_add(1).unwrap_or(*NUMBERS.start()));
        let number = (from..=*NUMBERS.end()).chain(NUMBERS).find(|number| !self.by_number.contains_key(number));
        let number = number.ok_or(Refused::Full)?;
        self.last = Some(number);
        self.by_number.insert(number, Definer { format, mask });
        Ok(number.into())
    }

    /// Takes one back.
    pub(crate) fn remove(&mut self, number: u32) -> Result<(), String> {
        let removed = u8::try_from(number).ok().and_then(|number| self.by_number.remove(&number));
        removed.map(|_| ()).ok_or_else(|| format!("there is no match definer {number:#x}"))
    }

    pub(crate) fn get(&self, number: u8) -> Option<&Definer> {
        self.by_number.get(&number)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Formats of those that there are.
    pub(crate) fn formats(&self) -> impl Iterator<Item = u16> {
        self.by_number.values().map(|definer| definer.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_entries_can_name_and_come_back_late() {
        let mut definers = Definers::default();
        let mask = [0; FIELDS];
        let all: Vec<u32> = (0..240).map(|_| definers.add(22, mask).unwrap()).collect();
        assert_eq!((all[0], all[239]), (0x10, 0xff));
        assert_eq!(definers.add(22, mask), Err(Refused::Full));
        definers.remove(0x20).unwrap();
        definers.remove(0x10).unwrap();
        assert!(definers.remove(0x10).is_err() && definers.remove(0x110).is_err());
        assert_eq!(definers.add(22, mask), Ok(0x10));
        definers.remove(0x10).unwrap();
        assert_eq!(definers.add(22, mask), Ok(0x20));
        assert_eq!(definers.len(), 239);
    }

    #[test]
    fn formats_and_bits_that_are_not_modelled_are_refused() {
        let mut definers = Definers::default();
        let refused = |definers: &mut Definers, format, mask| match definers.add(format, mask) {
            Err(Refused::NotModelled(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&mut definers, 5, [0; FIELDS]), "definers of format 5 are not modelled");
        let mut mask = [0; FIELDS];
        // The type of the queue pair, of format 22.
        mask[12] = 0x0c;
        let reason = refused(&mut definers, 22, mask);
        assert_eq!(reason, "of format 22, bits 0x0c of byte 12 are no field that is modelled");
    }
}
