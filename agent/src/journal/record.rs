//! Records: the bytes of a log of flows, all numbers little-endian.
//!
//! A file is a header (12 octets of magic, 2 of version, 2 of [`Contents`]) and frames: length, CRC32C of the body, body. The first octet
//! of a body is its kind; a kind that is not known is refused, so that a new kind of record is a new version of one.
//!
//! A match is written by the *names* of its fields, not as words of a key: the words are laid out by the field table,
//! which changes, and fields of different headers share them. The names and masks are written once, as a shape, and a
//! flow is the number of its shape and the values. Actions are OVS text, whose grammar is read by every version and
//! written by one place, [`ActionTexts`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_flow::field::FIELDS;
use sluice_flow::key::Mask;
use sluice_flow::text::{Style, is_met, parse_actions, write_actions};
use sluice_flow::ufid::Seed;
use sluice_flow::{ActionList, Expiry, Field, Flow, Key, MaskedKey, Match, Priority, Ufid};

/// Octets before the first frame.
pub(super) const HEADER: usize = 16;
/// Octets before the body of a frame.
pub(super) const FRAME_HEADER: usize = 8;

const MAGIC: [u8; 12] = *b"sluice-flows";
const VERSION: u16 = 1;
/// No record is longer: what claims to be is none.
const LONGEST: usize = 1 << 24;
/// Action lists whose text is kept at hand.
const TEXTS_KEPT: usize = 4_096;
/// Masks whose shapes are found by where the mask is.
const NEAR_KEPT: usize = 4_096;

const KIND_SHAPE: u8 = 1;
const KIND_WANTED: u8 = 2;
const KIND_UNWANTED: u8 = 3;

/// What a file of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// What has changed since the files before.
    Changes,
    /// All that was wanted at some time: files before it say nothing any more.
    Everything,
}

/// Why a record cannot be read although its checksum is right, or a file is no log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The file begins with something else.
    #[error("it is no log of flows")]
    NotALog,
    /// The file was written in another form.
    #[error("it is of version {0}, this agent reads version {VERSION}")]
    UnknownVersion(u16),
    /// What the file holds is said in another form.
    #[error("its contents are of kind {0}, which this agent does not know")]
    UnknownContents(u16),
    /// The kind of the record is not known.
    #[error("a record of kind {0}, which this agent does not know")]
    UnknownKind(u8),
    /// The record ends too early.
    #[error("a record that ends too early")]
    Short,
    /// A number is out of its range.
    #[error("a record with a wrong {0}")]
    Wrong(&'static str),
    /// A match on a field that there is not, or not with these bits.
    #[error("a match on {0}, which this agent does not know in this form")]
    UnknownField(String),
    /// The shape was not written before.
    #[error("a flow of shape {0}, which is not in the file")]
    UnknownShape(u32),
    /// The actions cannot be read.
    #[error("actions that this agent cannot read, {text}: {reason}")]
    Actions {
        /// The actions.
        text: String,
        /// Why not.
        reason: String,
    },
}

/// A flow that cannot be written so that it would be read back as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow ufid:{ufid} cannot be kept: {reason}")]
pub struct NotWritable {
    /// The flow.
    pub ufid: Ufid,
    /// Why not.
    pub reason: &'static str,
}

/// A time by the wall clock, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WallTime(pub(super) u64);

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl WallTime {
    /// How long ago `earlier` was; nothing if the clock was set back meanwhile.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(super) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The header of a file.
pub(super) fn header(contents: Contents) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..12].copy_from_slice(&MAGIC);
    bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
    bytes[14..].copy_from_slice(&u16::from(contents == Contents::Everything).to_le_bytes());
    bytes
}

/// What a file holds, by its header; `None` if it ends within it.
pub(super) fn read_header(bytes: &[u8]) -> Result<Option<Contents>, RecordError> {
    if bytes.len() < HEADER {
        let is_begun = header(Contents::Changes).starts_with(bytes) || header(Contents::Everything).starts_with(bytes);
        return if is_begun { Ok(None) } else { Err(RecordError::NotALog) };
    }
    let mut fields = Fields(bytes);
    if fields.take(MAGIC.len())? != MAGIC {
        return Err(RecordError::NotALog);
    }
    match (fields.u16()?, fields.u16()?) {
        (VERSION, 0) => Ok(Some(Contents::Changes)),
        (VERSION, 1) => Ok(Some(Contents::Everything)),
        (VERSION, other) => Err(RecordError::UnknownContents(other)),
        (other, _) => Err(RecordError::UnknownVersion(other)),
    }
}

