//! What it costs to take the flows of an ovs-vswitchd over: all that has to be done until the device has them, and the source's part of it,
//! beside the same messages that are decoded and thrown away. And what they cost the source while no packet comes, beside the revalidator.
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
const CONFIG: &str = "poll_interval = \"500ms\"\n[source.ovs]\nhanded_over = true\n";
/// How often the revalidator polls, and the source looks at what it has found.
const POLL: Duration = Duration::from_millis(500);
/// After which all flows have been told of to ovs-vswitchd.
const TOLD: Duration = Duration::from_secs(3);
/// For how many polls no packet comes then.
const STILL: u32 = 10;
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
    let (mut all, mut source, mut ratios, mut still) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (taken, stood) = take_over(&daemon, &messages);
        all.push(taken.all.as_secs_f64());
        source.push(nanoseconds(taken.source));
        ratios.push(taken.source.as_secs_f64() / decode(&messages).as_secs_f64());
        still.push([stood.source, stood.revalidator].map(|span| nanoseconds(span / STILL)));
    }
    let (all, source, ratio) = (median(&all), median(&source), median(&ratios));
    let peer = source / ratio;
    let still = [0, 1].map(|who| median(&still.iter().map(|round| round[who]).collect::<Vec<_>>()));
    println!("{FLOWS} flows, processor time of the whole daemon: {all:.2} s");
    println!("the source's part: {source:.0} ns a flow; decoded and thrown away: {peer:.0}; ratio {ratio:.2}");
    println!("a round without packets: the source {:.0} ns a flow, the revalidator {:.0}", still[0], still[1]);
    bench::write("feed", &json!({ "rounds": ROUNDS, "flows": FLOWS, "rows": rows(all, source, peer, still) }));
}

fn rows(all: f64, source: f64, peer: f64, [still, revalidator]: [f64; 2]) -> [Value; 3] {
    let ratio = source / peer;
    [
        json!({
            "name": format!("{FLOWS} flows that come back to an agent, until all have rules"), "unit": "s of CPU",
            "ours": all, "to_reach": "2", "reached": all <= 2.0,
        }),
        json!({
            "name": "a flow that is handed over, by the source ÷ decoded and thrown away", "unit": "ns of CPU",
            "ours": source, "peer": peer, "ratio": ratio, "to_reach": "1.5", "reached": ratio <= 1.5,
        }),
        json!({
            "name": "a flow without packets, by a round of the source ÷ of the revalidator", "unit": "ns of CPU",
            "ours": still, "peer": revalidator, "ratio": still / revalidator,
            "to_reach": "1", "reached": still <= revalidator,
        }),
    ]
}

/// Processor time of the daemon.
#[derive(Clone, Copy)]
struct Spent {
    all: Duration,
    source: Duration,
    revalidator: Duration,
}

impl Spent {
    fn by(daemon: &Daemon) -> Self {
        let [all, source, revalidator] = ["", "source-", "revalidator"].map(|name| time_of_threads(daemon.pid(), name));
        Self { all, source, revalidator }
    }

    fn since(self, before: Self) -> Self {
        let (all, source) = (self.all - before.all, self.source - before.source);
        Self { all, source, revalidator: self.revalidator - before.revalidator }
    }
}

/// What the daemon takes for all flows, from the connection until the device has them; and then for polls without packets.
fn take_over(daemon: &Daemon, messages: &[Vec<u8>]) -> (Spent, Spent) {
    let placed = |count: usize| {
        eventually("the device has all", || {
            // The page of metrics costs the daemon something, too.
            std::thread::sleep(Duration::from_millis(20));
            daemon.metric("sluice_flows_placed{placement=\"hardware\"}") == Some(count as f64)
        });
    };
    let before = Spent::by(daemon);
    let vswitchd = Provider::connect_to(daemon, PORTS);
    messages.iter().for_each(|message| vswitchd.send(message));
    placed(messages.len());
    let taken = Spent::by(daemon).since(before);
    std::thread::sleep(TOLD);
    let before = Spent::by(daemon);
    std::thread::sleep(POLL * STILL);
    let stood = Spent::by(daemon).since(before);
    drop(vswitchd);
    placed(0);
    (taken, stood)
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
