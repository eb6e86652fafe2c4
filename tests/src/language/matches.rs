//! The fields that a flow matches.

use sluice_flow::action::ActionList;
use sluice_flow::field::{Attribute, FIELDS, Field, FieldSpec, Form};
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::parse_key;

use super::probe::with_header;
use super::{Backend, Row, Taken, of_fields, row};

/// Options of Geneve, which are one list in text.
const OPTIONS: &[(&str, &str)] = &[
    ("tunnel geneve, an option of one word", "{class=0x102,type=0x80,len=4,0x1}"),
    ("tunnel geneve, an option of two words", "{class=0x102,type=0x80,len=8,0x100000002}"),
    ("tunnel geneve, two options", "{class=0x102,type=0x80,len=4,0x1}{class=0x102,type=0x81,len=4,0x2}"),
];

/// Presence and options are not written by themselves.
pub(super) fn rows() -> Vec<Row> {
    let fields = FIELDS.iter().filter(|spec| !matches!(spec.form, Form::Presence | Form::Options));
    let mut rows = of_fields(fields, taken);
    rows.extend(OPTIONS.iter().map(|(what, options)| {
        let key = format!("tunnel(tun_id=0x7,src=172.31.0.2,dst=172.31.0.1,geneve({options}),flags(key)),in_port(11)");
        let matching = parse_key(&key, &()).expect("a key").matching;
        row(*what, |backend| match refusal(backend, &matching) {
            None => Taken::All,
            Some(refusal) => Taken::Nothing(refusal),
        })
    }));
    rows
}

/// Asks for values, and for one under masks: without its lowest bit, and of nothing else.
fn taken(backend: Backend, spec: &FieldSpec) -> Taken {
    let mut base = with_header(spec);
    if spec.attribute == Attribute::Pppoe {
        base.set_exact(Field::PppoePresent, 1);
    }
    let is_there = base.mask.get(spec.field) != 0;
    let values = if is_there { vec![base.key.get(spec.field)] } else { values(spec).to_vec() };
    let full = spec.field.full_mask();
    let ask = |value: u128, mask: u128| {
        let mut matching = base;
        matching.set(spec.field, value & mask, mask);
        refusal(backend, &matching)
    };
    let refusals: Vec<_> = values.iter().filter_map(|value| ask(*value, full)).collect();
    let masked = full & !1;
    match refusals.first() {
        Some(refusal) if refusals.len() == values.len() && ask(1, 1).is_some() => Taken::Nothing(refusal.clone()),
        Some(refusal) => Taken::InPart(refusal.clone()),
        None if masked != 0 && ask(values[0], masked).is_some() => Taken::Exact,
        None => Taken::All,
    }
}

/// What is asked for of a field that is in no other row's way.
fn values(spec: &FieldSpec) -> &'static [u128] {
    match spec.field {
        // Below 0x600 it is a length.
        Field::EthType => &[0x88cc, 0x5],
        Field::CtState => &[0x21, 0],
        // There is one.
        Field::NumOfVlans => &[1, 2],
        // `no`, `first` and `later`.
        Field::Ipv4Frag | Field::Ipv6Frag => &[0, 1, 2],
        _ => &[1, 0],
    }
}

fn refusal(backend: Backend, matching: &Match) -> Option<Refusal> {
    let nothing: ActionList = [].into();
    backend.refusal(matching, &nothing)
}
