//! Keys that differ from earlier ones in values alone: most lines of a file do.
//!
//! A key that was read in full leaves its *shape* here: its text, with a hole in place of each value that nothing else
//! depends on. A later text that is the same, byte by byte, outside of the holes is read by it: the grammar would go the
//! same way, find the same fields and the same mask, and nothing but these values would differ. Every other text is for the
//! grammar to read, and so is every error. The value of an Ethernet type or of an IP protocol decides what else may be
//! there, so that it is never a hole, and neither are names, flags, masks and options.
//!
//! Shapes lie in a tree whose edges are the bytes between two holes, so that texts with a common beginning are compared
//! with it once. The tree is bounded, and where texts never recur, only a few of them are still learned.

use std::sync::Arc;

use super::cursor::{Cursor, Separators, digit_value};
use super::read_key::attribute_follows;
use super::read_value::{Found, is_of_address};
use crate::field::{Field, Form};
use crate::key::{Key, Mask, Match, WordIndexes};
use crate::ufid::Ufid;

/// At most this many nodes; a tree that would have more is dropped and started again.
const NODES: usize = 1024;
/// At most this many children of a node, each of which is tried in turn.
const WAYS: usize = 16;
/// At most this many bytes of a key; longer ones are not worth the memory.
const LONGEST: usize = 2048;
/// Shapes that are learned in a row although none is met again; after that, one in this many is learned.
const LEARNED_IN_VAIN: u32 = 64;

/// The shapes of the keys that were read lately.
#[derive(Default)]
pub(super) struct Shapes {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    shapes: Vec<Shape>,
    /// Shapes that were offered since one was last met again.
    in_vain: u32,
    /// What the holes of the last text held.
    values: Vec<u128>,
    /// The shape of the last text, if it had one that was known.
    last: Option<usize>,
}

/// A key of a known shape.
pub(super) struct Known<'s> {
    shape: &'s Shape,
    values: &'s [u128],
    /// What stood behind it.
    pub(super) separators: Separators,
    /// Whether the text before was of the same shape, so that its match differs in values alone.
    pub(super) is_repeated: bool,
}

/// A key that was read in full.
pub(super) struct Example<'a> {
    /// Its text, up to the last parenthesis.
    pub(super) text: &'a str,
    /// Every field that was found, in the order of the text.
    pub(super) found: &'a [Found],
    pub(super) matching: &'a Match,
    pub(super) mask: &'a Arc<Mask>,
    /// The words of the match that were written.
    pub(super) written: u128,
}

/// Some bytes, and what comes after them.
struct Node {
    literal: Box<[u8]>,
    then: Then,
}

enum Then {
    /// A value, and the nodes of which one follows.
    Hole(Token, Vec<usize>),
    /// The key is over.
    End(usize),
}

struct Shape {
    /// The match of the example.
    matching: Match,
    mask: Arc<Mask>,
    written: u128,
    /// Where the values go, in the order of the text.
    places: Box<[Place]>,
}

/// Where a value goes.
enum Place {
    /// Into a word of the key: how far to the left, all bits of the field, and those that are matched.
    Word { word: usize, shift: u32, full: u64, mask: u64 },
    /// Into two, for a field of 128 bits.
    Words { word: usize, mask: u128 },
    /// Not into the key.
    Ufid,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// A number up to this.
    Number(u64),
    Mac,
    Ipv4,
    Ipv6,
    Ufid,
}

struct Hole {
    start: usize,
    end: usize,
    token: Token,
    place: Place,
}

