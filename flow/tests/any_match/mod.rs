//! Random matches that the grammar can say.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sluice_flow::field::{Attribute, FIELDS, Field, Form, GENEVE_CHUNKS, MPLS_ENTRIES};
use sluice_flow::key::Match;

/// What a random match does with one row of the field table.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    Wild,
    Exact(u128),
    Masked(u128, u128),
}

/// Wild, exact or masked.
pub(crate) fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        2 => Just(Choice::Wild),
        1 => any::<u128>().prop_map(Choice::Exact),
        1 => (any::<u128>(), any::<u128>()).prop_map(|(value, mask)| Choice::Masked(value, mask)),
    ]
}

/// A match that the grammar can say: headers follow from each other, and each row of the table may be matched anyhow.
pub(crate) fn any_match() -> impl Strategy<Value = Match> {
    let eth_type = prop_oneof![
        Just(Choice::Wild),
        select(vec![0x0800, 0x86dd, 0x0806, 0x8035, 0x8847, 0x8848, 0x894f, 0x8864, 0x8902, 0]).prop_map(Choice::Exact),
        select(vec![0x0800, 0x86dd]).prop_map(Choice::Exact),
        any::<u128>().prop_map(|value| Choice::Masked(value, 0xff00)),
    ];
    let proto = select(vec![1u128, 6, 17, 58, 132, 47, 50, 51, 115]);
    let parts = (proptest::option::of(any_options(false)), 0..3usize);
    (vec(choice(), FIELDS.len()), 0..3usize, eth_type, proto, any::<bool>(), parts).prop_map(
        |(choices, tags, eth_type, proto, exact_proto, (options, entries_behind))| {
            let mut full = Match::default();
            for (spec, choice) in FIELDS.iter().zip(choices) {
                if may_be_matched(spec.attribute, tags, &eth_type, exact_proto.then_some(proto)) {
                    set(&mut full, spec.field, fit(spec.field, choice));
                }
            }
            set(&mut full, Field::EthType, eth_type.clone());
            let eth_type_is_ip = matches!(eth_type, Choice::Exact(0x0800 | 0x86dd));
            if exact_proto && eth_type_is_ip {
                full.set_exact(Field::Ipv4Proto, proto);
            }
            let levels = [Field::VlanPresent, Field::CvlanPresent];
            for present in &levels[..tags] {
                full.set_exact(*present, 1);
            }
            if let (Some(present), false) = (levels.get(tags), matches!(eth_type, Choice::Wild)) {
                full.set_exact(*present, 0);
            }
            if full.is_exactly(Field::EthType, 0x8847) || full.is_exactly(Field::EthType, 0x8848) {
                for present in &[Field::Mpls2Present, Field::Mpls3Present][..entries_behind] {
                    full.set_exact(*present, 1);
                }
                for field in MPLS_ENTRIES[entries_behind + 1..].as_flattened() {
                    full.set(*field, 0, 0);
                }
                if Attribute::Mpls.fields().any(|spec| full.mask.get(spec.field) != 0) {
                    full.set_exact(Field::MplsPresent, 1);
                }
            }
            if Attribute::Pppoe.fields().any(|spec| full.mask.get(spec.field) != 0)
                && full.is_exactly(Field::EthType, 0x8864)
            {
                full.set_exact(Field::PppoePresent, 1);
            }
            for (field, value, mask) in options.into_iter().flatten() {
                full.set(field, value, mask);
            }
            if FIELDS.iter().any(|spec| spec.attribute == Attribute::Tunnel && full.mask.get(spec.field) != 0) {
                full.set_exact(Field::TunnelPresent, 1);
            }
            full
        },
    )
}

fn may_be_matched(attribute: Attribute, tags: usize, eth_type: &Choice, proto: Option<u128>) -> bool {
    let eth_type = if let Choice::Exact(eth_type) = eth_type { *eth_type } else { 0 };
    let ip = matches!(eth_type, 0x0800 | 0x86dd);
    match attribute {
        Attribute::EthType => false,
        Attribute::Vlan => tags > 0,
        Attribute::Cvlan => tags > 1,
        Attribute::Mpls => matches!(eth_type, 0x8847 | 0x8848),
        Attribute::Ipv4 => eth_type == 0x0800,
        Attribute::Ipv6 => eth_type == 0x86dd,
        Attribute::Arp => matches!(eth_type, 0x0806 | 0x8035),
        Attribute::Tcp | Attribute::TcpFlags => ip && proto == Some(6),
        Attribute::Udp => ip && proto == Some(17),
        Attribute::Sctp => ip && proto == Some(132),
        Attribute::Icmp => eth_type == 0x0800 && proto == Some(1),
        Attribute::Nsh => eth_type == 0x894f,
        Attribute::Pppoe => eth_type == 0x8864,
        Attribute::Cfm => eth_type == 0x8902,
        Attribute::L2tpv3 => ip && proto == Some(115),
        Attribute::Ipsec => ip && matches!(proto, Some(50 | 51)),
        Attribute::Icmpv6 | Attribute::Nd | Attribute::NdExt => eth_type == 0x86dd && proto == Some(58),
        _ => true,
    }
}

