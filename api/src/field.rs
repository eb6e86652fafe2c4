//! The fields of `match.proto` beside the field table, from which they must not part.

#[cfg(test)]
mod tests {
    use sluice_flow::Field;
    use sluice_flow::field::FIELDS;

    use crate::v1;

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
}
