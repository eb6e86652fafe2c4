//! What a flow matches: a full key as words, a match as key and mask, and the compact form that is stored.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::field::{ETH_P_IP, ETH_P_IPV6, FIELDS, Field, KEY_WORDS, Requirement};
use crate::ufid::{NamePrefix, Seed};

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
        let set = FIELDS.iter().filter(|spec| self.get(spec.field) != 0);
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

    /// Whether the match fulfils what an attribute requires.
    pub fn meets(&self, requirement: Requirement) -> bool {
        let eth_type_is = |eth_type: u16| self.is_exactly(Field::EthType, eth_type.into());
        // The protocol of IPv4 and that of IPv6 are the same bits of the key.
        let proto_is = |proto: u8| self.is_exactly(Field::Ipv4Proto, proto.into());
        match requirement {
            Requirement::Nothing => true,
            Requirement::EthType(types) => types.iter().any(|eth_type| eth_type_is(*eth_type)),
            Requirement::IpProto(protocols) => {
                (eth_type_is(ETH_P_IP) || eth_type_is(ETH_P_IPV6)) && protocols.iter().any(|proto| proto_is(*proto))
            }
            Requirement::EthTypeAndProto(eth_type, proto) => eth_type_is(eth_type) && proto_is(proto),
        }
    }

    /// The fields that it looks at, with their masks: first those of headers that it says are there, for others may lie in the same bits.
    /// `None` if bits are left over.
    pub fn fields(&self) -> Option<Vec<(Field, u128)>> {
        let mut left = self.mask;
        let mut fields = Vec::new();
        for of_known_headers in [true, false] {
            for spec in FIELDS.iter().filter(|spec| self.meets(spec.attribute.spec().requires) == of_known_headers) {
                let mask = left.get(spec.field);
                if mask != 0 {
                    fields.push((spec.field, mask));
                    left.set(spec.field, 0);
                }
            }
        }
        (left == Key::ZERO).then_some(fields)
    }

    /// Clears the bits of the key that the mask does not touch.
    pub fn normalise(&mut self) {
        for (value, mask) in self.key.words.iter_mut().zip(&self.mask.words) {
            *value &= mask;
        }
    }
}

/// The mask of a match, reduced to the words that are not zero. Shared by all flows of a subtable.
pub struct Mask {
    /// Which words of the full key it touches.
    map: u128,
    words: Box<[MaskWord]>,
    /// Bytes that are stored of a key.
    bytes: usize,
    /// What the names of all of its flows begin with.
    prefix: OnceLock<NamePrefix>,
}

/// One word that a mask touches.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct MaskWord {
    mask: u64,
    /// Bytes that are stored of the words before it.
    at: usize,
}

impl Mask {
    /// The non-zero words of a full mask.
    pub fn new(full: &Key) -> Self {
        let mut map = 0;
        let mut at = 0;
        let mut words = Vec::with_capacity(full.words.iter().filter(|word| **word != 0).count());
        for (index, mask) in full.words.iter().copied().enumerate().filter(|(_, mask)| *mask != 0) {
            map |= 1u128 << index;
            words.push(MaskWord { mask, at });
            at += Runs(mask).map(|run| run.bytes).sum::<usize>();
        }
        Self { map, words: words.into(), bytes: at, prefix: OnceLock::new() }
    }

    /// What the names of its flows begin with. It is made again for each seed but the first, for an agent has one only.
    pub(crate) fn name_prefix(&self, seed: &Seed) -> NamePrefix {
        let known = self.prefix.get_or_init(|| seed.prefix(self));
        if known.is_of(seed) { *known } else { seed.prefix(self) }
    }

    /// The words that the mask touches, as (index into the full key, mask of that word).
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        WordIndexes(self.map).zip(self.words.iter().map(|word| word.mask))
    }

    /// How many words it touches.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether nothing is matched at all.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many bytes of a key it touches.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes what it touches of a full key, run by run; what it leaves behind the last byte says nothing.
    fn compress(&self, key: &Key, bytes: &mut [u8]) {
        let mut at = 0;
        for (index, word) in self.words() {
            for run in Runs(word) {
                let value = (key.words[index] & word) >> run.shift;
                // What lies above the run is written over by the next one.
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                at += run.bytes;
            }
        }
    }

    /// Where in the [bytes](MaskedKey::bytes) of a key that byte of a word of the full key is, counted from the word's
    /// lowest; `None` if the mask does not touch it.
    pub fn place(&self, word: usize, byte: u32) -> Option<usize> {
        let found = self.word(word)?;
        let is_touched = |byte: &u32| found.mask >> (8 * byte) & 0xff != 0;
        is_touched(&byte).then(|| found.at + (0..byte).filter(is_touched).count())
    }

    /// What is stored of a word of the full key.
    fn word(&self, word: usize) -> Option<MaskWord> {
        let bit = 1u128.checked_shl(u32::try_from(word).ok()?)?;
        let place = (self.map & (bit - 1)).count_ones() as usize;
        (self.map & bit != 0).then(|| self.words[place])
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

impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map && self.words == other.words
    }
}