/// What the grammar has no masked form for, or only some values.
pub(crate) fn fit(field: Field, choice: Choice) -> Choice {
    match (field, choice) {
        // The options of a tunnel are of one kind and depend on each other, see `any_options`.
        _ if is_of_options(field) => Choice::Wild,
        (_, choice) if field.spec().form == Form::Presence => {
            if matches!(choice, Choice::Exact(_)) && field == Field::TunnelPresent {
                Choice::Exact(1)
            } else {
                Choice::Wild
            }
        }
        (Field::RecircId, Choice::Wild) => Choice::Exact(0),
        (Field::RecircId | Field::InPort, Choice::Masked(value, _)) => Choice::Exact(value),
        (Field::Ipv4Frag | Field::Ipv6Frag, Choice::Exact(value) | Choice::Masked(value, _)) => {
            Choice::Exact(value % 3)
        }
        (Field::VlanTpid | Field::CvlanTpid, Choice::Exact(value)) => {
            Choice::Exact([0x8100, 0x88a8][value as usize % 2])
        }
        (Field::VlanTpid | Field::CvlanTpid, Choice::Masked(value, mask)) => Choice::Masked(value, mask & 0xfff0),
        (_, choice) => choice,
    }
}

fn is_of_options(field: Field) -> bool {
    let spec = field.spec();
    let is_present = spec.form == Form::Presence && field != Field::TunnelPresent;
    spec.attribute == Attribute::Tunnel && (spec.is_nested() || is_present)
}

/// A field as (field, value, mask).
pub(crate) type Row = (Field, u128, u128);

/// The options of a tunnel header; wild rows may be among them. With `whole`, such as a set can have: no masks, and
/// nothing left out that the rest depends on.
pub(crate) fn any_options(whole: bool) -> impl Strategy<Value = Vec<Row>> {
    let fields = move |present: Field, fields: &'static [Field]| {
        vec(choice(), fields.len()).prop_map(move |choices| {
            let mut full = Match::default();
            full.set_exact(present, 1);
            for (field, choice) in fields.iter().zip(choices) {
                match choice {
                    Choice::Masked(value, _) if whole => full.set_exact(*field, value & field.full_mask()),
                    choice => set(&mut full, *field, choice),
                }
            }
            let fields = std::iter::once(present).chain(fields.iter().copied());
            fields.map(|field| (field, full.key.get(field), full.mask.get(field))).collect::<Vec<_>>()
        })
    };
    let erspan = move |version: u128, others: &'static [Field]| {
        (fields(Field::ErspanPresent, others), any::<bool>()).prop_map(move |(mut rows, is_masked)| {
            rows.push((Field::ErspanVersion, version, if is_masked && !whole { 0 } else { 0xff }));
            rows
        })
    };
    prop_oneof![
        fields(Field::VxlanGbpPresent, &[Field::VxlanGbpId, Field::VxlanGbpFlags]),
        fields(Field::GtpuPresent, &[Field::GtpuFlags, Field::GtpuMessageType]),
        erspan(1, &[Field::ErspanIndex]),
        erspan(2, &[Field::ErspanDirection, Field::ErspanHardwareId]),
        any_geneve(whole),
        // Of the options that are there, not even the length is matched.
        Just(if whole { Vec::new() } else { vec![(Field::GenevePresent, 1, 1)] }),
    ]
}

/// Geneve options as they stand on the wire: class, type, length, data; all masks but that of the length are free.
fn any_geneve(whole: bool) -> impl Strategy<Value = Vec<Row>> {
    let any_mask = if whole { Just(0xff).boxed() } else { prop_oneof![Just(0u8), Just(0xff), any::<u8>()].boxed() };
    let one = (0..=31u8, any_mask.clone(), any::<bool>(), vec((any::<u8>(), any_mask), 3 + 124));
    vec(one, 0..5).prop_map(|options| {
        let (mut values, mut masks) = (Vec::new(), Vec::new());
        for (length, common_mask, is_uniform, bytes) in options {
            let bytes = &bytes[..3 + usize::from(length) * 4];
            if values.len() + 1 + bytes.len() > 252 {
                continue;
            }
            for (index, (value, mask)) in bytes.iter().enumerate() {
                let mask = if is_uniform { common_mask } else { *mask };
                values.push(value & mask);
                masks.push(mask);
                if index == 2 {
                    values.push(length);
                    masks.push(0x1f);
                }
            }
        }
        let mut rows = vec![(Field::GenevePresent, 1, 1), (Field::GeneveLength, values.len() as u128, 0xff)];
        values.resize(256, 0);
        masks.resize(256, 0);
        let number = |bytes: &[u8]| u128::from_be_bytes(bytes.try_into().unwrap());
        for (field, (value, mask)) in GENEVE_CHUNKS.iter().zip(values.chunks(16).zip(masks.chunks(16))) {
            rows.push((*field, number(value), number(mask)));
        }
        rows
    })
}

/// Matches a field as it was chosen.
pub(crate) fn set(full: &mut Match, field: Field, choice: Choice) {
    match choice {
        Choice::Wild => {}
        Choice::Exact(value) => full.set_exact(field, value & field.full_mask()),
        Choice::Masked(value, mask) => full.set(field, value, mask & field.full_mask()),
    }
}
