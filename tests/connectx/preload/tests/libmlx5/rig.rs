//! What all stories share: fields of a match, commands that libmlx5 leaves to programs, and a look at what came out.

use sluice_connectx::profile::{BLUEFIELD_2, BLUEFIELD_3, CONNECTX_5, CONNECTX_6_DX, CONNECTX_7, Profile};
use sluice_connectx::steering::{Count, Port, Walk};
use sluice_connectx_preload::{Plugged, plug};
use sluice_connectx_uverbs::Privileges;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match, Object, Table};
use sluice_libmlx5::verbs::Context;

/// A device of each generation.
pub(crate) const GENERATIONS: [Profile; 5] = [CONNECTX_5, CONNECTX_6_DX, BLUEFIELD_2, CONNECTX_7, BLUEFIELD_3];

/// One for each format of entries.
pub(crate) const FORMATS: [Profile; 3] = [CONNECTX_5, BLUEFIELD_2, CONNECTX_7];

pub(crate) fn device(profile: Profile) -> Plugged {
    plug(profile, Privileges::ALL).unwrap()
}

pub(crate) fn open(plugged: &Plugged) -> Context {
    Context::open(&plugged.name()).unwrap()
}

/// Plays on a device that is plugged in and open, of which nothing must be left.
pub(crate) fn play(profile: Profile, story: impl FnOnce(&Plugged, &Context)) {
    println!("on {}", profile.name);
    let plugged = device(profile);
    let context = open(&plugged);
    story(&plugged, &context);
    drop(context);
    assert_clean(&plugged);
}

/// Plays in the switch of such a device, with a table that all packets come to.
pub(crate) fn play_in_switch(profile: Profile, story: impl FnOnce(&Plugged, &Context, &Domain<'_>, &Table<'_>)) {
    play(profile, |plugged, context| {
        let domain = Domain::create(context, Kind::Fdb).unwrap();
        let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
        let all = root.matcher(0, &Match::default()).unwrap();
        let to_table = Action::to_table(&table).unwrap();
        let _jump = all.rule(&Match::default(), &[&to_table]).unwrap();
        story(plugged, context, &domain, &table);
    });
}

/// Nothing is left, and nothing was refused or went wrong.
pub(crate) fn assert_clean(plugged: &Plugged) {
    assert_eq!(plugged.device().left(), Vec::<String>::new());
    let refusals: Vec<String> = plugged.device().refusals().into_iter().filter(|line| !is_expected(line)).collect();
    assert_eq!(refusals, Vec::<String>::new());
    assert_eq!(plugged.device().with(|hca| hca.complaints().to_vec()), Vec::<String>::new());
}

/// What libibverbs and libmlx5 ask only to find out whether it is there.
fn is_expected(refusal: &str) -> bool {
    let probes = ["only an embedded CPU has host functions", "QUERY_ESW_FUNCTIONS had status"];
    probes.iter().any(|probe| refusal.contains(probe))
}

