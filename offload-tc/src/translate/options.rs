//! Options of tunnel headers: matched and set.

use sluice_flow::action::FieldSet;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{Field, GENEVE_CHUNKS, GENEVE_OPTIONS};
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;

use super::fields::NARROW;
use super::refuse::refuse;
use crate::wire::flower::OptionsMatch;
use crate::wire::options::{Erspan, GeneveOption, Options};

/// Bytes in front of the data of a Geneve option.
const GENEVE_HEADER: usize = 4;
/// The bits of the header's last byte with the length of the data in words.
const LENGTH_BITS: u8 = 0x1f;

/// A source of fields: a match, or a set of fields.
pub(super) trait Source {
    /// Takes value and mask of a field, once.
    fn take(&mut self, field: Field) -> Option<(u128, u128)>;
}

impl Source for Remainder {
    fn take(&mut self, field: Field) -> Option<(u128, u128)> {
        Self::take(self, field)
    }
}

/// Takes the options of a match.
///
/// Of the total length of Geneve options the kernel compares only the bits that are set in the wanted length, so in software
/// a packet with more options can match, too (`fl_set_enc_opt`; OVS has the same).
pub(super) fn matched(rest: &mut dyn Source) -> Result<Option<OptionsMatch>, Refusal> {
    let Some((value, mask)) = taken(rest)? else { return Ok(None) };
    Ok(Some(OptionsMatch { value, mask }))
}

/// Takes the options that are set, which are complete.
pub(super) fn set(set: &mut dyn Source) -> Result<Option<Options>, Refusal> {
    Ok(taken(set)?.map(|(value, _)| value))
}

fn taken(from: &mut dyn Source) -> Result<Option<(Options, Options)>, Refusal> {
    if is_present(from, Field::VxlanGbpPresent)? {
        return policy(from).map(Some);
    }
    if is_present(from, Field::ErspanPresent)? {
        return erspan(from).map(Some);
    }
    if is_present(from, Field::GenevePresent)? {
        return geneve(from).map(Some);
    }
    if from.take(Field::GtpuPresent).is_some() {
        return Err(refuse(Field::GtpuPresent, "tc knows the PDU session container of GTP-U, not its header"));
    }
    Ok(None)
}

fn is_present(from: &mut dyn Source, field: Field) -> Result<bool, Refusal> {
    match from.take(field) {
        None => Ok(false),
        Some((1, 1)) => Ok(true),
        Some(_) => Err(refuse(field, "the absence of options cannot be matched")),
    }
}

fn policy(from: &mut dyn Source) -> Result<(Options, Options), Refusal> {
    let (id, id_mask) = from.take(Field::VxlanGbpId).unwrap_or_default();
    let [flags, flags_mask] = narrow(from, Field::VxlanGbpFlags)?;
    let join = |flags: u8, id: u128| u32::from(flags) << 16 | u32::try_from(id).unwrap_or_default();
    Ok((Options::Vxlan(join(flags, id)), Options::Vxlan(join(flags_mask, id_mask))))
}

fn erspan(from: &mut dyn Source) -> Result<(Options, Options), Refusal> {
    let version = match from.take(Field::ErspanVersion) {
        Some((version, mask)) if mask == Field::ErspanVersion.full_mask() => u8::try_from(version).unwrap_or_default(),
        _ => return Err(refuse(Field::ErspanVersion, "only an exact match is possible")),
    };
    let [direction, direction_mask] = narrow(from, Field::ErspanDirection)?;
    let [hardware, hardware_mask] = narrow(from, Field::ErspanHardwareId)?;
    let (index, index_mask) = from.take(Field::ErspanIndex).unwrap_or_default();
    let [index, index_mask] = [index, index_mask].map(|number| u32::try_from(number).unwrap_or_default());
    // The kernel takes the version in a mask for that of a header, too.
    let header = Erspan { version, ..Erspan::default() };
    let [value, mask] = match version {
        1 if direction_mask | hardware_mask != 0 => {
            return Err(refuse(Field::ErspanDirection, "version 1 has neither direction nor hardware"));
        }
        2 if index_mask != 0 => return Err(refuse(Field::ErspanIndex, "version 2 has none")),
        1 => [index, index_mask].map(|index| Erspan { index: Some(index), ..header }),
        2 => [(direction, hardware), (direction_mask, hardware_mask)].map(|(direction, hardware)| Erspan {
            direction: Some(direction),
            hardware: Some(hardware),
            ..header
        }),
        _ => return Err(refuse(Field::ErspanVersion, "there are versions 1 and 2")),
    };
    Ok((Options::Erspan(value), Options::Erspan(mask)))
}

