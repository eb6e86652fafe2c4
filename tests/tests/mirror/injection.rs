//! Frames that are injected into a TAP, in a network namespace.

use std::time::Duration;

use sluice_control::mirror::Class;
use sluice_mirror::collector::{Outputs, open_tap};
use sluice_mirror::source::Batching;
use sluice_tests::lab::run;
use sluice_tests::mlx5::in_network_namespace;

use crate::agent::Agent;
use crate::rig::{CONFIG, Rig, frame, play, speak, until};

#[test]
fn a_tap_that_is_down_takes_frames_once_it_is_up_and_one_that_is_deleted_is_made_anew() {
    let name = "injection::a_tap_that_is_down_takes_frames_once_it_is_up_and_one_that_is_deleted_is_made_anew";
    in_network_namespace("bluefield-3", name, |_| {
        play(async {
            run("ip link set lo up");
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let outputs = Outputs { tap: Some(open_tap("tap0").unwrap()), ..Outputs::default() };
            let collector = rig.collect_into(outputs, &CONFIG).await;
            let sender = rig.send(Batching { age: Duration::ZERO, ..Batching::default() });
            let mut agent = speak(agent, Agent::greet).await;
            let counts =
                || ["injected_frames_total", "dropped_frames_total"].map(|name| rig.collected(name, Class::Lldp));
            for (number, (before, expected)) in (0..).zip([
                ("ip link show tap0", [1, 0]),
                ("ip link set tap0 down", [1, 1]),
                ("ip link set tap0 up", [2, 1]),
                ("ip link delete tap0", [3, 1]),
                ("ip link show tap0", [4, 1]),
            ]) {
                run(before);
                agent = speak(agent, move |agent| agent.copy(&frame(Class::Lldp, number, 64))).await;
                until(counts, |counts| *counts == expected).await;
            }
            collector.stop().await;
            sender.stop().await;
        });
    });
}
