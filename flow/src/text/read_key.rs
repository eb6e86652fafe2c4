//! Keys, read.

use super::cursor::{Cursor, Separators, error_at, quoted};
use super::read_value::{Found, is_unknown, read_attribute, skip_unknown};
use super::requirement::needs;
use super::{ParseError, ParsedKey};
use crate::field::{ATTRIBUTES, Attribute, Field};
use crate::key::Match;
use crate::port::PortNames;
use crate::ufid::Ufid;

/// Tag protocols of a VLAN tag, as the OVS datapath knows them.
const VLAN_TPIDS: [u128; 2] = [0x8100, 0x88a8];
const TOO_MANY_TAGS: &str = "at most two VLAN tags";

/// Reads a key, with or without `ufid:UUID` in front of it.
///
/// The recirculation id is 0 unless the text names another; whatever else it does not name is not matched.
pub fn parse_key(text: &str, names: &dyn PortNames) -> Result<ParsedKey, ParseError> {
    let mut cursor = Cursor::new(text);
    let mut matching = Match::default();
    let (ufid, ..) = read_key(&mut cursor, names, &mut matching, None)?;
    if cursor.at_end() { Ok(ParsedKey { ufid, matching }) } else { Err(no_attribute(&cursor)) }
}

/// Reads a key as far as it goes into a match of nothing, and says what stands between it and what follows, and which
/// words of the match it has written. `trace` is told of every field, in the order of the text, besides the Ethernet types.
///
/// A match is large: it is filled where it lies.
pub(super) fn read_key(
    cursor: &mut Cursor<'_>,
    names: &dyn PortNames,
    matching: &mut Match,
    trace: Option<&mut Vec<Found>>,
) -> Result<(Option<Ufid>, Separators, u128), ParseError> {
    cursor.skip_separators();
    let ufid = if cursor.eat("ufid:") { Some(read_ufid(cursor)?) } else { None };
    let matching = Written { matching, words: 0 };
    let mut reader = KeyReader {
        names,
        matching,
        levels: [Level::default(); 3],
        innermost: 0,
        seen: [None; ATTRIBUTES.len()],
        trace,
    };
    let separators = reader.read_level(cursor, 0)?;
    let written = reader.finish()?;
    Ok((ufid, separators, written))
}

/// What is wrong with a word that should be a key attribute.
pub(super) fn no_attribute(cursor: &Cursor<'_>) -> ParseError {
    let word = cursor.clone().take_word();
    if word.is_empty() {
        cursor.error("a key attribute such as eth_type(0x0800)")
    } else {
        cursor.error(format!("a key attribute such as eth_type(0x0800): {} is none", quoted(word)))
    }
}

/// Whether a key goes on here.
pub(super) fn attribute_follows(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    let name = ahead.take_name();
    ahead.peek() == Some(b'(') && (name == "encap" || attribute_of(name).is_some() || is_unknown(name))
}

fn read_ufid(cursor: &mut Cursor<'_>) -> Result<Ufid, ParseError> {
    let start = cursor.offset();
    let word = cursor.take_while(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    word.parse().map_err(|_| error_at(start, "a UUID: 8-4-4-4-12 hexadecimal digits"))
}

/// The key attribute of a name. That an attribute is of the inner tag is said by its place, not by its name.
pub(super) fn attribute_of(name: &str) -> Option<Attribute> {
    let [start, end] = *NAMES.starts.get(name.len()..=name.len() + 1)? else { return None };
    let rows = NAMES.order[start..end].iter().map(|row| &ATTRIBUTES[*row]);
    rows.filter(|row| row.attribute != Attribute::Cvlan).find(|row| row.name == name).map(|row| row.attribute)
}

/// Where in the attribute table the names of each length are: few have the same.
struct Names {
    /// Rows of the attribute table, the shortest names first.
    order: [usize; ATTRIBUTES.len()],
    /// Where in `order` the names of a length begin.
    starts: [usize; LONGEST_NAME + 2],
}

const LONGEST_NAME: usize = 12;

static NAMES: Names = {
    let mut names = Names { order: [0; ATTRIBUTES.len()], starts: [0; LONGEST_NAME + 2] };
    let (mut placed, mut length) = (0, 0);
    while length <= LONGEST_NAME {
        let mut row = 0;
        while row < ATTRIBUTES.len() {
            if ATTRIBUTES[row].name.len() == length {
                names.order[placed] = row;
                placed += 1;
            }
            row += 1;
        }
        length += 1;
        names.starts[length] = placed;
    }
    assert!(placed == ATTRIBUTES.len(), "a name is longer than the longest");
    names
};

/// A match, and which of its words were written: few of many.
struct Written<'a> {
    matching: &'a mut Match,
    words: u128,
}

