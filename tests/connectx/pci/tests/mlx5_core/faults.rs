//! A device that is slow, or seems dead, and many rules.

use std::time::{Duration, Instant};

use sluice_connectx::hca::{CommandFault, Trouble};
use sluice_connectx::steering::Port;

use crate::agent::{Agent, SET_FLOW_TABLE_ENTRY, flow_of, ufid};
use crate::frames::udp;
use crate::{VF0, World};

/// How long a command takes.
const LATE: Duration = Duration::from_secs(8);

pub(crate) fn a_command_that_is_late_holds_up_nobody_but_its_flow(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let trouble = Trouble::Late(LATE);
    world.hca.lock().inject(CommandFault { opcode: SET_FLOW_TABLE_ENTRY, after: 0, times: 1, trouble });
    let key = "in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no),udp(dst=53)";
    let at = Instant::now();
    agent.sluice(&format!("add-flow --no-wait '{},{key}' p0", ufid(1)));
    let flows = agent.flows();
    assert!(at.elapsed() < LATE, "the callers were held up");
    assert_eq!(flow_of(&flows, 1)["state"], "pending", "{flows:?}");
    let flows = agent.eventually("the flow is there after all", |flows| flow_of(flows, 1)["state"] == "offloaded");
    assert!(at.elapsed() >= LATE, "{flows:?}");
    let frame = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53);
    world.pass(VF0, &frame, &[(Port::Wire, &frame)]);
    agent.stop();
}

pub(crate) fn a_command_that_is_lost_is_given_up_and_its_flow_tried_again(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    world.hca.lock().inject(CommandFault { opcode: SET_FLOW_TABLE_ENTRY, after: 0, times: 1, trouble: Trouble::Lost });
    let key = "in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no),udp(dst=53)";
    agent.sluice(&format!("add-flow --no-wait '{},{key}' p0", ufid(1)));
    assert_eq!(flow_of(&agent.flows(), 1)["state"], "pending");
    // The driver gives a command as long as the device says.
    agent.eventually("the flow is there after all", |flows| flow_of(flows, 1)["state"] == "offloaded");
    let said = world.guest.run("dmesg | grep 'SET_FLOW_TABLE_ENTRY.*timeout'");
    assert!(said.contains("SET_FLOW_TABLE_ENTRY(0x936) timeout"), "{said}");
    assert_eq!(world.rules(), 1);
    world.ports.answer_lost();
    agent.stop();
}

pub(crate) fn a_health_counter_that_stops_is_noticed_and_rules_stay(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    agent.add("in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no),udp(dst=53)", "p0");
    let noticed = |log: &str| log.contains("device's health compromised - reached miss count");
    assert!(!noticed(&world.guest.run("dmesg")), "before anything happened");
    world.ports.hold_health_counter(true);
    world.guest.eventually("the driver notices", "dmesg | grep 'health compromised' || true", noticed);
    world.ports.hold_health_counter(false);
    let frame = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53);
    world.pass(VF0, &frame, &[(Port::Wire, &frame)]);
    assert_eq!(agent.sluice("audit"), "1 rules, all as wanted (listed by the device)\n");
    agent.stop();
}

pub(crate) fn many_rules_are_in_the_device_and_leave_it_again(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let rules = world.many;
    let address = |number: usize| {
        let [.., a, b, c] = number.to_be_bytes();
        [10, a, b, c]
    };
    let script = format!(
        "for ((n = 0; n < {rules}; n++)); do
             echo \"in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.$((n >> 16)).$((n >> 8 & 255)).$((n & 255)),proto=17,frag=no),\\
udp(dst=53),actions:p0\"
         done >/tmp/agent/flows"
    );
    world.guest.run(&script);
    let at = Instant::now();
    agent.sluice("add-flows /tmp/agent/flows");
    let added = at.elapsed();
    assert_eq!(world.rules(), rules);
    assert_eq!(agent.sluice("audit"), format!("{rules} rules, all as wanted (listed by the device)\n"));
    let some = (0..rules).step_by(rules / 50);
    let sent = some.clone().count() as u64;
    for number in some {
        let frame = udp([10, 0, 0, 1], address(number), 1000, 53);
        world.pass(VF0, &frame, &[(Port::Wire, &frame)]);
    }
    agent.eventually_of("every packet is counted", "dump-flows --json", |flows| {
        let counted = flows.iter().map(|flow| flow["packets"].as_u64().expect("a number")).sum::<u64>();
        (flows.len(), counted) == (rules, sent)
    });
    let at = Instant::now();
    agent.stop();
    println!(
        "  {rules} flows in the device after {:.1} s, out of it after {:.1} s",
        added.as_secs_f32(),
        at.elapsed().as_secs_f32()
    );
}
