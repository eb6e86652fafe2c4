//! What no rule in hardware takes: it reaches the kernel by a representor's receive queues, and the kernel's answers go back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sluice_connectx::steering::Port;

use crate::agent::{Agent, flow_of, ufid};
use crate::frames::{HOST, checksum, ethernet};
use crate::{VF0, World};

const ADDRESS: [u8; 4] = [10, 0, 0, 1];

/// Plays a host with [`ADDRESS`] behind a function until the work is done: it answers ARP and echo requests.
fn with_host<R>(world: &World, at: Port, work: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut walks = vec![];
            while !is_over.load(Ordering::Relaxed) {
                let sent = world.hca.lock().take_sent();
                let requests = sent.iter().filter(|(port, _)| *port == at);
                walks.extend(requests.filter_map(|(_, frame)| Some(world.receive(at, &answer(frame)?))));
                thread::sleep(Duration::from_millis(1));
            }
            walks
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        let walks = host.join().expect("the host has lived");
        outcome.unwrap_or_else(|reason| {
            walks.iter().for_each(|walk| eprintln!("an answer: {walk}"));
            std::panic::resume_unwind(reason)
        })
    })
}

fn answer(request: &[u8]) -> Option<Vec<u8>> {
    const ECHO_REQUEST: u8 = 8;
    let payload = request.get(14..)?;
    let mut answer = match request.get(12..14)? {
        [0x08, 0x06] if payload.get(6..8)? == [0, 1] && payload.get(24..28)? == ADDRESS => {
            let sender = &payload[8..18];
            let reply = [&payload[..7], &[2], &HOST, &ADDRESS, sender].concat();
            ethernet(0x0806, &reply)
        }
        [0x08, 0x00] if payload.get(9) == Some(&1) && payload.get(20) == Some(&ECHO_REQUEST) => {
            let mut message = payload[20..].to_vec();
            message[0] = 0;
            message[2..4].fill(0);
            let sum = checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
            let mut header = payload[..20].to_vec();
            header[12..16].copy_from_slice(&payload[16..20]);
            header[16..20].copy_from_slice(&payload[12..16]);
            ethernet(0x0800, &[header, message].concat())
        }
        _ => return None,
    };
    answer[..6].copy_from_slice(&request[6..12]);
    answer[6..12].copy_from_slice(&HOST);
    Some(answer)
}

pub(crate) fn what_no_rule_takes_reaches_the_representor_and_answers_go_back(world: &World) {
    let guest = &world.guest;
    guest.run("ip address add 10.0.0.254/24 dev pf0vf0; ip link set p0 up; ip link set pf0vf0 up");
    let ping = || guest.run("busybox ping -c 5 -W 5 10.0.0.1; busybox ping -c 2 -s 1400 -W 5 10.0.0.1");
    let said = with_host(world, VF0, ping);
    assert!(said.contains("5 packets received, 0% packet loss"), "{said}");
    assert!(said.contains("2 packets received, 0% packet loss"), "{said}");
    guest.run("ip address del 10.0.0.254/24 dev pf0vf0");
}

pub(crate) fn a_namespace_talks_to_a_host_by_flows_that_hardware_cannot_take(world: &World) {
    let guest = &world.guest;
    guest.run(
        "ip netns add tenant
         ip link add uplink type veth peer name eth0 netns tenant
         ip link set uplink up
         ip -n tenant address add 10.0.0.254/24 dev eth0
         ip -n tenant link set eth0 up
         ip link set pf0vf0 up",
    );
    let agent = Agent::start_with(world, "none", "[[port]]\nnumber = 9\nname = \"uplink\"\n");
    for (number, from, to) in [(1, "uplink", "pf0vf0"), (3, "pf0vf0", "uplink")] {
        agent.add(&format!("{},in_port({from}),eth_type(0x0800),ipv4(frag=no)", ufid(number)), to);
        agent.add(&format!("{},in_port({from}),eth_type(0x0806),arp()", ufid(number + 1)), to);
    }
    let ping = || guest.run("ip netns exec tenant busybox ping -c 5 -W 5 10.0.0.1");
    let said = with_host(world, VF0, ping);
    assert!(said.contains("5 packets received, 0% packet loss"), "{said}");
    agent.eventually("software has counted what it forwarded", |flows| {
        let of = |number| flow_of(flows, number);
        let is_counted = |number| of(number)["placement"] == "software only" && of(number)["packets"] == 5;
        is_counted(1) && is_counted(3)
    });
    agent.stop();
    guest.run("ip link del uplink; ip netns del tenant");
}
