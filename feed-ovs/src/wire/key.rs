//! A key and its mask, as a match.

use sluice_flow::field::{
    ATTRIBUTES, Attribute as KeyAttribute, AttributeSpec, Field, MPLS_DEPTH, MPLS_ENTRIES, MPLS_PRESENT,
};
use sluice_flow::key::Match;
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed};

use super::header::{Header, kind, number};
use super::mask::Mask;
use super::nsh;
use super::tunnel;

const PLACE: &str = "OVS_FLOW_ATTR_KEY";
const MASK_PLACE: &str = "OVS_FLOW_ATTR_MASK";
/// `VLAN_CFI_MASK`, which the module takes for the presence of a tag.
const CFI: u16 = 0x1000;

/// The fields of the tags, the outer one first.
const TAGS: [Tag; 2] = [
    Tag {
        present: Field::VlanPresent,
        tpid: Field::VlanTpid,
        vid: Field::VlanVid,
        pcp: Field::VlanPcp,
        cfi: Field::VlanCfi,
    },
    Tag {
        present: Field::CvlanPresent,
        tpid: Field::CvlanTpid,
        vid: Field::CvlanVid,
        pcp: Field::CvlanPcp,
        cfi: Field::CvlanCfi,
    },
];

struct Tag {
    present: Field,
    tpid: Field,
    vid: Field,
    pcp: Field,
    cfi: Field,
}

/// Reads the attributes of `OVS_FLOW_ATTR_KEY` and of `OVS_FLOW_ATTR_MASK`; without a mask, all fields of the key are exact.
///
/// The match is the one that OVS's text of the flow says, and more in two cases where OVS prints nothing: fields of an outer header that
/// must be 0, and that a packet has no Ethernet header.
pub fn read_match(key: &[u8], mask: Option<&[u8]>) -> Result<Match, Malformed> {
    let mut built = Built { matching: Match::default(), attributes: 0 };
    built.matching.set_exact(Field::RecircId, 0);
    let mask = mask.map_or(Mask::Exact, Mask::Bytes);
    read_level(key, mask, 0, &mut built)?;
    let mut has_ethernet = false;
    for attribute in Attributes::new(key, PLACE) {
        has_ethernet |= attribute?.kind == kind::ETHERNET;
    }
    if !has_ethernet {
        built.matching.set_exact(Field::PacketTypeNs, 1);
        built.matching.set_exact(Field::PacketTypeId, built.matching.key.get(Field::EthType));
    }
    let Built { matching, attributes } = built;
    let is_met = |row: &&AttributeSpec| attributes & bit(row.attribute) == 0 || matching.meets(row.requires);
    match ATTRIBUTES.iter().find(|row| !is_met(row)) {
        None => Ok(matching),
        Some(row) => Err(Malformed::Value {
            place: PLACE,
            kind: 0,
            value: format!("a match on {} without what is in front of it", row.name).into(),
        }),
    }
}

/// The match as far as it is read.
struct Built {
    matching: Match,
    /// The attributes that are matched, a [`bit`] each.
    attributes: u64,
}

impl Built {
    /// Fields of headers that exclude each other share their bits: what does not count must not wipe out what does.
    fn set(&mut self, field: Field, value: u128, mask: u128) {
        if field == Field::RecircId {
            self.matching.set_exact(field, value);
        } else if mask & field.full_mask() != 0 {
            self.matching.set(field, value, mask);
            self.attributes |= bit(field.spec().attribute);
        }
    }
}

const fn bit(attribute: KeyAttribute) -> u64 {
    1 << attribute as u64
}