impl Eq for Mask {}

impl Hash for Mask {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.map.hash(state);
        self.words.hash(state);
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expand().fmt(out)
    }
}

/// A match as it is stored: a shared mask, and of the key just the bytes that it touches. By itself, or as a flow has it.
#[derive(Clone)]
pub struct MaskedKey<'a> {
    mask: Cow<'a, Arc<Mask>>,
    bytes: Bytes<'a>,
}

/// Word by word, the lowest byte first.
#[derive(Clone)]
enum Bytes<'a> {
    OfFlow(&'a [u8]),
    /// Of a match on its way into a flow; how many they are.
    Few([u8; FEW + BEYOND], u8),
    Many(Box<[u8]>),
}

/// As many bytes as hardly any match has more of.
const FEW: usize = 63;
/// Room behind the last byte, so that runs are written as whole words.
const BEYOND: usize = 8;

impl<'a> MaskedKey<'a> {
    /// The compact form of a full match.
    pub fn new(full: &Match) -> Self {
        Self::under(Arc::new(Mask::new(&full.mask)), &full.key)
    }

    /// The bits of a full key that a mask touches.
    pub fn under(mask: Arc<Mask>, key: &Key) -> Self {
        let bytes = match u8::try_from(mask.bytes) {
            Ok(length) if usize::from(length) <= FEW => {
                let mut few = [0; FEW + BEYOND];
                mask.compress(key, &mut few);
                Bytes::Few(few, length)
            }
            _ => {
                let mut many = vec![0; mask.bytes + BEYOND];
                mask.compress(key, &mut many);
                many.truncate(mask.bytes);
                Bytes::Many(many.into())
            }
        };
        Self { mask: Cow::Owned(mask), bytes }
    }

    /// What a flow has of it.
    pub(crate) fn of_flow(mask: &'a Arc<Mask>, bytes: &'a [u8]) -> Self {
        Self { mask: Cow::Borrowed(mask), bytes: Bytes::OfFlow(bytes) }
    }

    /// Which bits of the key count.
    pub fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// The bytes of the key that the mask touches, word by word, the lowest first; see [`Mask::place`].
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::OfFlow(bytes) => bytes,
            Bytes::Few(bytes, length) => &bytes[..usize::from(*length)],
            Bytes::Many(bytes) => bytes,
        }
    }

    /// Returns whether a flow that matches this could concern a packet that `filter` describes. Only the bits that the flow does not
    /// wildcard are held against the filter (`lib/dpctl.c` of OVS, dump-flows).
    pub fn could_concern(&self, filter: &Match) -> bool {
        let mut stored = self.mask.words().zip(self.values());
        stored.all(|((word, mask), value)| (value ^ filter.key.words[word]) & mask & filter.mask.words[word] == 0)
    }

    /// The masked values, one for each word of the mask, in its order.
    pub fn values(&self) -> impl Iterator<Item = u64> + '_ {
        let bytes = self.bytes();
        self.mask.words.iter().map(|word| word.value(bytes))
    }

    /// Value and mask of one field, right-aligned; both zero where the field is wildcarded.
    pub fn get(&self, field: Field) -> (u128, u128) {
        let spec = field.spec();
        let word = |index| {
            let word = self.mask.word(index);
            word.map_or((0, 0), |word| (u128::from(word.value(self.bytes())), u128::from(word.mask)))
        };
        let (value, mask) = word(spec.word);
        if spec.width == 128 {
            let (low_value, low_mask) = word(spec.word + 1);
            (value << 64 | low_value, mask << 64 | low_mask)
        } else {
            (value >> spec.shift & field.full_mask(), mask >> spec.shift & field.full_mask())
        }
    }

    /// The match in full, normalised.
    pub fn expand(&self) -> Match {
        Match { key: self.key(), mask: self.mask.expand() }
    }

    /// The key in full, zero where the mask is.
    pub fn key(&self) -> Key {
        let mut key = Key::ZERO;
        for ((index, _), value) in self.mask.words().zip(self.values()) {
            key.words[index] = value;
        }
        key
    }

    /// Whether a packet's key is matched.
    pub fn matches(&self, key: &Key) -> bool {
        self.mask.words().zip(self.values()).all(|((index, mask), value)| key.words[index] & mask == value)
    }
}

