//! `set`: fields of one header.

use crate::action::{Action, FieldSet};
use crate::field::{Attribute, Field, MPLS_PRESENT};
use crate::port::PortNames;
use crate::text::ParseError;
use crate::text::cursor::{Cursor, error_at, quoted};
use crate::text::pieces::{Pieces, push_stack};
use crate::text::read_key::attribute_of;
use crate::text::read_value::read_attribute;
use crate::text::write_key::describe_attribute;
use crate::text::write_options::push_geneve;
use crate::text::write_value::{Ports, push_field_value};

/// Reads the argument of `set`: one attribute with the fields to rewrite.
pub(super) fn read_set(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<Action, ParseError> {
    cursor.expect("(")?;
    let start = cursor.offset();
    let name = cursor.take_name();
    let Some(attribute) = attribute_of(name).filter(|attribute| attribute.spec().is_settable) else {
        return Err(error_at(start, format!("something that can be set: {} cannot, in this version", quoted(name))));
    };
    cursor.expect("(")?;
    let mut fields = Vec::new();
    read_attribute(cursor, attribute, names, &mut |found| {
        if attribute == Attribute::Tunnel && !found.is_whole {
            return Err(error_at(found.offset, "no mask: set(tunnel()) sets whole fields"));
        }
        if MPLS_PRESENT.contains(&found.field) {
            return Err(error_at(found.offset, "one label stack entry: set(mpls()) rewrites the outermost"));
        }
        if found.mask != 0 {
            fields.push((found.field, found.value & found.mask, found.mask));
        }
        Ok(())
    })?;
    cursor.expect(")")?;
    if fields.is_empty() {
        return Err(error_at(start, format!("at least one field to set in {name}()")));
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    let set = FieldSet { attribute, fields: fields.into() };
    Ok(if attribute == Attribute::Tunnel { Action::SetTunnel(set) } else { Action::Set(set) })
}

/// Writes a set.
pub(super) fn push_set(out: &mut Vec<u8>, set: &FieldSet, ports: &mut Ports<'_>) {
    out.extend_from_slice(b"set(");
    let get = |field| set.get(field).unwrap_or_default();
    describe_attribute(&mut Direct { out, set, ports }, set.attribute, &get, false);
    out.push(b')');
}

/// Writes what is set of a header as it comes.
struct Direct<'a, 'b> {
    out: &'a mut Vec<u8>,
    set: &'a FieldSet,
    ports: &'a mut Ports<'b>,
}

impl Direct<'_, '_> {
    fn get(&self, field: Field) -> (u128, u128) {
        self.set.get(field).unwrap_or_default()
    }
}

impl Pieces for Direct<'_, '_> {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn value(&mut self, field: Field) {
        let (value, mask) = self.get(field);
        push_field_value(self.out, field, value, mask, self.ports);
    }

    fn stack(&mut self, entries: usize, is_exact: bool) {
        let set = self.set;
        push_stack(self.out, entries, is_exact, &|field| set.get(field).unwrap_or_default());
    }

    fn geneve(&mut self) {
        let set = self.set;
        push_geneve(self.out, &|field| set.get(field).unwrap_or_default());
    }
}
