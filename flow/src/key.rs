//! What a flow matches: a full key as words, a match as key and mask, and the compact form that is stored.

use std::fmt;
use std::sync::Arc;

use crate::field::{Field, KEY_WORDS};

/// A full flow key: the value of every field of one packet, or of every field of a match.
///
/// Words are laid out by the field table; what a packet does not have is zero, and the presence fields say which
/// headers are there, so that "no VLAN" is not "VLAN 0".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The words, as the field table places the fields.
    pub words: [u64; KEY_WORDS],
}

impl Key {
    /// A key with every field zero.
    pub const ZERO: Self = Self { words: [0; KEY_WORDS] };

    /// The value of a field, right-aligned.
    pub const fn get(&self, field: Field) -> u128 {
        let spec = field.spec();
        if spec.width == 128 {
            (self.words[spec.word] as u128) << 64 | self.words[spec.word + 1] as u128
        } else {
            (self.words[spec.word] >> spec.shift) as u128 & field.full_mask()
        }
    }

    /// Sets a field; bits of `value` beyond the field's width are ignored.
    #[expect(clippy::cast_possible_truncation, reason = "halves of a u128 and values masked to 64 bits or fewer")]
    pub const fn set(&mut self, field: Field, value: u128) {
        let spec = field.spec();
        if spec.width == 128 {
            self.words[spec.word] = (value >> 64) as u64;
            self.words[spec.word + 1] = value as u64;
        } else {
            let mask = (field.full_mask() as u64) << spec.shift;
            let bits = ((value & field.full_mask()) as u64) << spec.shift;
            self.words[spec.word] = self.words[spec.word] & !mask | bits;
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = crate::field::FIELDS.iter().filter(|spec| self.get(spec.field) != 0);
        out.debug_map().entries(set.map(|spec| (spec.field.to_string(), self.get(spec.field)))).finish()
    }
}

/// Key and mask in full. Bits of the key that the mask does not touch are zero once it is [normalised](Match::normalise).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Match {
    /// The values.
    pub key: Key,
    /// The bits that count.
    pub mask: Key,
}

impl Match {
    /// Matches `field` on `value` under `mask`.
    pub const fn set(&mut self, field: Field, value: u128, mask: u128) {
        self.key.set(field, value & mask);
        self.mask.set(field, mask);
    }

    /// Matches `field` on all of its bits.
    pub const fn set_exact(&mut self, field: Field, value: u128) {
        self.set(field, value, field.full_mask());
    }

    /// Whether the match demands exactly `value` of `field`.
    pub fn is_exactly(&self, field: Field, value: u128) -> bool {
        self.mask.get(field) == field.full_mask() && self.key.get(field) == value
    }

    /// Clears the bits of the key that the mask does not touch.
    pub fn normalise(&mut self) {
        for (value, mask) in self.key.words.iter_mut().zip(&self.mask.words) {
            *value &= mask;
        }
    }
}

/// The mask of a match, reduced to the words that are not zero. Shared by all flows of a subtable.
#[derive(PartialEq, Eq, Hash)]
pub struct Mask {
    /// Which words of the full key it touches.
    map: u128,
    words: Box<[u64]>,
}

impl Mask {
    /// The non-zero words of a full mask.
    pub fn new(full: &Key) -> Self {
        let mut map = 0;
        let mut words = Vec::new();
        for (index, word) in full.words.iter().enumerate() {
            if *word != 0 {
                map |= 1u128 << index;
                words.push(*word);
            }
        }
        Self { map, words: words.into() }
    }

    /// The words that the mask touches, as (index into the full key, mask of that word).
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        WordIndexes(self.map).zip(self.words.iter().copied())
    }

    /// How many words it touches.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether nothing is matched at all.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Where a word of the full key stands among those that are stored.
    fn place(&self, word: usize) -> Option<usize> {
        let bit = 1u128.checked_shl(u32::try_from(word).ok()?)?;
        (self.map & bit != 0).then(|| (self.map & (bit - 1)).count_ones() as usize)
    }

    /// The mask in full.
    pub fn expand(&self) -> Key {
        let mut full = Key::ZERO;
        for (index, word) in self.words() {
            full.words[index] = word;
        }
        full
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expand().fmt(out)
    }
}