/// Value and mask of a field that is wider than in the header.
fn narrow(from: &mut dyn Source, field: Field) -> Result<[u8; 2], Refusal> {
    let (value, mask) = from.take(field).unwrap_or_default();
    let bits = NARROW.iter().find(|(narrow, ..)| *narrow == field).map_or(u8::MAX, |(_, bits, _)| *bits);
    let is_beyond = |number: u128| number & !u128::from(bits) != 0;
    if is_beyond(value & mask) || is_beyond(mask) && mask != field.full_mask() {
        return Err(refuse(field, "the kernel does not know all of these bits"));
    }
    Ok([value, mask].map(|number| u8::try_from(number).unwrap_or_default() & bits))
}

fn geneve(from: &mut dyn Source) -> Result<(Options, Options), Refusal> {
    let (mut values, mut masks) = ([0; GENEVE_OPTIONS], [0; GENEVE_OPTIONS]);
    for (field, (value, mask)) in GENEVE_CHUNKS.iter().zip(values.chunks_exact_mut(16).zip(masks.chunks_exact_mut(16)))
    {
        let (field_value, field_mask) = from.take(*field).unwrap_or_default();
        value.copy_from_slice(&field_value.to_be_bytes());
        mask.copy_from_slice(&field_mask.to_be_bytes());
    }
    let length = match from.take(Field::GeneveLength) {
        Some((length, mask)) if mask == Field::GeneveLength.full_mask() => usize::try_from(length).unwrap_or_default(),
        _ => return Err(refuse(Field::GeneveLength, "the length of all options must be matched")),
    };
    let (Some(mut value), Some(mut mask)) = (values.get(..length), masks.get(..length)) else {
        return Err(refuse(Field::GeneveLength, "there is no room for so many"));
    };
    let (mut found, mut found_mask) = (Vec::new(), Vec::new());
    while let (Some((head, rest)), Some((mask_head, mask_rest))) =
        (value.split_first_chunk::<GENEVE_HEADER>(), mask.split_first_chunk::<GENEVE_HEADER>())
    {
        let bytes = usize::from(head[3] & LENGTH_BITS) * 4;
        if mask_head[3] != LENGTH_BITS {
            return Err(refuse(
                Field::GeneveOptions0,
                "the length of each option must be matched, and no reserved bit",
            ));
        }
        if bytes == 0 {
            return Err(refuse(Field::GeneveOptions0, "tc has no options without data"));
        }
        let (Some((data, behind)), Some((mask_data, mask_behind))) =
            (rest.split_at_checked(bytes), mask_rest.split_at_checked(bytes))
        else {
            return Err(refuse(Field::GeneveLength, "the options are longer than their total length"));
        };
        found.push(option(head, data));
        found_mask.push(option(mask_head, mask_data));
        (value, mask) = (behind, mask_behind);
    }
    if found.is_empty() || !value.is_empty() {
        return Err(refuse(Field::GeneveLength, "the length is not one of whole options"));
    }
    Ok((Options::Geneve(found), Options::Geneve(found_mask)))
}

fn option(head: &[u8; GENEVE_HEADER], data: &[u8]) -> GeneveOption {
    let [high, low, kind, _] = *head;
    GeneveOption { class: u16::from_be_bytes([high, low]), kind, data: data.to_vec() }
}

