//! A restart on a device that kept its rules: they are taken over, with no rule put in twice and no packet's count lost.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_agent::config::Config;
use sluice_agent::upkeep::audit::Audit;
use sluice_agent::upkeep::cleanup::{clean_up, unfinished};
use sluice_agent::upkeep::difference::Kind;
use sluice_flow::time::{Clock, MonotonicClock};
use sluice_flow::{ChainId, EndReason, Flow, FlowState, Refusal};
use sluice_tests::daemon::new_folder;
use sluice_tests::lasting::LastingDevice;
use sluice_tests::world::{World, eventually, quick_config};

/// A device, and the folder of the agents that run on it one after the other.
struct House {
    device: Arc<LastingDevice>,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
}

impl House {
    fn new() -> Self {
        let clock = Arc::new(MonotonicClock::new());
        Self { device: LastingDevice::new(clock.clone()), clock, folder: new_folder() }
    }

    fn start(&self, config: Config) -> World {
        self.device.done();
        World::with_journal_in(&self.folder, self.device.clone(), config, self.clock.clone())
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn add(world: &World, flows: &[Flow]) {
    for flow in flows {
        world.agent.queue.add(flow.clone(), None).expect("it is taken on");
    }
    world.settle();
    world.wait_for_journal();
}

/// Packets that a flow is said to have counted.
fn packets(world: &World, flow: &Flow) -> u64 {
    let id = world.agent.table.find(flow.ufid).expect("the flow is there");
    world.agent.table.view(id).expect("the flow is there").counters.packets
}

#[test]
fn rules_that_are_as_wanted_are_left_alone_and_count_on() {
    let house = House::new();
    let first = house.start(quick_config());
    let flows: Vec<_> = (1..=100).map(|port| first.udp_flow(port, "2")).collect();
    add(&first, &flows);
    house.device.hit(flows[0].ufid, 7);
    drop(first);

    let second = house.start(quick_config());
    second.settle();
    assert!(house.device.done().is_empty(), "no rule was touched");
    let adopted = second.agent.adopted().expect("the agent has looked");
    assert_eq!((adopted.adopted, adopted.orphans, adopted.outstanding), (100, 0, 0));
    house.device.hit(flows[0].ufid, 3);
    eventually("packets before and after the restart are counted", || packets(&second, &flows[0]) == 10);
}

#[test]
fn each_rule_that_is_not_as_wanted_is_dealt_with_by_itself() {
    let house = House::new();
    let first = house.start(quick_config());
    let flows: Vec<_> = (1..=5).map(|port| first.udp_flow(port, "2")).collect();
    add(&first, &flows);
    let stranger = first.udp_flow(9, "2");
    drop(first);
    let [kept, missing, changed, doubled, replaced] = &flows[..] else { unreachable!() };
    house.device.with(|memory| {
        let handle = memory.handle(missing.ufid);
        memory.rules.remove(&handle);
        memory.change(changed.ufid, Arc::from([]));
        memory.put(doubled.clone());
        memory.put(stranger.clone());
        // Our name on a rule with another match.
        let handle = memory.handle(replaced.ufid);
        let rule = memory.rules.get_mut(&handle).expect("a rule");
        rule.flow = renamed(&stranger, replaced);
    });

    let second = house.start(quick_config());
    second.settle();
    let mut done = house.device.done();
    done.sort();
    let mut expected = vec![
        format!("install {}", missing.ufid),
        format!("install {}", replaced.ufid),
        format!("modify {}", changed.ufid),
    ];
    expected.sort();
    assert_eq!(done, expected);
    let adopted = second.agent.adopted().expect("the agent has looked");
    assert_eq!((adopted.adopted, adopted.orphans, adopted.outstanding), (3, 3, 3));
    house.device.with(|memory| {
        assert_eq!(memory.rules.len(), 5);
        for flow in [kept, missing, changed, doubled, replaced] {
            assert_eq!(memory.rules[&memory.handle(flow.ufid)].flow, *flow);
        }
    });
}

#[test]
fn a_device_without_room_for_ufids_has_its_rules_adopted_by_what_they_match() {
    let house = House::new();
    house.device.with(|memory| memory.is_nameless = true);
    let first = house.start(quick_config());
    let mut flows: Vec<_> = (1..=4).map(|port| first.udp_flow(port, "2")).collect();
    // A UFID that does not follow from the match.
    flows[0] = renamed(&flows[0], &first.udp_flow(77, "2"));
    add(&first, &flows);
    let stranger = first.udp_flow(9, "2");
    drop(first);
    house.device.with(|memory| {
        memory.change(flows[1].ufid, Arc::from([]));
        memory.put(stranger);
    });
    let second = house.start(quick_config());
    second.settle();
    assert_eq!(house.device.done(), [format!("modify {}", flows[1].ufid)]);
    let adopted = second.agent.adopted().expect("the agent has looked");
    assert_eq!((adopted.adopted, adopted.orphans, adopted.outstanding), (4, 1, 1));
    house.device.hit(flows[0].ufid, 3);
    eventually("the adopted rule counts for its flow", || packets(&second, &flows[0]) == 3);
    let audit = Audit::of(&second.agent).expect("an audit");
    assert_eq!((audit.rules, audit.differences.len()), (4, 0));
    let put = house.device.with(|memory| memory.put(flows[2].clone()));
    let audit = Audit::of(&second.agent).expect("an audit");
    let found: Vec<_> = audit.differences.iter().map(|found| (found.kind, found.ufid)).collect();
    assert_eq!(found, [(Kind::Doubled, flows[2].ufid)], "its flow is known by what it matches");
    audit.mend(&second.agent).expect("it is mended");
    assert!(!house.device.with(|memory| memory.rules.contains_key(&put)));
}

/// A flow under the name of another.
fn renamed(flow: &Flow, other: &Flow) -> Flow {
    let (actions, expiry) = (flow.actions.clone(), flow.expiry);
    Flow::new(Some(other.ufid), flow.matching(), actions, flow.priority, expiry, &sluice_tests::world::SEED)
}

#[test]
fn chains_of_adopted_rules_are_open_and_children_go_after_their_parents() {
    let house = House::new();
    let first = house.start(quick_config());
    let key = "in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no)";
    let parent = first.flow(key, "recirc(5)");
    let child = first.flow(&format!("recirc_id(5),{key}"), "2");
    add(&first, &[child.clone(), parent.clone()]);
    drop(first);
    house.device.with(|memory| memory.open_chains.clear());

    let second = house.start(quick_config());
    second.settle();
    assert!(house.device.done().is_empty());
    assert!(house.device.with(|memory| memory.open_chains.contains(&ChainId(5))));
    // One more way into the chain needs nothing but itself, though the child was never installed by this agent.
    let sibling = second.flow("in_port(2),eth_type(0x0800),ipv4(proto=17,frag=no)", "recirc(5)");
    add(&second, std::slice::from_ref(&sibling));
    second.agent.flush();
    second.settle();
    let done = house.device.done();
    assert_eq!(done[0], format!("install {}", sibling.ufid));
    assert_eq!(done.last(), Some(&format!("remove {}", child.ufid)), "{done:?}");
    assert_eq!(done.len(), 4);
    eventually("the chain is closed", || house.device.with(|memory| memory.open_chains.is_empty()));
}

#[test]
fn an_adopted_flow_ages_as_a_new_one() {
    let house = House::new();
    let first = house.start(quick_config());
    let flow = first.udp_flow(1, "2");
    add(&first, std::slice::from_ref(&flow));
    drop(first);
    let idle_timeout = Some(Duration::from_millis(300));
    let began = std::time::Instant::now();
    let second = house.start(Config { idle_timeout, ..quick_config() });
    eventually("the flow is gone", || second.agent.table.find(flow.ufid).is_none());
    assert!(began.elapsed() >= Duration::from_millis(300), "not before its time");
    second.settle();
    assert_eq!(house.device.done(), [format!("remove {}", flow.ufid)]);
}

#[test]
fn what_was_deleted_while_no_agent_ran_is_taken_out() {
    let house = House::new();
    let first = house.start(quick_config());
    let flows: Vec<_> = (1..=3).map(|port| first.udp_flow(port, "2")).collect();
    add(&first, &flows);
    drop(first);
    // The log is lost, and with it what was wanted.
    std::fs::remove_dir_all(&house.folder).expect("the folder goes");
    let second = house.start(quick_config());
    let adopted = second.agent.adopted().expect("the agent has looked");
    assert_eq!((adopted.adopted, adopted.orphans), (0, 3));
    assert!(house.device.with(|memory| memory.rules.is_empty()));
}

#[test]
fn a_flow_that_is_deleted_right_after_its_adoption_takes_its_rule_with_it() {
    let house = House::new();
    let first = house.start(quick_config());
    let flow = first.udp_flow(1, "2");
    add(&first, std::slice::from_ref(&flow));
    house.device.hit(flow.ufid, 4);
    drop(first);
    let second = house.start(quick_config());
    let id = second.agent.table.find(flow.ufid).expect("it is wanted again");
    assert_eq!(second.agent.table.view(id).expect("it is there").state, FlowState::Offloaded);
    second.agent.queue.delete(id, EndReason::Deleted, None).expect("it is taken on");
    eventually("it is gone", || second.agent.table.view(id).is_none());
    assert!(house.device.with(|memory| memory.rules.is_empty()));
}

#[test]
fn an_agent_that_cannot_clean_up_says_what_it_leaves_and_where_and_the_next_start_takes_it_out() {
    let house = House::new();
    let first = house.start(quick_config());
    let of_port = |port: u32, protocol: &str| first.flow(&format!("in_port({port}),eth_type({protocol})"), "3");
    let anywhere = first.flow("eth_type(0x8899)", "3");
    add(&first, &[of_port(1, "0x0800"), of_port(1, "0x0806"), of_port(2, "0x0800"), anywhere]);
    assert_eq!(
        unfinished(&first.agent).to_string(),
        "4 rules are left in the device (1 at no certain port, 2 at port p1, 1 at port p2): busy: the device has not let them go in time"
    );
    house.device.with(|memory| memory.removal_refusal = Some(Refusal::Kernel { errno: 1, message: "not now".into() }));
    assert_eq!(
        clean_up(&first.agent).unwrap_err().to_string(),
        "4 rules are left in the device (1 at no certain port, 2 at port p1, 1 at port p2): kernel: not now (errno 1)"
    );
    drop(first);

    // As a sweep does it.
    house.device.with(|memory| memory.removal_refusal = None);
    let second = house.start(quick_config());
    second.settle();
    assert_eq!(second.agent.adopted().expect("the agent has looked").orphans, 4);
    assert!(second.installed().is_empty());
    assert_eq!(clean_up(&second.agent).expect("there is nothing to take out"), Vec::<String>::new());
    assert_eq!(
        unfinished(&second.agent).to_string(),
        "rules may be left in the device: busy: the device has not let them go in time"
    );
}
