//! Records as they are written.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_flow::key::Mask;
use sluice_flow::port::GonePort;
use sluice_flow::{Field, Flow, Key, MaskedKey, Origin, Ufid};

use super::error::NotWritable;
use super::format::{
    KIND_END, KIND_INDEX, KIND_SHAPE, KIND_UNWANTED, KIND_WANTED, NO_TIMEOUT, OF_CONTROLLER, PERMANENT, WITHHELD,
};
use super::index::OpenIndex;
use super::texts::ActionTexts;
use super::wall_time::WallTime;
use crate::frame::{FrameWriter, Header};

/// Masks whose shapes are found by where the mask is.
const NEAR_KEPT: usize = 4_096;
/// Records that an index covers at most.
const INDEXED: usize = 64;
/// After how many uses a shape is written again.
const USES_OF_A_SHAPE: u32 = 1_024;

/// Writes records of one file.
pub(crate) struct Encoder {
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
    pub(crate) fn of(header: Header, tail: Option<OpenIndex>) -> Self {
        let frames = FrameWriter::of(header);
        let index = tail.unwrap_or_else(|| OpenIndex::from(frames.next()));
        Self { frames, index, shapes: WrittenShapes::default(), texts: ActionTexts::default() }
    }

    /// The number of the next record, and what no index covers of those before.
    pub(crate) fn rest(&self) -> (u64, OpenIndex) {
        (self.frames.next(), self.index.clone())
    }

    /// Appends the record of a flow, and of its shape if that is new. Nothing is appended if it cannot be written.
    pub(crate) fn wanted(
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
            let controller = if let Origin::Controller(name) = flow.origin { Some(name) } else { None };
            let owned = if controller.is_some() { OF_CONTROLLER } else { 0 };
            body.push((u8::from(flow.expiry.permanent) * PERMANENT) | withheld | owned);
            for timeout in [flow.expiry.idle, flow.expiry.hard] {
                let nanos = timeout.map(|span| u64::try_from(span.as_nanos()).unwrap_or(NO_TIMEOUT - 1));
                body.extend_from_slice(&nanos.unwrap_or(NO_TIMEOUT).to_le_bytes());
            }
            body.extend_from_slice(&shape.number.to_le_bytes());
            if !gone_ports.is_empty() {
                write_ports(body, gone_ports);
            }
            if let Some(name) = controller {
                body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
                body.extend_from_slice(name.as_bytes());
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
    pub(crate) fn unwanted(&mut self, out: &mut Vec<u8>, ufid: Ufid) {
        self.frames.frame(out, |body| {
            body.push(KIND_UNWANTED);
            body.extend_from_slice(&ufid.0.to_le_bytes());
        });
        self.index.push(KIND_UNWANTED, Some(ufid));
        self.index_if_due(out);
    }

    /// Leaves out so many records, and appends one behind which a reader finds them missing.
    pub(crate) fn leave_out(&mut self, out: &mut Vec<u8>, records: u64) {
        self.index(out);
        self.frames.leave_out(records);
        self.index = OpenIndex::from(self.frames.next());
        self.put_index(out, KIND_INDEX);
    }

    /// Appends an index of the records that none covers, if there are any but the last index.
    pub(crate) fn index(&mut self, out: &mut Vec<u8>) {
        if self.index.news == 0 {
            return;
        }
        self.put_index(out, KIND_INDEX);
    }

    /// Appends the last record of the file.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
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
        let fields = matching.expand().fields().ok_or("it matches bits of no field")?;
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
