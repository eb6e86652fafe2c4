//! The options of a tunnel header: the kinds that there are, with their fields.

use crate::field::{Field, GENEVE_CHUNKS, GENEVE_OPTIONS};

/// As many bytes of options as the length of a Geneve header can say (RFC 8926, section 3.4).
pub(super) const GENEVE_LIMIT: usize = 252;
/// Bytes in front of the data of a Geneve option: class, type, and three reserved bits with the length of the data.
pub(super) const GENEVE_HEADER: usize = 4;
/// The bits of the header's last byte that say the length of the data, in units of four bytes.
pub(super) const GENEVE_LENGTH_BITS: u8 = 0x1f;

/// One kind of options.
#[derive(PartialEq)]
pub(super) struct TunnelOptions {
    /// The name before the parentheses.
    pub(super) name: &'static str,
    /// Says that the header has them.
    pub(super) present: Field,
    /// What they say, in print order. What is in those of Geneve is bytes, see [`GeneveBytes`].
    pub(super) fields: &'static [Field],
}

pub(super) static VXLAN: TunnelOptions = TunnelOptions {
    name: "vxlan",
    present: Field::VxlanGbpPresent,
    fields: &[Field::VxlanGbpId, Field::VxlanGbpFlags],
};
pub(super) static ERSPAN: TunnelOptions = TunnelOptions {
    name: "erspan",
    present: Field::ErspanPresent,
    fields: &[Field::ErspanVersion, Field::ErspanIndex, Field::ErspanDirection, Field::ErspanHardwareId],
};
pub(super) static GTPU: TunnelOptions =
    TunnelOptions { name: "gtpu", present: Field::GtpuPresent, fields: &[Field::GtpuFlags, Field::GtpuMessageType] };
pub(super) static GENEVE: TunnelOptions =
    TunnelOptions { name: "geneve", present: Field::GenevePresent, fields: &[Field::GeneveLength] };

/// Every kind. A header has those of one kind at most.
pub(super) static TUNNEL_OPTIONS: [&TunnelOptions; 4] = [&VXLAN, &ERSPAN, &GTPU, &GENEVE];

/// What stands before the value of a field of options: the last part of its name in the field table.
pub(super) fn option_field_name(field: Field) -> &'static str {
    let name = field.spec().name;
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// Geneve options as they stand on the wire, with their masks.
pub(super) struct GeneveBytes {
    pub(super) values: [u8; GENEVE_OPTIONS],
    pub(super) masks: [u8; GENEVE_OPTIONS],
}

impl GeneveBytes {
    pub(super) const WILD: Self = Self { values: [0; GENEVE_OPTIONS], masks: [0; GENEVE_OPTIONS] };

    /// The bytes of the fields that hold them.
    pub(super) fn from_fields(get: &dyn Fn(Field) -> (u128, u128)) -> Self {
        let mut bytes = Self::WILD;
        let (values, _) = bytes.values.as_chunks_mut();
        let (masks, _) = bytes.masks.as_chunks_mut();
        for (field, (value, mask)) in GENEVE_CHUNKS.iter().zip(values.iter_mut().zip(masks)) {
            let (field_value, field_mask) = get(*field);
            *value = field_value.to_be_bytes();
            *mask = field_mask.to_be_bytes();
        }
        bytes
    }

    /// The fields that hold the bytes, as (field, value, mask).
    pub(super) fn fields(&self) -> impl Iterator<Item = (Field, u128, u128)> {
        let (values, _) = self.values.as_chunks();
        let (masks, _) = self.masks.as_chunks();
        let rows = GENEVE_CHUNKS.iter().zip(values.iter().zip(masks));
        rows.map(|(field, (value, mask))| (*field, u128::from_be_bytes(*value), u128::from_be_bytes(*mask)))
    }
}