/// The bodies of the frames of a file, up to the first that is not whole.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Where a file stops to be readable, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    pub(super) at: usize,
    pub(super) reason: &'static str,
}

impl<'a> Frames<'a> {
    /// The frames from a place in a file on.
    pub(super) fn at(file: &'a [u8], at: usize) -> Self {
        Self { bytes: file, at }
    }

    /// The next body with the place of its frame in the file; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(usize, &'a [u8])>, Torn> {
        let at = self.at;
        if at >= self.bytes.len() {
            return Ok(None);
        }
        let torn = |reason| Torn { at, reason };
        let mut fields = Fields(&self.bytes[at..]);
        let short = |_| torn("the file ends within a record");
        let length = fields.u32().map_err(short)? as usize;
        let checksum = fields.u32().map_err(short)?;
        if length == 0 || length > LONGEST {
            return Err(torn("a record has an impossible length"));
        }
        let body = fields.take(length).map_err(short)?;
        if crc32c::crc32c(body) != checksum {
            return Err(torn("a record has a wrong checksum"));
        }
        self.at = at + FRAME_HEADER + length;
        Ok(Some((at, body)))
    }
}

/// The body of a frame that was found whole before.
pub(super) fn body_at(file: &[u8], at: usize) -> Result<&[u8], RecordError> {
    let mut fields = Fields(file.get(at..).ok_or(RecordError::Short)?);
    let length = fields.u32()? as usize;
    fields.u32()?;
    fields.take(length)
}

/// The UFID in the body of a record of a flow that is wanted.
pub(super) fn wanted_ufid(body: &[u8]) -> Option<Ufid> {
    let mut fields = Fields(body);
    fields.u8().ok().filter(|kind| *kind == KIND_WANTED)?;
    fields.u128().ok().map(Ufid)
}

/// A record as it is read.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Shape(u32, Shape),
    Wanted(Wanted<'a>),
    Unwanted(Ufid),
}

/// The fields of a match and their masks.
#[derive(Debug)]
pub(super) struct Shape {
    mask: Arc<Mask>,
    /// With the octets that a value has in the file.
    fields: Vec<(Field, u128, usize)>,
}

/// A flow that is wanted, not yet taken apart.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) ufid: Ufid,
    pub(super) accepted: WallTime,
    pub(super) shape: u32,
    priority: Priority,
    expiry: Expiry,
    values_and_actions: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, RecordError> {
        let mut fields = Fields(body);
        match fields.u8()? {
            KIND_SHAPE => Ok(Self::Shape(fields.u32()?, Shape::read(fields)?)),
            KIND_WANTED => Ok(Self::Wanted(Wanted::read(fields)?)),
            KIND_UNWANTED => Ok(Self::Unwanted(Ufid(fields.u128()?))),
            other => Err(RecordError::UnknownKind(other)),
        }
    }
}

impl Shape {
    fn read(mut from: Fields<'_>) -> Result<Self, RecordError> {
        let mut full = Key::ZERO;
        let mut fields = Vec::new();
        while !from.0.is_empty() {
            let length = from.u8()?.into();
            let name = String::from_utf8_lossy(from.take(length)?).into_owned();
            let octets = from.u8()?.into();
            let mask = from.u128()?;
            if !(1..=16).contains(&octets) {
                return Err(RecordError::Wrong("size of a field"));
            }
            let spec = FIELDS.iter().find(|spec| spec.field.to_string() == name);
            match spec.map(|spec| spec.field).filter(|field| mask & !field.full_mask() == 0) {
                Some(field) => {
                    full.set(field, mask);
                    fields.push((field, mask, octets));
                }
                None => return Err(RecordError::UnknownField(name)),
            }
        }
        Ok(Self { mask: Arc::new(Mask::new(&full)), fields })
    }
}

impl<'a> Wanted<'a> {
    fn read(mut from: Fields<'a>) -> Result<Self, RecordError> {
        let ufid = Ufid(from.u128()?);
        let accepted = WallTime(from.u64()?);
        let priority = Priority::new(from.u8()?).ok_or(RecordError::Wrong("priority"))?;
        let permanent = match from.u8()? {
            0 => false,
            1 => true,
            _ => return Err(RecordError::Wrong("expiry")),
        };
        let mut timeout = || from.u64().map(|nanos| (nanos != NO_TIMEOUT).then(|| Duration::from_nanos(nanos)));
        let expiry = Expiry { idle: timeout()?, hard: timeout()?, permanent };
        Ok(Self { ufid, accepted, priority, expiry, shape: from.u32()?, values_and_actions: from.0 })
    }

