//! What it costs to take the flows of an ovs-vswitchd over: all that has to be done until the device has them, and the source's part of it,
//! beside the same messages that are decoded and thrown away.
//!
//! The daemon has the NIC in software and its log of flows. An ovs-vswitchd that hands flows over comes with 50,000 of 10 masks, as one does whose
//! agent has started again. Writes `target/bench/feed.json`.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use serde_json::{Value, json};
use sluice_feed_ovs::wire::{FlowMessage, now};
use sluice_tests::bench::{self, cpu_timed, median};
use sluice_tests::daemon::{Daemon, time_of_threads};
use sluice_tests::openvswitch::provider::{NEW, Provider, flow_message};
use sluice_tests::world::{SEED, eventually};

const FLOWS: usize = 50_000;
const ROUNDS: usize = 5;
const PORTS: &[&str] = &["p1", "p2", "p3", "p4", "p5"];
const CONFIG: &str = "[source.ovs]\nhanded_over = true\n";
/// Bytes of the header of netlink.
const HEADER: usize = 16;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let messages: Vec<_> = bench::five_tuples(FLOWS, &SEED)
        .map(|flow| flow_message(NEW, flow.ufid, &flow.matching().expand(), &flow.actions))
        .collect();
    let daemon = Daemon::start(CONFIG);
    let (mut all, mut source, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (of_all, of_source) = take_over(&daemon, &messages);
        all.push(of_all.as_secs_f64());
        source.push(nanoseconds(of_source));
        ratios.push(of_source.as_secs_f64() / decode(&messages).as_secs_f64());
    }
    let (all, source, ratio) = (median(&all), median(&source), median(&ratios));
    let peer = source / ratio;
    println!("{FLOWS} flows, processor time of the whole daemon: {all:.2} s");
    println!("the source's part: {source:.0} ns a flow; decoded and thrown away: {peer:.0}; ratio {ratio:.2}");
    bench::write("feed", &json!({ "rounds": ROUNDS, "flows": FLOWS, "rows": rows(all, source, peer, ratio) }));
}

fn rows(all: f64, source: f64, peer: f64, ratio: f64) -> [Value; 2] {
    [
        json!({
            "name": format!("{FLOWS} flows that come back to an agent, until all have rules"), "unit": "s of CPU",
            "ours": all, "to_reach": "2", "reached": all <= 2.0,
        }),
        json!({
            "name": "a flow that is handed over, by the source ÷ decoded and thrown away", "unit": "ns of CPU",
            "ours": source, "peer": peer, "ratio": ratio, "to_reach": "1.5", "reached": ratio <= 1.5,
        }),
    ]
}

/// What the daemon and its source take for all flows, from the connection until the device has them.
fn take_over(daemon: &Daemon, messages: &[Vec<u8>]) -> (Duration, Duration) {
    let spent = || (time_of_threads(daemon.pid(), ""), time_of_threads(daemon.pid(), "source-"));
    let placed = |count: usize| {
        eventually("the device has all", || {
            // The page of metrics costs the daemon something, too.
            std::thread::sleep(Duration::from_millis(20));
            daemon.metric("sluice_flows_placed{placement=\"hardware\"}") == Some(count as f64)
        });
    };
    let before = spent();
    let vswitchd = Provider::connect_to(daemon, PORTS);
    messages.iter().for_each(|message| vswitchd.send(message));
    placed(messages.len());
    let after = spent();
    drop(vswitchd);
    placed(0);
    (after.0 - before.0, after.1 - before.1)
}

/// What a thread takes that receives the same messages, decodes them and does no more.
fn decode(messages: &[Vec<u8>]) -> Duration {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (sender, receiver) = pair.expect("a pair of sockets");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            messages.iter().for_each(|message| _ = send(&sender, message, SendFlags::empty()));
        });
        let decoded = || {
            let mut buffer = vec![0; 1 << 16];
            for _ in messages {
                let (length, _) = recv(&receiver, &mut buffer[..], RecvFlags::empty()).expect("a message");
                let read = FlowMessage::read(&buffer[HEADER..length], now()).expect("a message of ours");
                assert!(std::hint::black_box(read).ufid.is_some());
            }
        };
        cpu_timed(decoded).0
    })
}

fn nanoseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e9 / FLOWS as f64
}
