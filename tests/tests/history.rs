//! For any history and any fault: what the flows report over their lives is what the NIC counted.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{EndReason, Event, Ufid};
use sluice_offload::Batch;
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::frames;
use sluice_tests::world::{World, quick_config, soft_nic};

#[derive(Clone, Debug)]
enum Step {
    Add(u16),
    Modify(u16, u8),
    Delete(u16),
    Traffic(u16, u8),
    Fault(u8),
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..6_u16;
    prop_oneof![
        4 => port.clone().prop_map(Step::Add),
        3 => (port.clone(), 2..5_u8).prop_map(|(port, output)| Step::Modify(port, output)),
        3 => port.clone().prop_map(Step::Delete),
        8 => (port, 1..20_u8).prop_map(|(port, packets)| Step::Traffic(port, packets)),
        1 => (0..4_u8).prop_map(Step::Fault),
        1 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_counters_of_all_lives_sum_to_what_the_nic_counted(steps in proptest::collection::vec(step(), 1..120)) {
        let clock = Arc::new(MonotonicClock::new());
        let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
        let world = World::on(device, quick_config(), clock);
        let watch = world.agent.events.watch();
        let mut names = HashMap::new();
        let mut counted: HashMap<Ufid, u64> = HashMap::new();
        for step in steps {
            match step {
                Step::Add(port) => {
                    let flow = world.udp_flow(port, "2");
                    let ufid = flow.ufid;
                    if let Ok(id) = world.agent.queue.add(flow, None) {
                        names.insert(id, ufid);
                    }
                }
                Step::Modify(port, output) => {
                    let _ = world.agent.queue.modify(world.udp_flow(port, &output.to_string()), output == 3, None);
                }
                Step::Delete(port) => {
                    if let Some(id) = world.agent.table.find(world.udp_flow(port, "2").ufid) {
                        let _ = world.agent.queue.delete(id, EndReason::Deleted, None);
                    }
                }
                Step::Traffic(port, packets) => for _ in 0..packets {
                    for hit in world.inject(1, &frames::udp(port)).hits {
                        *counted.entry(names[&hit]).or_default() += 1;
                    }
                },
                Step::Fault(kind) => faults.set(match kind {
                    0 => Plan::default(),
                    1 => Plan { stalled: true, ..Plan::default() },
                    2 => Plan { refuses_every: Some(2), reorders: true, ..Plan::default() },
                    _ => Plan { delay: Duration::from_micros(300), reorders: true, ..Plan::default() },
                }),
                Step::Poll => std::thread::sleep(Duration::from_millis(3)),
            }
        }
        faults.set(Plan::default());
        let batch = Arc::new(Batch::default());
        world.agent.queue.delete_all(EndReason::Flushed, &batch);
        world.settle();
        prop_assert_eq!(world.agent.table.census().live(), 0);
        prop_assert_eq!(world.installed().len(), 0);

        let mut reported: HashMap<Ufid, u64> = HashMap::new();
        for seen in watch.events.try_iter() {
            if let Event::Deleted { flow, counters, .. } = &seen.event {
                prop_assert_eq!(counters.bytes, counters.packets * 60);
                *reported.entry(flow.ufid).or_default() += counters.packets;
            }
        }
        reported.retain(|_, packets| *packets > 0);
        prop_assert_eq!(reported, counted);
    }
}
