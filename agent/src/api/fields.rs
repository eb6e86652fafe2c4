//! Matches as structures, both ways.

use std::sync::LazyLock;

use sluice_api::{FieldView, Fields, FieldsWriter, v1};
use sluice_flow::field::FIELDS;
use sluice_flow::{Field, MaskedKey, Match};

use super::errors::InputError;

/// The fields by their numbers in `match.proto`, which stay the same whatever becomes of the table.
static BY_NUMBER: LazyLock<Vec<Option<Field>>> = LazyLock::new(|| {
    let mut by_number = vec![None; FIELDS.len() + 1];
    for spec in FIELDS {
        if let Ok(place) = usize::try_from(i32::from(number(spec.field)))
            && let Some(place) = by_number.get_mut(place)
        {
            *place = Some(spec.field);
        }
    }
    by_number
});

static NUMBERS: LazyLock<Vec<v1::Field>> = LazyLock::new(|| {
    let number = |spec: &sluice_flow::field::FieldSpec| v1::Field::from_str_name(&name(spec.field));
    FIELDS.iter().map(|spec| number(spec).unwrap_or_default()).collect()
});

/// The field of the interface.
pub(super) fn number(field: Field) -> v1::Field {
    NUMBERS[field as usize]
}

/// The name of a field in `match.proto`: that of the table, in capitals.
fn name(field: Field) -> String {
    let mut name = "FIELD".to_owned();
    for char in format!("{field:?}").chars() {
        if char.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(char.to_ascii_uppercase());
    }
    name
}

/// Reads a match.
pub(super) fn read_fields(fields: &Fields) -> Result<Match, InputError> {
    let mut matching = Match::default();
    // As every text says it, too.
    matching.mask.set(Field::RecircId, Field::RecircId.full_mask());
    let mut is_seen = [false; FIELDS.len()];
    // Each once at the most.
    let (mut seen, mut count) = ([Field::RecircId; FIELDS.len()], 0);
    for view in fields.iter() {
        let FieldView { field: number, value, mask } =
            view.map_err(|malformed| InputError::new("match", malformed.to_string()))?;
        let known = usize::try_from(number).ok().and_then(|number| BY_NUMBER.get(number).copied().flatten());
        let field = known.ok_or_else(|| InputError::new("match", format!("there is no field {number}")))?;
        if std::mem::replace(&mut is_seen[field as usize], true) {
            return Err(InputError::field(field, "it is named twice"));
        }
        seen[count] = field;
        count += 1;
        let value = read_number(field, value)?;
        let mask = if mask.is_empty() { field.full_mask() } else { read_number(field, mask)? };
        if value & !mask != 0 {
            return Err(InputError::field(field, "its value has bits that its mask leaves out"));
        }
        if mask & matching.mask.get(field) != 0 && field != Field::RecircId {
            return Err(InputError::field(field, "another field is matched that no packet has beside it"));
        }
        matching.mask.set(field, mask);
        matching.key.set(field, value);
    }
    for field in &seen[..count] {
        let requirement = field.spec().attribute.spec().requires;
        if !matching.meets(requirement) {
            let needed = "it needs the Ethernet type, and perhaps the protocol, of its header, exactly";
            return Err(InputError::field(*field, needed));
        }
    }
    Ok(matching)
}

fn read_number(field: Field, bytes: &[u8]) -> Result<u128, InputError> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = &bytes[zeros..];
    let mut number = [0; 16];
    if digits.len() <= number.len() {
        number[16 - digits.len()..].copy_from_slice(digits);
        let number = u128::from_be_bytes(number);
        if number & !field.full_mask() == 0 {
            return Ok(number);
        }
    }
    Err(InputError::field(field, format!("it has {} bits", field.spec().width)))
}

/// Writes a match; `None` if it looks at bits of no field.
pub(super) fn write_fields(matching: &MaskedKey<'_>) -> Option<Fields> {
    let full = matching.expand();
    let mut writer = FieldsWriter::default();
    for (field, mask) in full.fields()? {
        let is_exact = mask == field.full_mask();
        let (value, mask) = (full.key.get(field).to_be_bytes(), mask.to_be_bytes());
        // As many bytes as the field has.
        let unused = 16 - field.spec().width.div_ceil(8) as usize;
        let mask = if is_exact { &[] } else { &mask[unused..] };
        writer.push(FieldView { field: number(field).into(), value: &value[unused..], mask });
    }
    Some(writer.into())
}

#[cfg(test)]
mod tests {
    use sluice_flow::text::parse_key;

    use super::*;

    #[test]
    fn the_interface_has_the_fields_of_the_table_and_no_others() {
        let of_table: Vec<_> = FIELDS.iter().map(|spec| name(spec.field)).collect();
        for name in &of_table {
            assert!(v1::Field::from_str_name(name).is_some(), "{name} is not in match.proto");
        }
        for number in 1.. {
            let Ok(field) = v1::Field::try_from(number) else {
                assert_eq!(usize::try_from(number).unwrap(), of_table.len() + 1, "numbers are without gaps");
                break;
            };
            assert!(of_table.contains(&field.as_str_name().to_owned()), "{field:?} is not in the field table");
        }
    }

    #[test]
    fn a_match_is_the_same_as_a_structure_and_as_text() {
        let text = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0,proto=17,frag=no),udp(dst=53)";
        let matching = parse_key(text, &()).unwrap().matching;
        let fields = write_fields(&MaskedKey::new(&matching)).unwrap();
        assert_eq!(read_fields(&fields).unwrap(), matching);
    }

    #[test]
    fn a_structure_that_no_packet_can_have_is_told_with_its_field() {
        let field = |field: v1::Field, value: &[u8], mask: Option<&[u8]>| v1::MatchField {
            field: field.into(),
            value: value.to_vec().into(),
            mask: mask.unwrap_or_default().to_vec().into(),
        };
        let error = |fields: &[v1::MatchField]| {
            read_fields(&Fields::from(&v1::MatchFields { fields: fields.to_vec() })).unwrap_err().to_string()
        };
        let port = field(v1::Field::InPort, &[1], None);
        assert_eq!(error(&[port.clone(), port.clone()]), "match: in_port: it is named twice");
        assert_eq!(error(&[field(v1::Field::EthType, &[1, 0, 0], None)]), "match: eth_type: it has 16 bits");
        let beyond = field(v1::Field::InPort, &[3], Some(&[1]));
        assert_eq!(error(&[beyond]), "match: in_port: its value has bits that its mask leaves out");
        assert!(error(&[field(v1::Field::Ipv4Src, &[10, 0, 0, 1], None)]).starts_with("match: ipv4.src: it needs"));
        assert!(error(&[v1::MatchField { field: 4_000, ..port }]).ends_with("there is no field 4000"));
    }
}
