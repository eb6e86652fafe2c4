//! Mirrors in front of flows: copies go out, and what becomes of a packet does not change.

use sluice_flow::action::Action;
use sluice_flow::port::PortNumber;
use sluice_offload_tc::label::MirrorNote;
use sluice_offload_tc::priorities::Priorities;
use sluice_offload_tc::translate::{self, Mirror};
use sluice_tests::lab::Sent;

use crate::classifier::{AGENT, Classifier, named};
use crate::flows::{at, output};
use crate::packets::{Ipv4, udp};
use crate::play::{Check, flow, play_checks};
use crate::report::Report;

const CHECKS: &[(&str, Check)] = &[
    ("mirror: a packet that a flow takes is copied, and leaves as the flow says", with_a_flow),
    ("mirror: a packet that no flow takes is copied, and misses still", without_a_flow),
    ("mirror: two mirrors copy the same packet", two),
    ("mirror: the note is read from the kernel", noted),
];

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    play_checks(CHECKS, classifier, report, is_wanted);
    classifier.clear();
}

fn plain(ttl: u8) -> Vec<u8> {
    Ipv4 { ttl, ..Ipv4::default() }.frame(17, &udp(1000, 2000, b"data"))
}

/// Has what comes in at port 1 copied to some ports.
fn mirror(classifier: &mut Classifier, place: u16, copies: &[u32]) -> Result<(), String> {
    let mirror = Mirror {
        matching: at(1).ipv4(17).done(),
        copies: copies.iter().map(|port| PortNumber(*port)).collect(),
        note: MirrorNote { agent: AGENT, number: place.into() },
    };
    let rule = translate::mirror(&mirror, &classifier.devices).map_err(|refusal| refusal.to_string())?;
    let filter = named(rule, Priorities::of_mirror(place).map_err(|refusal| refusal.to_string())?, 1);
    classifier.add(&filter).map_err(|refusal| refusal.to_string())
}

fn add_flow(classifier: &mut Classifier) -> Result<(), String> {
    let ttl = sluice_flow::field::Field::Ipv4Ttl;
    let actions = [crate::flows::set(&[(ttl, 9, 0xff)]), output(2)];
    let flow = flow(&at(1).ipv4(17).done(), &<[Action; 2] as Into<sluice_flow::action::ActionList>>::into(actions));
    let filter = classifier.filter(&flow, 1).map_err(|refusal| refusal.to_string())?;
    classifier.add(&filter).map_err(|refusal| refusal.to_string())
}

fn sent(frames: &[(u32, Vec<u8>)]) -> Sent {
    let mut sent = Sent::new();
    for (port, frame) in frames {
        sent.entry(PortNumber(*port)).or_default().push(frame.clone());
    }
    sent
}

fn with_a_flow(classifier: &mut Classifier) -> Result<(), String> {
    mirror(classifier, 0, &[3, 4])?;
    add_flow(classifier)?;
    let out = classifier.inject(PortNumber(1), &plain(64), 3);
    ensure(out == sent(&[(3, plain(64)), (4, plain(64)), (2, plain(9))]), || format!("{out:?}"))
}

fn without_a_flow(classifier: &mut Classifier) -> Result<(), String> {
    mirror(classifier, 0, &[3])?;
    let out = classifier.inject(PortNumber(1), &plain(64), 1);
    ensure(out == sent(&[(3, plain(64))]), || format!("{out:?}"))
}

fn two(classifier: &mut Classifier) -> Result<(), String> {
    mirror(classifier, 0, &[3])?;
    mirror(classifier, 99, &[4])?;
    add_flow(classifier)?;
    let out = classifier.inject(PortNumber(1), &plain(64), 3);
    ensure(out == sent(&[(3, plain(64)), (4, plain(64)), (2, plain(9))]), || format!("{out:?}"))
}

fn noted(classifier: &mut Classifier) -> Result<(), String> {
    mirror(classifier, 7, &[3])?;
    let mut notes = vec![];
    classifier.list(sluice_offload_tc::dump::Detail::Terse, &mut |view| {
        let rule = sluice_offload_tc::wire::rule_view::RuleView::new(view).expect("a rule");
        notes.push(MirrorNote::read(rule.cookies[0]));
    });
    ensure(notes == [Some(MirrorNote { agent: AGENT, number: 7 })], || format!("{notes:?}"))
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
