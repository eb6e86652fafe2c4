//! What keys of one mask look like, found out once: the text between the values, and where the values lie.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Style;
use super::pieces::{Pieces, push_stack};
use super::write_key::describe_key;
use super::write_options::push_geneve;
use super::write_value::{Ports, push_field_value};
use crate::field::Field;
use crate::key::{Mask, MaskedKey, Match};

/// The fields whose values say which others are written, and how, besides the mask. Their values are a part of the text.
const SHAPE: [Field; 15] = [
    Field::EthType,
    Field::Ipv4Proto,
    Field::Ipv4Frag,
    Field::TunnelPresent,
    Field::VxlanGbpPresent,
    Field::ErspanPresent,
    Field::GtpuPresent,
    Field::GenevePresent,
    Field::VlanPresent,
    Field::VlanCfi,
    Field::CvlanPresent,
    Field::CvlanCfi,
    Field::PacketTypeNs,
    Field::Mpls2Present,
    Field::Mpls3Present,
];
/// The same for ICMPv6. They lie where TCP has its ports, which shape nothing.
const ICMPV6_SHAPE: [Field; 2] = [Field::Icmpv6Type, Field::Icmpv6Code];
/// Words of the key in which fields of both lie.
const SHAPE_WORDS: usize = 6;
/// Ethernet type and protocol of ICMPv6.
const ICMPV6: (u128, u128) = (0x86dd, 58);

/// Values of the fields that shape a key, by word.
type Shape = [u64; SHAPE_WORDS];

/// The layouts of the masks that were met. What is remembered is bounded.
#[derive(Default)]
pub(super) struct Layouts {
    /// By the address of the mask, which is held and so stays its own.
    masks: HashMap<usize, OfMask, RandomState>,
    /// The words of the present key.
    words: Vec<u64>,
}

/// At most this many masks whose layouts are remembered.
const MASKS_KNOWN: usize = 4096;
/// At most this many layouts of one mask that are remembered.
const SHAPES_KNOWN: usize = 64;

impl Layouts {
    /// Writes a key.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, matching: &MaskedKey<'_>, ports: &mut Ports<'_>) {
        let address = Arc::as_ptr(matching.mask()).addr();
        if self.masks.len() == MASKS_KNOWN && !self.masks.contains_key(&address) {
            self.masks.clear();
        }
        self.words.clear();
        self.words.extend(matching.values());
        let layouts = self.masks.entry(address).or_insert_with(|| OfMask::new(matching.mask()));
        layouts.push(out, matching, &self.words, ports);
    }
}

