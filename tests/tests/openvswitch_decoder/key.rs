//! Keys and masks.

use netlink_bindings::ovs_flow::{
    IterableKeyAttrs, IterableOvsNshKeyAttrs, IterableTunnelKeyAttrs, KeyAttrs, OvsNshKeyAttrs, TunnelKeyAttrs,
    VxlanExtAttrs,
};
use sluice_flow::field::{FIELDS, Field, FieldSpec, Form, GENEVE_CHUNKS, MPLS_ENTRIES, TUNNEL_FLAGS};
use sluice_flow::key::Match;

/// Fields and their values, or their masks.
pub(crate) type Values = Vec<(Field, u128)>;

/// The fields of a key or a mask.
pub(crate) fn fields(attributes: IterableKeyAttrs<'_>) -> Values {
    let mut values = Values::new();
    level(attributes, &[Field::VlanPresent, Field::CvlanPresent], &mut values);
    values
}

/// What stands at one level; a tag and what is behind it are in `OVS_KEY_ATTR_ENCAP`.
fn level(attributes: IterableKeyAttrs<'_>, tags: &[Field], out: &mut Values) {
    let is_tagged = attributes.get_vlan().is_ok();
    let [tpid, vid, pcp] = match tags {
        [Field::VlanPresent, ..] => [Field::VlanTpid, Field::VlanVid, Field::VlanPcp],
        _ => [Field::CvlanTpid, Field::CvlanVid, Field::CvlanPcp],
    };
    let bytes = attributes.get_buf();
    for attribute in attributes {
        match attribute.unwrap_or_else(|error| panic!("{error:?}")) {
            KeyAttrs::Encap(inner) => level(inner, &tags[1..], out),
            KeyAttrs::Ethertype(kind) => out.push((if is_tagged { tpid } else { Field::EthType }, kind.into())),
            KeyAttrs::Vlan(control) => {
                assert_eq!(control >> 12 & 1, 1, "the module takes this bit for the presence of the tag");
                out.extend([(tags[0], 1), (vid, (control & 0xfff).into()), (pcp, (control >> 13).into())]);
            }
            KeyAttrs::Mpls(top) => {
                // The description knows the first entry only.
                let stack = attribute_bytes(bytes, 21);
                assert_eq!(top.mpls_lse().to_be_bytes(), stack[..4]);
                for (entry, fields) in stack.chunks(4).zip(MPLS_ENTRIES) {
                    out.extend(label_stack_entry(entry, fields));
                }
            }
            other => header(other, out),
        }
    }
}

