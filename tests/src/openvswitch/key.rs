//! A match as key and mask of the module.
//!
//! The module wants every header that the key implies, matched or not, and takes a mask only where the headers before it
//! are matched (`match_validate` in `net/openvswitch/flow_netlink.c`). Whether there are VLAN tags it always matches.

use sluice_flow::field::{Attribute, FRAGMENT_LATER, Field, MPLS_ENTRIES};
use sluice_flow::key::{Key, Match};

use super::Unsayable;
use super::attributes::Attributes;
use super::header::{header, number};
use super::tunnel::{self, Side};
use crate::generate::BEYOND_OVS;

const NSH_BASE: u16 = 1;
const NSH_MD1: u16 = 2;

/// The attributes of `OVS_FLOW_ATTR_KEY` and `OVS_FLOW_ATTR_MASK`.
pub fn encode_match(full: &Match) -> Result<(Vec<u8>, Vec<u8>), Unsayable> {
    let shape = Shape::new(full)?;
    let [key, mask] = [Side::Key, Side::Mask].map(|side| encode(side, full, &shape).bytes().to_vec());
    Ok((key, mask))
}

/// Which attributes there are, in key and mask alike.
struct Shape {
    is_ethernet: bool,
    /// Tags, by the fields of each.
    tags: Vec<Tag>,
    /// Whether the innermost Ethernet type is matched.
    has_type: bool,
    /// Headers behind the Ethernet type.
    headers: Vec<Attribute>,
}

/// The fields of a VLAN tag.
#[derive(Clone, Copy)]
struct Tag {
    present: Field,
    tpid: Field,
    vid: Field,
    pcp: Field,
    cfi: Field,
}

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

/// Fields that only OVS's userspace has.
pub(super) const USERSPACE_ONLY: [Field; 5] =
    [Field::GtpuPresent, Field::GtpuFlags, Field::GtpuMessageType, Field::NdReserved, Field::NdOptionsType];

impl Shape {
    fn new(full: &Match) -> Result<Self, Unsayable> {
        let is_exact = |field: Field| full.mask.get(field) == field.full_mask();
        let mut tags = vec![];
        for tag in TAGS {
            if !is_exact(tag.present) {
                return Err(Unsayable::new(format!("{} may be there or not", tag.present.spec().attribute.name())));
            }
            if full.key.get(tag.present) == 0 {
                break;
            }
            if !is_exact(tag.tpid) {
                return Err(Unsayable::new(format!("any {}", tag.tpid)));
            }
            if full.mask.get(tag.cfi) == 1 && full.key.get(tag.cfi) == 0 {
                return Err(Unsayable::new(format!("{} is 0", tag.cfi)));
            }
            tags.push(tag);
        }
        let ours = BEYOND_OVS.iter().flat_map(|attribute| attribute.fields()).map(|spec| spec.field);
        // They share a place among themselves, so that one name stands for all.
        if let Some(field) = USERSPACE_ONLY.into_iter().chain(ours).find(|field| full.mask.get(*field) != 0) {
            return Err(Unsayable::new(format!("a match on {field}")));
        }
        let has_type = full.mask.get(Field::EthType) != 0;
        if has_type && !is_exact(Field::EthType) {
            return Err(Unsayable::new("some bits of eth_type"));
        }
        if !tags.is_empty() && !has_type {
            // The module takes an empty mask of `ENCAP` for none at all, and then does not know the tag.
            return Err(Unsayable::new("any eth_type behind a tag"));
        }
        let headers = headers_behind(&full.key);
        if headers.contains(&Attribute::Mpls) {
            // The module takes an empty mask for none at all, and any other for one of the number of entries, too.
            let is_matched = MPLS_ENTRIES.as_flattened().iter().any(|field| full.mask.get(*field) != 0);
            if is_matched != full.is_exactly(Field::MplsPresent, 1) {
                return Err(Unsayable::new("a label stack entry, which may be there or not, or is there and no more"));
            }
        }
        let is_ethernet = !full.is_exactly(Field::PacketTypeNs, 1);
        Ok(Self { is_ethernet, tags, has_type, headers })
    }
}

/// The headers that the module expects behind the Ethernet type.
fn headers_behind(key: &Key) -> Vec<Attribute> {
    let mut headers = vec![];
    let (protocol, fragment, icmp) = match key.get(Field::EthType) {
        0x0800 => {
            headers.push(Attribute::Ipv4);
            (key.get(Field::Ipv4Proto), key.get(Field::Ipv4Frag), 1)
        }
        0x86dd => {
            headers.push(Attribute::Ipv6);
            (key.get(Field::Ipv6Proto), key.get(Field::Ipv6Frag), 58)
        }
        0x0806 | 0x8035 => return vec![Attribute::Arp],
        0x8847 | 0x8848 => return vec![Attribute::Mpls],
        0x894f => return vec![Attribute::Nsh],
        _ => return headers,
    };
    if fragment == u128::from(FRAGMENT_LATER) {
        return headers;
    }
    match protocol {
        6 => headers.extend([Attribute::Tcp, Attribute::TcpFlags]),
        17 => headers.push(Attribute::Udp),
        132 => headers.push(Attribute::Sctp),
        1 if icmp == 1 => headers.push(Attribute::Icmp),
        58 if icmp == 58 => {
            headers.push(Attribute::Icmpv6);
            if matches!(key.get(Field::Icmpv6Type), 135 | 136) {
                headers.push(Attribute::Nd);
            }
        }
        _ => {}
    }
    headers
}