/// Fields of `fte_match_param`, by the PRM: first bit and width.
pub(crate) mod field {
    pub(crate) type Field = (usize, usize);
    pub(crate) const SOURCE_MAC: Field = (0x000, 48);
    pub(crate) const ETHERTYPE: Field = (0x030, 16);
    pub(crate) const DESTINATION_MAC: Field = (0x040, 48);
    pub(crate) const PRIORITY: Field = (0x070, 3);
    pub(crate) const CFI: Field = (0x073, 1);
    pub(crate) const VLAN: Field = (0x074, 12);
    pub(crate) const PROTOCOL: Field = (0x080, 8);
    pub(crate) const DSCP: Field = (0x088, 6);
    pub(crate) const ECN: Field = (0x08e, 2);
    pub(crate) const CVLAN_TAG: Field = (0x090, 1);
    pub(crate) const SVLAN_TAG: Field = (0x091, 1);
    pub(crate) const FRAGMENT: Field = (0x092, 1);
    pub(crate) const IP_VERSION: Field = (0x093, 4);
    pub(crate) const TCP_FLAGS: Field = (0x097, 9);
    pub(crate) const TCP_SOURCE: Field = (0x0a0, 16);
    pub(crate) const TCP_DESTINATION: Field = (0x0b0, 16);
    pub(crate) const IHL: Field = (0x0d0, 4);
    pub(crate) const L3_OK: Field = (0x0d4, 1);
    pub(crate) const L4_OK: Field = (0x0d5, 1);
    pub(crate) const IPV4_CHECKSUM_OK: Field = (0x0d6, 1);
    pub(crate) const L4_CHECKSUM_OK: Field = (0x0d7, 1);
    pub(crate) const TTL: Field = (0x0d8, 8);
    pub(crate) const UDP_SOURCE: Field = (0x0e0, 16);
    pub(crate) const UDP_DESTINATION: Field = (0x0f0, 16);
    pub(crate) const SOURCE_V6: Field = (0x100, 128);
    pub(crate) const SOURCE_V4: Field = (0x160, 32);
    pub(crate) const DESTINATION_V6: Field = (0x180, 128);
    pub(crate) const DESTINATION_V4: Field = (0x1e0, 32);
    pub(crate) const GRE_HAS_CHECKSUM: Field = (0x200, 1);
    pub(crate) const GRE_HAS_KEY: Field = (0x202, 1);
    pub(crate) const GRE_HAS_SEQUENCE: Field = (0x203, 1);
    pub(crate) const SOURCE_SQN: Field = (0x208, 24);
    pub(crate) const SOURCE_PORT: Field = (0x230, 16);
    pub(crate) const SECOND_PRIORITY: Field = (0x240, 3);
    pub(crate) const SECOND_CFI: Field = (0x243, 1);
    pub(crate) const SECOND_VLAN: Field = (0x244, 12);
    pub(crate) const INNER_SECOND_VLAN: Field = (0x254, 12);
    pub(crate) const SECOND_CVLAN_TAG: Field = (0x260, 1);
    pub(crate) const INNER_SECOND_CVLAN_TAG: Field = (0x261, 1);
    pub(crate) const SECOND_SVLAN_TAG: Field = (0x262, 1);
    pub(crate) const GRE_PROTOCOL: Field = (0x270, 16);
    pub(crate) const GRE_KEY: Field = (0x280, 32);
    pub(crate) const VXLAN_VNI: Field = (0x2a0, 24);
    pub(crate) const GENEVE_VNI: Field = (0x2c0, 24);
    pub(crate) const HAS_GENEVE_OPTION: Field = (0x2de, 1);
    pub(crate) const GENEVE_OAM: Field = (0x2df, 1);
    pub(crate) const FLOW_LABEL: Field = (0x2ec, 20);
    pub(crate) const INNER_FLOW_LABEL: Field = (0x30c, 20);
    pub(crate) const GENEVE_OPTIONS: Field = (0x32a, 6);
    pub(crate) const GENEVE_PROTOCOL: Field = (0x330, 16);
    pub(crate) const ESP_SPI: Field = (0x380, 32);
    /// How much further on the same fields of an inner header are.
    pub(crate) const INNER: usize = 0x400;
    /// Label, traffic class, bottom of stack, and TTL.
    pub(crate) const MPLS: Field = (0x600, 32);
    pub(crate) const INNER_MPLS: Field = (0x620, 32);
    pub(crate) const MPLS_OVER_GRE: Field = (0x640, 32);
    pub(crate) const MPLS_OVER_UDP: Field = (0x660, 32);
    pub(crate) const REGISTER_C_5: Field = (0x6c0, 32);
    pub(crate) const REGISTER_C_3: Field = (0x700, 32);
    pub(crate) const REGISTER_C_1: Field = (0x740, 32);
    pub(crate) const REGISTER_C_0: Field = (0x760, 32);
    pub(crate) const REGISTER_A: Field = (0x780, 32);
    pub(crate) const INNER_TCP_SEQUENCE: Field = (0x800, 32);
    pub(crate) const TCP_SEQUENCE: Field = (0x820, 32);
    pub(crate) const INNER_TCP_ACKNOWLEDGEMENT: Field = (0x840, 32);
    pub(crate) const TCP_ACKNOWLEDGEMENT: Field = (0x860, 32);
    pub(crate) const VXLAN_GPE_VNI: Field = (0x888, 24);
    pub(crate) const VXLAN_GPE_NEXT: Field = (0x8a0, 8);
    pub(crate) const VXLAN_GPE_FLAGS: Field = (0x8a8, 8);
    pub(crate) const ICMP_DATA: Field = (0x8c0, 32);
    pub(crate) const ICMPV6_DATA: Field = (0x8e0, 32);
    pub(crate) const ICMP_TYPE: Field = (0x900, 8);
    pub(crate) const ICMP_CODE: Field = (0x908, 8);
    pub(crate) const ICMPV6_TYPE: Field = (0x910, 8);
    pub(crate) const ICMPV6_CODE: Field = (0x918, 8);
    pub(crate) const GENEVE_OPTION_DATA: Field = (0x920, 32);
    pub(crate) const GTPU_TEID: Field = (0x940, 32);
    pub(crate) const GTPU_TYPE: Field = (0x960, 8);
    pub(crate) const GTPU_FLAGS: Field = (0x968, 8);
    pub(crate) const GTPU_THIRD_WORD: Field = (0x980, 32);
    pub(crate) const GTPU_FIRST_EXTENSION: Field = (0x9a0, 32);
    pub(crate) const GTPU_FIRST_WORD: Field = (0x9c0, 32);
    /// Of a sample of the flexible parser that a program asks for.
    pub(crate) const SAMPLE_VALUE: Field = (0xa00, 32);
    pub(crate) const SAMPLE_ID: Field = (0xa20, 32);
    pub(crate) const TUNNEL_HEADER_0: Field = (0xc80, 32);
    pub(crate) const TUNNEL_HEADER_1: Field = (0xca0, 32);
    pub(crate) const TUNNEL_HEADER_2: Field = (0xcc0, 32);
    pub(crate) const TUNNEL_HEADER_3: Field = (0xce0, 32);
}