impl Shapes {
    /// Reads a key of a known shape, and what separates it from what follows.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<Known<'_>> {
        let last = self.last.take();
        self.values.clear();
        let (shape, separators) = self.walk(cursor)?;
        self.in_vain = 0;
        self.last = Some(shape);
        let is_repeated = last == self.last;
        Some(Known { shape: &self.shapes[shape], values: &self.values, separators, is_repeated })
    }

    fn walk(&mut self, cursor: &mut Cursor<'_>) -> Option<(usize, Separators)> {
        let Self { nodes, roots, values, .. } = self;
        let text = cursor.rest().as_bytes();
        let (mut at, mut ways) = (0, &*roots);
        'hole: loop {
            for node in ways.iter().map(|way| &nodes[*way]) {
                let Some(rest) = text[at..].strip_prefix(&*node.literal) else { continue };
                match &node.then {
                    Then::Hole(token, next) => {
                        let Some((value, length)) = token.read(rest) else { continue };
                        values.push(value);
                        at += node.literal.len() + length;
                        ways = next;
                        continue 'hole;
                    }
                    Then::End(shape) => {
                        let mut behind = cursor.clone();
                        behind.take(at + node.literal.len());
                        let separators = behind.skip_separators();
                        if !attribute_follows(&behind) {
                            *cursor = behind;
                            return Some((*shape, separators));
                        }
                    }
                }
            }
            return None;
        }
    }

    /// Takes the shape of a key that had none.
    pub(super) fn learn(&mut self, example: &Example<'_>) {
        self.in_vain = self.in_vain.saturating_add(1);
        let is_worth_it = self.in_vain <= LEARNED_IN_VAIN || self.in_vain.is_multiple_of(LEARNED_IN_VAIN);
        // What has no attribute is no key, whatever it is.
        let is_key = example.text.ends_with(')');
        if !is_worth_it || !is_key || example.text.len() > LONGEST {
            return;
        }
        let holes = example.holes();
        if self.nodes.len() + holes.len() >= NODES {
            *self = Self { in_vain: self.in_vain, ..Self::default() };
        }
        let text = example.text.as_bytes();
        let (mut parent, mut at) = (None, 0);
        for hole in &holes {
            let literal = &text[at..hole.start];
            let is_same = |way: &usize| {
                let node = &self.nodes[*way];
                *node.literal == *literal && matches!(node.then, Then::Hole(token, _) if token == hole.token)
            };
            let known = self.ways(parent).iter().copied().find(is_same);
            parent = known.or_else(|| self.add(parent, literal, Then::Hole(hole.token, Vec::new())));
            if parent.is_none() {
                return;
            }
            at = hole.end;
        }
        if self.add(parent, &text[at..], Then::End(self.shapes.len())).is_some() {
            self.shapes.push(Shape {
                matching: *example.matching,
                mask: example.mask.clone(),
                written: example.written,
                places: holes.into_iter().map(|hole| hole.place).collect(),
            });
        }
    }

    fn ways(&self, parent: Option<usize>) -> &[usize] {
        match parent.map(|parent| &self.nodes[parent].then) {
            None => &self.roots,
            Some(Then::Hole(_, next)) => next,
            Some(Then::End(_)) => &[],
        }
    }

    /// Adds a node, unless there are too many beside it.
    fn add(&mut self, parent: Option<usize>, literal: &[u8], then: Then) -> Option<usize> {
        if self.ways(parent).len() >= WAYS {
            return None;
        }
        let number = self.nodes.len();
        match parent.map(|parent| &mut self.nodes[parent].then) {
            None => self.roots.push(number),
            Some(Then::Hole(_, next)) => next.push(number),
            Some(Then::End(_)) => return None,
        }
        self.nodes.push(Node { literal: literal.into(), then });
        Some(number)
    }
}

impl Known<'_> {
    /// The UFID that the key begins with.
    pub(super) fn ufid(&self) -> Option<Ufid> {
        matches!(self.shape.places.first()?, Place::Ufid).then(|| Ufid(self.values[0]))
    }

    /// Its mask.
    pub(super) fn mask(&self) -> Arc<Mask> {
        self.shape.mask.clone()
    }

    /// Writes the match over another of which these words were written. Gives the words that are written now.
    pub(super) fn write(&self, matching: &mut Match, before: u128) -> u128 {
        let Match { key, mask } = matching;
        if !self.is_repeated {
            for word in WordIndexes(before & !self.shape.written) {
                (key.words[word], mask.words[word]) = (0, 0);
            }
            for word in WordIndexes(self.shape.written) {
                key.words[word] = self.shape.matching.key.words[word];
                mask.words[word] = self.shape.matching.mask.words[word];
            }
        }
        for (place, value) in self.shape.places.iter().zip(self.values) {
            place.put(key, *value);
        }
        self.shape.written
    }
}

impl Example<'_> {
    /// The values that nothing else depends on.
    fn holes(&self) -> Vec<Hole> {
        let mut holes = Vec::with_capacity(self.found.len() + 1);
        let mut cursor = Cursor::new(self.text);
        cursor.skip_separators();
        if cursor.eat("ufid:")
            && let Some((_, length)) = Token::Ufid.read(cursor.rest().as_bytes())
        {
            let start = cursor.offset();
            holes.push(Hole { start, end: start + length, token: Token::Ufid, place: Place::Ufid });
        }
        for found in self.found.iter().filter(|found| found.mask != 0) {
            let Some(token) = Token::of(found.field) else { continue };
            let is_behind = holes.last().is_none_or(|before| before.end < found.offset);
            match self.text.as_bytes().get(found.offset..).and_then(|text| token.read(text)) {
                Some((value, length)) if is_behind && value == found.value => {
                    let (start, end) = (found.offset, found.offset + length);
                    holes.push(Hole { start, end, token, place: Place::of(found) });
                }
                _ => {}
            }
        }
        holes
    }
}

