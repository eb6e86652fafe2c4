//! Packets for matches: those that hit, and those that miss by one bit.

use sluice_flow::action::ActionList;
use sluice_flow::field::{Attribute, FIELDS, Field, Form, MPLS_ENTRIES, MPLS_PRESENT};
use sluice_flow::key::{Key, Match};
use sluice_flow::port::PortNumber;

use super::draw::Fill;
use super::frame::{Extras, WrongChecksum, build};

/// A packet and the key that it should have, with what is known of it besides its bytes.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The key.
    pub key: Key,
    /// The bytes.
    pub frame: Vec<u8>,
}

/// Numbers of IPv6 extension headers: a packet cannot have one of them as its protocol.
const EXTENSIONS: [u128; 5] = [0, 43, LATER_FRAGMENT, 51, 60];
/// But for a later fragment, whose protocol is that of the fragment header (`parse_ipv6hdr` in `net/openvswitch/flow.c`).
const LATER_FRAGMENT: u128 = 44;

/// Fields that tell of a packet what is not in its bytes.
const METADATA: &[Attribute] = &[
    Attribute::RecircId,
    Attribute::DpHash,
    Attribute::SkbPriority,
    Attribute::Tunnel,
    Attribute::InPort,
    Attribute::SkbMark,
    Attribute::CtState,
    Attribute::CtZone,
    Attribute::CtMark,
    Attribute::CtLabel,
    Attribute::CtTuple4,
    Attribute::CtTuple6,
    Attribute::PacketType,
];

/// A packet that the match takes; what the match leaves open comes from the number, all zero for 0. `None` where there is
/// no such packet: one whose IPv6 protocol is an extension header.
pub fn hit(full: &Match, number: u64) -> Option<Packet> {
    let key = complete(full, number)?;
    Some(Packet { key, frame: build(&key, &extras(number)) })
}

/// A packet that the match does not take because of one bit of a field, and that field. `None` where the bit that is
/// chosen would make another packet altogether.
pub fn near_miss(full: &Match, number: u64) -> Option<(Packet, Field)> {
    let mut key = complete(full, number)?;
    let mut fill = Fill(!number);
    let mut below = |limit: usize| usize::try_from(fill.next() % limit as u128).unwrap_or_default();
    let eth_type = key.get(Field::EthType);
    let candidates: Vec<_> = FIELDS
        .iter()
        .filter(|spec| full.mask.get(spec.field) != 0 && belongs(spec.attribute, &key))
        .filter(|spec| !matches!(spec.form, Form::Presence) && may_be_missed(spec.field))
        .map(|spec| spec.field)
        .collect();
    if candidates.is_empty() {
        return None;
    }
    let field = candidates[below(candidates.len())];
    let mask = full.mask.get(field);
    let bits: Vec<u32> = (0..128).filter(|bit| mask >> bit & 1 == 1).collect();
    let bit = bits[below(bits.len())];
    let value = match field {
        // Other values have no meaning.
        Field::NshMdType | Field::NdOptionsType => key.get(field) ^ 3,
        _ => key.get(field) ^ 1 << bit,
    };
    let later = matches!(field, Field::Ipv4Frag | Field::Ipv6Frag).then_some(value == 2);
    let was_later = key.get(Field::Ipv6Frag) == 2;
    key.set(field, value);
    match later {
        Some(true) if eth_type == 0x86dd => key.set(Field::Ipv6Proto, LATER_FRAGMENT),
        Some(false) if eth_type == 0x86dd && was_later => key.set(Field::Ipv6Proto, 6),
        _ => {}
    }
    let possible = match field {
        // Without an Ethernet header, the type is that of the packet.
        Field::EthType => value >= 0x0600 && !matches!(value, 0x8100 | 0x88a8) && key.get(Field::PacketTypeNs) == 0,
        Field::Ipv6Proto | Field::Ipv4Proto => eth_type != 0x86dd || !was_later && !EXTENSIONS.contains(&value),
        Field::Ipv4Frag | Field::Ipv6Frag => value <= 2,
        // Bits that the header or the kernel's key has no room for.
        Field::ArpOp => value <= 0xff,
        Field::NshFlags => value <= 3,
        Field::NshTtl => value <= 63,
        Field::NshMdType => mask & 3 != 0,
        Field::PppProtocol => is_of_ppp(value),
        Field::NdOptionsType => mask & 3 != 0 && key.get(Field::NdSll) != 0 && key.get(Field::NdTll) != 0,
        _ => true,
    };
    possible.then(|| (Packet { key, frame: build(&key, &extras(number)) }, field))
}

