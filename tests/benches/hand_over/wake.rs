//! From a flow that is given to an idle agent to the device's hearing of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::world::SEED;

use crate::pass::agent;

const SAMPLES: usize = 2000;

pub(crate) fn rows() -> Vec<Value> {
    let (world, device) = agent(SAMPLES);
    let mut microseconds = Vec::with_capacity(SAMPLES);
    for (number, flow) in bench::five_tuples(SAMPLES, &SEED).enumerate() {
        // 3 to 7 ms, so that nothing falls into step with it.
        std::thread::sleep(Duration::from_micros(3000 + (number as u64 * 617) % 4000));
        let arrival = device.arrival();
        let began = Instant::now();
        world.agent.queue.add(flow, None).expect("accepted");
        let arrived = arrival.recv_timeout(Duration::from_secs(10)).expect("the device hears of it");
        microseconds.push(arrived.duration_since(began).as_secs_f64() * 1e6);
    }
    world.settle();
    assert_eq!(device.rules(), SAMPLES, "every flow is in the device afterwards");
    vec![json!({
        "name": "idle agent to first flow at the device, p99",
        "unit": "us",
        "ours": bench::quantile(&microseconds, 0.99),
        "p50": bench::median(&microseconds),
        "p90": bench::quantile(&microseconds, 0.9),
        "max": bench::quantile(&microseconds, 1.0),
        "samples": SAMPLES,
        "peer_name": "OVS-DPDK's back-off of an idle offload thread: 1 to 64 ms",
        "to_reach": 100.0,
    })]
}
