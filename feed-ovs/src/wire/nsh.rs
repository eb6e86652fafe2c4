//! The network service header (RFC 8300) in a key and in `set`.

use sluice_flow::field::Field;
use sluice_netdev::netlink::attribute::{Attribute, Malformed};

use super::header::number;
use super::mask::Mask;

pub(super) const PLACE: &str = "OVS_KEY_ATTR_NSH";
/// `OVS_NSH_KEY_ATTR_BASE`
pub(super) const BASE: u16 = 1;
/// `OVS_NSH_KEY_ATTR_MD1`
pub(super) const MD1: u16 = 2;

const CONTEXTS: [Field; 4] = [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4];

/// Passes the fields on, each with its value and mask. Keys have no metadata of type 2.
pub(super) fn read(
    nsh: &Attribute<'_>,
    masks: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    for part in nsh.nested(PLACE) {
        let part = part?;
        let mask = masks.within(part.kind, PLACE)?;
        read_part(&part, mask, see)?;
    }
    Ok(())
}

/// Reads one of the attributes within.
pub(super) fn read_part(
    part: &Attribute<'_>,
    mask: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    let mask_of = |from: usize, length: usize| number((from..from + length).map(|place| mask.byte(place)));
    match part.kind {
        BASE => {
            let [flags, ttl, kind, next, path @ ..] = part.bytes::<8>()?;
            let bytes = [(Field::NshFlags, flags), (Field::NshTtl, ttl), (Field::NshMdType, kind)];
            let bytes = bytes.into_iter().chain([(Field::NshNextProto, next)]);
            for (place, (field, value)) in bytes.enumerate() {
                see(field, value.into(), mask_of(place, 1));
            }
            let (path, mask) = (number(path), mask_of(4, 4));
            see(Field::NshPathId, path >> 8, mask >> 8);
            see(Field::NshServiceIndex, path & 0xff, mask & 0xff);
        }
        MD1 => {
            let contexts = part.bytes::<16>()?;
            for (index, field) in CONTEXTS.into_iter().enumerate() {
                let value = number(contexts[4 * index..4 * index + 4].iter().copied());
                see(field, value, mask_of(4 * index, 4));
            }
        }
        _ => return Err(part.unknown()),
    }
    Ok(())
}
