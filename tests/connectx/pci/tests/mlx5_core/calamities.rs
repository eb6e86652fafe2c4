//! What ends rules against everybody's will: functions of the host that go, a device that fails, one that is unplugged.

use serde_json::Value;
use sluice_connectx::steering::Port;
use sluice_connectx_pci::Syndrome;

use crate::agent::{Agent, flow_of, ufid};
use crate::driver::{DEVICE, go_to_switchdev, name_ports};
use crate::frames::udp;
use crate::{HOST_PF, VF0, World};

/// A flow of a virtual function (1), and one that has to do with none (2).
fn two_flows(agent: &Agent<'_>) {
    let key = "eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no),udp(dst=53)";
    agent.add(&format!("{},in_port(pf0vf0),{key}", ufid(1)), "p0");
    agent.add(&format!("{},in_port(p0),{key}", ufid(2)), "pf0hpf");
}

fn query() -> Vec<u8> {
    udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53)
}

fn is_offloaded(flow: &Value) -> bool {
    flow["state"] == "offloaded"
}

/// Both flows are in hardware, the device says so too, and packets go by them.
#[track_caller]
fn both_are_back(world: &World, agent: &Agent<'_>) {
    agent.eventually("both flows are in hardware", |flows| flows.iter().all(is_offloaded));
    assert_eq!(world.rules(), 2, "{}", world.hca.lock().steering().dump());
    world.pass(VF0, &query(), &[(Port::Wire, &query())]);
    world.pass(Port::Wire, &query(), &[(HOST_PF, &query())]);
    assert_eq!(agent.sluice("audit"), "2 rules, all as wanted (listed by the device)\n");
}

pub(crate) fn functions_of_the_host_come_and_go_and_their_flows_with_them(world: &World) {
    let guest = &world.guest;
    let agent = Agent::start(world, "skip_sw");
    two_flows(&agent);
    both_are_back(world, &agent);

    world.ports.set_host_vfs(0);
    guest.eventually("their representors go", "ls /sys/class/net", |names| !names.contains("pf0vf"));
    agent.eventually("only the flow of the function is out of the device", |flows| {
        !is_offloaded(flow_of(flows, 1)) && is_offloaded(flow_of(flows, 2))
    });
    agent.eventually("and says why", |flows| flow_of(flows, 1)["refusal"]["label"] == "port");
    assert_eq!(world.rules(), 1);
    world.pass(Port::Wire, &query(), &[(HOST_PF, &query())]);

    world.ports.set_host_vfs(3);
    let ports = "cat /sys/class/net/*/phys_port_name 2>/dev/null || true";
    guest.eventually("three representors come", ports, |names| names.matches("c1pf0vf").count() == 3);
    name_ports(guest);
    both_are_back(world, &agent);
    agent.sluice("add-port 5 pf0vf2");
    agent.add("in_port(pf0vf2),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no)", "p0");
    world.pass(Port::Vport(3), &query(), &[(Port::Wire, &query())]);
    agent.sluice("del-flows");
    agent.sluice("del-port 5");
    agent.stop();
}

pub(crate) fn a_device_that_asks_for_a_reset_gets_it_and_flows_come_back(world: &World) {
    let guest = &world.guest;
    let agent = Agent::start(world, "skip_sw");
    two_flows(&agent);
    both_are_back(world, &agent);

    // What is not fatal is told, and nothing else comes of it.
    let reports = format!("devlink health show $({DEVICE}) reporter fw");
    let before = guest.run(&reports);
    world.ports.set_syndrome(Some(Syndrome { code: 0x10, is_fatal: false }));
    guest.eventually("the driver reports the heat", &reports, |reports| *reports != *before);
    let said = guest.run(&format!("devlink health diagnose $({DEVICE}) reporter fw"));
    assert!(said.contains("High temperature"), "{said}");
    world.ports.set_syndrome(None);
    both_are_back(world, &agent);

    recovers(world, || world.ports.set_syndrome(Some(Syndrome { code: 0x1, is_fatal: true })));
    let log = guest.run("dmesg | grep 'Fatal error\\|firmware internal error' | tail -3");
    assert!(log.contains("Fatal error 5 detected") && log.contains("firmware internal error"), "{log}");
    assert_eq!(world.rules(), 0, "a reset leaves nothing");
    agent.eventually("the agent knows", |flows| !flows.iter().any(is_offloaded));
    go_to_switchdev(guest);
    both_are_back(world, &agent);
    agent.stop();
}

pub(crate) fn a_device_whose_link_is_lost_comes_back_with_it(world: &World) {
    let guest = &world.guest;
    let agent = Agent::start(world, "skip_sw");
    two_flows(&agent);
    both_are_back(world, &agent);
    // Counted, for what the driver says of its counters meanwhile may fill the end of the log.
    let noticed = "dmesg | grep -c 'Fatal error 1 detected' || true";
    let before = guest.run(noticed);
    recovers(world, || {
        world.ports.set_offline(true);
        guest.eventually("the driver notices", noticed, |times| *times != *before);
        agent.eventually("the agent notices", |flows| !flows.iter().any(is_offloaded));
        world.ports.set_offline(false);
    });
    assert_eq!(world.rules(), 0, "a reset leaves nothing");
    go_to_switchdev(guest);
    both_are_back(world, &agent);
    agent.stop();
}

/// Has the driver recover from something, also if it has just done so.
#[track_caller]
fn recovers(world: &World, calamity: impl FnOnce()) {
    let reporter = format!("$({DEVICE}) reporter fw_fatal");
    world.guest.run(&format!("devlink health set {reporter} grace_period 0"));
    let recoveries = |shown: &str| {
        let number =
            shown.split_once("recover ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u32>().ok());
        number.unwrap_or_else(|| panic!("no number of recoveries: {shown}"))
    };
    let show = format!("devlink health show {reporter}");
    let before = recoveries(&world.guest.run(&show));
    calamity();
    world.guest.eventually("the driver has recovered", &show, |shown| recoveries(shown) > before);
}

pub(crate) fn a_device_is_unplugged_and_plugged_and_flows_come_back(world: &World) {
    let guest = &world.guest;
    let agent = Agent::start(world, "skip_sw");
    two_flows(&agent);
    both_are_back(world, &agent);

    // As by a hand that asks nobody: first there is no answer any more, then the kernel takes note of it.
    world.ports.set_offline(true);
    guest.remove();
    let flows = agent.eventually("the agent knows", |flows| !flows.iter().any(is_offloaded));
    assert_eq!(flow_of(&flows, 1)["refusal"]["label"], "port", "{flows:?}");

    world.ports.set_offline(false);
    guest.rescan();
    go_to_switchdev(guest);
    both_are_back(world, &agent);
    agent.stop();
}
