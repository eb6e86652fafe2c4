//! Plain generated flows on one device by the kernel's tc (`skip_sw`, as firmware's entries) and past it (as entries of software): packets
//! come out as the software NIC has it.

use sluice_connectx::steering::Port;

use crate::direct::{Agent, Eswitch, direct};
use crate::scenarios::{Ends, Sum, Told, install, play};

/// Flows that are drawn, and how many of them must be in hardware.
const DRAWN: usize = 200;
const LEAST: usize = 50;

pub(crate) fn flows_do_by_tc_and_past_it_what_they_do_in_the_nic_in_software(eswitch: &Eswitch<'_>) {
    let tc = "backend = \"tc\"\ntc.policy = \"skip_sw\"".to_owned();
    for backend in [tc, direct("p0")] {
        let agent = Agent::start_with(eswitch, &backend);
        let sum = compare(eswitch);
        println!("  {backend}:\n{sum}");
        assert_eq!(sum.differing, [""; 0], "packets came out otherwise");
        assert_eq!(sum.silent, [""; 0], "flows are refused without a reason");
        assert!(sum.in_hardware >= LEAST && sum.equal >= LEAST, "{sum}");
        agent.sluice("del-flows");
        agent.end("TERM");
        let names = eswitch.ports.map(|(name, _)| name).join(" ");
        eswitch
            .world
            .guest
            .run(&format!("for port in {names}; do tc qdisc del dev $port ingress 2>/dev/null || true; done"));
    }
}

/// Puts the flows in and lets their packets in.
fn compare(eswitch: &Eswitch<'_>) -> Sum {
    let mut sum = Sum::default();
    let ports: [Port; 4] = eswitch.ports.map(|(_, port)| port);
    let ends = Ends { ports: &ports, manager: eswitch.manager };
    let mut told = Told::start(eswitch.world, &["plain".to_owned(), DRAWN.to_string()]);
    let scenario = told.next().expect("a scenario");
    let flows = scenario["flows"].as_array().expect("flows");
    let taken = install(|flows| eswitch.world.replace_flows(flows), flows, &mut sum);
    let played = told.with(&taken);
    told.end();
    sum.scenarios += 1;
    play(eswitch.world, &ends, scenario["name"].as_str().expect("a name"), &played, &mut sum);
    sum
}