    /// The flow, of a shape that was written before it.
    pub(super) fn flow(&self, shape: &Shape, texts: &mut ActionTexts, seed: &Seed) -> Result<Flow, RecordError> {
        let mut from = Fields(self.values_and_actions);
        let mut key = Key::ZERO;
        for (field, mask, octets) in &shape.fields {
            let value = from.number(*octets)?;
            if value & !mask != 0 {
                return Err(RecordError::Wrong("value of a field"));
            }
            key.set(*field, value);
        }
        let actions = texts.read(from.0)?;
        let matching = MaskedKey::under(shape.mask.clone(), &key);
        Ok(Flow::new(Some(self.ufid), matching, actions, self.priority, self.expiry, seed))
    }
}

const NO_TIMEOUT: u64 = u64::MAX;

/// Writes records of one file.
#[derive(Default)]
pub(super) struct Encoder {
    shapes: WrittenShapes,
    texts: ActionTexts,
}

/// The shapes that are in the file.
#[derive(Default)]
struct WrittenShapes {
    shapes: HashMap<ShapeKey, Arc<WrittenShape>>,
    /// The same by where the mask is, which flows share; with the mask, so that no other can be in its place.
    near: HashMap<NearKey, (Arc<Mask>, Arc<WrittenShape>), foldhash::fast::RandomState>,
}

/// A shape that is in the file: its number, and the fields with the octets of each.
struct WrittenShape {
    number: u32,
    fields: Vec<(Field, usize)>,
}

/// The place of a mask, and what says which headers there are.
type NearKey = (usize, u128, u128);

/// What the fields of a match follow from: the mask, and what says which headers there are.
#[derive(PartialEq, Eq, Hash)]
struct ShapeKey {
    mask: Arc<Mask>,
    eth_type: u128,
    protocol: u128,
}

impl Encoder {
    /// Appends the record of a flow, and of its shape if that is new. Nothing is appended if it cannot be written.
    pub(super) fn wanted(&mut self, out: &mut Vec<u8>, flow: &Flow, accepted: WallTime) -> Result<(), NotWritable> {
        let not_writable = |reason| NotWritable { ufid: flow.ufid, reason };
        let actions =
            self.texts.write(&flow.actions).ok_or(not_writable("its actions are not read as they are written"))?;
        let matching = flow.matching();
        let key = matching.key();
        let shape = self.shapes.of(out, &matching, &key).map_err(not_writable)?;
        frame(out, |body| {
            body.push(KIND_WANTED);
            body.extend_from_slice(&flow.ufid.0.to_le_bytes());
            body.extend_from_slice(&accepted.0.to_le_bytes());
            body.push(flow.priority.get());
            body.push(flow.expiry.permanent.into());
            for timeout in [flow.expiry.idle, flow.expiry.hard] {
                let nanos = timeout.map(|span| u64::try_from(span.as_nanos()).unwrap_or(NO_TIMEOUT - 1));
                body.extend_from_slice(&nanos.unwrap_or(NO_TIMEOUT).to_le_bytes());
            }
            body.extend_from_slice(&shape.number.to_le_bytes());
            for (field, octets) in &shape.fields {
                write_value(body, &key, *field, *octets);
            }
            body.extend_from_slice(actions.as_bytes());
        });
        Ok(())
    }

    /// Appends the record of a flow's end.
    pub(super) fn unwanted(out: &mut Vec<u8>, ufid: Ufid) {
        frame(out, |body| {
            body.push(KIND_UNWANTED);
            body.extend_from_slice(&ufid.0.to_le_bytes());
        });
    }
}

impl WrittenShapes {
    /// The shape of a match with this key. Its record is appended if it is new.
    fn of(&mut self, out: &mut Vec<u8>, matching: &MaskedKey, key: &Key) -> Result<Arc<WrittenShape>, &'static str> {
        let (mask, eth_type, protocol) = (matching.mask(), key.get(Field::EthType), key.get(Field::Ipv4Proto));
        let near = (Arc::as_ptr(mask).addr(), eth_type, protocol);
        if let Some((_, shape)) = self.near.get(&near) {
            return Ok(shape.clone());
        }
        let full = ShapeKey { mask: mask.clone(), eth_type, protocol };
        let shape = match self.shapes.get(&full) {
            Some(known) => known.clone(),
            None => {
                let number = u32::try_from(self.shapes.len()).map_err(|_| "there are too many shapes")?;
                let fields = fields_of(&matching.expand()).ok_or("it matches bits of no field")?;
                write_shape(out, number, &fields);
                let fields = fields.into_iter().map(|(field, _)| (field, octets(field))).collect();
                let written = Arc::new(WrittenShape { number, fields });
                self.shapes.insert(full, written.clone());
                written
            }
        };
        if self.near.len() >= NEAR_KEPT {
            self.near.clear();
        }
        self.near.insert(near, (mask.clone(), shape.clone()));
        Ok(shape)
    }
}

