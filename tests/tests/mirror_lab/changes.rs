//! Both programs as processes, while what they depend on changes under them: the RDMA device, and the collector that the agent names.

use std::process::Command;

use sluice_control::mirror::Class;
use sluice_tests::lab::run;
use sluice_tests::lab::soft_roce::DEVICE;

use crate::agent::{Agent, Copied};
use crate::lab::ADDRESS;
use crate::programs::{Program, until};
use crate::stories;

stories![
    both_programs_end_when_their_device_is_removed_and_serve_with_the_next_one,
    a_connected_sender_goes_to_the_collector_that_the_agent_names_next,
];

fn both_programs_end_when_their_device_is_removed_and_serve_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (listen, socket) = (format!("{ADDRESS}:4790"), folder.path().join("mirror.sock"));
    let capture = folder.path().join("control.pcapng");
    let mut agent = Agent::new(&socket);
    for is_last in [false, true] {
        let collector =
            Program::collect(folder.path(), &["--listen", &listen, "--write", capture.to_str().unwrap()]).ready();
        let args = ["--collector", &listen, "--agent", socket.to_str().unwrap(), "--no-rings"];
        let sender = Program::send(folder.path(), &args);
        agent.greet();
        agent.copy(&frame());
        until("the frame has arrived", || sender.metric("send_acknowledged_frames_total") == 1);
        if is_last {
            sender.stop();
            collector.stop();
            break;
        }
        // The kernel waits for those who have it open.
        let mut removal = Command::new("rdma").args(["link", "del", DEVICE]).spawn().unwrap();
        for program in [sender, collector] {
            let (code, log) = program.ended();
            let last = log.lines().last().unwrap_or_default();
            assert!(code == Some(1) && last.starts_with("sluice-mirror: the RDMA device is gone"), "{code:?}: {log}");
        }
        assert!(removal.wait().unwrap().success());
        run(&format!("rdma link add {DEVICE} type rxe netdev rdma0"));
        until("the port of the device is active", || {
            std::fs::read_to_string(format!("/sys/class/infiniband/{DEVICE}/ports/1/state"))
                .is_ok_and(|state| state.contains("ACTIVE"))
        });
    }
}

fn a_connected_sender_goes_to_the_collector_that_the_agent_names_next() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mirror.sock");
    let mut agent = Agent::new(&socket);
    let sender = Program::send(folder.path(), &["--agent", socket.to_str().unwrap(), "--no-rings"]);
    agent.greet();
    let mut collectors = Vec::new();
    for (port, metrics) in [(4790, "127.0.0.1:9321"), (4792, "127.0.0.1:9322")] {
        let listen = format!("{ADDRESS}:{port}");
        let capture = folder.path().join(format!("{port}.pcapng"));
        let args = ["--listen", &listen, "--write", capture.to_str().unwrap()];
        // The one before goes on.
        let collector = Program::collect_at(folder.path(), metrics, &args).ready();
        agent.plan_to(&listen, &["client"]);
        until("frames arrive there", || {
            agent.copy(&frame());
            collector.metric("collect_written_frames_total") > 0
        });
        collectors.push(collector);
    }
    sender.stop();
    collectors.into_iter().for_each(Program::stop);
}

fn frame() -> Copied {
    let bytes = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xcc], &[0; 46]].concat();
    Copied { class: Class::Lldp, in_port: 1, ufid: None, bytes }
}
