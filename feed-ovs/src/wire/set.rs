//! `set`: the header to be rewritten.

use sluice_flow::action::{Action, FieldSet};
use sluice_flow::field::{Attribute as KeyAttribute, Field, MPLS_ENTRIES};
use sluice_netdev::netlink::attribute::{Attribute, Malformed};

use super::header::{Header, kind, number};
use super::key::label_stack_entry;
use super::mask::Mask;
use super::nsh;
use super::tunnel;

const PLACE: &str = "OVS_ACTION_ATTR_SET";

type Fields = Vec<(Field, u128, u128)>;

/// Reads `OVS_ACTION_ATTR_SET`, which sets all fields of a header. Of an outer header it sets those that it has.
pub(super) fn read_set(set: &Attribute<'_>) -> Result<Action, Malformed> {
    let header = single(set)?;
    let mut fields = Fields::new();
    let mut see = |field, value, mask| fields.push((field, value, mask));
    if header.kind == kind::TUNNEL {
        tunnel::read(&header, Mask::Exact, &mut see)?;
        return Ok(Action::SetTunnel(field_set(&header, KeyAttribute::Tunnel, fields)?));
    }
    match header.kind {
        kind::MPLS => fields.extend(label_stack_entry(header.be32()?.into(), u32::MAX.into(), &MPLS_ENTRIES[0])),
        kind::NSH => nsh::read(&header, Mask::Exact, &mut see)?,
        kind => Header::of(kind).ok_or_else(|| header.unknown())?.read(&header, Mask::Exact, &mut see)?,
    }
    rewrite(&header, fields)
}

/// Reads `OVS_ACTION_ATTR_SET_MASKED`, in which a value is followed by its mask.
pub(super) fn read_masked_set(set: &Attribute<'_>) -> Result<Action, Malformed> {
    let header = single(set)?;
    let mut fields = Fields::new();
    let mut see = |field, value, mask| fields.push((field, value, mask));
    match header.kind {
        kind::MPLS => {
            let (value, mask) = halves(&header)?;
            let [value, mask] = [value, mask].map(|half| number(half.payload.iter().copied().take(4)));
            fields.extend(label_stack_entry(value, mask, &MPLS_ENTRIES[0]));
        }
        kind::NSH => {
            for part in header.nested(nsh::PLACE) {
                let (value, mask) = halves(&part?)?;
                nsh::read_part(&value, Mask::Bytes(mask.payload), &mut see)?;
            }
        }
        kind => {
            let (value, mask) = halves(&header)?;
            Header::of(kind).ok_or_else(|| header.unknown())?.read(&value, Mask::Bytes(mask.payload), &mut see)?;
        }
    }
    rewrite(&header, fields)
}

/// The one header that is set.
fn single<'a>(set: &Attribute<'a>) -> Result<Attribute<'a>, Malformed> {
    let mut headers = set.nested(PLACE);
    match (headers.next(), headers.next()) {
        (Some(header), None) => header,
        _ => Err(set.value("not one header")),
    }
}

fn halves<'a>(attribute: &Attribute<'a>) -> Result<(Attribute<'a>, Attribute<'a>), Malformed> {
    let (value, mask) = attribute.payload.split_at(attribute.payload.len() / 2);
    if value.len() != mask.len() {
        return Err(attribute.length());
    }
    Ok((attribute.with_payload(value), attribute.with_payload(mask)))
}

fn rewrite(header: &Attribute<'_>, fields: Fields) -> Result<Action, Malformed> {
    let first = fields.first().ok_or_else(|| header.value("nothing to be set"))?;
    let attribute = first.0.spec().attribute;
    Ok(Action::Set(field_set(header, attribute, fields)?))
}

/// The fields of which some bits are set, in the order of the table.
fn field_set(header: &Attribute<'_>, attribute: KeyAttribute, fields: Fields) -> Result<FieldSet, Malformed> {
    let narrow = |(field, value, mask): (Field, u128, u128)| {
        let mask = mask & field.full_mask();
        (field, value & mask, mask)
    };
    let mut fields: Fields = fields.into_iter().map(narrow).filter(|(.., mask)| *mask != 0).collect();
    if fields.is_empty() {
        return Err(header.value("nothing to be set"));
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    Ok(FieldSet { attribute, fields: fields.into() })
}
