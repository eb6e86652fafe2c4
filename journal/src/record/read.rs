//! Records as they are read.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::field::FIELDS;
use sluice_flow::key::Mask;
use sluice_flow::port::GonePort;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Field, Flow, Key, MaskedKey, Origin, PortNumber, Priority, Ufid};

use super::error::RecordError;
use super::fields::Fields;
use super::format::{
    KIND_END, KIND_INDEX, KIND_SHAPE, KIND_UNWANTED, KIND_WANTED, NO_TIMEOUT, OF_CONTROLLER, PERMANENT, WITHHELD,
};
use super::index::{Index, OpenIndex};
use super::texts::ActionTexts;
use super::wall_time::WallTime;

/// The UFID in the body of a record of a flow that is wanted.
pub(crate) fn wanted_ufid(body: &[u8]) -> Option<Ufid> {
    let mut fields = Fields(body);
    fields.u8().ok().filter(|kind| *kind == KIND_WANTED)?;
    fields.u128().ok().map(Ufid)
}

/// A record as it is read.
#[derive(Debug)]
pub(crate) enum Record<'a> {
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
pub(crate) struct Shape {
    mask: Arc<Mask>,
    /// With the bytes that a value has in the file.
    fields: Vec<(Field, u128, usize)>,
}

/// A flow that is wanted, not yet taken apart.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) ufid: Ufid,
    pub(crate) accepted: WallTime,
    pub(crate) shape: u32,
    /// The ports that are gone for which it is withheld.
    pub(crate) gone_ports: Vec<GonePort>,
    priority: Priority,
    expiry: Expiry,
    origin: Origin,
    values_and_actions: &'a [u8],
}

impl<'a> Record<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, RecordError> {
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

    /// Adds what an index says of it.
    pub(crate) fn add_to(&self, index: &mut OpenIndex) {
        match self {
            Self::Shape(..) => index.push(KIND_SHAPE, None),
            Self::Wanted(wanted) => index.push(KIND_WANTED, Some(wanted.ufid)),
            Self::Unwanted(ufid) => index.push(KIND_UNWANTED, Some(*ufid)),
            Self::Index(_) => index.push(KIND_INDEX, None),
            Self::End(_) => index.push(KIND_END, None),
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
        if flags & !(PERMANENT | WITHHELD | OF_CONTROLLER) != 0 {
            return Err(RecordError::Wrong("expiry"));
        }
        let permanent = flags & PERMANENT != 0;
        let mut timeout = || from.u64().map(|nanos| (nanos != NO_TIMEOUT).then(|| Duration::from_nanos(nanos)));
        let expiry = Expiry { idle: timeout()?, hard: timeout()?, permanent };
        let shape = from.u32()?;
        let gone_ports = if flags & WITHHELD == 0 { Vec::new() } else { read_ports(&mut from)? };
        let origin = if flags & OF_CONTROLLER == 0 { Origin::Command } else { read_controller(&mut from)? };
        Ok(Self { ufid, accepted, priority, expiry, origin, shape, gone_ports, values_and_actions: from.0 })
    }

    /// The flow, of a shape that was written before it.
    pub(crate) fn flow(&self, shape: &Shape, texts: &mut ActionTexts, seed: &Seed) -> Result<Flow, RecordError> {
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
        let flow = Flow::new(Some(self.ufid), matching, actions, self.priority, self.expiry, seed);
        Ok(if self.origin == Origin::Command { flow } else { flow.with_origin(self.origin) })
    }
}

fn read_controller(from: &mut Fields<'_>) -> Result<Origin, RecordError> {
    let length = from.u8()?.into();
    let name = std::str::from_utf8(from.take(length)?).ok().and_then(|name| name.parse().ok());
    name.map(Origin::Controller).ok_or(RecordError::Wrong("name of a controller"))
}

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