/// A header that is one structure, or nested.
pub(crate) fn header(attribute: KeyAttrs<'_>, out: &mut Values) {
    use Field::*;
    match attribute {
        KeyAttrs::Priority(value) => out.push((SkbPriority, value.into())),
        KeyAttrs::InPort(value) => out.push((InPort, value.into())),
        KeyAttrs::SkbMark(value) => out.push((SkbMark, value.into())),
        KeyAttrs::DpHash(value) => out.push((DpHash, value.into())),
        KeyAttrs::RecircId(value) => out.push((RecircId, value.into())),
        KeyAttrs::CtState(value) => out.push((CtState, value.into())),
        KeyAttrs::CtZone(value) => out.push((CtZone, value.into())),
        KeyAttrs::CtMark(value) => out.push((CtMark, value.into())),
        KeyAttrs::CtLabels(bytes) => out.push((CtLabel, u128::from_le_bytes(bytes.try_into().unwrap()))),
        KeyAttrs::CtOrigTupleIpv4(tuple) => out.extend([
            (CtTuple4Src, tuple.ipv4_src().into()),
            (CtTuple4Dst, tuple.ipv4_dst().into()),
            (CtTuple4TpSrc, tuple.src_port().into()),
            (CtTuple4TpDst, tuple.dst_port().into()),
            (CtTuple4Proto, tuple.ipv4_proto.into()),
        ]),
        KeyAttrs::CtOrigTupleIpv6(bytes) => {
            assert_eq!(bytes.len(), 40);
            let places = [(CtTuple6Src, 0, 16), (CtTuple6Dst, 16, 16), (CtTuple6TpSrc, 32, 2), (CtTuple6TpDst, 34, 2)];
            out.extend(places.map(|(field, at, length)| (field, number(&bytes[at..at + length]))));
            out.push((CtTuple6Proto, bytes[36].into()));
        }
        KeyAttrs::Tunnel(outer) => tunnel(outer, out),
        KeyAttrs::Ethernet(header) => {
            out.extend([(EthSrc, number(&header.eth_src)), (EthDst, number(&header.eth_dst))]);
        }
        KeyAttrs::Ipv4(header) => out.extend([
            (Ipv4Src, header.ipv4_src().into()),
            (Ipv4Dst, header.ipv4_dst().into()),
            (Ipv4Proto, header.ipv4_proto.into()),
            (Ipv4Tos, header.ipv4_tos.into()),
            (Ipv4Ttl, header.ipv4_ttl.into()),
            (Ipv4Frag, header.ipv4_frag.into()),
        ]),
        KeyAttrs::Ipv6(header) => out.extend([
            (Ipv6Src, number(&header.ipv6_src)),
            (Ipv6Dst, number(&header.ipv6_dst)),
            (Ipv6Label, header.ipv6_label().into()),
            (Ipv6Proto, header.ipv6_proto.into()),
            (Ipv6Tclass, header.ipv6_tclass.into()),
            (Ipv6Hlimit, header.ipv6_hlimit.into()),
            (Ipv6Frag, header.ipv6_frag.into()),
        ]),
        KeyAttrs::Arp(header) => out.extend([
            (ArpSip, header.arp_sip().into()),
            (ArpTip, header.arp_tip().into()),
            (ArpOp, header.arp_op().into()),
            (ArpSha, number(&header.arp_sha)),
            (ArpTha, number(&header.arp_tha)),
        ]),
        KeyAttrs::Tcp(header) => out.extend([(TcpSrc, header.tcp_src().into()), (TcpDst, header.tcp_dst().into())]),
        KeyAttrs::TcpFlags(flags) => out.push((TcpFlags, flags.into())),
        KeyAttrs::Udp(header) => out.extend([(UdpSrc, header.udp_src().into()), (UdpDst, header.udp_dst().into())]),
        KeyAttrs::Sctp(header) => {
            out.extend([(SctpSrc, header.sctp_src().into()), (SctpDst, header.sctp_dst().into())]);
        }
        KeyAttrs::Icmp(header) => {
            out.extend([(IcmpType, header.icmp_type.into()), (IcmpCode, header.icmp_code.into())])
        }
        KeyAttrs::Icmpv6(header) => {
            out.extend([(Icmpv6Type, header.icmp_type.into()), (Icmpv6Code, header.icmp_code.into())]);
        }
        KeyAttrs::Nd(header) => out.extend([
            (NdTarget, number(&header.nd_target)),
            (NdSll, number(&header.nd_sll)),
            (NdTll, number(&header.nd_tll)),
        ]),
        KeyAttrs::Nsh(parts) => nsh(parts, out),
        _ => panic!("nobody writes such an attribute"),
    }
}

/// `struct ovs_nsh_key_base` and `struct ovs_nsh_key_md1`.
fn nsh(parts: IterableOvsNshKeyAttrs<'_>, out: &mut Values) {
    for part in parts {
        match part.unwrap() {
            OvsNshKeyAttrs::Base(bytes) => {
                let base = [Field::NshFlags, Field::NshTtl, Field::NshMdType, Field::NshNextProto];
                out.extend(base.into_iter().zip(bytes).map(|(field, byte)| (field, (*byte).into())));
                let path = number(&bytes[4..8]);
                out.extend([(Field::NshPathId, path >> 8), (Field::NshServiceIndex, path & 0xff)]);
            }
            OvsNshKeyAttrs::Md1(bytes) => {
                let contexts = [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4];
                out.extend(contexts.into_iter().zip(bytes.chunks(4)).map(|(field, word)| (field, number(word))));
            }
            OvsNshKeyAttrs::Md2(_) => panic!("a key has none"),
        }
    }
}

/// The outer header.
pub(crate) fn tunnel(outer: IterableTunnelKeyAttrs<'_>, out: &mut Values) {
    use Field::*;
    let flag = |name| TUNNEL_FLAGS.iter().find(|(word, _)| *word == name).map_or(0, |(_, bit)| u128::from(*bit));
    let mut flags = 0;
    for attribute in outer {
        match attribute.unwrap() {
            TunnelKeyAttrs::Id(id) => out.push((TunnelId, id.into())),
            TunnelKeyAttrs::Ipv4Src(address) => out.push((TunnelIpv4Src, address.into())),
            TunnelKeyAttrs::Ipv4Dst(address) => out.push((TunnelIpv4Dst, address.into())),
            TunnelKeyAttrs::Ipv6Src(bytes) => out.push((TunnelIpv6Src, number(bytes))),
            TunnelKeyAttrs::Ipv6Dst(bytes) => out.push((TunnelIpv6Dst, number(bytes))),
            TunnelKeyAttrs::Tos(tos) => out.push((TunnelTos, tos.into())),
            TunnelKeyAttrs::Ttl(ttl) => out.push((TunnelTtl, ttl.into())),
            TunnelKeyAttrs::TpSrc(port) => out.push((TunnelTpSrc, port.into())),
            TunnelKeyAttrs::TpDst(port) => out.push((TunnelTpDst, port.into())),
            TunnelKeyAttrs::DontFragment(()) => flags |= flag("df"),
            TunnelKeyAttrs::Csum(()) => flags |= flag("csum"),
            TunnelKeyAttrs::Oam(()) => flags |= flag("oam"),
            TunnelKeyAttrs::GeneveOpts(bytes) => {
                out.push((GeneveLength, bytes.len() as u128));
                let mut options = bytes.to_vec();
                options.resize(GENEVE_CHUNKS.len() * 16, 0);
                out.extend(
                    GENEVE_CHUNKS.into_iter().zip(options.chunks(16)).map(|(field, part)| (field, number(part))),
                );
            }
            TunnelKeyAttrs::VxlanOpts(extensions) => {
                for VxlanExtAttrs::Gbp(policy) in extensions.map(Result::unwrap) {
                    out.extend([(VxlanGbpId, (policy & 0xffff).into()), (VxlanGbpFlags, (policy >> 16).into())]);
                }
            }
            TunnelKeyAttrs::ErspanOpts(bytes) => erspan(bytes, out),
            _ => panic!("nobody writes such an attribute"),
        }
    }
    out.push((TunnelFlags, flags));
}

