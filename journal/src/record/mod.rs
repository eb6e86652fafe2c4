//! Records: the bodies of the [frames](super::frame) of a log of flows. The first byte of a body is its kind; a kind that is not
//! known is refused, so that a new kind of record is a new version of the file.
//!
//! A match is written by the *names* of its fields, not as words of a key: the words are laid out by the field table,
//! which changes, and fields of different headers share them. Names and masks are written as a shape of their own, and a
//! flow is the number of its shape and the values. A shape is written again when it is used for the second time, and now and then
//! after that, for many flows depend on it. Actions are OVS text, whose grammar is read by every version and written by one
//! place, [`ActionTexts`].
//!
//! An index follows every 64 records at most and says of each what it is and of which flow: so it is known what a damaged
//! record was about.

mod index;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_flow::field::FIELDS;
use sluice_flow::key::Mask;
use sluice_flow::port::GonePort;
use sluice_flow::text::{Style, parse_actions, write_actions};
use sluice_flow::ufid::Seed;
use sluice_flow::{ActionList, Expiry, Field, Flow, Key, MaskedKey, Match, PortNumber, Priority, Ufid};

pub(super) use self::index::{Index, Indexed, OpenIndex};
use super::frame::{FrameWriter, Header, LONGEST, VERSION, WrongHeader};

/// Action lists whose text is kept at hand.
const TEXTS_KEPT: usize = 4_096;
/// Masks whose shapes are found by where the mask is.
const NEAR_KEPT: usize = 4_096;

const KIND_SHAPE: u8 = 1;
const KIND_WANTED: u8 = 2;
const KIND_UNWANTED: u8 = 3;
const KIND_INDEX: u8 = 4;
const KIND_END: u8 = 5;

/// Records that an index covers at most.
const INDEXED: usize = 64;
/// After how many uses a shape is written again.
const USES_OF_A_SHAPE: u32 = 1_024;

/// Why a record cannot be read although its checksum is right, or a file is no log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The file begins with something else.
    #[error("it is no log of flows")]
    NotALog,
    /// The file was written in another form.
    #[error("it is of version {0}, this agent reads versions 1 and {VERSION}")]
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