/// Writes a key in the order of OVS.
///
/// What is wildcarded is left out, or with [`Style::more`] written as `X/0` where the rest of the match implies that the
/// header is there.
pub fn write_key(out: &mut dyn fmt::Write, matching: &MaskedKey<'_>, style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    push_key(&mut text, matching, &mut Ports::new(style));
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes one key.
pub(super) fn push_key(out: &mut Vec<u8>, matching: &MaskedKey<'_>, ports: &mut Ports<'_>) {
    let mut words = Vec::new();
    words.extend(matching.values());
    Layout::of(matching, ports).push(out, matching, &words, ports);
}

struct OfMask {
    mask: Arc<Mask>,
    /// Where the values that shape the key are stored, and their bits.
    places: Vec<(usize, u64)>,
    /// The same for what else shapes one of ICMPv6.
    icmpv6_places: Vec<(usize, u64)>,
    layouts: Vec<(Shape, Layout)>,
}

impl OfMask {
    fn new(mask: &Arc<Mask>) -> Self {
        let places = |fields: &[Field]| {
            let bits_of = |word: usize| {
                let fields = fields.iter().filter(|field| field.spec().word == word);
                fields.fold(0, |bits, field| bits | word_bits(*field))
            };
            let places = mask.words().enumerate().map(|(place, (word, _))| (place, bits_of(word)));
            places.filter(|(_, bits)| *bits != 0).collect()
        };
        Self { mask: mask.clone(), places: places(&SHAPE), icmpv6_places: places(&ICMPV6_SHAPE), layouts: Vec::new() }
    }

    fn push(&mut self, out: &mut Vec<u8>, matching: &MaskedKey<'_>, words: &[u64], ports: &mut Ports<'_>) {
        debug_assert!(Arc::ptr_eq(&self.mask, matching.mask()));
        let shape = self.shape(matching, words);
        if let Some((_, layout)) = self.layouts.iter().find(|(known, _)| *known == shape) {
            return layout.push(out, matching, words, ports);
        }
        if self.layouts.len() == SHAPES_KNOWN {
            self.layouts.clear();
        }
        let layout = Layout::of(matching, ports);
        layout.push(out, matching, words, ports);
        self.layouts.push((shape, layout));
    }

    fn shape(&self, matching: &MaskedKey<'_>, words: &[u64]) -> Shape {
        let mut shape = Shape::default();
        let common = self.places.len().min(shape.len());
        let mut take = |at: usize, places: &[(usize, u64)]| {
            for (word, (place, bits)) in shape[at..].iter_mut().zip(places) {
                *word = words[*place] & bits;
            }
        };
        take(0, &self.places);
        let is_icmpv6 = || (matching.get(Field::EthType).0, matching.get(Field::Ipv6Proto).0) == ICMPV6;
        if !self.icmpv6_places.is_empty() && is_icmpv6() {
            take(common, &self.icmpv6_places);
        }
        shape
    }
}

/// The text of a key but for its values.
#[derive(Default)]
struct Layout {
    text: Vec<u8>,
    /// The values, and where in the text they stand.
    values: Vec<(usize, Value)>,
}

enum Value {
    /// A field in one word.
    Narrow { field: Field, place: usize, shift: u32, bits: u64, mask: u64 },
    /// Any other field.
    Field(Field),
    /// The values of a label stack.
    Stack { entries: usize, is_exact: bool },
    /// Geneve options.
    Geneve,
}

impl Layout {
    /// The layout of a key, and of all that have the same mask and shape.
    fn of(matching: &MaskedKey<'_>, ports: &mut Ports<'_>) -> Self {
        let full = matching.expand();
        let style = ports.style;
        let mut composer = Composer { layout: Self::default(), matching, full: &full, ports };
        describe_key(&mut composer, &full, &style);
        composer.layout
    }

    /// Writes a key of this layout, whose values are these words.
    fn push(&self, out: &mut Vec<u8>, matching: &MaskedKey<'_>, words: &[u64], ports: &mut Ports<'_>) {
        let get = |field| matching.get(field);
        let mut from = 0;
        for (to, value) in &self.values {
            out.extend_from_slice(&self.text[from..*to]);
            from = *to;
            match *value {
                Value::Narrow { field, place, shift, bits, mask } => {
                    let value = words[place] >> shift & bits;
                    push_field_value(out, field, u128::from(value), u128::from(mask), ports);
                }
                Value::Field(field) => {
                    let (value, mask) = get(field);
                    push_field_value(out, field, value, mask, ports);
                }
                Value::Stack { entries, is_exact } => push_stack(out, entries, is_exact, &get),
                Value::Geneve => push_geneve(out, &get),
            }
        }
        out.extend_from_slice(&self.text[from..]);
    }
}

/// Puts a layout together.
struct Composer<'a, 'b> {
    layout: Layout,
    matching: &'a MaskedKey<'a>,
    full: &'a Match,
    ports: &'a mut Ports<'b>,
}

impl Composer<'_, '_> {
    fn push(&mut self, value: Value) {
        self.layout.values.push((self.layout.text.len(), value));
    }
}

impl Pieces for Composer<'_, '_> {
    fn text(&mut self, text: &str) {
        self.layout.text.extend_from_slice(text.as_bytes());
    }

    fn value(&mut self, field: Field) {
        let spec = field.spec();
        let mask = self.full.mask.get(field);
        let shapes = |shaping: &Field| shaping.spec().word == spec.word && word_bits(*shaping) == word_bits(field);
        if mask == 0 || SHAPE.iter().any(shapes) {
            push_field_value(&mut self.layout.text, field, self.full.key.get(field), mask, self.ports);
            return;
        }
        let place = self.matching.mask().words().position(|(word, _)| word == spec.word);
        match (place, u64::try_from(field.full_mask()), u64::try_from(mask)) {
            (Some(place), Ok(bits), Ok(mask)) => {
                self.push(Value::Narrow { field, place, shift: spec.shift, bits, mask });
            }
            _ => self.push(Value::Field(field)),
        }
    }

    fn stack(&mut self, entries: usize, is_exact: bool) {
        self.push(Value::Stack { entries, is_exact });
    }

    fn geneve(&mut self) {
        self.push(Value::Geneve);
    }
}

/// The bits of a field in its word, for those that are not wider than one.
fn word_bits(field: Field) -> u64 {
    u64::try_from(field.full_mask()).map_or(u64::MAX, |bits| bits << field.spec().shift)
}

// The shape has room for each word in which a field of it lies.
const _: () = {
    let mut words = 0u128;
    let mut row = 0;
    while row < SHAPE.len() {
        words |= 1 << SHAPE[row].spec().word;
        row += 1;
    }
    let mut row = 0;
    while row < ICMPV6_SHAPE.len() {
        // Two fields of their own, besides those of all keys.
        assert!(words & 1 << ICMPV6_SHAPE[row].spec().word == 0);
        words |= 1 << ICMPV6_SHAPE[row].spec().word;
        row += 1;
    }
    assert!(words.count_ones() as usize <= SHAPE_WORDS);
};
