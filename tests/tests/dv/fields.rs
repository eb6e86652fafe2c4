//! Every field that is taken: a packet that has it hits, and one that differs in one bit misses.

use sluice_flow::action::{Action, ActionList};
use sluice_flow::field::{Attribute, FIELDS, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_tests::generate::{packet, ports};
use sluice_tests::language::{flow, with_header};
use sluice_tests::mlx5::on_device;
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::Soft;

use crate::rig::{HOST, OLD_HOST, Rig};

/// What only a packet can have that was changed or tracked before.
fn comes_in(full: &Match) -> Option<(PortNumber, Vec<u8>)> {
    let packet = packet::hit(full, 0).filter(|packet| packet::comes_in(&packet.key))?;
    Some((packet::port(&packet.key), packet.frame))
}

#[test]
fn every_field_that_is_taken_hits_and_misses_by_a_bit() {
    for profile in ["bluefield-2", "bluefield-3", HOST, OLD_HOST] {
        on_device(profile, "fields::every_field_that_is_taken_hits_and_misses_by_a_bit", |wires| {
            let mut rig = Rig::open(wires);
            let (mut hits, mut misses) = (0, 0);
            // Fields of outer headers have stories of their own.
            let inside = FIELDS.iter().filter(|spec| spec.attribute != Attribute::Tunnel);
            for (spec, value) in inside.flat_map(|spec| [(spec, 0), (spec, 1)]) {
                let mut full = with_header(spec);
                if full.mask.get(spec.field) == 0 {
                    full.set_exact(spec.field, value);
                } else if value == 1 {
                    continue;
                }
                let from = full.key.get(Field::InPort);
                let actions: ActionList = [Action::Output(PortNumber(if from == 2 { 1 } else { 2 }))].into();
                let Ok(id) = rig.add(&flow(&full, &actions)) else { continue };
                let text = flow_text(&full, &actions);
                let scenario = Scenario::new("one flow").flow(full, actions.clone());
                let soft = Soft::set_up(&ports(), &scenario).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
                let mut other = full;
                other.set_exact(spec.field, full.key.get(spec.field) ^ 1);
                let mut counted = 0;
                for (port, frame) in [comes_in(&full), comes_in(&other)].into_iter().flatten() {
                    let (sent, hit) = soft.inject_and_tell(port, &frame);
                    let wanted: Vec<_> = match hit.is_empty() {
                        true => vec![(0, frame.clone())],
                        false => sent
                            .into_iter()
                            .flat_map(|(port, all)| all.into_iter().map(move |one| (port.0, one)))
                            .collect(),
                    };
                    let found = rig.inject(usize::try_from(port.0).unwrap(), &frame);
                    assert_eq!(found, wanted, "{profile}: {text} of {}", hex(&frame));
                    counted += hit.len() as u64;
                    misses += usize::from(hit.is_empty());
                }
                hits += counted;
                assert_eq!(rig.switch.remove(&[id]).unwrap()[0].packets, counted, "packets counted of {text}");
            }
            println!("{hits} packets hit, {misses} missed");
            assert!(hits > 50 && misses > 40, "{hits} packets hit, {misses} missed");
        });
    }
}