/// The fields that a match looks at, with their masks: first those of headers that it says are there, for others may lie
/// in the same bits. `None` if bits are left over.
fn fields_of(full: &Match) -> Option<Vec<(Field, u128)>> {
    let mut left = full.mask;
    let mut fields = Vec::new();
    for of_known_headers in [true, false] {
        for spec in FIELDS.iter().filter(|spec| is_met(spec.attribute.spec().requires, full) == of_known_headers) {
            let mask = left.get(spec.field);
            if mask != 0 {
                fields.push((spec.field, mask));
                left.set(spec.field, 0);
            }
        }
    }
    (left == Key::ZERO).then_some(fields)
}

fn write_shape(out: &mut Vec<u8>, number: u32, fields: &[(Field, u128)]) {
    frame(out, |body| {
        body.push(KIND_SHAPE);
        body.extend_from_slice(&number.to_le_bytes());
        for (field, mask) in fields {
            let name = field.to_string();
            body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            body.extend_from_slice(name.as_bytes());
            body.push(u8::try_from(octets(*field)).unwrap_or(u8::MAX));
            body.extend_from_slice(&mask.to_le_bytes());
        }
    });
}

/// Appends the lowest octets of a field.
fn write_value(out: &mut Vec<u8>, key: &Key, field: Field, octets: usize) {
    let spec = field.spec();
    let end = out.len() + octets;
    if spec.width == 128 {
        out.extend_from_slice(&key.get(field).to_le_bytes());
    } else {
        let value = key.words[spec.word] >> spec.shift & u64::MAX >> (64 - spec.width);
        // As many octets each time, for that is quicker than to copy so many.
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.truncate(end);
}

fn octets(field: Field) -> usize {
    field.spec().width.div_ceil(8) as usize
}

fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER]);
    write(out);
    let body = &out[at + FRAME_HEADER..];
    let (length, checksum) = (u32::try_from(body.len()).unwrap_or(u32::MAX), crc32c::crc32c(body));
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 4..at + FRAME_HEADER].copy_from_slice(&checksum.to_le_bytes());
}

/// Actions as text, both ways. Few lists serve many flows, so that some are kept at hand.
#[derive(Default)]
pub(super) struct ActionTexts {
    /// By where the list is, which flows share; with the list, so that no other can be in its place.
    written: HashMap<usize, (ActionList, Box<str>), foldhash::fast::RandomState>,
    read: HashMap<Box<[u8]>, ActionList>,
}

impl ActionTexts {
    /// The text of a list; `None` if it would be read as something else.
    fn write(&mut self, actions: &ActionList) -> Option<&str> {
        let place = actions.as_ptr().addr();
        if !self.written.contains_key(&place) {
            let mut text = String::new();
            write_actions(&mut text, actions, &Style::default()).ok()?;
            parse_actions(&text, &()).ok().filter(|read| read == actions && text.len() <= LONGEST / 2)?;
            if self.written.len() >= TEXTS_KEPT {
                self.written.clear();
            }
            self.written.insert(place, (actions.clone(), text.into()));
        }
        self.written.get(&place).map(|(_, text)| &**text)
    }

    fn read(&mut self, text: &[u8]) -> Result<ActionList, RecordError> {
        if let Some(known) = self.read.get(text) {
            return Ok(known.clone());
        }
        let wrong = |reason: String| RecordError::Actions { text: String::from_utf8_lossy(text).into_owned(), reason };
        let words = std::str::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
        let actions = parse_actions(words, &()).map_err(|error| wrong(error.to_string()))?;
        if self.read.len() >= TEXTS_KEPT {
            self.read.clear();
        }
        self.read.insert(text.into(), actions.clone());
        Ok(actions)
    }
}

/// A checked view of the numbers of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(RecordError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, octets: usize) -> Result<u128, RecordError> {
        let mut bytes = [0; 16];
        bytes[..octets].copy_from_slice(self.take(octets)?);
        Ok(u128::from_le_bytes(bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Short)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, RecordError> {
        self.array().map(u128::from_le_bytes)
    }
}
