//! What a collector that stands still costs those who are not to notice it: installations, and packets that are forwarded.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_control::Client;
use sluice_tests::bench::{quantile, timed};
use sluice_tests::daemon::{Daemon, binary, new_folder};
use sluice_tests::http::samples;
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::batch;
use sluice_tests::world::eventually;

use crate::flood::frame;
use crate::lab::ADDRESS;
use crate::rows::{Goal, Rows};

/// For how long the collector stands still, and each run without a mirror is measured.
const SPAN: Duration = Duration::from_secs(60);
/// Between two frames of ARP, in every run.
const PAUSE_OF_ARP: Duration = Duration::from_millis(1);
/// Between two installations, and between two packets that are forwarded.
const PAUSE: Duration = Duration::from_millis(5);
/// The ports, of which the first is tapped.
const NETDEVS: [&str; 2] = ["stand0", "stand1"];
/// Where the sender tells its metrics, and where the collector writes.
const METRICS: &str = "127.0.0.1:9320";
const CAPTURE: &str = "/tmp/standing.pcapng";
/// What the agent runs with; the mirror comes on top.
const CONFIG: &str = "backend = \"tc\"
tc.policy = \"skip_hw\"
idle_timeout = \"none\"
[[port]]
number = 1
name = \"stand0\"
[[port]]
number = 2
name = \"stand1\"
";

/// The times that one in a hundred exceeds, in us.
#[derive(Debug, Clone, Copy)]
struct Found {
    installation: f64,
    packet: f64,
}

/// One of the times.
type Time = fn(&Found) -> f64;

pub(crate) fn standing(rounds: usize, rows: &mut Rows) {
    let wires = NETDEVS.map(Wire::new);
    batch(&NETDEVS.map(|netdev| format!("link set {netdev} arp off up")));
    let found: Vec<_> = (0..rounds)
        .map(|_| {
            let found = [false, false, true].map(|mirrors| measure(&wires, mirrors));
            println!(
                "  without a mirror {:.0?} and {:.0?}, beside a collector that stands still {:.0?}",
                found[0], found[1], found[2]
            );
            found
        })
        .collect();
    let parts: [(&str, Time); 2] =
        [("an installation", |found| found.installation), ("a forwarded packet", |found| found.packet)];
    for (name, part) in parts {
        let against_the_first =
            |run: usize| found.iter().map(|runs| [part(&runs[run]), part(&runs[0])]).collect::<Vec<_>>();
        let again = against_the_first(1);
        let noise = again.iter().map(|[one, other]| (one / other).max(other / one)).fold(1.0, f64::max);
        rows.add(&format!("p99 of {name}, two runs without a mirror"), "us", &again, Goal::Told);
        let name = format!("p99 of {name} beside a collector that stands still against no mirror");
        rows.add(&name, "us", &against_the_first(2), Goal::Most(noise));
    }
}

/// A run with ARP on the wire, which is mirrored or not.
fn measure(wires: &[Wire; 2], mirrors: bool) -> Found {
    let mirror = if mirrors { format!("[mirror]\ncollector = \"{ADDRESS}:4790\"\n") } else { String::new() };
    let agent = Daemon::start_in(&new_folder(), &format!("{CONFIG}{mirror}"), true);
    let mut client = Client::connect(&agent.socket()).expect("it listens");
    client.call_text("dpctl/add-flow", &["in_port(1),eth_type(0x88b5)", "2"]).expect("it is installed");
    let found = std::thread::scope(|scope| {
        // Its end, by a panic too, ends the thread.
        let (_goes_on, is_over) = mpsc::channel::<()>();
        scope.spawn(move || {
            let arp = frame([0x08, 0x06], &[0, 1, 8, 0, 6, 4, 0, 1]);
            while is_over.recv_timeout(PAUSE_OF_ARP) == Err(RecvTimeoutError::Timeout) {
                wires[0].send(&arp);
            }
        });
        let _ends = mirrors.then(|| Ends::start(&agent));
        let packets = scope.spawn(|| forward(wires));
        let installation = install(&mut client);
        let packet = packets.join().expect("packets come through");
        Found { installation, packet }
    });
    assert_eq!(agent.sluice(&["exit", "--cleanup"]).code, Some(0));
    found
}

/// The time of each installation, of flows that come one by one; each is deleted before the next.
fn install(client: &mut Client) -> f64 {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < SPAN {
        let flow = "in_port(2),eth_type(0x88b6)";
        let (time, _) = timed(|| client.call_text("dpctl/add-flow", &[flow, "1"]).expect("it is installed"));
        times.push(time.as_secs_f64() * 1e6);
        client.call_text("dpctl/del-flow", &[flow]).expect("it is deleted");
        std::thread::sleep(PAUSE);
    }
    quantile(&times, 0.99)
}

/// The time of each packet from one port to the other, one by one.
fn forward([from, to]: &[Wire; 2]) -> f64 {
    let packet = frame([0x88, 0xb5], &[]);
    let (began, mut times, mut buffer) = (Instant::now(), Vec::new(), [0; 256]);
    while began.elapsed() < SPAN {
        let sent = Instant::now();
        from.send(&packet);
        while to.receive(&mut buffer).is_none_or(|received| received != packet) {
            assert!(sent.elapsed() < Duration::from_secs(10), "a packet is lost");
            std::thread::yield_now();
        }
        times.push(sent.elapsed().as_secs_f64() * 1e6);
        std::thread::sleep(PAUSE);
    }
    quantile(&times, 0.99)
}

/// Both programs of the mirror, of which the collector stands still.
struct Ends {
    sender: Child,
    collector: Child,
}

impl Ends {
    /// Returns once nothing is granted any more and the ring is full.
    fn start(agent: &Daemon) -> Self {
        let start = |words: &[&str]| {
            let mut command = Command::new(binary("sluice-mirror"));
            command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
            command.spawn().expect("it starts")
        };
        let collector =
            start(&["collect", "--listen", &format!("{ADDRESS}:4790"), "--write", CAPTURE, "--metrics", "none"]);
        let socket = agent.run_dir().join("mirror.sock");
        let socket = socket.to_str().expect("a name of ours");
        let sender = start(&["send", "--agent", socket, "--name", "bench", "--metrics", METRICS]);
        let this = Self { sender, collector };
        let sum = |metric: &str| samples(METRICS, metric).iter().map(|(_, count)| count).sum::<u64>();
        eventually("frames are acknowledged", || sum("sluice_mirror_send_acknowledged_frames_total") > 0);
        kill_process(Pid::from_child(&this.collector), Signal::STOP).expect("a process of ours");
        eventually("frames are dropped", || sum("sluice_mirror_send_dropped_frames_total") > 0);
        this
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for process in [&mut self.sender, &mut self.collector] {
            // One that has ended is gone already.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_file(CAPTURE);
    }
}
