//! The whole cost of accepting a flow, or a change to one: table, events and hand-over.

use serde_json::{Value, json};
use sluice_flow::Flow;
use sluice_tests::bench;
use sluice_tests::world::SEED;

use crate::ROUNDS;
use crate::pass::{agent, nanoseconds};

const FLOWS: usize = 100_000;

/// With a device that works and with one that stalls, in turns.
pub(crate) fn rows() -> Vec<Value> {
    let mut samples: [Vec<u64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let [add_working, modify_working, add_stalled, modify_stalled] = &mut samples;
        round(false, add_working, modify_working);
        round(true, add_stalled, modify_stalled);
    }
    let names =
        ["a new flow, device works", "a change, device works", "a new flow, device stalls", "a change, device stalls"];
    let row = |(name, samples): (&str, &Vec<u64>)| {
        let mean = samples.iter().sum::<u64>() as f64 / samples.len() as f64;
        json!({
            "name": format!("the whole of accepting {name}"),
            "unit": "ns a flow, p50",
            "ours": bench::median(samples),
            "mean": mean,
            "p99": bench::quantile(samples, 0.99),
        })
    };
    names.into_iter().zip(&samples).map(row).collect()
}

/// Hands all flows over, then a change to each.
fn round(stalls: bool, add: &mut Vec<u64>, modify: &mut Vec<u64>) {
    let (world, device) = agent(FLOWS);
    let new: Vec<Flow> = bench::five_tuples(FLOWS, &SEED).collect();
    // The actions of the next flow.
    let actions = new.iter().cycle().skip(1).map(|flow| flow.actions.clone());
    let changed: Vec<Flow> = new.iter().zip(actions).map(|(flow, actions)| flow.with_actions(actions)).collect();
    if stalls {
        device.close();
    }
    for flow in new {
        add.push(nanoseconds(|| world.agent.queue.add(flow, None).expect("accepted")));
    }
    for flow in changed {
        modify.push(nanoseconds(|| world.agent.queue.modify(flow, false, None).expect("accepted")));
    }
    device.open();
    world.settle();
    assert_eq!(device.rules(), FLOWS, "every flow is in the device afterwards");
}
