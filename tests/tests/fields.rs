//! Every row of the field table: read and written as text, and by each backend either taken into the rule or refused by its name.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::BTreeSet;

use sluice_flow::action::ActionList;
use sluice_flow::field::{Attribute, FIELDS, Field, FieldSpec, Form};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::text::{Style, parse_key, write_key};
use sluice_offload_dv::translate::translate;
use sluice_tests::generate::packet;
use sluice_tests::lab;
use sluice_tests::language::{LabVports, flow, tc, with_field};
use sluice_tests::scenario::Scenario;
use sluice_tests::soft::Soft;

const WITHOUT_A_KEY: &str = "flower has no key for it";

fn nothing() -> ActionList {
    [].into()
}

/// Whether it is the field that is refused, or what of the same header it needs besides itself.
fn names(refusal: &Refusal, spec: &FieldSpec) -> bool {
    match refusal {
        Refusal::Field { field, .. } => *field == spec.field || field.spec().attribute == spec.attribute,
        _ => false,
    }
}

#[test]
fn tc_takes_a_field_into_the_rule_or_refuses_it_by_its_name() {
    let mut without_a_key = BTreeSet::new();
    for spec in FIELDS {
        let Some((without, with)) = with_field(spec) else { continue };
        let plain = tc(&without, &nothing()).expect("a rule for all packets that have the header");
        match tc(&with, &nothing()) {
            Ok(rule) => assert_ne!(rule.flower, plain.flower, "{} is dropped in silence", spec.field),
            Err(refusal) => {
                assert!(names(&refusal, spec), "{}: {refusal}", spec.field);
                if refusal.to_string() == format!("field {}: {WITHOUT_A_KEY}", spec.field) {
                    without_a_key.insert(spec.field);
                }
            }
        }
    }
    // They have no row, and nothing but that makes them be refused.
    for field in [Field::DpHash, Field::Ipv6Label, Field::NshTtl, Field::NdTarget, Field::CtTuple6Src] {
        assert!(without_a_key.contains(&field), "{field}");
    }
}

#[test]
fn dv_takes_a_field_into_the_rule_or_refuses_it_by_its_name() {
    let (mut taken, mut refused) = (0, 0);
    for spec in FIELDS {
        let Some((without, with)) = with_field(spec) else { continue };
        let matched = |full: &Match| translate(&flow(full, &nothing()), &LabVports).map(|rule| rule.matched);
        match (matched(&without), matched(&with)) {
            (Ok(plain), Ok(matched)) => {
                // In OVS it stands for the tag, of which the rule looks at the presence; that there is a label the Ethernet type says,
                // and that there is a tunnel the port.
                let is_of_tunnel = spec.attribute == Attribute::Tunnel && matches!(spec.form, Form::Presence);
                let said = [Field::VlanCfi, Field::CvlanCfi, Field::MplsPresent];
                let is_said = is_of_tunnel || said.contains(&spec.field);
                assert!(matched != plain || is_said, "{} is dropped in silence", spec.field);
                taken += 1;
            }
            // A port whose tunnels the device does not find is refused by its number, whatever is matched there.
            (Err(Refusal::Port { port, .. }), Err(refusal)) => {
                assert!(refusal.to_string().starts_with(&format!("port {port}: ")), "{}: {refusal}", spec.field);
            }
            (_, Err(refusal)) => {
                assert!(names(&refusal, spec), "{}: {refusal}", spec.field);
                refused += 1;
            }
            (Err(refusal), Ok(_)) => panic!("{}: {refusal}", spec.field),
        }
    }
    assert!(taken > 25 && refused > 25, "{taken} taken, {refused} refused");
}

#[test]
fn the_nic_in_software_finds_a_field_in_packets_or_refuses_it_by_its_name() {
    let mut found = 0;
    for spec in FIELDS {
        let Some((_, with)) = with_field(spec) else { continue };
        let flows = [(with, [].into())];
        if let Some(refusal) = &Soft::refusals(&lab::ports(), &flows).unwrap()[0] {
            assert!(names(refusal, spec), "{}: {refusal}", spec.field);
            continue;
        }
        // What comes with a packet and not in it is proven by the parser's own test.
        let Some(packet) = packet::hit(&with, 0).filter(|packet| packet::comes_in(&packet.key)) else { continue };
        let scenario = Scenario::new("a field").flow(with, []);
        let (_, hits) = Soft::set_up(&lab::ports(), &scenario).unwrap().inject_and_tell(PortNumber(1), &packet.frame);
        assert_eq!(hits, [1], "{} is taken, but not found in {:02x?}", spec.field, packet.frame);
        found += 1;
    }
    assert!(found > 40, "{found}");
}

#[test]
fn a_field_is_read_as_it_is_written() {
    for spec in FIELDS.iter().filter(|spec| !matches!(spec.form, Form::Presence | Form::Options)) {
        let Some((_, with)) = with_field(spec) else { continue };
        let mut text = String::new();
        write_key(&mut text, &MaskedKey::new(&with), &Style::default()).unwrap();
        let read = parse_key(&text, &()).unwrap_or_else(|error| panic!("{}: {text}: {error}", spec.field)).matching;
        assert_eq!(read.key.get(spec.field), with.key.get(spec.field), "{}: {text}", spec.field);
        assert_eq!(read.mask.get(spec.field), with.mask.get(spec.field), "{}: {text}", spec.field);
    }
}
