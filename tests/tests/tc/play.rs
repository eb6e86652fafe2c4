//! Plays a scenario to flower and to the software NIC.

use std::sync::Arc;

use sluice_flow::action::{Action, ActionList, FieldSet};
use sluice_flow::field::{FRAGMENT_NO, Field};
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_offload_tc::dump::Detail;
use sluice_offload_tc::label::Label;
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::rule_view::RuleView;
use sluice_offload_tc::wire::statistics::Count;
use sluice_tests::lab::{introduce, masked, ports};
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::Soft;

use crate::classifier::{Classifier, Counts};
use crate::report::Report;
use crate::{incomparable, listing};

pub(crate) fn play(classifier: &mut Classifier, scenario: &Scenario, report: &mut Report) {
    let taken = install(classifier, scenario, &mut |_, refusal| report.refused(&scenario.name, refusal));
    if taken.flows.is_empty() {
        return;
    }
    read_back(classifier, &taken, report);
    compare(classifier, taken, report);
    listing::compare(classifier, &scenario.name, report);
}

/// A story of its own, told to an empty classifier.
pub(crate) type Check = fn(&mut Classifier) -> Result<(), String>;

/// Tells the wanted ones of some stories.
pub(crate) fn play_checks(
    checks: &[(&str, Check)],
    classifier: &mut Classifier,
    report: &mut Report,
    is_wanted: &dyn Fn(&str) -> bool,
) {
    for (name, check) in checks.iter().filter(|(name, _)| is_wanted(name)) {
        classifier.clear();
        match check(classifier) {
            Ok(()) => report.pass(name),
            Err(reason) => report.fail(format!("{name}: {reason}")),
        }
    }
}

/// Puts the rules of a scenario in, in place of all others, and leaves out of it the flows that have none.
pub(crate) fn install(
    classifier: &mut Classifier,
    scenario: &Scenario,
    refused: &mut dyn FnMut(&(Match, ActionList), &Refusal),
) -> Scenario {
    let mut taken = Scenario { flows: vec![], ..scenario.clone() };
    let mut filters = vec![];
    classifier.clear();
    classifier.set_meters(&scenario.meters);
    for (matching, actions) in &scenario.flows {
        let matching = with_fragments(*matching);
        match classifier.filter(&flow(&matching, actions), handle(taken.flows.len())) {
            Ok(filter) => {
                filters.push(filter);
                taken.flows.push((matching, Arc::clone(actions)));
            }
            Err(refusal) => refused(&(matching, Arc::clone(actions)), &refusal),
        }
    }
    let mut results = classifier.add_all(&filters).into_iter();
    let before = taken.flows.len();
    taken.flows.retain(|flow| results.next().unwrap().map_err(|refusal| refused(flow, &refusal)).is_ok());
    if taken.flows.len() < before {
        // Once more without what the kernel refuses, so that handles are numbers of flows.
        return install(classifier, &taken, refused);
    }
    taken
}

/// The handle of the flow at a place of a scenario.
fn handle(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap()
}

/// Plays the packets of a scenario, whose rules are in, to both, and has them do the same and count the same. How often
/// each flow was hit comes back, if it was compared at all.
pub(crate) fn compare(classifier: &mut Classifier, mut taken: Scenario, report: &mut Report) -> Option<Counts> {
    let soft = match Soft::set_up(&ports(), &taken) {
        Ok(soft) => soft,
        Err(refusal) => {
            report.only_tc(&taken.name, &refusal);
            return None;
        }
    };
    introduce(&soft);
    taken.packets.retain(|(_, frame)| match incomparable::why(frame, &taken.flows) {
        Some(reason) => report.left_out(reason),
        None => true,
    });
    let mut expected = Counts::new();
    let mut hitting: Vec<(usize, Vec<u32>)> = vec![];
    let mut frames = 0;
    for (number, (port, frame)) in taken.packets.iter().enumerate() {
        let (ours, hits) = soft.inject_and_tell(*port, frame);
        for hit in &hits {
            let count = expected.entry(*hit).or_default();
            count.packets += 1;
            count.bytes += frame.len() as u64;
        }
        hitting.push((number, hits));
        let count = ours.values().map(Vec::len).sum();
        frames += count;
        let kernel = classifier.inject(*port, frame, count);
        if masked(&kernel) != masked(&ours) {
            let told = [("kernel", &kernel), ("ours", &ours)].map(|(who, sent)| told(who, sent));
            report.differs(&taken, number, &told.concat());
            return None;
        }
    }
    let counted = counters(classifier);
    let [counted, expected] = [counted, expected].map(|counts| first_chain(&taken, &counts));
    if counted != expected {
        let mut details = format!("{counted:?} instead of {expected:?}\n");
        // Those that hit what was counted otherwise.
        let differs = |flow: &u32| counted.get(flow) != expected.get(flow);
        for (number, hits) in hitting.iter().filter(|(_, hits)| hits.iter().any(differs)) {
            let (port, frame) = &taken.packets[*number];
            details += &format!("    packet {number} in at {port} hits {hits:?}: {}\n", hex(frame));
        }
        report.miscounted(&taken, &details);
        return None;
    }
    report.equal(&taken, frames);
    Some(expected)
}