/// A match as it is stored: a shared mask and the masked values of the words that it touches.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MaskedKey {
    mask: Arc<Mask>,
    values: Box<[u64]>,
}

impl MaskedKey {
    /// The compact form of a full match.
    pub fn new(full: &Match) -> Self {
        Self::under(Arc::new(Mask::new(&full.mask)), &full.key)
    }

    /// The bits of a full key that a mask touches.
    pub fn under(mask: Arc<Mask>, key: &Key) -> Self {
        let values = mask.words().map(|(index, word)| key.words[index] & word).collect();
        Self { mask, values }
    }

    /// The mask.
    pub fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// The same match with an equal mask that is shared.
    pub(crate) fn with_shared_mask(mut self, share: impl FnOnce(Arc<Mask>) -> Arc<Mask>) -> Self {
        self.mask = share(self.mask);
        self
    }

    /// The masked values, one for each word of the mask, in its order.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Value and mask of one field, right-aligned; both zero where the field is wildcarded.
    pub fn get(&self, field: Field) -> (u128, u128) {
        let spec = field.spec();
        let stored = [spec.word, spec.word + 1].map(|word| self.mask.place(word));
        let [value, mask] = [&self.values, &self.mask.words].map(|words| {
            let word = |place: Option<usize>| place.map_or(0, |place| u128::from(words[place]));
            if spec.width == 128 {
                word(stored[0]) << 64 | word(stored[1])
            } else {
                word(stored[0]) >> spec.shift & field.full_mask()
            }
        });
        (value, mask)
    }

    /// The match in full, normalised.
    pub fn expand(&self) -> Match {
        let mut full = Match { key: Key::ZERO, mask: self.mask.expand() };
        for ((index, _), value) in self.mask.words().zip(&self.values) {
            full.key.words[index] = *value;
        }
        full
    }

    /// Whether a packet's key is matched.
    pub fn matches(&self, key: &Key) -> bool {
        self.mask.words().zip(&self.values).all(|((index, mask), value)| key.words[index] & mask == *value)
    }
}

impl fmt::Debug for MaskedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expand().fmt(out)
    }
}

/// The set bits of a word map, lowest first.
struct WordIndexes(u128);

impl Iterator for WordIndexes {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let index = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_back_as_it_was_set() {
        for spec in crate::field::FIELDS {
            let mut key = Key { words: [u64::MAX; KEY_WORDS] };
            let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210 & spec.field.full_mask();
            key.set(spec.field, value);
            assert_eq!(key.get(spec.field), value, "{}", spec.field);
            key.set(spec.field, spec.field.full_mask());
            assert_eq!(key.words, [u64::MAX; KEY_WORDS], "{} touched a neighbour", spec.field);
        }
    }

    #[test]
    fn only_touched_words_are_stored() {
        let mut full = Match::default();
        full.set_exact(Field::InPort, 1);
        full.set(Field::Ipv4Dst, 0x0a00_0001, 0xffff_ff00);
        let compact = MaskedKey::new(&full);
        assert_eq!(compact.values().len(), 2);
        assert_eq!(compact.expand(), full);
        assert_eq!(compact.get(Field::Ipv4Dst), (0x0a00_0000, 0xffff_ff00));

        let mut packet = Key::ZERO;
        packet.set(Field::InPort, 1);
        packet.set(Field::Ipv4Dst, 0x0a00_00fe);
        assert!(compact.matches(&packet));
        packet.set(Field::Ipv4Dst, 0x0a00_01fe);
        assert!(!compact.matches(&packet));
    }

    #[test]
    fn a_five_tuple_with_both_macs_is_at_most_sixty_four_bytes() {
        let mut full = Match::default();
        for field in [
            Field::InPort,
            Field::RecircId,
            Field::EthSrc,
            Field::EthDst,
            Field::EthType,
            Field::VlanPresent,
            Field::Ipv4Src,
            Field::Ipv4Dst,
            Field::Ipv4Proto,
            Field::Ipv4Frag,
            Field::TcpSrc,
            Field::TcpDst,
        ] {
            full.set_exact(field, 1);
        }
        assert!(size_of_val(MaskedKey::new(&full).values()) <= 64);
    }
}
