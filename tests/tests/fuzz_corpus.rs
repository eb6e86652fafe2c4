//! The seeds of the packet target: a fuzzer finds its way from them only into what they reach.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[path = "../fuzz/targets/device.rs"]
mod device;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use device::{Device, RULES, frames};

#[test]
fn every_rule_of_the_packet_target_is_hit_by_a_seed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/packet");
    let device = Device::new();
    let mut missed: BTreeSet<_> = (0..RULES.len()).collect();
    for seed in fs::read_dir(seeds).unwrap() {
        device.forget();
        for frame in frames(&fs::read(seed.unwrap().path()).unwrap()) {
            assert!(frame.bytes.len() >= 14, "a seed is a whole frame");
            for flow in device.play(&frame).iter().flat_map(|verdict| &verdict.hits) {
                missed.remove(&usize::try_from(flow.slot).unwrap());
            }
        }
    }
    let missed: Vec<_> = missed.into_iter().map(|index| RULES[index].0).collect();
    assert!(missed.is_empty(), "no seed hits {missed:#?}");
}