/// A match on all bits of some fields: mask and value.
pub(crate) fn exactly(fields: &[(field::Field, u128)]) -> (Match, Match) {
    // libmlx5 wants the version itself as its mask, and so it does with the id of a sample.
    let names = |field: field::Field| field.0 % field::INNER == field::IP_VERSION.0 || field == field::SAMPLE_ID;
    let bits = |field: field::Field, of| if names(field) { of } else { u128::MAX };
    let mask = fields.iter().fold(Match::default(), |mask, (field, of)| mask.with(field.0, field.1, bits(*field, *of)));
    (mask, value(fields))
}

pub(crate) fn value(fields: &[(field::Field, u128)]) -> Match {
    fields.iter().fold(Match::default(), |value, ((at, width), of)| value.with(*at, *width, *of))
}

/// IPv4 addresses and UDP ports, from 10.0.0.1:1111 to port 2222.
pub(crate) fn five_tuple(to: [u8; 4]) -> [(field::Field, u128); 6] {
    [
        (field::IP_VERSION, 4),
        (field::PROTOCOL, 17),
        (field::SOURCE_V4, u32::from_be_bytes([10, 0, 0, 1]).into()),
        (field::DESTINATION_V4, u32::from_be_bytes(to).into()),
        (field::UDP_SOURCE, 1111),
        (field::UDP_DESTINATION, 2222),
    ]
}

/// A packet that such a match is for.
pub(crate) fn datagram(to: [u8; 4]) -> Vec<u8> {
    crate::frames::udp([10, 0, 0, 1], to, 1111, 2222)
}