/// Whether a bit of the field can be another in a packet with the same headers.
fn may_be_missed(field: Field) -> bool {
    let bottom = MPLS_ENTRIES.iter().any(|[.., bottom]| *bottom == field);
    let tag = matches!(field, Field::VlanTpid | Field::VlanCfi | Field::CvlanTpid | Field::CvlanCfi);
    let kind = matches!(field, Field::ErspanVersion | Field::GeneveLength);
    let count = field == Field::NumOfVlans;
    !bottom && !tag && !kind && !count && field.spec().attribute != Attribute::PacketType
}

/// The packets of a scenario: for each flow that a packet can hit as it comes in, one that does, and near misses; a
/// few that are cut off or are meant for no flow.
pub fn for_flows(flows: &[(Match, ActionList)], numbers: &[u64]) -> Vec<(PortNumber, Vec<u8>)> {
    let mut packets = Vec::new();
    for (index, (full, _)) in flows.iter().enumerate() {
        let number = numbers.get(index % numbers.len().max(1)).copied().unwrap_or_default();
        let number = if number == 0 { 0 } else { number ^ index as u64 };
        let misses =
            (0..3u64).filter_map(|turn| near_miss(full, number.rotate_left(16 * u32::try_from(turn).ok()? + 9)));
        let misses = misses.map(|(packet, _)| packet);
        for mut packet in hit(full, number).into_iter().chain(misses).filter(|packet| comes_in(&packet.key)) {
            if number % 32 == 1 {
                let length = usize::try_from(number >> 32).unwrap_or_default() % packet.frame.len();
                packet.frame.truncate(length);
            }
            packets.push((port(&packet.key), packet.frame));
        }
    }
    packets.extend(numbers.iter().take(4).filter_map(|number| {
        let stray = hit(&Match::default(), *number)?;
        Some((port(&stray.key), stray.frame))
    }));
    packets
}

/// The port that a packet comes in at.
pub fn port(key: &Key) -> PortNumber {
    PortNumber(u32::try_from(key.get(Field::InPort)).unwrap_or_default())
}

/// Whether a packet has this key as it comes in at a port: nothing has been done to it yet.
pub fn comes_in(key: &Key) -> bool {
    let mut fields = FIELDS.iter().filter(|spec| METADATA.contains(&spec.attribute) && spec.field != Field::InPort);
    fields.all(|spec| key.get(spec.field) == 0) && matches!(key.get(Field::InPort), 1..=4)
}

