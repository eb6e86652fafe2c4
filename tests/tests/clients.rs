//! Eight clients at once on the same thousand UFIDs.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::text::write_actions;
use sluice_flow::{EndReason, Ufid};
use sluice_tests::world::{World, quick_config};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 100_000;
const FLOWS: u64 = 1_000;

/// A request that was accepted, between two readings of one counter.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    began: u64,
    ended: u64,
    /// The VLAN that an addition or a modification pushes; none for a deletion.
    stamp: Option<u64>,
}

#[test]
fn the_last_accepted_state_of_every_flow_is_what_the_device_has() {
    let world = World::soft(quick_config());
    let order = AtomicU64::new(0);
    let histories: Vec<Mutex<Vec<Accepted>>> = (0..FLOWS).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (world, order, histories) = (&world, &order, &histories);
            scope.spawn(move || {
                let mut random = client + 1;
                for request in 0..REQUESTS / CLIENTS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let flow = random % FLOWS;
                    let began = order.fetch_add(1, Ordering::SeqCst);
                    let stamp = (client << 9 | request & 0x1ff) & 0xfff;
                    let accepted = perform(world, flow, random >> 40, stamp);
                    let ended = order.fetch_add(1, Ordering::SeqCst);
                    if let Some(stamp) = accepted {
                        histories[usize::try_from(flow).unwrap()].lock().push(Accepted { began, ended, stamp });
                    }
                }
            });
        }
    });
    world.settle();

    let rules = world.installed();
    assert_eq!(rules.len(), world.agent.table.census().live(), "device and table hold the same number");
    for (flow, history) in histories.iter().enumerate() {
        let history = history.lock();
        let ufid = Ufid(flow as u128 + 1);
        let in_device: Vec<_> = rules.iter().filter(|rule| rule.flow.ufid == ufid).collect();
        assert!(in_device.len() <= 1, "{ufid} is in the device {} times", in_device.len());
        let found = in_device.first().map(|rule| {
            let mut text = String::new();
            write_actions(&mut text, &rule.flow.actions, &Default::default()).unwrap();
            text
        });
        // The last accepted request is one after whose end no other accepted one began.
        let last_began = history.iter().map(|request| request.began).max().unwrap_or(0);
        let possible: Vec<_> = history.iter().filter(|request| request.ended >= last_began).collect();
        let expected: Vec<_> = possible.iter().map(|request| request.stamp.map(actions)).collect();
        assert!(expected.contains(&found), "{ufid}: the device has {found:?}, the last accepted are {possible:?}");
    }
}

/// One request. Gives what it stamped the flow with if it was accepted: `None` inside for a deletion.
fn perform(world: &World, flow: u64, choice: u64, stamp: u64) -> Option<Option<u64>> {
    let ufid = Ufid(u128::from(flow) + 1);
    let key = format!("ufid:{ufid}, in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={flow})");
    let queue = &world.agent.queue;
    match choice % 3 {
        0 => queue.add(world.flow(&key, &actions(stamp)), None).ok().map(|_| Some(stamp)),
        1 => queue.modify(world.flow(&key, &actions(stamp)), false, None).ok().map(|_| Some(stamp)),
        _ => {
            let id = world.agent.table.find(ufid)?;
            queue.delete(id, EndReason::Deleted, None).ok().map(|_| None)
        }
    }
}

fn actions(stamp: u64) -> String {
    format!("push_vlan(vid={stamp},pcp=0),2")
}
