//! Rewrites of header fields as modify actions of the PRM.

use std::net::IpAddr;

use sluice_flow::action::{ActionKind, FieldSet};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::refusal::Refusal;

use super::guarantees::Guarantees;

/// `set_action_in` and `add_action_in`: action type, field, offset, length, data.
const SET: u64 = 1;
const ADD: u64 = 2;

/// A field of the PRM that holds some bits of a field of a flow.
struct Part {
    field: Field,
    /// The lowest bit of the flow's field that it holds.
    shift: u32,
    /// Its own number (`mlx5_ifc` calls them `MLX5_ACTION_IN_FIELD_*`).
    number: u64,
    width: u32,
}

const fn part(field: Field, shift: u32, number: u64, width: u32) -> Part {
    Part { field, shift, number, width }
}

const DSCP: u64 = 0x06;
const TCP_SPORT: u64 = 0x08;
const TCP_DPORT: u64 = 0x09;
const TTL: u64 = 0x0a;
const UDP_SPORT: u64 = 0x0b;
const UDP_DPORT: u64 = 0x0c;
const HOP_LIMIT: u64 = 0x47;
const ECN: u64 = 0x73;

const PARTS: &[Part] = &[
    part(Field::EthSrc, 16, 0x01, 32),
    part(Field::EthSrc, 0, 0x02, 16),
    part(Field::EthDst, 16, 0x04, 32),
    part(Field::EthDst, 0, 0x05, 16),
    part(Field::Ipv4Tos, 2, DSCP, 6),
    part(Field::Ipv4Tos, 0, ECN, 2),
    part(Field::Ipv4Ttl, 0, TTL, 8),
    part(Field::Ipv4Src, 0, 0x15, 32),
    part(Field::Ipv4Dst, 0, 0x16, 32),
    part(Field::Ipv6Tclass, 2, DSCP, 6),
    part(Field::Ipv6Tclass, 0, ECN, 2),
    part(Field::Ipv6Hlimit, 0, HOP_LIMIT, 8),
    part(Field::Ipv6Src, 96, 0x0d, 32),
    part(Field::Ipv6Src, 64, 0x0e, 32),
    part(Field::Ipv6Src, 32, 0x0f, 32),
    part(Field::Ipv6Src, 0, 0x10, 32),
    part(Field::Ipv6Dst, 96, 0x11, 32),
    part(Field::Ipv6Dst, 64, 0x12, 32),
    part(Field::Ipv6Dst, 32, 0x13, 32),
    part(Field::Ipv6Dst, 0, 0x14, 32),
    part(Field::TcpSrc, 0, TCP_SPORT, 16),
    part(Field::TcpDst, 0, TCP_DPORT, 16),
    part(Field::UdpSrc, 0, UDP_SPORT, 16),
    part(Field::UdpDst, 0, UDP_DPORT, 16),
];

/// Entries of a list of modify actions at most. Devices that are given patterns with arguments have no more: libmlx5 knows four sizes
/// of these (`dr_arg_get_chunk_size`). The others take as many, so that a flow is taken by all of them or by none.
const MOST_ENTRIES: usize = 64;

/// Rewrites in the order in which they are done, as words of the PRM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Modifications(Vec<u64>);

impl Modifications {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn into_words(self) -> Box<[u64]> {
        self.0.into()
    }

    /// Fails if they take more entries than the device has for a rule.
    fn check(&self) -> Result<(), Refusal> {
        let entries = self.entries();
        if entries <= MOST_ENTRIES {
            return Ok(());
        }
        let rewrites = self.0.len();
        let reason = format!("{rewrites} runs of bits take {entries} entries, and the device has {MOST_ENTRIES}");
        Err(refuse(reason))
    }

    /// Returns how many entries libmlx5 makes of them. The device does two at a time, so that one stays empty between two that are of
    /// the same word of the packet's description (`dr_actions_convert_modify_header`).
    fn entries(&self) -> usize {
        let mut words = self.0.iter().map(|word| word_of(*word));
        let mut last = words.next();
        let mut entries = self.0.len().min(1);
        for word in words {
            entries += 1 + usize::from(entries % 2 == 1 && last == Some(word));
            last = Some(word);
        }
        entries
    }

