//! How fast a lookup in the classifier is, for uniform traffic over exact and wildcarded rules.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Instant;

use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::priority::Priority;
use sluice_offload_soft::classifier::Classifier;
use sluice_offload_soft::quiescence::Quiescence;

/// Rules that are spread over so many masks, and packets of so many of them in an order of no use to a cache.
fn measure(rules: u32, masks: u32, flows: usize) -> f64 {
    let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
    let rule = |number: u32| {
        let mut full = Match::default();
        full.set_exact(Field::InPort, 1);
        full.set_exact(Field::EthType, 0x0800);
        full.set_exact(Field::Ipv4Proto, 6);
        full.set_exact(Field::Ipv4Frag, 0);
        full.set_exact(Field::Ipv4Src, number.into());
        full.set_exact(Field::Ipv4Dst, (number % masks).into());
        full.set_exact(Field::TcpSrc, 7);
        full.set(Field::TcpDst, 9, 0xffff & (0xffff << (number % masks)));
        full
    };
    let all: Vec<_> = (0..rules).map(rule).collect();
    for (index, matching) in (0u32..).zip(&all) {
        classifier.insert(matching, Priority::default(), index).unwrap();
    }
    let order: Vec<_> = (0..rules as usize).map(|index| index.wrapping_mul(0x9e37_79b1) % rules as usize).collect();
    let keys: Vec<_> = order.iter().take(flows).map(|index| all[*index].key).collect();
    let pin = quiescence.pin();
    let view = classifier.view(&pin);
    let rounds = 20_000_000 / keys.len();
    let start = Instant::now();
    let mut found = 0usize;
    for _ in 0..rounds {
        found += keys.iter().filter(|key| view.lookup(key).is_some()).count();
    }
    assert_eq!(found, rounds * keys.len());
    f64::from(u32::try_from(found).unwrap()) / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    // `cargo test --benches` asks whether it builds, not how fast it is.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    for (rules, masks) in [(1000, 1), (10_000, 1), (100_000, 1), (1000, 10), (10_000, 10), (100_000, 10)] {
        // A few thousand flows stay in the caches; all of them do not.
        for flows in [2048, rules as usize] {
            let rate = measure(rules, masks, flows);
            println!("{rules} rules, {masks} masks, {flows} flows looked up: {rate:.1} M lookups/s");
        }
    }
}
