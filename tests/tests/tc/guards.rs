//! `dec_ttl` whose match leaves open what the time to live is: two rules, held against the software NIC.

use std::sync::Arc;

use sluice_flow::action::Action;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_offload_tc::dump::Detail;
use sluice_offload_tc::label::{Label, Spelling};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::rule_view::RuleView;
use sluice_tests::lab::{introduce, masked, ports};
use sluice_tests::scenario::Scenario;
use sluice_tests::soft::Soft;

use crate::classifier::Classifier;
use crate::flows::{Matching, at, output};
use crate::packets::{Ipv4, Ipv6, tagged, udp};
use crate::play::flow;
use crate::report::Report;

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    let dec_ttl = || Action::DecTtl(Arc::from([]));
    let v4 = |ttl: u8| Ipv4 { ttl, ..Ipv4::default() }.frame(17, &udp(1000, 2000, b"some data"));
    let v6 = |hops: u8| Ipv6 { hops, ..Ipv6::default() }.frame(17, &udp(1000, 2000, b"some data"));
    let lives = [0, 1, 2, 3, 64, 127, 128, 255];
    let tag = |frame: Vec<u8>| tagged(0x8100, 0x2005, &frame);
    let scenario = |name: &str, matching: Matching, frames: Vec<Vec<u8>>| {
        Scenario::new(format!("guard: {name}"))
            .flow(matching.done(), [output(3), dec_ttl(), output(2)])
            .packets(1, frames)
    };
    let scenarios = [
        scenario("ipv4", at(1).ipv4(17), lives.map(v4).to_vec()),
        scenario("ipv6", at(1).ipv6(17).is(Field::Ipv6Frag, 0u8), lives.map(v6).to_vec()),
        scenario("ipv4 behind a tag", at(1).tag(0x8100).ipv4(17), lives.map(v4).map(tag).to_vec()),
        scenario("odd lives only", at(1).ipv4(17).masked(Field::Ipv4Ttl, 1u8, 1u8), lives.map(v4).to_vec()),
    ];
    for scenario in scenarios.iter().filter(|scenario| is_wanted(&scenario.name)) {
        classifier.clear();
        match check(classifier, scenario) {
            Ok(()) => report.pass(&scenario.name),
            Err(reason) => report.fail(format!("{}: {reason}", scenario.name)),
        }
    }
}

fn check(classifier: &mut Classifier, scenario: &Scenario) -> Result<(), String> {
    let (matching, actions) = &scenario.flows[0];
    let filters = classifier.filters(&flow(matching, actions), 1).map_err(|refusal| refusal.to_string())?;
    ensure(filters.len() == 2, || format!("{filters:?}"))?;
    for filter in &filters {
        classifier.add(filter).map_err(|refusal| refusal.to_string())?;
    }
    let soft = Soft::set_up(&ports(), scenario).map_err(|refusal| refusal.to_string())?;
    introduce(&soft);
    let mut hits = 0;
    for (number, (port, frame)) in scenario.packets.iter().enumerate() {
        let (ours, hit) = soft.inject_and_tell(*port, frame);
        hits += hit.len() as u64;
        let kernel = classifier.inject(*port, frame, ours.values().map(Vec::len).sum());
        ensure(masked(&kernel) == masked(&ours), || format!("packet {number}: {kernel:?}\n  instead of {ours:?}"))?;
        ensure(kernel.contains_key(&PortNumber(3)) != hit.is_empty(), || format!("packet {number}: {kernel:?}"))?;
    }
    let mut counted = vec![];
    classifier.list(Detail::Terse, &mut |view| {
        let rule = RuleView::new(view).expect("a rule");
        let is_guard = Label::read(rule.cookies).expect("our notes").spelling.has(Spelling::GUARD);
        counted.push((is_guard, rule.software.packets));
    });
    let sum: u64 = counted.iter().map(|(_, packets)| packets).sum();
    let by_guard = counted.iter().find(|(is_guard, _)| *is_guard).map(|(_, packets)| *packets);
    ensure(counted.len() == 2 && sum == hits && by_guard > Some(0), || format!("{counted:?}, and {hits} hits"))?;
    let mut read = vec![];
    classifier.list(Detail::Full, &mut |view| read.push(view.parse().expect("a rule")));
    let note = |filter: &sluice_offload_tc::wire::filter::Filter| {
        let notes = [0, 1].map(|at| filter.flower.actions[at].cookie.expect("a note"));
        Label::read([notes[0].bytes(), notes[1].bytes()]).expect("our notes")
    };
    let main = read.iter().find(|filter| !note(filter).spelling.has(Spelling::GUARD)).ok_or("no rule")?;
    let flow = translate::flow(main, &note(main), &classifier.devices).map_err(|error| error.to_string())?;
    ensure(flow == (*matching, Arc::clone(actions)), || format!("read back as {flow:?}"))
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