/// The match of a flow as OVS would write it, which always says whether it is for fragments: a rule that looks at the
/// protocol of IPv6 has to.
fn with_fragments(mut matching: Match) -> Match {
    let looks_at = |field| matching.mask.get(field) != 0;
    if matching.is_exactly(Field::EthType, 0x86dd) && looks_at(Field::Ipv6Proto) && !looks_at(Field::Ipv6Frag) {
        matching.set_exact(Field::Ipv6Frag, FRAGMENT_NO.into());
    }
    matching
}

/// What was counted in the first chain, at wires: what comes out of a tunnel, or into a later chain, has another length
/// there than when it came in.
fn first_chain(scenario: &Scenario, counts: &Counts) -> Counts {
    let is_first = |number: u32| {
        let (matching, _) = &scenario.flows[number as usize - 1];
        matching.key.get(Field::RecircId) == 0 && matching.mask.get(Field::TunnelPresent) == 0
    };
    let found = counts.iter().filter(|(number, count)| is_first(**number) && **count != Count::default());
    found.map(|(number, count)| (*number, *count)).collect()
}

fn counters(classifier: &mut Classifier) -> Counts {
    let mut counts = Counts::new();
    classifier.list(Detail::Terse, &mut |view| {
        let rule = RuleView::new(view).expect("a rule");
        assert!(Label::read(rule.cookies).is_some(), "a terse listing tells whose rule it is");
        assert_eq!(rule.hardware, Count::default());
        counts.insert(rule.id.handle, rule.id.with_headers(rule.software));
    });
    counts
}

/// Has the rules that the kernel shows be the flows.
fn read_back(classifier: &mut Classifier, scenario: &Scenario, report: &mut Report) {
    let mut filters = vec![];
    classifier.list(Detail::Full, &mut |view| filters.push(view.parse().expect("a rule of ours")));
    assert_eq!(filters.len(), scenario.flows.len(), "{}: as many rules as flows", scenario.name);
    for filter in filters {
        let (matching, actions) = &scenario.flows[filter.id.handle as usize - 1];
        let note = |at: usize| filter.flower.actions[at].cookie.as_ref().map_or(&[][..], |cookie| cookie.bytes());
        let label = Label::read([note(0), note(1)]).expect("our notes");
        assert_eq!(label.ufid, Some(flow(matching, actions).ufid));
        let read = translate::flow(&filter, &label, &classifier.devices);
        if read.as_ref().ok() != Some(&(*matching, plain(actions))) {
            let read =
                read.map_or_else(|error| error.to_string(), |(matching, actions)| flow_text(&matching, &actions));
            report.misread(&flow_text(matching, actions), &format!("{read}\n  {filter:?}"));
        } else {
            report.read_back += 1;
        }
    }
}

pub(crate) fn flow(matching: &Match, actions: &ActionList) -> Flow {
    let priority = Priority::default();
    Flow::new(None, MaskedKey::new(matching), Arc::clone(actions), priority, Expiry::default(), &Seed([0; 16]))
}

/// A list of actions without that in `set(tunnel(…))` which says nothing.
pub(crate) fn plain(actions: &ActionList) -> ActionList {
    let says = |(field, value, _): &&(Field, u128, u128)| {
        *value != 0
            || !matches!(field, Field::TunnelTos | Field::TunnelFlags | Field::TunnelIpv4Src | Field::TunnelIpv6Src)
    };
    actions
        .iter()
        .map(|action| match action {
            Action::SetTunnel(set) => {
                let fields = set.fields.iter().filter(says).copied().collect();
                Action::SetTunnel(FieldSet { attribute: set.attribute, fields })
            }
            Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
                length: *length,
                greater: plain(greater),
                less_or_equal: plain(less_or_equal),
            },
            other => other.clone(),
        })
        .collect()
}

fn told(who: &str, sent: &sluice_tests::lab::Sent) -> String {
    let lines = sent.iter().flat_map(|(port, frames)| frames.iter().map(move |frame| (port, frame)));
    let lines: String =
        lines.map(|(port, frame)| format!("    {who:6} sent out of {port}: {}\n", hex(frame))).collect();
    if lines.is_empty() { format!("    {who:6} sent nothing\n") } else { lines }
}