impl MaskWord {
    /// What is stored of it.
    fn value(self, bytes: &[u8]) -> u64 {
        let mut at = self.at;
        let mut value = 0;
        for run in Runs(self.mask) {
            // What lies behind the run is of the next one.
            let stored = match bytes[at..].first_chunk() {
                Some(eight) => u64::from_le_bytes(*eight),
                None => bytes[at..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            value |= (stored & u64::MAX >> (64 - 8 * run.bytes)) << run.shift;
            at += run.bytes;
        }
        value
    }
}

impl PartialEq for MaskedKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes() && self.mask == other.mask
    }
}

impl Eq for MaskedKey<'_> {}

impl Hash for MaskedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.mask.hash(state);
        self.bytes().hash(state);
    }
}

impl fmt::Debug for MaskedKey<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expand().fmt(out)
    }
}

/// The set bits of a word map, lowest first.
pub(crate) struct WordIndexes(pub(crate) u128);

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

/// Bytes in a row of which a mask touches each.
struct Run {
    /// The bits below them.
    shift: u32,
    bytes: usize,
}

/// All bits of a word but the highest of each byte.
const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The runs of a word of a mask, lowest first.
struct Runs(u64);

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.0 == 0 {
            return None;
        }
        let shift = self.0.trailing_zeros() & !7;
        let above = self.0 >> shift;
        // The top bit of each byte that has any bit set.
        let touched = (((above & LOW_BITS) + LOW_BITS) | above) & !LOW_BITS;
        let bytes = (!touched & !LOW_BITS).trailing_zeros() as usize / 8;
        self.0 = if bytes == 8 { 0 } else { above >> (8 * bytes) << (8 * bytes) << shift };
        Some(Run { shift, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_back_as_it_was_set() {
        for spec in FIELDS {
            let mut key = Key { words: [u64::MAX; KEY_WORDS] };
            let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210 & spec.field.full_mask();
            key.set(spec.field, value);
            assert_eq!(key.get(spec.field), value, "{}", spec.field);
            key.set(spec.field, spec.field.full_mask());
            assert_eq!(key.words, [u64::MAX; KEY_WORDS], "{} touched a neighbour", spec.field);
        }
    }

    #[test]
    fn only_touched_bytes_are_stored() {
        let mut full = Match::default();
        full.set_exact(Field::InPort, 1);
        full.set(Field::Ipv4Dst, 0x0a00_0001, 0xffff_ff00);
        let compact = MaskedKey::new(&full);
        assert_eq!(compact.values().count(), 2);
        assert_eq!(compact.bytes().len(), 4 + 3);
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
    fn any_mask_gives_back_what_it_was_put_over() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.rotate_left(29)
        };
        for _ in 0..1_000 {
            let mut full = Match::default();
            for index in 0..KEY_WORDS {
                let holes = draw() & draw();
                full.mask.words[index] = if draw() & 3 == 0 { u64::MAX } else { holes & draw() & draw() };
                full.key.words[index] = draw();
            }
            full.normalise();
            let compact = MaskedKey::new(&full);
            assert_eq!(compact.expand(), full);
            assert!(compact.matches(&full.key));
            for spec in FIELDS {
                assert_eq!(compact.get(spec.field), (full.key.get(spec.field), full.mask.get(spec.field)));
            }
        }
    }

    #[test]
    fn what_ovs_does_not_have_takes_room_only_where_it_is_matched() {
        let mut full = Match::default();
        for field in [Field::InPort, Field::EthType, Field::VlanPresent] {
            full.set_exact(field, 1);
        }
        let bytes = |full: &Match| MaskedKey::new(full).bytes().len();
        let without = bytes(&full);
        assert_eq!(without, 4 + 2 + 1);
        full.set_exact(Field::PppoePresent, 1);
        full.set_exact(Field::PppoeSession, 1);
        assert_eq!(bytes(&full), without + 2);
        full.set_exact(Field::NumOfVlans, 1);
        assert_eq!(bytes(&full), without + 2 + 1);
    }

    #[test]
    fn a_five_tuple_with_both_macs_is_at_most_forty_bytes() {
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
        assert!(MaskedKey::new(&full).bytes().len() <= 40);
    }
}
