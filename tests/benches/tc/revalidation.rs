//! The revalidator of ovs-vswitchd on flows that it has handed to tc: each from a packet of its own, since flows that are
//! added by hand go at the first round.

use std::time::Duration;

use sluice_offload_tc::wire::filter::Hook;
use sluice_tests::lab::{OffloadingVswitchd, Wire};
use sluice_tests::revalidating::{NARROW, frame};

use crate::agent::Agent;
use crate::lab::{index, listed};

/// Its port at which packets come in.
pub(crate) const INPUT: &str = "ovs3";
/// Times that all packets are sent at most: some are dropped when the daemon is late.
const PASSES: usize = 50;
/// Frames that are sent without a pause.
const BURST: usize = 64;

/// Processor time that a round takes ours and OVS, each with so many flows.
pub(crate) fn rounds(
    rounds: usize,
    flows: usize,
    (agent, ovs): (&Agent, &OffloadingVswitchd),
    wire: &Wire,
    to: &str,
) -> Vec<[Duration; 2]> {
    agent.install(&agent.file(flows));
    ovs.set_rule(&format!("{NARROW},output:{to}"));
    ovs.revalidate(flows);
    let hook = Hook::Ingress { interface: index(INPUT) };
    for _ in 0..PASSES {
        for burst in (0..flows).collect::<Vec<_>>().chunks(BURST) {
            burst.iter().for_each(|number| wire.send(&frame(*number)));
            std::thread::sleep(Duration::from_millis(20));
        }
        if listed(hook) == flows {
            break;
        }
    }
    assert_eq!(listed(hook), flows, "each packet has made a rule of OVS");
    let measured = (0..rounds).map(|_| [agent.revalidation(2), ovs.rounds(2) / 2]).collect();
    assert_eq!(listed(hook), flows, "OVS kept its rules");
    agent.clear();
    measured
}