/// A full key that the match takes.
fn complete(full: &Match, number: u64) -> Option<Key> {
    let mut fill = Fill(number);
    let mut key = Key::ZERO;
    for spec in FIELDS.iter().filter(|spec| METADATA.contains(&spec.attribute)) {
        key.set(spec.field, full.key.get(spec.field));
    }
    if full.mask.get(Field::InPort) == 0 {
        key.set(Field::InPort, 1);
    }
    let choose =
        |fill: &mut Fill, from: &[u128]| from[usize::try_from(fill.next() % from.len() as u128).unwrap_or_default()];
    let eth_type = if full.mask.get(Field::EthType) == 0 {
        choose(&mut fill, &[0x0800, 0x86dd, 0x0806, 0x88b5])
    } else {
        full.key.get(Field::EthType)
    };
    key.set(Field::EthType, eth_type);
    for (present, tpid, cfi) in [
        (Field::VlanPresent, Field::VlanTpid, Field::VlanCfi),
        (Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi),
    ] {
        if full.is_exactly(present, 1) {
            key.set(present, 1);
            key.set(tpid, full.key.get(tpid));
            key.set(cfi, 1);
            key.set(Field::NumOfVlans, key.get(Field::NumOfVlans) + 1);
        }
    }
    if matches!(eth_type, 0x0800 | 0x86dd) {
        key.set(Field::Ipv4Frag, full.key.get(Field::Ipv4Frag));
        key.set(Field::Ipv4Proto, proto(full, eth_type == 0x86dd, &mut fill)?);
    }
    // ICMP's type first: it says whether there are fields of a neighbour message.
    for pass in [&[Field::IcmpType, Field::IcmpCode, Field::NshMdType][..], &[]] {
        for spec in FIELDS.iter().filter(|spec| !METADATA.contains(&spec.attribute)) {
            let fixed = matches!(spec.form, Form::Presence | Form::Fragment) || !may_be_missed(spec.field);
            let done = matches!(spec.field, Field::EthType | Field::Ipv4Proto | Field::Ipv6Proto);
            let later =
                pass.is_empty() == same_place(spec.field, &[Field::IcmpType, Field::IcmpCode, Field::NshMdType]);
            if fixed || done || later || !belongs(spec.attribute, &key) {
                continue;
            }
            let mask = full.mask.get(spec.field);
            let room = match spec.field {
                Field::ArpOp => 0xff,
                Field::NshFlags => 3,
                Field::NshTtl => 63,
                _ => spec.field.full_mask(),
            };
            key.set(spec.field, full.key.get(spec.field) | fill.next() & !mask & room);
        }
    }
    match eth_type {
        0x8847 | 0x8848 => labels(full, &mut key),
        0x894f => key.set(Field::NshMdType, one_of(&[1, 2], full, Field::NshMdType)?),
        0x8864 => session(full, &mut key)?,
        _ if belongs(Attribute::Nd, &key) => neighbour_options(full, &mut key)?,
        _ => {}
    }
    Some(key)
}

fn same_place(field: Field, others: &[Field]) -> bool {
    let place = |field: Field| (field.spec().word, field.spec().shift);
    others.iter().any(|other| place(*other) == place(field) && other.spec().width == field.spec().width)
}

fn proto(full: &Match, version6: bool, fill: &mut Fill) -> Option<u128> {
    let (value, mask) = (full.key.get(Field::Ipv4Proto), full.mask.get(Field::Ipv4Proto));
    if version6 && full.is_exactly(Field::Ipv6Frag, 2) {
        return (LATER_FRAGMENT & mask == value).then_some(LATER_FRAGMENT);
    }
    let usual = if version6 { [6, 17, 58, 132, 47, 50] } else { [6, 17, 1, 132, 47, 50] };
    let usual = usual.into_iter().cycle().skip(usize::try_from(fill.next() % 6).unwrap_or_default()).take(6);
    let any = usual.chain(0..256).filter(|number| number & mask == value);
    any.into_iter().find(|number| !version6 || !EXTENSIONS.contains(number))
}

/// The first of some values that the match takes.
fn one_of(values: &[u128], full: &Match, field: Field) -> Option<u128> {
    values.iter().copied().find(|value| value & full.mask.get(field) == full.key.get(field))
}

/// Makes the type of the first option that of an address that is there.
fn neighbour_options(full: &Match, key: &mut Key) -> Option<()> {
    let addresses = [(1, Field::NdSll), (2, Field::NdTll)];
    let may_be_there = |field: Field| !full.is_exactly(field, 0);
    let may_be_absent = |field: Field| full.key.get(field) == 0;
    let there = addresses.into_iter().filter(|(_, field)| may_be_there(*field)).map(|(kind, _)| kind);
    let none = addresses.iter().all(|(_, field)| may_be_absent(*field)).then_some(0);
    let kinds: Vec<u128> = there.chain(none).collect();
    let kind = one_of(&kinds, full, Field::NdOptionsType)?;
    key.set(Field::NdOptionsType, kind);
    for (number, field) in addresses {
        if kind == 0 {
            key.set(field, 0);
        } else if kind == number && key.get(field) == 0 {
            key.set(field, !full.mask.get(field));
        }
    }
    Some(())
}

