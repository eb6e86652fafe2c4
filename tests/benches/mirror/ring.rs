//! From a packet ring to the collector's memory, and what that takes of the sender's processor.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ends::End;
use crate::generator::{ENDS, LENGTH, generate, prepare};
use crate::lab::ADDRESS;
use crate::rows::{Goal, Rows};

const FRAMES: u64 = 100_000;
/// After the generator has ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// One way of reading what the generator sends.
#[derive(Debug)]
struct Way {
    /// Frames a second, from the first to the last.
    rate: f64,
    /// Processor time of the process that reads, us a frame.
    cpu: f64,
    /// That of the whole machine, the generator's included.
    all: f64,
    dropped: u64,
}

pub(crate) fn ring(rounds: usize, rows: &mut Rows) {
    prepare();
    let rounds: Vec<_> = (0..rounds)
        .map(|_| {
            let ways = [ours(), bare(), tcpdump()];
            for (name, way) in ["ours", "bare", "tcpdump"].iter().zip(&ways) {
                println!("  {name}: {way:.2?}");
            }
            ways
        })
        .collect();
    let pairs = |figure: fn(&Way) -> f64, peer: usize| {
        rounds.iter().map(|ways| [figure(&ways[0]), figure(&ways[peer])]).collect::<Vec<_>>()
    };
    let rate = pairs(|way| way.rate, 1);
    rows.add("ring to the collector's memory against a bare reader", "frames/s", &rate, Goal::Least(0.95));
    let dropped: u64 = rounds.iter().map(|ways| ways[0].dropped).sum();
    println!("  {dropped} of {} frames were dropped", FRAMES * rounds.len() as u64);
    assert_eq!(dropped, 0, "no frame is dropped");
    let cpu = pairs(|way| way.cpu, 2);
    rows.add("processor time of the sender against tcpdump over TCP", "us a frame", &cpu, Goal::Most(0.5));
    let all = pairs(|way| way.all, 2);
    rows.add("the same of all that runs, generator and collector included", "us a frame", &all, Goal::Told);
}

fn ours() -> Way {
    let (collector, port) = End::collector(8, "nothing");
    let mut sender = End::start("sender", &json!({ "port": port, "netdev": ENDS[1], "total": FRAMES }));
    sender.said();
    let way = measured(|| sender.end_within(PATIENCE));
    let collected = collector.stop();
    assert_eq!(collected["frames"].as_u64(), Some(FRAMES - way.dropped), "all were collected");
    way
}

fn bare() -> Way {
    let mut reader = End::start("reader", &json!({ "netdev": ENDS[1], "total": FRAMES }));
    reader.said();
    measured(|| reader.end_within(PATIENCE))
}

/// Has the generator send, and returns what the reader has found.
fn measured(found: impl FnOnce() -> Value) -> Way {
    // What the connection took is over.
    std::thread::sleep(Duration::from_millis(500));
    let before = busy();
    generate(FRAMES);
    let found = found();
    let all = (busy() - before) * 1e6 / FRAMES as f64;
    let figure = |name: &str| found[name].as_f64().expect("a figure");
    let dropped = found["dropped"].as_u64().expect("a count");
    Way { rate: figure("rate"), cpu: figure("cpu"), all, dropped }
}

fn tcpdump() -> Way {
    /// Of a file and of a frame, in the format that it writes.
    const HEADERS: [u64; 2] = [24, 16];
    let mut sink = End::start("sink", &json!({}));
    let port = u16::try_from(sink.said()["port"].as_u64().expect("a port")).expect("a port");
    let stream = TcpStream::connect((ADDRESS, port)).expect("the sink listens");
    let mut command = Command::new("tcpdump");
    // As much memory as our ring has.
    command.args(["-i", ENDS[1], "-n", "-B", "4096", "-w", "-"]).stdin(Stdio::null());
    let mut child = command.stdout(OwnedFd::from(stream)).stderr(Stdio::piped()).spawn().expect("tcpdump is installed");
    // It holds the connection open.
    drop(command);
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let is_ready = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|line| line.contains("listening on"));
    said.find(is_ready).expect("it listens").expect("text");
    std::thread::sleep(Duration::from_millis(500));
    let spent = || {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).expect("it runs");
        text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).expect("nanoseconds") / 1e3
    };
    let (busy_before, spent_before) = (busy(), spent());
    let took = generate(FRAMES);
    // Until it rests.
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut silences) = (spent(), 0);
    while silences < 20 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        silences = if std::mem::replace(&mut last, spent()) == last { silences + 1 } else { 0 };
    }
    let (cpu, all) = (last - spent_before, (busy() - busy_before) * 1e6);
    let process = Pid::from_child(&child);
    kill_process(process, Signal::INT).expect("it is ours");
    let dropped = said
        .map(|line| line.expect("text"))
        .find_map(|line| line.strip_suffix(" packets dropped by kernel")?.parse().ok());
    child.wait().expect("it ends");
    let bytes = sink.stop()["bytes"].as_u64().expect("bytes");
    let came = (bytes - HEADERS[0]) / (HEADERS[1] + LENGTH);
    let dropped = dropped.expect("a count");
    assert_eq!(came + dropped, FRAMES, "all came or were dropped");
    let frames = FRAMES as f64;
    Way { rate: frames / took.as_secs_f64(), cpu: cpu / came as f64, all: all / frames, dropped }
}

/// For how long the processors were at work, in seconds.
fn busy() -> f64 {
    /// Of a second (`USER_HZ`).
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/stat").expect("Linux");
    let numbers = text.lines().next().expect("a line").split_whitespace().skip(1);
    let numbers: Vec<f64> = numbers.map(|number| number.parse().expect("a number")).collect();
    let idle = numbers[3] + numbers[4];
    (numbers.iter().take(8).sum::<f64>() - idle) / TICKS
}
