//! How fast a file of flows is taken on and installed: by `sluiced` with the software NIC and with its log of flows, as by default, and
//! by ovs-vswitchd with its dummy datapath, with hardware offload on and off: by the one of Debian's release, and by the newest that
//! Debian has.
//!
//! The same file in turns in one run, once through the control socket (`dpctl/add-flows FILE`, which either daemon reads)
//! and once as a user does it (`sluice add-flows`, `ovs-appctl dpctl/add-flows`). Ours is done when every flow is installed
//! and logged. The peer is taken to be done when it answers, although its offload thread may still be at work then; that is
//! waited for outside of the measurement. The peer's revalidator is paused, for it would delete the flows; ours polls.
//!
//! Walls suffer from whatever else the machine does, so that the processor time of each daemon stands beside them.
//! Writes `target/bench/add_flows.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_control::Client;
use sluice_flow::text::{self, LineReader, Style};
use sluice_tests::bench::{self, median, timed};
use sluice_tests::daemon::{Daemon, new_folder};
use sluice_tests::vswitchd::{Release, Vswitchd};
use sluice_tests::world::SEED;

/// Lines of the file that counts.
const LINES: usize = 100_000;
/// Lines of all files.
const SIZES: [usize; 3] = [10_000, LINES, 1_000_000];
const ROUNDS: usize = 5;
/// A file that takes the peers longer than this is measured without them.
const PATIENCE_WITH_PEERS: Duration = Duration::from_secs(60);
/// How long a daemon may take to become idle again.
const PATIENCE: Duration = Duration::from_secs(180);

/// With and without hardware offload: how many times as fast ours is to be through the socket and through the command line.
const PEERS: [Peer; 4] = [
    Peer { release: Release::System, offload: true, to_reach: [10.0, 8.0] },
    Peer { release: Release::System, offload: false, to_reach: [4.0, 3.0] },
    Peer { release: Release::Newest, offload: true, to_reach: [10.0, 8.0] },
    Peer { release: Release::Newest, offload: false, to_reach: [4.0, 3.0] },
];
const WAYS: [Way; 2] = [Way::Socket, Way::CommandLine];

