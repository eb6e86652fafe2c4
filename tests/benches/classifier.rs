//! Lookups in the classifier, beside OVS's classifier and the one of its datapath.
//!
//! Rounds alternate, and the fastest of each side counts, in processor time of the thread that looks up: the machine is
//! shared. Ours are lookups of packets of flows in an order that jumps about, their keys written anew each time; OVS's are
//! those of `ovstest test-classifier benchmark`, which makes its own rules. The datapath's classifier (dpcls) has our rules
//! and our packets, through dummy ports, one by one; what a packet costs it besides is taken off, as a datapath with one
//! flow shows it, which its exact-match cache knows, so that what remains is a little less than a lookup. Writes `target/bench/classifier.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use serde_json::{Value, json};
use sluice_flow::{Key, Priority};
use sluice_offload_soft::classifier::{BATCH, Classifier, View};
use sluice_offload_soft::packet::{Metadata, parse_into};
use sluice_offload_soft::quiescence::Quiescence;
use sluice_tests::bench::{self, cpu_timed, quantile};
use sluice_tests::dpcls::{Counted, Dpcls};
use sluice_tests::traffic::{FRAME, IN_PORT, Traffic, Variable};

const ROUNDS: usize = 5;
const RULES: usize = 100_000;
const MASKS: [usize; 4] = [1, 10, 100, 1000];
/// Lookups in a round.
const LOOKUPS: usize = 400_000;
/// OVS's in a round: so many that the millisecond by which its time is known does not count.
const THEIR_LOOKUPS: usize = 2_000_000;
/// Packets that the datapath is given in a round, as text, and how often ours are looked up meanwhile.
const DATAPATH_LOOKUPS: usize = 2_000;
const REPEATS: usize = 20;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let mut rows = Vec::new();
    println!("{:<28} {:>10} {:>10} {:>10} {:>10} {:>7}", "M lookups/s", "first", "one by one", "batch", "OVS", "ratio");
    for masks in MASKS {
        rows.push(compare(RULES, masks));
    }
    println!("{:<28} {:>10} {:>10} {:>10} {:>7}", "nanoseconds, one by one", "ours", "dpcls", "besides", "ratio");
    let besides = datapath_besides();
    for masks in MASKS {
        rows.push(compare_datapath(RULES, masks, besides));
    }
    let mut growth = Vec::new();
    for flows in [10_000, 100_000, 1_000_000] {
        let ours = Ours::new(Traffic { rules: flows, masks: 10 });
        ours.warm_up();
        let rates: Vec<_> = (0..ROUNDS).map(|_| ours.batches()).collect();
        let fastest = quantile(&rates, 1.0);
        println!("{flows} rules under 10 masks: {fastest:.1} M lookups/s");
        growth.push(json!({ "flows": flows, "value": fastest, "unit": "M lookups/s" }));
    }
    bench::write("classifier", &json!({ "rounds": ROUNDS, "rows": rows, "growth": growth }));
}

/// Ours and OVS's in turns.
fn compare(rules: usize, masks: usize) -> Value {
    let ours = Ours::new(Traffic { rules, masks });
    let first = ours.first();
    ours.warm_up();
    let [mut single, mut batch, mut theirs] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        single.push(ours.one_by_one());
        batch.push(ours.batches());
        theirs.push(ovs(rules, masks));
    }
    let [single, batch, theirs] = [single, batch, theirs].map(|rates| quantile(&rates, 1.0));
    let (name, to_reach) =
        if masks == 1 { ("exact, 1 mask".to_owned(), 1.2) } else { (format!("wildcarded, {masks} masks"), 2.0) };
    let ratio = batch / theirs;
    println!("{name:<28} {first:>10.2} {single:>10.2} {batch:>10.2} {theirs:>10.2} {ratio:>7.2}");
    json!({
        "name": name, "unit": "M lookups/s", "ours": batch, "peer": theirs, "ratio": ratio, "to_reach": to_reach,
        "reached": ratio >= to_reach, "one_by_one": single, "first_packet_of_a_flow": first,
    })
}

/// Ours and that of OVS's datapath in turns, with the same rules and packets.
fn compare_datapath(rules: usize, masks: usize, besides: f64) -> Value {
    let traffic = Traffic { rules, masks };
    let mut datapath = Dpcls::new(traffic, false);
    let mut ours = Ours::new(traffic);
    ours.packets = traffic.packets(DATAPATH_LOOKUPS);
    ours.one_by_one();
    let (mut single, mut counted) = (Vec::new(), Counted::default());
    for _ in 0..ROUNDS {
        single.extend((0..REPEATS).map(|_| 1e3 / ours.one_by_one()));
        counted.add(datapath.feed(&ours.packets));
    }
    assert_eq!(counted.megaflow_hits, (ROUNDS * DATAPATH_LOOKUPS) as u64, "no cache takes any");
    assert_eq!(datapath.flows(), rules, "the flows are still there");
    let (mine, theirs) = (quantile(&single, 0.0), (counted.nanoseconds() - besides).max(f64::EPSILON));
    let (name, to_reach) =
        if masks == 1 { ("exact, 1 mask".to_owned(), 1.2) } else { (format!("wildcarded, {masks} masks"), 2.0) };
    let ratio = theirs / mine;
    println!("{name:<28} {mine:>10.0} {theirs:>10.0} {besides:>10.0} {ratio:>7.2}");
    json!({
        "name": format!("{name}, beside dpcls, one by one"), "unit": "M lookups/s", "ours": 1e3 / mine,
        "peer": 1e3 / theirs, "ratio": ratio, "to_reach": to_reach, "reached": ratio >= to_reach,
        "taken_off_nanoseconds": besides,
    })
}

