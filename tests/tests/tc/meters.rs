//! Meters: what a policer that rules share does to packets, and how long it lives.

use std::sync::Arc;

use sluice_flow::action::Action;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::dump::Detail;

use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::meters::Meters;
use sluice_offload_tc::wire::action::Operation;
use sluice_offload_tc::wire::filter::Filter;
use sluice_offload_tc::wire::rule_view::RuleView;

use crate::classifier::{AGENT, Classifier, run};
use crate::flows::{at, output};
use crate::packets::ethernet;
use crate::play::{Check, flow, play_checks};
use crate::report::Report;

const CHECKS: &[(&str, Check)] = &[
    ("meters: what it is given passes, and the rest is dropped and counted", limits),
    ("meters: packets are counted where those are meant", packets),
    ("meters: a changed one has the new rate, and counts on", changed),
    ("meters: long packets pass one that counts bits", long_packets),
    ("meters: rules that share one count their own packets", shared),
    ("meters: one that a rule uses stays", used),
    ("meters: after a restart they are known again, with their numbers and rules", restarted),
    ("meters: those of other agents are left alone, and numbers do not clash", others),
    ("meters: a rule for one that is gone is refused by the kernel, and not made without limits", gone),
    ("meters: numbers are given back", given_back),
    ("meters: tc shows what was asked for", shown),
];

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    play_checks(CHECKS, classifier, report, is_wanted);
    classifier.clear();
    let left = policers();
    if left != 0 {
        report.fail(format!("meters: {left} policers are left"));
    }
}

const METER: MeterId = MeterId(7);
const SLOW: Meter = Meter { id: METER, unit: MeterUnit::Packets, bands: vec![] };

fn slow(burst: u64) -> Meter {
    Meter { bands: vec![MeterBand { rate: 1, burst }], ..SLOW }
}

/// A rule that sends what a meter lets pass from one port to another.
fn metered(classifier: &mut Classifier, from: u32, to: u32) -> Result<Filter, String> {
    let matching = at(from).eth_type(0x88b5).done();
    let filter = classifier.filter(&flow(&matching, &Arc::from([Action::Meter(METER), output(to)])), from);
    filter.map_err(|refusal| refusal.to_string())
}

fn add(classifier: &mut Classifier, filter: &Filter) -> Result<(), String> {
    classifier.add(filter).map_err(|refusal| refusal.to_string())
}

/// How many of some frames of the same length come out.
fn passed(classifier: &mut Classifier, from: u32, count: usize, length: usize) -> usize {
    let frame = ethernet(0x88b5, &vec![7; length - 14]);
    // None is waited for, so that no time passes in which the bucket fills; a last look finds those that were late.
    let mut out: usize = (0..count).map(|_| frames(classifier.inject(PortNumber(from), &frame, 0))).sum();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let other = ethernet(0x88b6, &[0; 46]);
    out += frames(classifier.inject(PortNumber(from), &other, 0));
    out
}

fn frames(sent: sluice_tests::lab::Sent) -> usize {
    sent.into_values().map(|frames| frames.len()).sum()
}

fn limits(classifier: &mut Classifier) -> Result<(), String> {
    // 375 bytes at once, and of each packet 100 behind its Ethernet header.
    classifier.set_meters(&[Meter::simple(METER, MeterUnit::Kilobits, 1, 3)]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    let out = passed(classifier, 1, 8, 114);
    let counted =
        classifier.devices.meters.counters(METER, 0).map_err(|error| error.to_string())?.ok_or("no counters")?;
    ensure(out == 3, || format!("{out} passed"))?;
    ensure(counted.packets == 8 && counted.dropped_packets == 5, || format!("{counted:?}, and {out} passed"))?;
    ensure(counted.bands == [5] && counted.dropped_bytes.is_none(), || format!("{counted:?}"))?;
    ensure(counted.bytes == 800, || format!("{} bytes behind the Ethernet headers", counted.bytes))
}

fn packets(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[Meter::simple(METER, MeterUnit::Packets, 4, 3)]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    // Before, the bucket is empty; then it is full.
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let out = passed(classifier, 1, 8, 60);
    ensure((3..=4).contains(&out), || format!("{out} passed"))
}

fn changed(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[slow(1)]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    passed(classifier, 1, 4, 60);
    let index = classifier.devices.meters.index_of(METER);
    let fast = Meter::simple(METER, MeterUnit::Kilobits, 1_000_000, 0);
    classifier.devices.meters.set(&fast).map_err(|refusal| refusal.to_string())?;
    let out = passed(classifier, 1, 4, 60);
    let counted =
        classifier.devices.meters.counters(METER, 0).map_err(|error| error.to_string())?.ok_or("no counters")?;
    ensure(out == 4, || format!("{out} passed at the new rate"))?;
    ensure(counted.packets == 8 && counted.dropped_packets > 0, || format!("{counted:?}"))?;
    ensure(classifier.devices.meters.index_of(METER) == index, || "it has another number".into())
}

fn long_packets(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[Meter::simple(METER, MeterUnit::Kilobits, 1_000_000, 0)]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    let out = passed(classifier, 1, 3, 8000);
    ensure(out == 3, || format!("{out} of 8,000 bytes passed"))
}

fn shared(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[Meter::simple(METER, MeterUnit::Packets, 1_000_000, 0)]);
    for (from, to) in [(1, 3), (2, 3)] {
        let filter = metered(classifier, from, to)?;
        add(classifier, &filter)?;
    }
    passed(classifier, 1, 5, 60);
    passed(classifier, 2, 2, 60);
    let mut counts = vec![];
    classifier.list(Detail::Terse, &mut |view| {
        let rule = RuleView::new(view).expect("a rule");
        counts.push((rule.id.handle, rule.software.packets));
    });
    counts.sort_unstable();
    let meter =
        classifier.devices.meters.counters(METER, 0).map_err(|error| error.to_string())?.ok_or("no counters")?;
    ensure(counts == [(1, 5), (2, 2)], || format!("{counts:?}"))?;
    ensure(meter.packets == 7, || format!("{meter:?}"))
}