/// Reads what stands at one level of tags; a tag and what is behind it are in `OVS_KEY_ATTR_ENCAP`.
fn read_level(key: &[u8], masks: Mask<'_>, depth: usize, built: &mut Built) -> Result<(), Malformed> {
    let (mut has_tag, mut has_type) = (false, false);
    for attribute in Attributes::new(key, PLACE) {
        let attribute = attribute?;
        has_tag |= attribute.kind == kind::VLAN;
        has_type |= attribute.kind == kind::ETHERTYPE;
    }
    for attribute in Attributes::new(key, PLACE) {
        let attribute = attribute?;
        let mask = masks.within(attribute.kind, MASK_PLACE)?;
        match attribute.kind {
            // A tag in a tag in a tag: the module has no such keys.
            kind::ENCAP if depth == TAGS.len() => return Err(attribute.value("the third tag")),
            kind::ENCAP => read_level(attribute.payload, mask, depth + 1, built)?,
            kind::VLAN => read_tag(&attribute, mask, depth, built)?,
            kind::ETHERTYPE => {
                let value = attribute.be16()?;
                read_type(value, mask, has_tag, depth, built).ok_or_else(|| attribute.length())?;
            }
            kind::TUNNEL => {
                built.matching.set_exact(Field::TunnelPresent, 1);
                tunnel::read(&attribute, mask, &mut |field, value, mask| built.set(field, value, mask))?;
            }
            kind::MPLS => read_label_stack(&attribute, mask, built)?,
            kind::NSH => nsh::read(&attribute, mask, &mut |field, value, mask| built.set(field, value, mask))?,
            other => {
                let header = match Header::of(other) {
                    Some(header) => header,
                    // Which extension headers a packet of IPv6 has, since Linux 5.18; OVS 3.1 does not know it either.
                    None if mask.is_wild() => continue,
                    None => return Err(attribute.unknown()),
                };
                header.read(&attribute, mask, &mut |field, value, mask| built.set(field, value, mask))?;
            }
        }
    }
    // Of a frame of IEEE 802.3 the mask alone speaks of the type.
    if let (false, mask @ Mask::Bytes(_)) = (has_type, masks.within(kind::ETHERTYPE, MASK_PLACE)?) {
        let malformed = || Malformed::Truncated { place: MASK_PLACE };
        read_type(0, mask, has_tag, depth, built).ok_or_else(malformed)?;
    }
    // Whether there is a tag always counts in the module (`ovs_nla_get_match`).
    if let (false, Some(tag)) = (has_tag, TAGS.get(depth)) {
        built.matching.set_exact(tag.present, 0);
    }
    Ok(())
}

/// Takes the type beside a tag for the protocol of the tag. `None` if the mask is of another length.
fn read_type(value: u16, mask: Mask<'_>, has_tag: bool, depth: usize, built: &mut Built) -> Option<()> {
    let mask = u16::from_be_bytes(mask.over()?);
    let tag = TAGS.get(depth);
    match tag {
        _ if mask == 0 => {}
        Some(tag) if has_tag => built.matching.set(tag.tpid, value.into(), mask.into()),
        _ => built.matching.set(Field::EthType, value.into(), mask.into()),
    }
    Some(())
}

fn read_tag(attribute: &Attribute<'_>, mask: Mask<'_>, depth: usize, built: &mut Built) -> Result<(), Malformed> {
    let tag = TAGS.get(depth).ok_or_else(|| attribute.value("the third tag"))?;
    let control = attribute.be16()?;
    let mask = u16::from_be_bytes(mask.over().ok_or_else(|| attribute.value("as long as its mask is not"))?);
    built.matching.set_exact(tag.present, 1);
    let (vid, pcp) = (mask & 0xfff, mask >> 13);
    built.set(tag.vid, (control & 0xfff).into(), vid.into());
    built.set(tag.pcp, (control >> 13).into(), pcp.into());
    if control & CFI == 0 {
        built.matching.set_exact(tag.cfi, 0);
    } else if vid != 0 || pcp != 0 {
        built.matching.set_exact(tag.cfi, 1);
    }
    Ok(())
}

/// Reads label stack entries (RFC 3032). A match on any bit of one is a match on there being as many, as in the module.
fn read_label_stack(attribute: &Attribute<'_>, mask: Mask<'_>, built: &mut Built) -> Result<(), Malformed> {
    let (entries, []) = attribute.payload.as_chunks::<4>() else { return Err(attribute.length()) };
    if entries.is_empty() {
        // So the module shows a stack of which the flow matches nothing.
        return Ok(());
    }
    if entries.len() > MPLS_DEPTH {
        return Err(attribute.length());
    }
    let mut is_matched = entries.len() > 1;
    for (index, (entry, fields)) in entries.iter().zip(&MPLS_ENTRIES).enumerate() {
        let masks = number((4 * index..4 * index + 4).map(|place| mask.byte(place)));
        is_matched |= masks != 0;
        for (field, value, mask) in label_stack_entry(number(*entry), masks, fields) {
            built.set(field, value, mask);
        }
    }
    if is_matched {
        MPLS_PRESENT.iter().take(entries.len()).for_each(|present| built.matching.set_exact(*present, 1));
    }
    Ok(())
}

/// Returns the fields of a label stack entry, with values and masks.
pub(super) fn label_stack_entry(
    entry: u128,
    mask: u128,
    &[label, tc, ttl, bos]: &[Field; 4],
) -> [(Field, u128, u128); 4] {
    let part =
        |field: Field, shift: u32| (field, entry >> shift & field.full_mask(), mask >> shift & field.full_mask());
    [part(label, 12), part(tc, 9), part(ttl, 0), part(bos, 8)]
}