/// Makes the protocol one that PPP can have.
fn session(full: &Match, key: &mut Key) -> Option<()> {
    key.set(Field::PppoePresent, 1);
    let free = !full.mask.get(Field::PppProtocol);
    let protocol = key.get(Field::PppProtocol);
    key.set(Field::PppProtocol, protocol & !(free & 0x0100) | free & 0x0001);
    is_of_ppp(key.get(Field::PppProtocol)).then_some(())
}

/// Whether a protocol is one that PPP can have (RFC 1661, 2).
const fn is_of_ppp(protocol: u128) -> bool {
    protocol & 0x0101 == 0x0001
}

/// Makes the stack end where its bits say that it does.
fn labels(full: &Match, key: &mut Key) {
    for (index, [.., bottom]) in MPLS_ENTRIES.into_iter().enumerate() {
        key.set(MPLS_PRESENT[index], 1);
        let last = full.mask.get(bottom) == 0 || full.is_exactly(bottom, 1);
        key.set(bottom, u128::from(last));
        if last {
            for [label, class, ttl, bottom] in MPLS_ENTRIES.into_iter().skip(index + 1) {
                for field in [label, class, ttl, bottom] {
                    key.set(field, 0);
                }
            }
            return;
        }
    }
}

/// Whether a packet of this key has the header.
fn belongs(attribute: Attribute, key: &Key) -> bool {
    let eth_type = key.get(Field::EthType);
    let proto = key.get(Field::Ipv4Proto);
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
    let whole = ip && key.get(Field::Ipv4Frag) != 2;
    match attribute {
        Attribute::Ethernet => key.get(Field::PacketTypeNs) == 0,
        Attribute::Vlan => key.get(Field::VlanPresent) == 1,
        Attribute::Cvlan => key.get(Field::CvlanPresent) == 1,
        Attribute::Mpls => matches!(eth_type, 0x8847 | 0x8848),
        Attribute::Nsh => eth_type == 0x894f,
        Attribute::Ipv4 => eth_type == 0x0800,
        Attribute::Ipv6 => eth_type == 0x86dd,
        Attribute::Arp => matches!(eth_type, 0x0806 | 0x8035),
        Attribute::Tcp | Attribute::TcpFlags => whole && proto == 6,
        Attribute::Udp => whole && proto == 17,
        Attribute::Sctp => whole && proto == 132,
        Attribute::Icmp => whole && eth_type == 0x0800 && proto == 1,
        Attribute::Icmpv6 => whole && eth_type == 0x86dd && proto == 58,
        Attribute::Nd | Attribute::NdExt => {
            let message = matches!(key.get(Field::Icmpv6Type), 135 | 136) && key.get(Field::Icmpv6Code) == 0;
            whole && eth_type == 0x86dd && proto == 58 && message
        }
        Attribute::Pppoe => eth_type == 0x8864,
        Attribute::Cfm => eth_type == 0x8902,
        Attribute::L2tpv3 => whole && proto == 115,
        Attribute::Ipsec => whole && matches!(proto, 50 | 51),
        _ => true,
    }
}

/// What a frame has besides its key: most often a short payload and nothing else.
fn extras(number: u64) -> Extras {
    let mut fill = Fill(number ^ number >> 7);
    let mut below = |limit: u128| usize::try_from(fill.next() % limit).unwrap_or_default();
    let length = [0, 26, 1, 7, 64, 1400][below(6)];
    Extras {
        ipv4_options: [0, 0, 0, 1, 10][below(5)],
        ipv6_extensions: below(4) == 3,
        tcp_options: [0, 0, 3, 10][below(4)],
        wrong_checksum: match below(24) {
            22 => Some(WrongChecksum::Network),
            23 => Some(WrongChecksum::Transport),
            _ => None,
        },
        padding: [0, 0, 18, 46][below(4)],
        payload: fill.bytes(length),
    }
}
