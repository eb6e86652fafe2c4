//! Samples of flows.

use std::time::Instant;

use super::{PATIENCE, PROFILES, Testpmd, WIRE, packet};

/// Waits until something was said exactly N times. What is said of packets may come after a prompt.
fn wait_for_words(testpmd: &mut Testpmd, words: &str, times: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        match testpmd.log.matches(words).count() {
            said if said == times => return,
            said => assert!(said < times && Instant::now() < end, "{said} times {words}: {}", testpmd.log),
        }
        testpmd.command("show port summary 0");
    }
}

#[test]
fn one_of_so_many_packets_of_a_flow_is_sampled_into_another_queue() {
    for profile in PROFILES {
        let mut testpmd = Testpmd::start(profile, &["--rxq=2", "--txq=2"]);
        testpmd.command("set fwd rxonly");
        testpmd.command("set verbose 1");
        testpmd.command("set sample_actions 0 mark id 4660 / queue index 1 / end");
        testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
        testpmd.flow(
            "0 ingress group 1 pattern eth / ipv4 dst is 10.0.0.3 / end actions sample ratio 3 index 0 / queue index 0 / end",
        );
        // Only now: a burst that began before there was a mark takes the number of the driver for that of the flow.
        testpmd.command("start");
        for _ in 0..6 {
            testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, 99));
        }
        testpmd.wait_for_packets(0, 6 + 2);
        for (words, times) in [("FDIR matched ID=0x1234", 2), ("Receive queue=0x1", 2), ("Receive queue=0x0", 6)] {
            wait_for_words(&mut testpmd, words, times);
        }
        testpmd.quit();
    }
}

#[test]
fn transfer_flows_mirror_packets_to_a_second_function_and_sample_them_to_vport_0() {
    for profile in ["bluefield-2", "bluefield-3"] {
        let mut testpmd = Testpmd::start_with_switch(profile);
        testpmd.listen("vport-0");
        testpmd.command("set fwd rxonly");
        testpmd.command("start");
        testpmd.command("set sample_actions 0 port_id id 2 / end");
        // Samples go where libmlx5 has packets go that miss, which is vport 0 there: not this processor's function, but the host's.
        testpmd.command("set sample_actions 1 / end");
        testpmd.flow("0 transfer group 0 pattern eth / end actions jump group 1 / end");
        testpmd.flow(
            "0 transfer group 1 pattern eth / ipv4 dst is 10.0.0.3 / end actions sample ratio 1 index 0 / port_id id 1 / end",
        );
        testpmd.flow(
            "0 transfer group 1 pattern eth / ipv4 dst is 10.0.0.4 / end actions sample ratio 2 index 1 / port_id id 1 / end",
        );
        testpmd.send(WIRE, &packet([10, 0, 0, 3], 64, 99));
        for port in ["vport-1", "vport-2"] {
            assert_eq!(testpmd.receive(port), packet([10, 0, 0, 3], 64, 99));
        }
        for _ in 0..4 {
            testpmd.send(WIRE, &packet([10, 0, 0, 4], 64, 99));
            assert_eq!(testpmd.receive("vport-1"), packet([10, 0, 0, 4], 64, 99));
        }
        for _ in 0..2 {
            assert_eq!(testpmd.receive("vport-0"), packet([10, 0, 0, 4], 64, 99));
        }
        testpmd.ends["vport-0"].set_nonblocking(true).unwrap();
        assert!(testpmd.ends["vport-0"].recv(&mut [0; 64]).is_err(), "each second one alone");
        testpmd.quit();
    }
}
