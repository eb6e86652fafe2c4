//! The parameters that every action has.

use sluice_netdev::netlink::attribute::{Fields, Malformed, Writer};

use super::control::Control;

/// What every action has (`tc_gen`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) index: u32,
    pub(super) control: Control,
}

impl Common {
    pub(super) fn put(self, kind: u16, writer: &mut Writer<'_>, rest: impl FnOnce(&mut Writer<'_>)) {
        writer.fill(kind, |writer| {
            let [capabilities, references, bindings] = [0u32; 3];
            writer.raw(&self.index.to_ne_bytes());
            writer.raw(&capabilities.to_ne_bytes());
            writer.raw(&self.control.number().to_ne_bytes());
            writer.raw(&references.to_ne_bytes());
            writer.raw(&bindings.to_ne_bytes());
            rest(writer);
        });
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (index, _capabilities, control) = (fields.u32()?, fields.u32()?, Control::from_number(fields.i32()?));
        let (_references, _bindings) = (fields.u32()?, fields.u32()?);
        Ok(Self { index, control })
    }
}

/// The error for missing parameters.
pub(super) const fn without_parameters(place: &'static str, kind: u16) -> Malformed {
    Malformed::Missing { place, kind }
}
