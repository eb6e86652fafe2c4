//! The outer header in a key and in `set(tunnel(…))` (`enum ovs_tunnel_key_attr`).

use sluice_flow::field::{Field, GENEVE_CHUNKS, GENEVE_OPTIONS, TUNNEL_FLAGS};
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed};

use super::header::number;
use super::mask::Mask;

const PLACE: &str = "OVS_KEY_ATTR_TUNNEL";
const ID: u16 = 0;
const DONT_FRAGMENT: u16 = 5;
const CSUM: u16 = 6;
const OAM: u16 = 7;
const GENEVE_OPTS: u16 = 8;
const VXLAN_OPTS: u16 = 11;
const PAD: u16 = 14;
const ERSPAN_OPTS: u16 = 15;
/// `OVS_VXLAN_EXT_GBP`
const GROUP_POLICY: u16 = 1;

/// Attributes that are one number in the order of networks each, with their bytes.
const NUMBERS: [(u16, Field, usize); 9] = [
    (ID, Field::TunnelId, 8),
    (1, Field::TunnelIpv4Src, 4),
    (2, Field::TunnelIpv4Dst, 4),
    (3, Field::TunnelTos, 1),
    (4, Field::TunnelTtl, 1),
    (9, Field::TunnelTpSrc, 2),
    (10, Field::TunnelTpDst, 2),
    (12, Field::TunnelIpv6Src, 16),
    (13, Field::TunnelIpv6Dst, 16),
];

/// Attributes that say something by being there, with the flag that this is.
const FLAGS: [(u16, &str); 4] = [(ID, "key"), (DONT_FRAGMENT, "df"), (CSUM, "csum"), (OAM, "oam")];

/// Passes the fields on, each with its value and mask.
pub(super) fn read(
    tunnel: &Attribute<'_>,
    masks: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    let mut flags = 0;
    for attribute in tunnel.nested(PLACE) {
        let attribute = attribute?;
        let mask = masks.within(attribute.kind, PLACE)?;
        flags |= flag(attribute.kind);
        match attribute.kind {
            DONT_FRAGMENT | CSUM | OAM | PAD => {}
            GENEVE_OPTS => read_geneve(&attribute, mask, see)?,
            VXLAN_OPTS => read_vxlan(&attribute, mask, see)?,
            ERSPAN_OPTS => read_erspan(&attribute, mask, see)?,
            kind => {
                let row = NUMBERS.iter().find(|(number, ..)| *number == kind);
                let (_, field, length) = row.ok_or_else(|| attribute.unknown())?;
                if attribute.payload.len() != *length {
                    return Err(attribute.length());
                }
                let value = number(attribute.payload.iter().copied());
                see(*field, value, number((0..*length).map(|place| mask.byte(place))));
            }
        }
    }
    let flags_mask = match masks {
        Mask::Exact => Field::TunnelFlags.full_mask(),
        Mask::Wild => 0,
        Mask::Bytes(bytes) => read_zeros(tunnel, bytes, see)?,
    };
    see(Field::TunnelFlags, flags, flags_mask);
    Ok(())
}

/// The module leaves out of a key what is 0, and says in the mask that it counts. Returns which flags count.
fn read_zeros(tunnel: &Attribute<'_>, masks: &[u8], see: &mut dyn FnMut(Field, u128, u128)) -> Result<u128, Malformed> {
    let mut flags_mask = 0;
    for mask in Attributes::new(masks, PLACE) {
        let mask = mask?;
        flags_mask |= flag(mask.kind);
        let mut is_in_key = false;
        for attribute in tunnel.nested(PLACE) {
            is_in_key |= attribute?.kind == mask.kind;
        }
        if let (false, Some((_, field, _))) = (is_in_key, NUMBERS.iter().find(|(kind, ..)| *kind == mask.kind)) {
            see(*field, 0, number(mask.payload.iter().copied().take(16)));
        }
    }
    Ok(flags_mask)
}

fn flag(kind: u16) -> u128 {
    let name = FLAGS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name);
    let bit = name.and_then(|name| TUNNEL_FLAGS.iter().find(|(word, _)| *word == name));
    bit.map_or(0, |(_, bit)| u128::from(*bit))
}

/// Bytes of the header of an option (RFC 8926, section 3.5).
const HEADER: usize = 4;
/// Of its last byte, how many words of data follow.
const LENGTH_BITS: u8 = 0x1f;

