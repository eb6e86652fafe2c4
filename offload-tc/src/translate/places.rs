//! The places in their headers of fields that `set(…)` edits: one table for both directions.

use std::collections::BTreeMap;

use sluice_flow::action::FieldSet;
use sluice_flow::field::{Attribute, Field};

use crate::wire::action::{Command, EditKey, Header};

/// Field, header, and first bit in that header. Behind IPv4, and only there, `act_pedit` finds any transport header
/// (`pedit_l4_skb_offset`), so SCTP and ICMP are entered as if they were TCP.
const PLACES: &[(Field, Header, u32)] = &[
    (Field::EthDst, Header::Ethernet, 0),
    (Field::EthSrc, Header::Ethernet, 48),
    (Field::Ipv4Tos, Header::Ipv4, 8),
    (Field::Ipv4Ttl, Header::Ipv4, 64),
    (Field::Ipv4Src, Header::Ipv4, 96),
    (Field::Ipv4Dst, Header::Ipv4, 128),
    (Field::Ipv6Tclass, Header::Ipv6, 4),
    (Field::Ipv6Label, Header::Ipv6, 12),
    (Field::Ipv6Hlimit, Header::Ipv6, 56),
    (Field::Ipv6Src, Header::Ipv6, 64),
    (Field::Ipv6Dst, Header::Ipv6, 192),
    (Field::ArpOp, Header::Network, 48),
    (Field::ArpSha, Header::Network, 64),
    (Field::ArpSip, Header::Network, 112),
    (Field::ArpTha, Header::Network, 144),
    (Field::ArpTip, Header::Network, 192),
    (Field::TcpSrc, Header::Tcp, 0),
    (Field::TcpDst, Header::Tcp, 16),
    (Field::UdpSrc, Header::Udp, 0),
    (Field::UdpDst, Header::Udp, 16),
    (Field::SctpSrc, Header::Tcp, 0),
    (Field::SctpDst, Header::Tcp, 16),
    (Field::IcmpType, Header::Tcp, 0),
    (Field::IcmpCode, Header::Tcp, 8),
];

/// Fields of an IP header that cannot be edited, and that a set of the whole header names nevertheless.
pub(super) const STAY: [Field; 4] = [Field::Ipv4Proto, Field::Ipv4Frag, Field::Ipv6Proto, Field::Ipv6Frag];

/// Whether a set is of a whole IP header.
pub(super) fn names_what_stays(set: &FieldSet) -> bool {
    matches!(set.attribute, Attribute::Ipv4 | Attribute::Ipv6) && set.is_whole()
}

/// Whether a set has all editable fields of an IP header.
pub(super) fn is_all_that_changes(set: &FieldSet) -> bool {
    let is_set = |field: Field| set.get(field).is_some_and(|(_, mask)| mask == field.full_mask());
    matches!(set.attribute, Attribute::Ipv4 | Attribute::Ipv6)
        && set.attribute.fields().all(|spec| is_set(spec.field) != STAY.contains(&spec.field))
}

/// The words that a set edits. Fails with a field that has no place.
pub(super) fn words(set: &FieldSet) -> Result<Vec<EditKey>, Field> {
    let mut words: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut header = Header::Network;
    for (field, value, mask) in &set.fields {
        let place = PLACES.iter().find(|(placed, ..)| placed == field).ok_or(*field)?;
        header = place.1;
        for word in words_of(*field, place.2) {
            let (word_value, word_mask) = words.entry(word).or_default();
            *word_value |= in_word(value & mask, *field, place.2, word);
            *word_mask |= in_word(*mask, *field, place.2, word);
        }
    }
    let words = words.into_iter().filter(|(_, (_, mask))| *mask != 0);
    let key = |(word, (value, mask))| EditKey { header, command: Command::Set, offset: word * 4, value, mask };
    Ok(words.map(key).collect())
}

/// The set that edits these words; `None` if they are not all of one attribute.
pub(super) fn set(attribute: Attribute, words: &[EditKey]) -> Option<FieldSet> {
    let mut left: BTreeMap<u32, EditKey> = words.iter().map(|key| (key.offset / 4, *key)).collect();
    let mut fields = Vec::new();
    for (field, header, first) in PLACES.iter().filter(|(field, ..)| field.spec().attribute == attribute) {
        let (mut value, mut mask) = (0, 0);
        for word in words_of(*field, *first) {
            let Some(key) = left.get_mut(&word) else { continue };
            if key.header != *header || key.command != Command::Set {
                return None;
            }
            value |= from_word(key.value, *field, *first, word);
            mask |= from_word(key.mask, *field, *first, word);
            key.mask &= !in_word(field.full_mask(), *field, *first, word);
        }
        if mask != 0 {
            fields.push((*field, value & mask, mask));
        }
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    let is_whole = left.values().all(|key| key.mask == 0);
    (is_whole && !fields.is_empty()).then(|| FieldSet { attribute, fields: fields.into() })
}

/// The words of a field.
fn words_of(field: Field, first: u32) -> std::ops::RangeInclusive<u32> {
    first / 32..=(first + field.spec().width - 1) / 32
}

/// The bits of a field in a word.
fn in_word(bits: u128, field: Field, first: u32, word: u32) -> u32 {
    let (end, word_end) = (first + field.spec().width, word * 32 + 32);
    let bits = if end >= word_end { bits >> (end - word_end) } else { bits << (word_end - end) };
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The bits of a word that belong to a field.
fn from_word(bits: u32, field: Field, first: u32, word: u32) -> u128 {
    let (end, word_end) = (first + field.spec().width, word * 32 + 32);
    let bits = u128::from(bits);
    let bits = if end >= word_end { bits << (end - word_end) } else { bits >> (word_end - end) };
    bits & field.full_mask()
}