impl Place {
    #[expect(clippy::cast_possible_truncation, reason = "a field that is not of 128 bits has 64 at most")]
    fn of(found: &Found) -> Self {
        let spec = found.field.spec();
        if spec.width == 128 {
            return Self::Words { word: spec.word, mask: found.mask };
        }
        let full = found.field.full_mask() as u64;
        Self::Word { word: spec.word, shift: spec.shift, full, mask: found.mask as u64 }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves, and values that their token has kept within their field"
    )]
    fn put(&self, key: &mut Key, value: u128) {
        match *self {
            Self::Word { word, shift, full, mask } => {
                let word = &mut key.words[word];
                *word = *word & !(full << shift) | (value as u64 & mask) << shift;
            }
            Self::Words { word, mask } => {
                let value = value & mask;
                (key.words[word], key.words[word + 1]) = ((value >> 64) as u64, value as u64);
            }
            Self::Ufid => {}
        }
    }
}

impl Token {
    /// How the value of a field is written on which nothing else depends.
    fn of(field: Field) -> Option<Self> {
        let spec = field.spec();
        if spec.is_nested() || matches!(field, Field::EthType | Field::Ipv4Proto | Field::Ipv6Proto) {
            return None;
        }
        match spec.form {
            Form::Decimal | Form::Hex | Form::Byte | Form::PrefixedHex(_) | Form::Port => {
                u64::try_from(field.full_mask()).ok().map(Self::Number)
            }
            Form::Mac => Some(Self::Mac),
            Form::Ipv4 => Some(Self::Ipv4),
            Form::Ipv6 => Some(Self::Ipv6),
            Form::Fragment | Form::Flags(_) | Form::Presence | Form::Options => None,
        }
    }

    /// The value at the beginning of a text and its length, if it is written in the common way.
    ///
    /// What follows in the text is what followed in the example, and ended the value there.
    fn read(self, text: &[u8]) -> Option<(u128, usize)> {
        match self {
            Self::Number(limit) => {
                number(text).filter(|(value, _)| *value <= limit).map(|(value, length)| (value.into(), length))
            }
            Self::Mac => mac(text),
            Self::Ipv4 => ipv4(text),
            Self::Ipv6 => {
                let length = text.iter().position(|byte| !is_of_address(*byte)).unwrap_or(text.len());
                let address: std::net::Ipv6Addr = std::str::from_utf8(&text[..length]).ok()?.parse().ok()?;
                Some((address.to_bits(), length))
            }
            Self::Ufid => {
                let text = text.get(..Ufid::TEXT_LENGTH)?;
                Some((std::str::from_utf8(text).ok()?.parse::<Ufid>().ok()?.0, Ufid::TEXT_LENGTH))
            }
        }
    }
}

/// A number of at most 16 digits.
fn number(text: &[u8]) -> Option<(u64, usize)> {
    let [b'0', b'x' | b'X', digits @ ..] = text else { return decimal(text) };
    let length = digits.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
    let value = digits[..length].iter().fold(0, |value, digit| value << 4 | u64::from(digit_value(*digit)));
    (1..=16).contains(&length).then_some((value, 2 + length))
}

/// A number of at most 16 digits without leading zeros.
fn decimal(text: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut length) = (0, 0);
    while let Some(digit) = text.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9) {
        if length == 16 || length > 0 && value == 0 {
            return None;
        }
        value = value * 10 + u64::from(digit);
        length += 1;
    }
    (length > 0).then_some((value, length))
}

/// An Ethernet address of two digits a byte.
fn mac(text: &[u8]) -> Option<(u128, usize)> {
    const LENGTH: usize = 17;
    let text: &[u8; LENGTH] = text.first_chunk()?;
    // What is wrong is looked at once, at the end.
    let (mut value, mut digits, mut colons) = (0u64, 0, 0);
    for place in 0..6 {
        let [high, low] = [3 * place, 3 * place + 1].map(|at| HEXADECIMAL[usize::from(text[at])]);
        digits |= high | low;
        colons |= if place > 0 { text[3 * place - 1] ^ b':' } else { 0 };
        value = value << 8 | u64::from(high << 4 | low);
    }
    (digits < 16 && colons == 0).then_some((value.into(), LENGTH))
}

/// The values of hexadecimal digits, and of what is none more than any has.
static HEXADECIMAL: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut byte = 0u8;
    while byte.is_ascii() {
        if byte.is_ascii_hexdigit() {
            values[byte as usize] = digit_value(byte);
        }
        byte += 1;
    }
    values
};

/// Four numbers up to 255, and dots between them.
fn ipv4(text: &[u8]) -> Option<(u128, usize)> {
    let (mut value, mut at) = (0u32, 0);
    for place in 0..4 {
        if place > 0 {
            text.get(at).filter(|byte| **byte == b'.')?;
            at += 1;
        }
        let (number, length) = decimal(text.get(at..)?)?;
        value = value << 8 | u32::from(u8::try_from(number).ok()?);
        at += length;
    }
    Some((value.into(), at))
}