    /// Adds a rewrite; refuses fields that the device does not write, by their names, and headers that the packet may not have.
    pub(super) fn set(&mut self, set: &FieldSet, guarantees: &Guarantees) -> Result<(), Refusal> {
        let attribute = set.attribute.name();
        match has(set.attribute, guarantees) {
            Some(true) => {}
            Some(false) => return Err(refuse(format!("the match does not say that there is {attribute}()"))),
            None => return Err(refuse(format!("the device does not write {attribute}()"))),
        }
        for (field, value, mask) in &set.fields {
            if self.set_field(*field, *value, *mask) != 0 {
                return Err(refuse(format!("the device does not write all of {field}")));
            }
        }
        self.check()
    }

    /// Adds modify actions as they are.
    pub(super) fn push(&mut self, words: &[u64]) {
        self.0.extend(words);
    }

    /// Takes one from the time to live or the hop limit.
    pub(super) fn decrement_ttl(&mut self, guarantees: &Guarantees) -> Result<(), Refusal> {
        let field = if has(Attribute::Ipv4, guarantees) == Some(true) {
            TTL
        } else if has(Attribute::Ipv6, guarantees) == Some(true) {
            HOP_LIMIT
        } else {
            return Err(refuse("the match does not say that it is IP".to_owned()));
        };
        self.0.push(ADD << 60 | field << 48 | 0xff);
        self.check()
    }

    /// Sets bits of a field, and returns those that no part has.
    fn set_field(&mut self, field: Field, value: u128, mask: u128) -> u128 {
        let mut left = mask;
        for part in PARTS.iter().filter(|part| part.field == field) {
            left &= !(u128::from(u64::MAX >> (64 - part.width)) << part.shift);
            self.set_part(part, value >> part.shift, mask >> part.shift);
        }
        left
    }

    /// Sets each run of bits that the mask has of a part.
    #[expect(clippy::cast_possible_truncation, reason = "a part has 32 bits at most")]
    fn set_part(&mut self, part: &Part, value: u128, mask: u128) {
        let bits = u64::MAX >> (64 - part.width);
        let (value, mut mask) = (value as u64 & bits, mask as u64 & bits);
        while mask != 0 {
            let offset = mask.trailing_zeros();
            let length = (mask >> offset).trailing_ones();
            let run = u64::MAX >> (64 - length);
            // 32 bits are written as none.
            let words = SET << 60 | part.number << 48 | u64::from(offset) << 40 | u64::from(length & 0x1f) << 32;
            self.0.push(words | value >> offset & run);
            mask &= !(run << offset);
        }
    }
}

/// Returns what stands for the word of the packet's description that a modify action writes: fields of formats 1 and 2 that share one.
fn word_of(action: u64) -> u64 {
    match action >> 48 & 0xfff {
        DSCP | ECN | TTL | HOP_LIMIT => TTL,
        TCP_SPORT | TCP_DPORT | UDP_SPORT | UDP_DPORT => TCP_SPORT,
        field => field,
    }
}

/// Returns the modify actions that set the Ethernet addresses of a packet and, if there is one, the source address of IP.
pub fn address_words(source_mac: [u8; 6], destination_mac: [u8; 6], source: Option<IpAddr>) -> Box<[u64]> {
    let bits = |mac: [u8; 6]| mac.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    let source = source.map(|source| match source {
        IpAddr::V4(address) => (Field::Ipv4Src, u128::from(address.to_bits())),
        IpAddr::V6(address) => (Field::Ipv6Src, address.to_bits()),
    });
    let macs = [(Field::EthSrc, bits(source_mac)), (Field::EthDst, bits(destination_mac))];
    let mut modifications = Modifications::default();
    for (field, value) in macs.into_iter().chain(source) {
        modifications.set_field(field, value, field.full_mask());
    }
    modifications.into_words()
}

/// Whether every packet has the header of an attribute; `None` for one that the device does not write.
fn has(attribute: Attribute, guarantees: &Guarantees) -> Option<bool> {
    match attribute {
        Attribute::Ethernet => Some(true),
        Attribute::Ipv4 => Some(guarantees.eth_type == Some(0x0800)),
        Attribute::Ipv6 => Some(guarantees.eth_type == Some(0x86dd)),
        // Of fragments but the first, the device finds other bytes in their place.
        Attribute::Tcp => Some(guarantees.protocol == Some(6) && guarantees.is_whole),
        Attribute::Udp => Some(guarantees.protocol == Some(17) && guarantees.is_whole),
        _ => None,
    }
}

fn refuse(reason: String) -> Refusal {
    Refusal::Action { action: ActionKind::Set, reason: reason.into() }
}
