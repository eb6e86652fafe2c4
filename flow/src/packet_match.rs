//! What is matched by a flow that is made for one packet.

use crate::field::{ATTRIBUTES, Attribute, FRAGMENT_LATER, Field, MPLS_ENTRIES, MPLS_PRESENT, Requirement};
use crate::key::{Key, Match};

impl Match {
    /// The match on everything that a packet has: every header in full, and of the metadata what is not zero.
    pub fn of_packet(key: &Key) -> Self {
        let full = Self { key: *key, mask: Key { words: [u64::MAX; crate::field::KEY_WORDS] } };
        let mut exact = Self::default();
        // Of the tags there is more to say than how many they are.
        for row in ATTRIBUTES.iter().filter(|row| row.attribute != Attribute::NumOfVlans) {
            let is_there = full.meets(row.requires) && has(key, row.attribute);
            for spec in row.attribute.fields().filter(|spec| !is_of_absent_label(key, spec.field)) {
                let value = key.get(spec.field);
                if is_there || row.requires == Requirement::Nothing && value != 0 {
                    exact.set_exact(spec.field, value);
                }
            }
        }
        exact.set_exact(Field::VlanPresent, key.get(Field::VlanPresent));
        exact
    }
}

/// Whether a field is of an entry of the label stack that the packet does not have.
fn is_of_absent_label(key: &Key, field: Field) -> bool {
    let mut entries = MPLS_PRESENT.iter().zip(&MPLS_ENTRIES);
    entries.any(|(present, entry)| key.get(*present) == 0 && (field == *present || entry.contains(&field)))
}

/// Whether a packet that may have a header has it.
fn has(key: &Key, attribute: Attribute) -> bool {
    let is_set = |field| key.get(field) != 0;
    let is_any_set = || attribute.fields().any(|spec| key.get(spec.field) != 0);
    match attribute {
        Attribute::RecircId | Attribute::InPort | Attribute::EthType => true,
        Attribute::Ethernet => !is_set(Field::PacketTypeNs),
        Attribute::Vlan => is_set(Field::VlanPresent),
        Attribute::Cvlan => is_set(Field::CvlanPresent),
        Attribute::Mpls | Attribute::Nsh | Attribute::Ipv4 | Attribute::Ipv6 | Attribute::Arp | Attribute::Cfm => true,
        Attribute::Pppoe => is_set(Field::PppoePresent),
        Attribute::Tcp
        | Attribute::TcpFlags
        | Attribute::Udp
        | Attribute::Sctp
        | Attribute::Icmp
        | Attribute::Icmpv6
        | Attribute::L2tpv3
        | Attribute::Ipsec => key.get(Field::Ipv4Frag) != u128::from(FRAGMENT_LATER),
        Attribute::Nd | Attribute::NdExt => is_any_set(),
        Attribute::DpHash
        | Attribute::SkbPriority
        | Attribute::SkbMark
        | Attribute::Tunnel
        | Attribute::CtState
        | Attribute::CtZone
        | Attribute::CtMark
        | Attribute::CtLabel
        | Attribute::CtTuple4
        | Attribute::CtTuple6
        | Attribute::PacketType
        | Attribute::NumOfVlans => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MaskedKey;
    use crate::text::{Style, write_key};

    fn text(key: &Key) -> String {
        let mut text = String::new();
        write_key(&mut text, &MaskedKey::new(&Match::of_packet(key)), &Style::default()).unwrap();
        text
    }

    #[test]
    fn headers_are_matched_in_full_and_metadata_where_there_is_any() {
        let mut key = Key::ZERO;
        key.set(Field::InPort, 1);
        key.set(Field::EthType, 0x0800);
        key.set(Field::Ipv4Proto, 17);
        key.set(Field::UdpDst, 53);
        let rest = "in_port(1),eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),eth_type(0x0800),\
                    ipv4(src=0.0.0.0,dst=0.0.0.0,proto=17,tos=0,ttl=0,frag=no),udp(src=0,dst=53)";
        assert_eq!(text(&key), format!("recirc_id(0),{rest}"));
        key.set(Field::SkbMark, 3);
        assert_eq!(text(&key), format!("recirc_id(0),{}", rest.replace("in_port(1),", "in_port(1),skb_mark(0x3),")));
    }

    #[test]
    fn a_label_stack_ends_at_its_bottom() {
        let mut key = Key::ZERO;
        key.set(Field::EthType, 0x8847);
        assert!(text(&key).ends_with(",eth_type(0x8847)"), "a stack without a bottom has no entry: {}", text(&key));
        for (present, [label, _, ttl, bottom], depth) in
            [(MPLS_PRESENT[0], MPLS_ENTRIES[0], 1u32), (MPLS_PRESENT[1], MPLS_ENTRIES[1], 2)]
        {
            key.set(present, 1);
            key.set(label, (depth * 100).into());
            key.set(ttl, 64);
            key.set(bottom, (depth == 2).into());
            let first = format!("mpls(label=100,tc=0,ttl=64,bos={}", u8::from(false));
            let expected =
                if depth == 1 { format!("{first})") } else { format!("{first},label=200,tc=0,ttl=64,bos=1)") };
            assert!(text(&key).ends_with(&expected), "{}", text(&key));
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut key = Key::ZERO;
        key.set(Field::EthType, 0x86dd);
        key.set(Field::Ipv6Proto, 6);
        key.set(Field::Ipv6Frag, FRAGMENT_LATER.into());
        assert!(text(&key).ends_with("frag=later)"), "{}", text(&key));
    }
}