/// Reads options as they stand on the wire.
fn read_geneve(
    options: &Attribute<'_>,
    mask: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    let length = options.payload.len();
    if length > GENEVE_OPTIONS - HEADER || matches!(mask, Mask::Bytes(bytes) if bytes.len() != length) {
        return Err(options.length());
    }
    let (mut values, mut masks) = ([0; GENEVE_OPTIONS], [0; GENEVE_OPTIONS]);
    values[..length].copy_from_slice(options.payload);
    masks.iter_mut().take(length).enumerate().for_each(|(place, byte)| *byte = mask.byte(place));
    let (mut at, mut is_length_wild, mut is_wild) = (0, false, true);
    while at < length {
        let data = at + HEADER;
        if data > length {
            return Err(options.value("an option that is cut short"));
        }
        // Three bits beside the length are reserved.
        masks[data - 1] &= LENGTH_BITS;
        is_length_wild |= masks[data - 1] == 0;
        let end = data + usize::from(values[data - 1] & LENGTH_BITS) * 4;
        if end > length {
            return Err(options.value("an option that is cut short"));
        }
        is_wild &= masks[at..data - 1].iter().chain(&masks[data..end]).all(|byte| *byte == 0);
        at = end;
    }
    see(Field::GenevePresent, 1, 1);
    match (is_length_wild, is_wild) {
        (true, true) => match one_option(length) {
            Some(option) => (values, masks) = option,
            None => return Ok(()),
        },
        (true, false) => return Err(options.value("options of which the places do not count")),
        (false, _) => {}
    }
    see(Field::GeneveLength, length as u128, Field::GeneveLength.full_mask());
    for (index, field) in GENEVE_CHUNKS.into_iter().enumerate() {
        let chunk = |bytes: &[u8; GENEVE_OPTIONS]| number(bytes[16 * index..16 * index + 16].iter().copied());
        see(field, chunk(&values), chunk(&masks));
    }
    Ok(())
}

/// Key and mask of a single option of any kind that is so long with its header, if there can be one.
///
/// The module compares how long all options are, whatever the mask says (`genev_tun_opt_from_nlattr` in Linux's
/// `net/openvswitch/flow_netlink.c`), and shows none of what does not count. tc and NICs have to be told which options there are. OVN's packets
/// have one; those that have more of them, of that length together, are left to the module.
fn one_option(length: usize) -> Option<([u8; GENEVE_OPTIONS], [u8; GENEVE_OPTIONS])> {
    let words = (length / 4).checked_sub(1).and_then(|words| u8::try_from(words).ok());
    let words = words.filter(|words| (1..=LENGTH_BITS).contains(words))?;
    let [mut values, mut masks] = [[0; GENEVE_OPTIONS]; 2];
    (values[HEADER - 1], masks[HEADER - 1]) = (words, LENGTH_BITS);
    Some((values, masks))
}

fn read_vxlan(
    options: &Attribute<'_>,
    masks: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    for extension in options.nested(PLACE) {
        let extension = extension?;
        if extension.kind != GROUP_POLICY {
            return Err(extension.unknown());
        }
        let mask = masks.within(GROUP_POLICY, PLACE)?.over().ok_or_else(|| extension.length())?;
        let (policy, mask) = (extension.u32()?, u32::from_ne_bytes(mask));
        see(Field::VxlanGbpPresent, 1, 1);
        see(Field::VxlanGbpId, (policy & 0xffff).into(), (mask & 0xffff).into());
        see(Field::VxlanGbpFlags, (policy >> 16 & 0xff).into(), (mask >> 16 & 0xff).into());
    }
    Ok(())
}

/// Reads `struct erspan_metadata` (`include/uapi/linux/erspan.h`). Of version 1 it has an index, of version 2 a direction and a hardware
/// id behind time stamp and security group, which are the sender's own.
fn read_erspan(
    options: &Attribute<'_>,
    mask: Mask<'_>,
    see: &mut dyn FnMut(Field, u128, u128),
) -> Result<(), Malformed> {
    let bytes: [u8; 12] = options.bytes()?;
    let masks: [u8; 12] = mask.over().ok_or_else(|| options.length())?;
    let version = |bytes: &[u8; 12]| bytes.first_chunk().map_or(0, |first| u32::from_ne_bytes(*first) & 0xff);
    see(Field::ErspanPresent, 1, 1);
    see(Field::ErspanVersion, version(&bytes).into(), version(&masks).into());
    let index = |bytes: &[u8; 12]| number(bytes[4..8].iter().copied());
    let hardware = |bytes: &[u8; 12]| u128::from((bytes[10] & 3) << 4 | bytes[11] >> 4);
    let direction = |bytes: &[u8; 12]| u128::from(bytes[11] >> 3 & 1);
    match version(&bytes) {
        1 => see(Field::ErspanIndex, index(&bytes), index(&masks)),
        2 => {
            // The header has one bit for the one and six for the other: all of them are an exact match.
            let whole = |mask, bits, field: Field| if mask == bits { field.full_mask() } else { mask };
            let mask = whole(direction(&masks), 1, Field::ErspanDirection);
            see(Field::ErspanDirection, direction(&bytes), mask);
            let mask = whole(hardware(&masks), 0x3f, Field::ErspanHardwareId);
            see(Field::ErspanHardwareId, hardware(&bytes), mask);
        }
        _ => return Err(options.value("of a version that is neither 1 nor 2")),
    }
    Ok(())
}