impl Written<'_> {
    fn set(&mut self, field: Field, value: u128, mask: u128) {
        let spec = field.spec();
        let words = if spec.width == 128 { 0b11 } else { 0b1 };
        self.words |= words << spec.word;
        self.matching.set(field, value, mask);
    }

    fn set_exact(&mut self, field: Field, value: u128) {
        self.set(field, value, field.full_mask());
    }
}

struct KeyReader<'a> {
    names: &'a dyn PortNames,
    matching: Written<'a>,
    /// The whole key, what is in its `encap()`, and what is in the `encap()` of that.
    levels: [Level; 3],
    /// The deepest level that there is.
    innermost: usize,
    seen: [Option<Seen>; ATTRIBUTES.len()],
    trace: Option<&'a mut Vec<Found>>,
}

/// What is special about a level of encapsulation, with the offsets at which it was found.
#[derive(Clone, Copy, Default)]
struct Level {
    eth_type: Option<EthType>,
    vlan: Option<usize>,
    encap: Option<usize>,
}

#[derive(Clone, Copy)]
struct EthType {
    value: u128,
    mask: u128,
    offset: usize,
}

#[derive(Clone, Copy)]
struct Seen {
    offset: usize,
    level: usize,
    wild: bool,
}

impl KeyReader<'_> {
    /// Reads the attributes of one level: up to what is no attribute, or with the parenthesis that closes `encap(`.
    /// Calls itself for each `encap(`, and there are three levels at most.
    fn read_level(&mut self, cursor: &mut Cursor<'_>, level: usize) -> Result<Separators, ParseError> {
        loop {
            let separators = cursor.skip_separators();
            if level > 0 && cursor.eat(")") {
                return Ok(separators);
            }
            let start = cursor.offset();
            let mut ahead = cursor.clone();
            let name = ahead.take_name();
            let opens = ahead.peek() == Some(b'(');
            if opens && name == "encap" {
                ahead.eat("(");
                *cursor = ahead;
                self.read_encap(cursor, level, start)?;
            } else if opens && let Some(attribute) = attribute_of(name) {
                ahead.eat("(");
                *cursor = ahead;
                self.read_one(cursor, attribute, level, start)?;
            } else if opens && is_unknown(name) {
                *cursor = ahead;
                skip_unknown(cursor, name, start)?;
            } else if level == 0 {
                return Ok(separators);
            } else if cursor.at_end() {
                return Err(cursor.error("\")\" for encap("));
            } else {
                return Err(no_attribute(cursor));
            }
        }
    }

    fn read_encap(&mut self, cursor: &mut Cursor<'_>, level: usize, start: usize) -> Result<(), ParseError> {
        if self.levels[level].encap.is_some() {
            return Err(twice("encap", start));
        }
        if level + 1 == self.levels.len() {
            return Err(error_at(start, TOO_MANY_TAGS));
        }
        self.levels[level].encap = Some(start);
        self.innermost = self.innermost.max(level + 1);
        self.read_level(cursor, level + 1)?;
        Ok(())
    }

    fn read_one(
        &mut self,
        cursor: &mut Cursor<'_>,
        attribute: Attribute,
        level: usize,
        start: usize,
    ) -> Result<(), ParseError> {
        let attribute = match (attribute, level) {
            (Attribute::Vlan, 0) => Attribute::Vlan,
            (Attribute::Vlan, 1) => Attribute::Cvlan,
            (Attribute::Vlan, _) => return Err(error_at(start, TOO_MANY_TAGS)),
            (Attribute::EthType, _) => return self.read_eth_type(cursor, level, start),
            (outer, 1..) if outer < Attribute::Vlan => {
                return Err(error_at(start, format!("{}() outside of encap()", outer.name())));
            }
            _ => attribute,
        };
        let seen = &mut self.seen[attribute as usize];
        if seen.is_some() {
            return Err(twice(attribute.name().trim_start_matches('c'), start));
        }
        let seen = seen.insert(Seen { offset: start, level, wild: true });
        let (matching, trace) = (&mut self.matching, &mut self.trace);
        let mut cfi = Cfi::NotNeeded;
        read_attribute(cursor, attribute, self.names, &mut |found| {
            require_exact(&found)?;
            if let Some(trace) = trace {
                trace.push(found);
            }
            cfi.see(&found);
            // Fields of headers that exclude each other share a place: what is wild must not wipe out what is not.
            if found.mask != 0 {
                matching.set(found.field, found.value, found.mask);
                seen.wild = false;
            }
            Ok(())
        })?;
        if attribute == Attribute::Vlan {
            self.levels[level].vlan = Some(start);
            self.matching.set_exact(Field::VlanPresent, 1);
            cfi.finish(&mut self.matching, Field::VlanCfi);
        } else if attribute == Attribute::Cvlan {
            self.levels[level].vlan = Some(start);
            self.matching.set_exact(Field::CvlanPresent, 1);
            cfi.finish(&mut self.matching, Field::CvlanCfi);
        } else if attribute == Attribute::Tunnel {
            self.matching.set_exact(Field::TunnelPresent, 1);
        } else if attribute == Attribute::Mpls && !seen.wild {
            self.matching.set_exact(Field::MplsPresent, 1);
        } else if attribute == Attribute::Pppoe && !seen.wild {
            self.matching.set_exact(Field::PppoePresent, 1);
        }
        Ok(())
    }

    fn read_eth_type(&mut self, cursor: &mut Cursor<'_>, level: usize, start: usize) -> Result<(), ParseError> {
        let eth_type = &mut self.levels[level].eth_type;
        if eth_type.is_some() {
            return Err(twice(Attribute::EthType.name(), start));
        }
        read_attribute(cursor, Attribute::EthType, self.names, &mut |found| {
            *eth_type = Some(EthType { value: found.value, mask: found.mask, offset: start });
            Ok(())
        })
    }

    /// Gives the words that were written.
    fn finish(mut self) -> Result<u128, ParseError> {
        if self.seen[Attribute::RecircId as usize].is_none() {
            self.matching.set_exact(Field::RecircId, 0);
        }
        self.place_eth_types()?;
        for row in ATTRIBUTES {
            let Some(seen) = self.seen[row.attribute as usize] else { continue };
            if row.attribute > Attribute::EthType && seen.level != self.innermost {
                return Err(error_at(seen.offset, format!("{}() inside of encap()", row.name)));
            }
            if !seen.wild && !self.matching.matching.meets(row.requires) {
                return Err(error_at(seen.offset, format!("other fields, too: {}", needs(row.attribute))));
            }
        }
        Ok(self.matching.words)
    }

    /// An `eth_type` beside a `vlan` is the protocol of the tag. The one without says that there is no tag.
    fn place_eth_types(&mut self) -> Result<(), ParseError> {
        let tag_fields = [(Field::VlanPresent, Field::VlanTpid), (Field::CvlanPresent, Field::CvlanTpid)];
        for (index, level) in self.levels.iter().enumerate().take(self.innermost + 1) {
            if let (Some(offset), None) = (level.encap, level.vlan) {
                return Err(error_at(offset, "vlan() beside encap()"));
            }
            let Some(EthType { value, mask, offset }) = level.eth_type.filter(|eth_type| eth_type.mask != 0) else {
                continue;
            };
            let is_tag = mask == Field::EthType.full_mask() && VLAN_TPIDS.contains(&value);
            let is_other = mask == Field::EthType.full_mask() && !is_tag;
            match (level.vlan, tag_fields.get(index)) {
                (Some(_), Some(_)) if is_other => {
                    return Err(error_at(offset, "eth_type(0x8100) or eth_type(0x88a8) beside vlan()"));
                }
                (Some(_), Some((_, tpid))) => self.matching.set(*tpid, value, mask),
                _ if is_tag && index < tag_fields.len() => {
                    return Err(error_at(offset, "vlan() beside the eth_type of a VLAN tag"));
                }
                _ if is_tag => return Err(error_at(offset, TOO_MANY_TAGS)),
                (_, tag) => {
                    self.matching.set(Field::EthType, value, mask);
                    if let Some((present, _)) = tag {
                        self.matching.set_exact(*present, 0);
                    }
                }
            }
        }
        Ok(())
    }
}