impl From<WrongHeader> for RecordError {
    fn from(wrong: WrongHeader) -> Self {
        match wrong {
            WrongHeader::NotALog => Self::NotALog,
            WrongHeader::Version(version) => Self::UnknownVersion(version),
            WrongHeader::Contents(contents) => Self::UnknownContents(contents),
        }
    }
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
    /// What the records before it are.
    Index(Index<'a>),
    /// Nothing more was written to the file; and what the last records are.
    End(Index<'a>),
}

/// The fields of a match and their masks.
#[derive(Debug)]
pub(super) struct Shape {
    mask: Arc<Mask>,
    /// With the bytes that a value has in the file.
    fields: Vec<(Field, u128, usize)>,
}

/// A flow that is wanted, not yet taken apart.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) ufid: Ufid,
    pub(super) accepted: WallTime,
    pub(super) shape: u32,
    /// The ports that are gone for which it is withheld.
    pub(super) gone_ports: Vec<GonePort>,
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
            KIND_INDEX => Ok(Self::Index(Index { first: fields.u64()?, entries: fields.0 })),
            KIND_END => Ok(Self::End(Index { first: fields.u64()?, entries: fields.0 })),
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
            let bytes = from.u8()?.into();
            let mask = from.u128()?;
            if !(1..=16).contains(&bytes) {
                return Err(RecordError::Wrong("size of a field"));
            }
            let spec = FIELDS.iter().find(|spec| spec.field.to_string() == name);
            match spec.map(|spec| spec.field).filter(|field| mask & !field.full_mask() == 0) {
                Some(field) => {
                    full.set(field, mask);
                    fields.push((field, mask, bytes));
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
        let flags = from.u8()?;
        if flags & !(PERMANENT | WITHHELD) != 0 {
            return Err(RecordError::Wrong("expiry"));
        }
        let permanent = flags & PERMANENT != 0;
        let mut timeout = || from.u64().map(|nanos| (nanos != NO_TIMEOUT).then(|| Duration::from_nanos(nanos)));
        let expiry = Expiry { idle: timeout()?, hard: timeout()?, permanent };
        let shape = from.u32()?;
        let gone_ports = if flags & WITHHELD == 0 { Vec::new() } else { read_ports(&mut from)? };
        Ok(Self { ufid, accepted, priority, expiry, shape, gone_ports, values_and_actions: from.0 })
    }

    /// The flow, of a shape that was written before it.
    pub(super) fn flow(&self, shape: &Shape, texts: &mut ActionTexts, seed: &Seed) -> Result<Flow, RecordError> {
        let mut from = Fields(self.values_and_actions);
        let mut key = Key::ZERO;
        for (field, mask, bytes) in &shape.fields {
            let value = from.number(*bytes)?;
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
const PERMANENT: u8 = 1;
/// The flow waits for ports that are gone, which are listed.
const WITHHELD: u8 = 2;

fn read_ports(from: &mut Fields<'_>) -> Result<Vec<GonePort>, RecordError> {
    let count = from.u8()?;
    let mut port = || {
        let number = PortNumber(from.u32()?);
        let length = from.u8()?.into();
        let name = std::str::from_utf8(from.take(length)?).ok().and_then(|name| name.parse().ok());
        Ok(GonePort { number, name: name.ok_or(RecordError::Wrong("name of a port"))? })
    };
    (0..count).map(|_| port()).collect()
}

/// At most 255 of them: names have no more bytes than that, and a flow that names more ports waits for the first ones.
fn write_ports(out: &mut Vec<u8>, ports: &[GonePort]) {
    let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
    out.push(count);
    for GonePort { number, name } in &ports[..count.into()] {
        out.extend_from_slice(&number.0.to_le_bytes());
        out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(name.as_bytes());
    }
}

/// Writes records of one file.
pub(super) struct Encoder {
    frames: FrameWriter,
    index: OpenIndex,
    shapes: WrittenShapes,
    texts: ActionTexts,
}

/// The shapes that are in the file.
#[derive(Default)]
struct WrittenShapes {
    /// By their numbers.
    written: Vec<WrittenShape>,
    numbers: HashMap<ShapeKey, usize>,
    /// The same by where the mask is, which flows share; with the mask, so that no other can be in its place.
    near: HashMap<NearKey, (Arc<Mask>, usize), foldhash::fast::RandomState>,
}

/// A shape that is in the file: the fields with their masks and the bytes of each, and how many flows have it.
struct WrittenShape {
    number: u32,
    fields: Vec<(Field, u128, usize)>,
    uses: u32,
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
    /// Of the file with this header. `tail` is what no index covers of the records before.
    pub(super) fn of(header: Header, tail: Option<OpenIndex>) -> Self {
        let frames = FrameWriter::of(header);
        let index = tail.unwrap_or_else(|| OpenIndex::from(frames.next()));
        Self { frames, index, shapes: WrittenShapes::default(), texts: ActionTexts::default() }
    }

    /// The number of the next record, and what no index covers of those before.
    pub(super) fn rest(&self) -> (u64, OpenIndex) {
        (self.frames.next(), self.index.clone())
    }

    /// Appends the record of a flow, and of its shape if that is new. Nothing is appended if it cannot be written.
    pub(super) fn wanted(
        &mut self,
        out: &mut Vec<u8>,
        flow: &Flow,
        accepted: WallTime,
        gone_ports: &[GonePort],
    ) -> Result<(), NotWritable> {
        let not_writable = |reason| NotWritable { ufid: flow.ufid, reason };
        let Self { frames, index, shapes, texts } = self;
        let actions = texts.write(&flow.actions).ok_or(not_writable("its actions are not read as they are written"))?;
        let matching = flow.matching();
        let key = matching.key();
        let shape = shapes.of(&matching, &key).map_err(not_writable)?;
        if shape.is_written_now() {
            frames.frame(out, |body| shape.write(body));
            index.push(KIND_SHAPE, None);
        }
        frames.frame(out, |body| {
            body.push(KIND_WANTED);
            body.extend_from_slice(&flow.ufid.0.to_le_bytes());
            body.extend_from_slice(&accepted.0.to_le_bytes());
            body.push(flow.priority.get());
            let withheld = if gone_ports.is_empty() { 0 } else { WITHHELD };
            body.push((u8::from(flow.expiry.permanent) * PERMANENT) | withheld);
            for timeout in [flow.expiry.idle, flow.expiry.hard] {
                let nanos = timeout.map(|span| u64::try_from(span.as_nanos()).unwrap_or(NO_TIMEOUT - 1));
                body.extend_from_slice(&nanos.unwrap_or(NO_TIMEOUT).to_le_bytes());
            }
            body.extend_from_slice(&shape.number.to_le_bytes());
            if !gone_ports.is_empty() {
                write_ports(body, gone_ports);
            }
            for (field, _, bytes) in &shape.fields {
                write_value(body, &key, *field, *bytes);
            }
            body.extend_from_slice(actions.as_bytes());
        });
        index.push(KIND_WANTED, Some(flow.ufid));
        self.index_if_due(out);
        Ok(())
    }

    /// Appends the record of a flow's end.
    pub(super) fn unwanted(&mut self, out: &mut Vec<u8>, ufid: Ufid) {
        self.frames.frame(out, |body| {
            body.push(KIND_UNWANTED);
            body.extend_from_slice(&ufid.0.to_le_bytes());
        });
        self.index.push(KIND_UNWANTED, Some(ufid));
        self.index_if_due(out);
    }

    /// Leaves out so many records, and appends one behind which a reader finds them missing.
    pub(super) fn leave_out(&mut self, out: &mut Vec<u8>, records: u64) {
        self.index(out);
        self.frames.leave_out(records);
        self.index = OpenIndex::from(self.frames.next());
        self.put_index(out, KIND_INDEX);
    }

    /// Appends an index of the records that none covers, if there are any but the last index.
    pub(super) fn index(&mut self, out: &mut Vec<u8>) {
        if self.index.news == 0 {
            return;
        }
        self.put_index(out, KIND_INDEX);
    }

    /// Appends the last record of the file.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.index(out);
        self.put_index(out, KIND_END);
    }

    fn put_index(&mut self, out: &mut Vec<u8>, kind: u8) {
        let index = std::mem::take(&mut self.index);
        let number = self.frames.frame(out, |body| {
            body.push(kind);
            body.extend_from_slice(&index.first.to_le_bytes());
            body.extend_from_slice(&index.entries);
        });
        self.index = OpenIndex::from(number);
        self.index.push(kind, None);
    }

    fn index_if_due(&mut self, out: &mut Vec<u8>) {
        if self.index.records >= INDEXED {
            self.index(out);
        }
    }
}

impl WrittenShapes {
    /// The shape of a match with this key, for one more flow.
    fn of(&mut self, matching: &MaskedKey, key: &Key) -> Result<&mut WrittenShape, &'static str> {
        let (mask, eth_type, protocol) = (matching.mask(), key.get(Field::EthType), key.get(Field::Ipv4Proto));
        let near = (Arc::as_ptr(mask).addr(), eth_type, protocol);
        let number = match self.near.get(&near) {
            Some((_, number)) => *number,
            None => {
                let number = self.number_of(ShapeKey { mask: mask.clone(), eth_type, protocol }, matching)?;
                if self.near.len() >= NEAR_KEPT {
                    self.near.clear();
                }
                self.near.insert(near, (mask.clone(), number));
                number
            }
        };
        let shape = &mut self.written[number];
        shape.uses = shape.uses.wrapping_add(1);
        Ok(shape)
    }

    fn number_of(&mut self, key: ShapeKey, matching: &MaskedKey) -> Result<usize, &'static str> {
        if let Some(known) = self.numbers.get(&key) {
            return Ok(*known);
        }
        let number = u32::try_from(self.written.len()).map_err(|_| "there are too many shapes")?;
        let fields = fields_of(&matching.expand()).ok_or("it matches bits of no field")?;
        let fields = fields.into_iter().map(|(field, mask)| (field, mask, bytes_of(field))).collect();
        self.written.push(WrittenShape { number, fields, uses: 0 });
        self.numbers.insert(key, self.written.len() - 1);
        Ok(self.written.len() - 1)
    }
}

impl WrittenShape {
    /// Whether the shape goes before the flow that uses it now.
    const fn is_written_now(&self) -> bool {
        self.uses <= 2 || self.uses.is_multiple_of(USES_OF_A_SHAPE)
    }

    fn write(&self, body: &mut Vec<u8>) {
        body.push(KIND_SHAPE);
        body.extend_from_slice(&self.number.to_le_bytes());
        for (field, mask, bytes) in &self.fields {
            let name = field.to_string();
            body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            body.extend_from_slice(name.as_bytes());
            body.push(u8::try_from(*bytes).unwrap_or(u8::MAX));
            body.extend_from_slice(&mask.to_le_bytes());
        }
    }
}

/// The fields that a match looks at, with their masks: first those of headers that it says are there, for others may lie
/// in the same bits. `None` if bits are left over.
fn fields_of(full: &Match) -> Option<Vec<(Field, u128)>> {
    let mut left = full.mask;
    let mut fields = Vec::new();
    for of_known_headers in [true, false] {
        for spec in FIELDS.iter().filter(|spec| full.meets(spec.attribute.spec().requires) == of_known_headers) {
            let mask = left.get(spec.field);
            if mask != 0 {
                fields.push((spec.field, mask));
                left.set(spec.field, 0);
            }
        }
    }
    (left == Key::ZERO).then_some(fields)
}

/// Appends the lowest bytes of a field.
fn write_value(out: &mut Vec<u8>, key: &Key, field: Field, bytes: usize) {
    let spec = field.spec();
    let end = out.len() + bytes;
    if spec.width == 128 {
        out.extend_from_slice(&key.get(field).to_le_bytes());
    } else {
        let value = key.words[spec.word] >> spec.shift & u64::MAX >> (64 - spec.width);
        // As many bytes each time, for that is quicker than to copy so many.
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.truncate(end);
}

fn bytes_of(field: Field) -> usize {
    field.spec().width.div_ceil(8) as usize
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

    fn number(&mut self, bytes: usize) -> Result<u128, RecordError> {
        let mut number = [0; 16];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u128::from_le_bytes(number))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Short)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
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