/// An object by a command: doublewords of it by place.
pub(crate) fn object<'a>(
    context: &'a Context,
    opcode: u16,
    words: &[(usize, u32)],
    length: usize,
) -> (Object<'a>, u32) {
    try_object(context, opcode, words, length).unwrap()
}

/// The same of one that may be refused.
pub(crate) fn try_object<'a>(
    context: &'a Context,
    opcode: u16,
    words: &[(usize, u32)],
    length: usize,
) -> std::io::Result<(Object<'a>, u32)> {
    let mut input = vec![0; length];
    input[..2].copy_from_slice(&opcode.to_be_bytes());
    for (at, word) in words {
        input[*at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    let (object, output) = Object::create(context, &input, 16)?;
    Ok((object, u32::from_be_bytes(output[8..12].try_into().unwrap()) & 0xff_ffff))
}

/// So many flow counters, as a power of two, and the id of the first.
pub(crate) fn counters(context: &Context, log: u32) -> (Object<'_>, u32) {
    const ALLOC_FLOW_COUNTER: u16 = 0x939;
    let mut input = [0; 16];
    input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER.to_be_bytes());
    input[14] = u8::try_from(log).unwrap();
    let (object, output) = Object::create(context, &input, 16).unwrap();
    (object, u32::from_be_bytes(output[8..12].try_into().unwrap()))
}

/// What a program reads of a counter.
pub(crate) fn read_counter(block: &Object<'_>, id: u32) -> Count {
    const QUERY_FLOW_COUNTER: u16 = 0x93b;
    let mut input = [0; 32];
    input[..2].copy_from_slice(&QUERY_FLOW_COUNTER.to_be_bytes());
    input[28..].copy_from_slice(&id.to_be_bytes());
    let output = block.query(&input, 32).unwrap();
    let wide = |at: usize| u64::from_be_bytes(output[at..at + 8].try_into().unwrap());
    Count { packets: wide(16), bytes: wide(24) }
}

/// Lets a packet in, and prints its way.
pub(crate) fn walk(plugged: &Plugged, from: Port, frame: &[u8]) -> Walk {
    let walk = plugged.device().receive(from, frame);
    println!("{walk}");
    walk
}

/// The only port where a packet comes out, if it does.
pub(crate) fn comes_out(plugged: &Plugged, from: Port, frame: &[u8]) -> Option<Port> {
    let walk = walk(plugged, from, frame);
    assert!(walk.sent.len() <= 1, "{walk}");
    walk.sent.first().map(|(port, _)| *port)
}

/// How many entries of rules the library's own dump of a domain has. Each is what the memory holds.
pub(crate) fn agreeing(plugged: &Plugged, profile: Profile, domain: &Domain<'_>) -> usize {
    let mut entries = 0;
    // Of a rule's entry: type of record, place in steering memory in entries, rule, and the entry without its mask.
    for line in domain.dump().unwrap().lines() {
        let parts: Vec<&str> = line.split(',').collect();
        let [kind, address, _, bytes, ..] = parts[..] else { continue };
        if !matches!(kind, "3301" | "3302" | "3303" | "3304") {
            continue;
        }
        let place = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap() << 6;
        let held = plugged.device().with(|hca| hca.steering().entry_at(place)).expect(line);
        let held: String = held.iter().map(|byte| format!("{byte:02x}")).collect();
        // Format 0 has the mask at the end, the others in front of the tag, and entries with definers have none.
        let (control, tag) = bytes.split_at(64);
        let defined = profile.steering_format.version() > 0 && control.starts_with("04");
        let tag_at = if profile.steering_format.version() == 0 || defined { 64 } else { 96 };
        assert_eq!(&held[..64], control, "{line}");
        // Of entries that only go on with actions, the library keeps no more than the first half.
        let digits = if defined { tag.len().min(64) } else { 32 };
        assert_eq!(&held[tag_at..tag_at + digits], &tag[..digits], "{line}");
        entries += 1;
    }
    entries
}