/// `struct erspan_metadata`; in a mask, nothing says which of the two versions it is for.
fn erspan(bytes: &[u8], out: &mut Values) {
    let version = u32::from_ne_bytes(*bytes.first_chunk().unwrap());
    out.push((Field::ErspanVersion, version.into()));
    out.push((Field::ErspanIndex, number(&bytes[4..8])));
    if bytes.len() >= 12 {
        let [high, low] = [bytes[10], bytes[11]];
        out.push((Field::ErspanHardwareId, ((high & 3) << 4 | low >> 4).into()));
        out.push((Field::ErspanDirection, (low >> 3 & 1).into()));
    }
}

/// A label stack entry (RFC 3032).
pub(crate) fn label_stack_entry(entry: &[u8], [label, tc, ttl, bos]: [Field; 4]) -> Values {
    let word = number(entry);
    vec![(label, word >> 12), (tc, word >> 9 & 7), (bos, word >> 8 & 1), (ttl, word & 0xff)]
}

/// A number in network order.
pub(crate) fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// What an attribute carries, by its number.
pub(crate) fn attribute_bytes(mut bytes: &[u8], wanted: u16) -> &[u8] {
    loop {
        let [a, b, c, d] = *bytes.first_chunk().expect("the attribute is there");
        let length = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) & 0x3fff == wanted {
            return &bytes[4..length];
        }
        bytes = &bytes[length.next_multiple_of(4)..];
    }
}

/// Whether key and mask say what the match says.
pub(crate) fn check(full: &Match, key: &Values, mask: &Values) -> Result<(), String> {
    for (side, values, said) in [("key", key, &full.key), ("mask", mask, &full.mask)] {
        for (field, value) in values {
            let expected = match field {
                // The module wants some value where none is matched.
                Field::TunnelIpv4Dst | Field::TunnelIpv6Dst | Field::NshMdType if full.mask.get(*field) == 0 => {
                    continue;
                }
                // That there is a tag, and how long the options are, is in both halves alike.
                Field::VlanPresent | Field::CvlanPresent | Field::GeneveLength => full.key.get(*field),
                // That there is an identifier says so.
                Field::TunnelFlags => said.get(*field) & !KEY_FLAG,
                // The header has six bits for the one, and one for the other.
                Field::ErspanHardwareId => said.get(*field) & 0x3f,
                Field::ErspanDirection => said.get(*field) & 1,
                _ => said.get(*field),
            };
            if *value != expected {
                return Err(format!("{side} of {field}: they read {value:#x}, we mean {expected:#x}"));
            }
        }
    }
    let is_read = |field: Field| mask.iter().any(|(read, _)| *read == field);
    // Fields of headers that exclude each other share their bits.
    let is_matched = |spec: &&FieldSpec| full.mask.get(spec.field) != 0 && full.meets(spec.attribute.spec().requires);
    let unread = FIELDS.iter().filter(is_matched).find(|spec| !is_shape(spec.field) && !is_read(spec.field));
    unread.map_or(Ok(()), |spec| Err(format!("{} is matched and not written", spec.field)))
}

/// The bit of `flags(key)`.
pub(crate) const KEY_FLAG: u128 = 4;

/// Whether a field says which attributes there are, and is no value of one.
pub(crate) fn is_shape(field: Field) -> bool {
    let others = [Field::VlanCfi, Field::CvlanCfi, Field::GeneveLength, Field::PacketTypeNs, Field::PacketTypeId];
    field.spec().form == Form::Presence || others.contains(&field)
}