const METADATA: [Attribute; 11] = [
    Attribute::RecircId,
    Attribute::DpHash,
    Attribute::SkbPriority,
    Attribute::InPort,
    Attribute::SkbMark,
    Attribute::CtState,
    Attribute::CtZone,
    Attribute::CtMark,
    Attribute::CtLabel,
    Attribute::CtTuple4,
    Attribute::CtTuple6,
];

fn encode(side: Side, full: &Match, shape: &Shape) -> Attributes {
    let mut out = Attributes::default();
    for attribute in METADATA {
        if let Some(header) = header(attribute).filter(|header| header.touches(&full.mask)) {
            out.put(header.number, &header.bytes(side.of(full)));
        }
    }
    if full.is_exactly(Field::TunnelPresent, 1) {
        out.nest(number::TUNNEL, &tunnel::encode(side, full));
    }
    if shape.is_ethernet {
        put_header(&mut out, Attribute::Ethernet, side.of(full));
    }
    put_tags(&mut out, side, full, shape, &shape.tags);
    out
}

/// A tag, and in its `ENCAP` all that is behind it.
fn put_tags(out: &mut Attributes, side: Side, full: &Match, shape: &Shape, tags: &[Tag]) {
    let Some((tag, rest)) = tags.split_first() else {
        if shape.has_type {
            put_header(out, Attribute::EthType, side.of(full));
        }
        for attribute in &shape.headers {
            match attribute {
                Attribute::Mpls => {
                    out.put(number::MPLS, &label_stack(side, full));
                }
                Attribute::Nsh => {
                    out.nest(number::NSH, &nsh(side, full));
                }
                _ => put_header(out, *attribute, side.of(full)),
            }
        }
        return;
    };
    let values = side.of(full);
    let mut inner = Attributes::default();
    put_tags(&mut inner, side, full, shape, rest);
    // The module takes the CFI bit for the presence of the tag.
    let control = values.get(tag.pcp) << 13 | 1 << 12 | values.get(tag.vid);
    out.put(number::ETHERTYPE, &values.get(tag.tpid).to_be_bytes()[14..])
        .put(number::VLAN, &control.to_be_bytes()[14..])
        .nest(number::ENCAP, &inner);
}

fn put_header(out: &mut Attributes, attribute: Attribute, values: &Key) {
    if let Some(header) = header(attribute) {
        out.put(header.number, &header.bytes(values));
    }
}

/// As many entries as the match speaks of.
fn label_stack(side: Side, full: &Match) -> Vec<u8> {
    let depth =
        1 + [Field::Mpls2Present, Field::Mpls3Present].iter().take_while(|field| full.key.get(**field) == 1).count();
    MPLS_ENTRIES[..depth].iter().flat_map(|entry| label_stack_entry(side.of(full), entry)).collect()
}

/// A label stack entry (RFC 3032).
pub(super) fn label_stack_entry(values: &Key, &[label, tc, ttl, bos]: &[Field; 4]) -> [u8; 4] {
    let entry = values.get(label) << 12 | values.get(tc) << 9 | values.get(bos) << 8 | values.get(ttl);
    u32::try_from(entry).expect("the fields of an entry have 32 bits").to_be_bytes()
}

/// Base header and contexts; the module knows keys with metadata of type 1 only.
fn nsh(side: Side, full: &Match) -> Attributes {
    let (mut base, contexts) = nsh_parts(side.of(full));
    if side == Side::Key && full.mask.get(Field::NshMdType) == 0 {
        base[2] = 1;
    }
    let mut out = Attributes::default();
    out.put(NSH_BASE, &base).put(NSH_MD1, &contexts);
    out
}

/// `struct ovs_nsh_key_base` and `struct ovs_nsh_key_md1`.
pub(super) fn nsh_parts(values: &Key) -> ([u8; 8], [u8; 16]) {
    let byte = |field| u8::try_from(values.get(field)).expect("eight bits");
    let word = |field| u32::try_from(values.get(field)).expect("32 bits");
    let [a, b, c, d] = (word(Field::NshPathId) << 8 | word(Field::NshServiceIndex)).to_be_bytes();
    let [flags, ttl, kind, next] = [Field::NshFlags, Field::NshTtl, Field::NshMdType, Field::NshNextProto].map(byte);
    let contexts = [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4];
    let contexts = contexts.iter().fold(0, |all, context| all << 32 | values.get(*context));
    ([flags, ttl, kind, next, a, b, c, d], contexts.to_be_bytes())
}