/// The fields that match options.
pub(super) fn fields(value: &Options, mask: &Options) -> Option<Vec<(Field, u128, u128)>> {
    let full = |field: Field, value: u128| (field, value, field.full_mask());
    Some(match (value, mask) {
        (Options::Vxlan(value), Options::Vxlan(mask)) => {
            let flags = u128::from(mask >> 16);
            vec![
                full(Field::VxlanGbpPresent, 1),
                (Field::VxlanGbpId, (value & 0xffff).into(), (mask & 0xffff).into()),
                (Field::VxlanGbpFlags, (value >> 16).into(), flags),
            ]
        }
        (Options::Erspan(value), Options::Erspan(mask)) => {
            let bytes = |field, value: Option<u8>, mask: Option<u8>| {
                (field, value.unwrap_or_default().into(), mask.unwrap_or_default().into())
            };
            vec![
                full(Field::ErspanPresent, 1),
                full(Field::ErspanVersion, value.version.into()),
                (Field::ErspanIndex, value.index.unwrap_or_default().into(), mask.index.unwrap_or_default().into()),
                bytes(Field::ErspanDirection, value.direction, mask.direction),
                bytes(Field::ErspanHardwareId, value.hardware, mask.hardware),
            ]
        }
        (Options::Geneve(value), Options::Geneve(mask)) if value.len() == mask.len() => geneve_fields(value, mask)?,
        _ => return None,
    })
}

/// The fields that set options.
pub(super) fn whole(value: &Options) -> Option<Vec<(Field, u128, u128)>> {
    let mask = match value {
        Options::Vxlan(_) => Options::Vxlan(0xff_ffff),
        Options::Erspan(header) => Options::Erspan(Erspan {
            version: header.version,
            index: header.index.map(|_| u32::MAX),
            direction: header.direction.map(|_| u8::MAX),
            hardware: header.hardware.map(|_| u8::MAX),
        }),
        Options::Geneve(options) => Options::Geneve(
            options
                .iter()
                .map(|option| GeneveOption { class: u16::MAX, kind: u8::MAX, data: vec![u8::MAX; option.data.len()] })
                .collect(),
        ),
        Options::Gtp { .. } => return None,
    };
    let mut said = fields(value, &mask)?;
    for (field, value, mask) in &mut said {
        *mask &= field.full_mask();
        *value &= *mask;
    }
    said.retain(|(_, _, mask)| *mask != 0);
    Some(said)
}

fn geneve_fields(value: &[GeneveOption], mask: &[GeneveOption]) -> Option<Vec<(Field, u128, u128)>> {
    let (mut values, mut masks) = (Vec::new(), Vec::new());
    for (value, mask) in value.iter().zip(mask) {
        let words = u8::try_from(value.data.len() / 4).ok().filter(|words| *words <= LENGTH_BITS)?;
        for (bytes, option, last) in [(&mut values, value, words), (&mut masks, mask, LENGTH_BITS)] {
            bytes.extend_from_slice(&option.class.to_be_bytes());
            bytes.extend_from_slice(&[option.kind, last]);
            bytes.extend_from_slice(&option.data);
        }
    }
    let length = values.len();
    if length != masks.len() || length > GENEVE_OPTIONS {
        return None;
    }
    values.resize(GENEVE_OPTIONS, 0);
    masks.resize(GENEVE_OPTIONS, 0);
    let mut found =
        vec![(Field::GenevePresent, 1, 1), (Field::GeneveLength, length as u128, Field::GeneveLength.full_mask())];
    for (field, (value, mask)) in GENEVE_CHUNKS.iter().zip(values.as_chunks().0.iter().zip(masks.as_chunks().0)) {
        found.push((*field, u128::from_be_bytes(*value), u128::from_be_bytes(*mask)));
    }
    found.retain(|(_, _, mask)| *mask != 0);
    Some(found)
}

/// The fields of a set, each of which can be taken once.
pub(super) struct Taken<'a> {
    set: &'a FieldSet,
    left: Match,
}

impl<'a> Taken<'a> {
    pub(super) fn new(set: &'a FieldSet) -> Self {
        let mut left = Match::default();
        set.fields.iter().for_each(|(field, value, mask)| left.set(*field, *value, *mask));
        Self { set, left }
    }

    /// The first field that was not taken.
    pub(super) fn left(&self) -> Option<Field> {
        self.set.fields.iter().map(|(field, ..)| *field).find(|field| self.left.mask.get(*field) != 0)
    }
}

impl Source for Taken<'_> {
    fn take(&mut self, field: Field) -> Option<(u128, u128)> {
        let (value, mask) = (self.left.key.get(field), self.left.mask.get(field));
        self.left.mask.set(field, 0);
        (mask != 0).then_some((value, mask))
    }
}
