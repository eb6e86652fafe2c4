//! What the rows of a table hold, and what they leave out because all of its rules have it alike.
//!
//! Of a great many rules under one mask most bits are the same: the type of Ethernet, the protocol, perhaps the port that packets come in at.

use sluice_flow::key::Key;

use super::table::Word;

/// The bits of a key that a mask touches, in two parts.
pub(super) struct Layout {
    /// Those of which each row holds its own, half a word at a time.
    pub(super) own: Box<[Word]>,
    /// Those that all rules have alike: some.
    common: Box<[Common]>,
}

struct Common {
    word: Word,
    value: u64,
}

/// The halves of a word.
const HALVES: [u64; 2] = [u32::MAX as u64, (u32::MAX as u64) << 32];

impl Layout {
    /// Leaves out what these keys have alike; `None` if that is nothing.
    pub(super) fn of(words: &[Word], mut keys: impl Iterator<Item = Key>) -> Option<Self> {
        let example = keys.next()?;
        let differing = keys.fold(Key::ZERO, |mut differing, key| {
            for Word { index, .. } in words {
                differing.words[*index] |= key.words[*index] ^ example.words[*index];
            }
            differing
        });
        Self::without(words, &example, &differing)
    }

    /// Leaves out what this one does, but for what a key has otherwise; `None` if nothing is left of that. `words` are those of the mask.
    pub(super) fn suiting(&self, words: &[Word], key: &Key) -> Option<Self> {
        let (example, mut differing) = (self.complete(Key::ZERO), Key::ZERO);
        for Word { index, mask } in &self.own {
            differing.words[*index] |= mask;
        }
        for common in &self.common {
            differing.words[common.word.index] |= common.difference(key);
        }
        Self::without(words, &example, &differing)
    }

    /// Leaves out the halves in which no bit differs.
    fn without(words: &[Word], example: &Key, differing: &Key) -> Option<Self> {
        let (mut own, mut common) = (Vec::new(), Vec::new());
        for Word { index, mask } in words.iter().copied() {
            let differs = |half: &&u64| differing.words[index] & mask & **half != 0;
            let own_mask = mask & HALVES.iter().filter(differs).sum::<u64>();
            if own_mask != 0 {
                own.push(Word { index, mask: own_mask });
            }
            let common_mask = mask & !own_mask;
            if common_mask != 0 {
                let word = Word { index, mask: common_mask };
                common.push(Common { word, value: example.words[index] & common_mask });
            }
        }
        (!common.is_empty()).then(|| Self { own: own.into(), common: common.into() })
    }

    /// Whether a key has what rows leave out.
    #[inline]
    pub(super) fn suits(&self, key: &Key) -> bool {
        self.common.iter().all(|common| common.difference(key) == 0)
    }

    /// A key as a row holds it, with what the row leaves out.
    pub(super) fn complete(&self, mut key: Key) -> Key {
        for Common { word, value } in &self.common {
            key.words[word.index] |= value;
        }
        key
    }
}

impl Common {
    #[inline]
    fn difference(&self, key: &Key) -> u64 {
        (key.words[self.word.index] ^ self.value) & self.word.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(third: u64, fifth: u64) -> Key {
        let mut key = Key::ZERO;
        (key.words[3], key.words[5]) = (third, fifth);
        key
    }

    #[test]
    fn rows_hold_the_halves_in_which_keys_differ_and_the_rest_is_common() {
        let words = [Word { index: 3, mask: u64::MAX }, Word { index: 5, mask: 0xff_ffff_0000 }];
        let keys = [key(7 << 32 | 1, 0x12_3456_0000), key(7 << 32 | 2, 0x12_3456_0000)];
        let layout = Layout::of(&words, keys.into_iter()).unwrap();
        assert_eq!(*layout.own, [Word { index: 3, mask: 0xffff_ffff }]);
        assert!(layout.suits(&key(7 << 32 | 9, 0x12_3456_0000)));
        assert!(layout.suits(&key(7 << 32 | 9, 0xff12_3456_7777)), "the mask leaves that out");
        assert!(!layout.suits(&key(8 << 32 | 9, 0x12_3456_0000)));
        assert_eq!(layout.complete(key(9, 0)), key(7 << 32 | 9, 0x12_3456_0000));

        let wider = layout.suiting(&words, &key(7 << 32, 0x13_3456_0000)).unwrap();
        assert_eq!(*wider.own, [Word { index: 3, mask: 0xffff_ffff }, Word { index: 5, mask: 0xff << 32 }]);
        assert!(wider.suits(&keys[0]) && wider.suits(&key(7 << 32, 0x13_3456_0000)));
        assert!(!wider.suits(&key(7 << 32, 0x12_3457_0000)));
        assert!(wider.suiting(&words, &key(0, 0)).is_none(), "nothing is left that all have alike");
    }
}