fn twice(name: &str, offset: usize) -> ParseError {
    error_at(offset, format!("each attribute once: {name}() is here twice"))
}

/// The datapath takes no mask for these.
fn require_exact(found: &Found) -> Result<(), ParseError> {
    let must_be_exact = matches!(found.field, Field::RecircId | Field::InPort);
    if must_be_exact && found.mask != found.field.full_mask() {
        return Err(error_at(found.offset, format!("no mask: {} must be exact", found.field)));
    }
    Ok(())
}

/// OVS writes the CFI bit of a tag only if it is 0.
enum Cfi {
    /// Nothing of the tag is matched yet.
    NotNeeded,
    /// The tag is matched, so the bit is 1 unless it is written.
    One,
    /// It is written.
    Written,
}

impl Cfi {
    fn see(&mut self, found: &Found) {
        match found.field {
            Field::VlanCfi | Field::CvlanCfi => *self = Self::Written,
            Field::VlanVid | Field::VlanPcp | Field::CvlanVid | Field::CvlanPcp
                if found.mask != 0 && !matches!(self, Self::Written) =>
            {
                *self = Self::One;
            }
            _ => {}
        }
    }

    fn finish(self, matching: &mut Written<'_>, field: Field) {
        if matches!(self, Self::One) {
            matching.set_exact(field, 1);
        }
    }
}