struct Peer {
    release: Release,
    offload: bool,
    to_reach: [f64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Socket,
    CommandLine,
}

/// One run of one daemon.
#[derive(Clone, Copy)]
struct Sample {
    wall: Duration,
    processor: Duration,
}

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let (mut rows, mut growth) = (Vec::new(), Vec::new());
    let mut slowest = Duration::ZERO;
    for lines in SIZES {
        let peers = if lines <= LINES || slowest * 10 < PATIENCE_WITH_PEERS { &PEERS[..] } else { &[] };
        let folder = new_folder();
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("flows.txt");
        fs::write(&file, lines_for_both(lines)).unwrap();
        let found = compare(&file, lines, peers, &mut rows);
        slowest = found.slowest;
        for (name, value) in found.rates {
            growth.push(json!({ "name": name, "flows": lines, "value": value, "unit": "lines/s" }));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    let parse = parse_alone();
    println!("text alone, nanoseconds a line: {:.0} one by one, {:.0} by a reader of many", parse[0], parse[1]);
    let result = json!({
        "rows": rows,
        "growth": growth,
        "parse": { "unit": "ns/line", "one_by_one": parse[0], "reader": parse[1] },
    });
    bench::write("add_flows", &result);
}

/// What one file showed.
struct Found {
    /// Lines a second by who and how.
    rates: Vec<(String, f64)>,
    /// The longest time that a peer took for it.
    slowest: Duration,
}

/// Measures ours and some peers on one file.
fn compare(file: &Path, lines: usize, compared: &[Peer], rows: &mut Vec<Value>) -> Found {
    let rounds = if lines > LINES { 1 } else { ROUNDS };
    let ours = Daemon::start(&config());
    let peers: Vec<_> = compared.iter().map(Peer::start).collect();
    let mut samples = WAYS.map(|_| (Vec::new(), vec![Vec::new(); peers.len()]));
    for _ in 0..rounds {
        for (way, (of_ours, of_peers)) in WAYS.into_iter().zip(&mut samples) {
            of_ours.push(add_to_ours(&ours, way, file, lines));
            for (peer, of_peer) in peers.iter().zip(of_peers) {
                of_peer.push(add_to_peer(peer, way, file, lines));
            }
        }
    }
    println!("{lines} lines, median of {rounds}: lines a second, and processor time a line of the daemon");
    let middle = |samples: &[Sample]| Sample {
        wall: median(&samples.iter().map(|sample| sample.wall).collect::<Vec<_>>()),
        processor: median(&samples.iter().map(|sample| sample.processor).collect::<Vec<_>>()),
    };
    let processor = |sample: Sample| sample.processor.as_secs_f64() * 1e9 / lines as f64;
    let mut found = Found { rates: Vec::new(), slowest: Duration::ZERO };
    for ((way, index), (of_ours, of_peers)) in WAYS.iter().zip(0..).zip(&samples) {
        let our_middle = middle(of_ours);
        found.rates.push((format!("{}, ours", way.name()), per_second(lines, our_middle.wall)));
        println!("{:<70} {:>9.0}", found.rates[found.rates.len() - 1].0, per_second(lines, our_middle.wall));
        for ((peer, of_peer), vswitchd) in compared.iter().zip(of_peers).zip(&peers) {
            let who = format!("OVS {} with hw-offload {}", vswitchd.version(), if peer.offload { "on" } else { "off" });
            let name = format!("add-flows through the {}, {who}", way.name());
            let peer_middle = middle(of_peer);
            found.slowest = found.slowest.max(peer_middle.wall);
            found.rates.push((format!("{}, {who}", way.name()), per_second(lines, peer_middle.wall)));
            // Pair by pair, for what disturbs one disturbs the other.
            let ratios: Vec<_> = of_ours
                .iter()
                .zip(of_peer)
                .map(|(our, peer)| peer.wall.as_secs_f64() / our.wall.as_secs_f64())
                .collect();
            let [our_rate, peer_rate] = [our_middle, peer_middle].map(|sample| per_second(lines, sample.wall));
            let [our_processor, peer_processor] = [our_middle, peer_middle].map(processor);
            println!(
                "{name:<70} {our_rate:>9.0} {peer_rate:>9.0} {:>5.1} times (to reach: {}); {our_processor:>5.0} ns and {peer_processor:>5.0} ns",
                median(&ratios),
                peer.to_reach[index],
            );
            if lines == LINES {
                rows.push(json!({
                    "name": name,
                    "unit": "lines/s",
                    "ours": our_rate,
                    "peer": peer_rate,
                    "ratio": median(&ratios),
                    "to_reach": peer.to_reach[index],
                    "processor": { "unit": "ns/line", "ours": our_processor, "peer": peer_processor },
                }));
            }
        }
    }
    found
}

fn add_to_ours(ours: &Daemon, way: Way, file: &Path, lines: usize) -> Sample {
    let name = file.display().to_string();
    let before = processor_time(ours.pid());
    let (wall, ()) = timed(|| match way {
        Way::Socket => ask(&ours.socket(), &name),
        Way::CommandLine => {
            let ran = ours.sluice(&["add-flows", &name]);
            assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        }
    });
    let processor = processor_time(ours.pid()) - before;
    assert_eq!(ours.metric("sluice_flows{state=\"offloaded\"}"), Some(lines as f64), "every flow is installed");
    // It may say that not all is gone yet.
    ours.sluice(&["flush"]);
    patiently("the flows are gone", || ours.metric("sluice_flows{state=\"offloaded\"}") == Some(0.0));
    Sample { wall, processor }
}

fn add_to_peer(peer: &Vswitchd, way: Way, file: &Path, lines: usize) -> Sample {
    let name = file.display().to_string();
    let before = processor_time(peer.pid());
    let (wall, ()) = timed(|| match way {
        Way::Socket => ask(Path::new(&peer.path("vswitchd.ctl")), &name),
        Way::CommandLine => {
            let ran = peer.appctl(&["dpctl/add-flows", &name]);
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        }
    });
    let processor = processor_time(peer.pid()) - before;
    let flows = peer.appctl(&["dpctl/show"]).out;
    assert!(flows.contains(&format!("flows: {lines}\n")), "every flow is in the datapath: {flows}");
    offload_thread_rests(peer);
    let ran = peer.appctl(&["dpctl/del-flows"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    offload_thread_rests(peer);
    Sample { wall, processor }
}

fn offload_thread_rests(peer: &Vswitchd) {
    patiently("the offload thread of the peer has nothing to do", || {
        let statistics = peer.appctl(&["dpctl/offload-stats-show"]).out;
        let queued = statistics.lines().find(|line| line.contains("Total") && line.contains("Enqueued offloads:"));
        // Without offload there are no statistics.
        queued.is_none_or(|line| line.trim_end().ends_with(" 0"))
    });
}

fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(socket: &Path, file: &str) {
    let mut client = Client::connect(socket).expect("it listens");
    let answer = client.call_text("dpctl/add-flows", &[file]).expect("the file is taken");
    assert_eq!(answer, "", "no line is wrong");
}

fn config() -> String {
    let mut config = "idle_timeout = \"none\"\nflow_limit = 2000000\n".to_owned();
    for port in 1..=5 {
        write!(config, "[[port]]\nnumber = {port}\nname = \"p{port}\"\n").unwrap();
    }
    config
}

/// Flows in the only form that the peer reads from a file: key, blank, actions.
fn lines_for_both(count: usize) -> String {
    let mut lines = String::new();
    for flow in bench::five_tuples(count, &SEED) {
        text::write_key(&mut lines, &flow.matching(), &Style::default()).unwrap();
        lines.push(' ');
        text::write_actions(&mut lines, &flow.actions, &Style::default()).unwrap();
        lines.push('\n');
    }
    lines
}

/// Nanoseconds a line for the text alone: each line by itself, and by a reader of many.
fn parse_alone() -> [f64; 2] {
    let file = lines_for_both(LINES);
    let mut samples = [Vec::new(), Vec::new()];
    let nanos = |wall: Duration| wall.as_secs_f64() * 1e9 / LINES as f64;
    for _ in 0..ROUNDS {
        let one_by_one = || file.lines().filter(|line| text::parse_line(line, &()).is_ok()).count();
        let by_reader = || {
            let mut reader = LineReader::new(&());
            file.lines().filter(|line| reader.read(line).is_ok()).count()
        };
        for (samples, (wall, read)) in samples.iter_mut().zip([timed(one_by_one), timed(by_reader)]) {
            assert_eq!(read, LINES);
            samples.push(nanos(wall));
        }
    }
    samples.map(|samples| median(&samples))
}

/// What a process has used of the processors so far, in user and in system mode (`proc_pid_stat(5)`, fields 14 and 15).
fn processor_time(process: u32) -> Duration {
    /// `USER_HZ`, which is 100 on every Linux that there is.
    const TICK: Duration = Duration::from_millis(10);
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("its statistics");
    // The name, in parentheses, may have blanks.
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let fields: Vec<_> = after_name.split_whitespace().collect();
    let ticks: u32 = [fields[11], fields[12]].iter().map(|ticks| ticks.parse::<u32>().expect("a number")).sum();
    TICK * ticks
}

fn per_second(lines: usize, wall: Duration) -> f64 {
    lines as f64 / wall.as_secs_f64()
}

impl Peer {
    fn start(&self) -> Vswitchd {
        Vswitchd::start_of(self.release, &[&format!("other_config:hw-offload={}", self.offload)])
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Socket => "control socket",
            Self::CommandLine => "command line",
        }
    }
}
