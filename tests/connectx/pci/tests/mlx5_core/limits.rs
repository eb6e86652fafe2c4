//! A device without room, and one that tells wrong counters.

use sluice_connectx::profile::Room;
use sluice_connectx::steering::{Count, Port, Telling};

use crate::agent::{Agent, flow_of, ufid};
use crate::frames::{UDP, udp};
use crate::{VF0, World};

/// A flow by itself, so that each makes an entry in the same table.
fn line(number: u16) -> (String, &'static str) {
    let key = "in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no)";
    (format!("{},{key},udp(dst={number})", ufid(number.into())), "p0")
}

/// Adds three flows and one that is refused, from a number on, and gives what was said of that one.
#[track_caller]
fn fill(agent: &Agent<'_>, from: u16) -> String {
    for number in from..from + 3 {
        let (key, actions) = line(number);
        agent.add(&key, actions);
    }
    let (key, actions) = line(from + 3);
    let added = agent.attempt(&format!("add-flow '{key}' {actions}"));
    assert_eq!(added.code, 2, "{added:?}");
    added.err
}

pub(crate) fn a_device_without_room_says_so_and_a_flow_gets_its_place_when_there_is_some(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let whole = world.hca.lock().profile().room;
    let log = |words: &str| world.guest.run(&format!("dmesg | grep -F '{words}' | tail -1"));

    // Of counters Linux asks for many at once, and singly when it does not get those.
    let counters = world.hca.lock().steering().counters() + 3;
    world.hca.lock().set_room(Room { counters, ..whole });
    let said = fill(&agent, 1);
    assert!(said.contains("Cannot allocate memory"), "{said}");
    assert!(log("ALLOC_FLOW_COUNTER").contains("limits exceeded(0x8)"));
    agent.sluice(&format!("del-flow {}", ufid(1)));
    agent.eventually("the flow has the place", |flows| flow_of(flows, 4)["state"] == "offloaded");
    world.hca.lock().set_room(whole);
    agent.sluice("del-flows");

    // The first flow makes tables that others share.
    let (key, actions) = line(1);
    agent.add(&key, actions);
    let entries = world.hca.lock().steering().entries() + 3;
    world.hca.lock().set_room(Room { entries, ..whole });
    let said = fill(&agent, 2);
    assert!(said.contains("Cannot allocate memory"), "{said}");
    assert!(log("SET_FLOW_TABLE_ENTRY").contains("limits exceeded(0x8)"));
    world.hca.lock().set_room(whole);
    agent.eventually("the flow has a place", |flows| flow_of(flows, 5)["state"] == "offloaded");
    agent.stop();
}

pub(crate) fn counters_that_lag_or_jump_never_run_backwards(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let (key, actions) = line(53);
    agent.add(&key, actions);
    let frame = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53);
    let send = |packets: usize| (0..packets).for_each(|_| world.pass(VF0, &frame, &[(Port::Wire, &frame)]));
    let tell = |telling| world.hca.lock().tell_counters(telling);
    let count = |packets: u64| Count { packets, bytes: packets * UDP as u64 };
    let counted = |what: &str, packets: u64| {
        agent.eventually(what, |flows| {
            let flow = flow_of(flows, 53);
            assert!(flow["packets"].as_u64() <= Some(packets), "too many: {flow}");
            (flow["packets"].as_u64(), flow["bytes"].as_u64()) == (Some(packets), Some(packets * UDP as u64))
        });
    };
    let stays = |packets: u64| {
        // The driver reads once a second.
        world.guest.run("sleep 3");
        let flows = agent.flows();
        assert_eq!(flow_of(&flows, 53)["packets"], packets, "{flows:?}");
    };

    send(5);
    counted("five packets are counted", 5);
    // A counter that stands still is late, and loses nothing.
    tell(Telling::Standing);
    send(5);
    stays(5);
    tell(Telling::True);
    counted("what was late is counted", 10);
    // One that falls has begun anew, as far as anybody can tell: what was counted stays, and what it stands at comes on top.
    tell(Telling::Behind(count(4)));
    counted("it begins anew", 10 + 6);
    send(3);
    counted("what comes is counted", 10 + 6 + 3);
    tell(Telling::True);
    counted("it jumps", 10 + 6 + 3 + 4);
    let stats = agent.sluice("stats --json");
    assert!(!stats.contains("\"backwards\":0,"), "{stats}");
    agent.stop();
}