/// Nanoseconds that a packet costs OVS's datapath besides finding its flow among many.
fn datapath_besides() -> f64 {
    let packets = Traffic { rules: 1, masks: 1 }.packets(DATAPATH_LOOKUPS);
    let (mut wires, mut counted) = (Dpcls::wires(), Counted::default());
    (0..ROUNDS).for_each(|_| counted.add(wires.feed(&packets)));
    counted.nanoseconds()
}

/// Our classifier, and keys to look up.
struct Ours {
    classifier: Classifier,
    quiescence: Quiescence,
    template: Key,
    packets: Vec<Variable>,
    traffic: Traffic,
}

impl Ours {
    fn new(traffic: Traffic) -> Self {
        let classifier = Classifier::new();
        for (index, rule) in (0..).zip(0..traffic.rules) {
            classifier.insert(&traffic.matching(rule), Priority::default(), index).expect("no two are the same");
        }
        assert_eq!(classifier.subtables(), traffic.masks);
        let mut template = Key::ZERO;
        parse_into(&FRAME, sluice_flow::PortNumber(IN_PORT), &Metadata::default(), &mut template);
        let packets = traffic.packets(LOOKUPS);
        Self { classifier, quiescence: Quiescence::new(), template, packets, traffic }
    }

    /// Millions of lookups a second of packets of which nothing is remembered.
    fn first(&self) -> f64 {
        let few = &self.packets[..(2_000_000 / self.traffic.masks).min(self.traffic.rules).min(LOOKUPS)];
        self.measure(few, |view, keys, found| {
            for (key, found) in keys.iter().zip(found) {
                *found = view.lookup(key);
            }
        })
    }

    /// Lets every flow be seen once.
    fn warm_up(&self) {
        let all = self.traffic.packets(self.traffic.rules);
        self.measure(&all, |view, keys, found| view.lookup_batch(keys, found));
        assert_eq!(all.len(), self.traffic.rules);
    }

    fn one_by_one(&self) -> f64 {
        self.measure(&self.packets, |view, keys, found| {
            for (key, found) in keys.iter().zip(found) {
                *found = view.lookup(key);
            }
        })
    }

    fn batches(&self) -> f64 {
        self.measure(&self.packets, |view, keys, found| view.lookup_batch(keys, found))
    }

    /// Writes keys, looks them up, and makes sure that each packet has found a rule.
    fn measure(&self, packets: &[Variable], mut look_up: impl FnMut(&View<'_>, &[Key], &mut [Option<u32>])) -> f64 {
        let mut keys = vec![self.template; BATCH];
        let mut found = [None; BATCH];
        let mut hits = 0;
        let (spent, ()) = cpu_timed(|| {
            for packets in packets.chunks(BATCH) {
                keys.iter_mut().zip(packets).for_each(|(key, packet)| packet.write_key(key));
                let pin = self.quiescence.pin();
                let count = packets.len();
                look_up(&self.classifier.view(&pin), &keys[..count], &mut found[..count]);
                hits += found[..count].iter().flatten().count();
            }
        });
        assert_eq!(hits, packets.len(), "every packet has a rule");
        packets.len() as f64 / spent.as_secs_f64() / 1e6
    }
}

/// Millions of lookups a second, without the mask being made for one mask, and with it for more, as a datapath needs it.
fn ovs(rules: usize, masks: usize) -> f64 {
    let arguments = [rules, 1, masks, 1, THEIR_LOOKUPS].map(|number| number.to_string());
    let arguments: Vec<_> =
        ["test-classifier", "benchmark"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let (output, threads) = bench::ovstest_threads(&arguments);
    let all_hit = format!("hits: {THEIR_LOOKUPS}, misses: 0");
    assert_eq!(output.lines().filter(|line| *line == all_hit).count(), 2, "{output}");
    let name = if masks == 1 { "lookups0" } else { "lookups1" };
    let spent = threads.iter().find_map(|(thread, spent)| (thread == name).then_some(spent)).expect("it was seen");
    THEIR_LOOKUPS as f64 / spent.as_secs_f64() / 1e6
}