fn used(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[slow(3)]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    let removed = classifier.devices.meters.remove(METER);
    let is_right =
        matches!(&removed, Err(Refusal::Action { reason, .. }) if reason == "meter 7 is used by installed rules");
    ensure(is_right, || format!("{removed:?}"))?;
    ensure(classifier.devices.meters.index_of(METER).is_some(), || "its number was forgotten".into())
}

fn restarted(classifier: &mut Classifier) -> Result<(), String> {
    const OTHER: MeterId = MeterId(8);
    classifier.set_meters(&[slow(2), Meter { id: OTHER, ..slow(1) }]);
    let filter = metered(classifier, 1, 2)?;
    add(classifier, &filter)?;
    passed(classifier, 1, 4, 60);
    let before = [METER, OTHER].map(|meter| classifier.devices.meters.index_of(meter));
    let again = Meters::open(AGENT, OffloadPolicy::SkipHardware).map_err(|error| error.to_string())?;
    let after = [METER, OTHER].map(|meter| again.index_of(meter));
    ensure(before == after && before.iter().all(Option::is_some), || format!("{before:?} and {after:?}"))?;
    ensure(again.left() == [METER, OTHER], || format!("left: {:?}", again.left()))?;
    again.set(&slow(2)).map_err(|refusal| refusal.to_string())?;
    ensure(again.left() == [OTHER], || format!("left: {:?}", again.left()))?;
    let counted = again.counters(METER, 0).map_err(|error| error.to_string())?.ok_or("no counters")?;
    ensure(counted.packets == 4, || format!("{counted:?}"))?;
    let shown = classifier.installer.find(filter.id).map_err(|error| error.to_string())?.ok_or("no rule")?;
    let uses =
        shown.flower.actions.iter().any(|action| {
            matches!(action.operation, Operation::Police(_)) && again.meter_of(action.index) == Some(METER)
        });
    ensure(uses, || format!("{shown:?}"))
}

fn others(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[slow(2)]);
    let other = Meters::open(AgentId(1), OffloadPolicy::SkipHardware).map_err(|error| error.to_string())?;
    ensure(other.left().is_empty(), || format!("left: {:?}", other.left()))?;
    other.set(&slow(5)).map_err(|refusal| refusal.to_string())?;
    let indexes = [classifier.devices.meters.index_of(METER), other.index_of(METER)];
    ensure(indexes[0] != indexes[1], || format!("{indexes:?}"))?;
    other.remove(METER).map_err(|refusal| refusal.to_string())?;
    let counted = classifier.devices.meters.counters(METER, 0).map_err(|error| error.to_string())?;
    ensure(counted.is_some(), || "ours is gone".into())
}

fn gone(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[slow(2)]);
    let filter = metered(classifier, 1, 2)?;
    let index = classifier.devices.meters.index_of(METER).ok_or("no number")?;
    run("tc", &["actions", "del", "action", "police", "index", &index.to_string()]);
    let refused = classifier.add(&filter);
    ensure(matches!(refused, Err(Refusal::Kernel { .. })), || format!("{refused:?}"))?;
    ensure(policers() == 0, || "a policer without limits was made".into())?;
    // One that is gone is made again where it was.
    classifier.devices.meters.set(&slow(2)).map_err(|refusal| refusal.to_string())?;
    add(classifier, &filter)
}

fn given_back(classifier: &mut Classifier) -> Result<(), String> {
    let meters = &classifier.devices.meters;
    let set = |id| meters.set(&Meter { id: MeterId(id), ..slow(1) }).map_err(|refusal| refusal.to_string());
    (1..=3).try_for_each(set)?;
    let second = meters.index_of(MeterId(2));
    meters.remove(MeterId(2)).map_err(|refusal| refusal.to_string())?;
    ensure(meters.index_of(MeterId(2)).is_none() && meters.remove(MeterId(2)).is_err(), || "it is still there".into())?;
    set(4)?;
    let fourth = meters.index_of(MeterId(4));
    for id in [1, 3, 4] {
        meters.remove(MeterId(id)).map_err(|refusal| refusal.to_string())?;
    }
    ensure(second == fourth, || format!("{second:?} and {fourth:?}"))
}

fn shown(classifier: &mut Classifier) -> Result<(), String> {
    classifier.set_meters(&[Meter::simple(METER, MeterUnit::Kilobits, 80_000_000, 40_000_000)]);
    let shown = run("tc", &["-d", "actions", "ls", "action", "police"]);
    // 80 Gbit/s do not fit into 32 bits of bytes a second; half a second of them does not into those of tc's own text.
    let is_right = shown.contains("rate 80Gbit") && shown.contains("action drop/pipe") && shown.contains("skip_hw");
    ensure(is_right && shown.contains("736c636d00000007"), || shown)
}

/// How many policers the kernel has.
fn policers() -> usize {
    run("tc", &["actions", "ls", "action", "police"]).matches("police 0x").count()
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
