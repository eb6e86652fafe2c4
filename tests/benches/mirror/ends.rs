//! Both ends, and the readers that they are compared with, as processes of their own: this program again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use sluice_control::mirror::{Class, ClassSet, Plan, Tap, filter};
use sluice_mirror::cm::{Acceptor, Dialer};
use sluice_mirror::collector::{Collector, CollectorConfig, CollectorMetrics, Outputs};
use sluice_mirror::connection::Local;
use sluice_mirror::program::runtime;
use sluice_mirror::sender::{self, Sender, SenderConfig, SenderMetrics};
use sluice_mirror::source::Source;
use sluice_mirror::source::ring::{Ring, RingSize, RingSource};
use sluice_tests::bench::processor_time;
use tokio::sync::oneshot;

use sluice_tests::lab::soft_roce::DEVICE;

use crate::lab::{ADDRESS, settings};
use crate::sources::{Counted, Frames, Progress, ifindex};

/// As the program has it.
const GRANTS: u32 = 256;

/// The sizes that the program has by default.
pub(crate) const RING: RingSize =
    RingSize { block_bytes: 64 << 10, blocks: 64, retire_after: Duration::from_millis(1) };

/// An end that runs. It says what it has found when it is told to stop, or once it has done all.
pub(crate) struct End {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl End {
    pub(crate) fn start(part: &str, options: &Value) -> Self {
        let myself = std::env::current_exe().expect("a program knows its name");
        let mut command = Command::new(myself);
        command.args(["--be", part, &options.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// A collector with so much credit for a class, and the port that it listens at.
    pub(crate) fn collector(messages: u32, sink: &str) -> (Self, u64) {
        let mut end = Self::start("collector", &json!({ "messages": messages, "sink": sink }));
        let port = end.said()["port"].as_u64().expect("a port");
        (end, port)
    }

    /// What it says next.
    pub(crate) fn said(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it says something");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Tells it to stop, and returns what it has found.
    pub(crate) fn stop(mut self) -> Value {
        self.stdin = None;
        self.end()
    }

    /// Waits until it has done all, and returns what it has found; tells it to stop if that takes longer than so.
    pub(crate) fn end_within(mut self, patience: Duration) -> Value {
        let stdin = self.stdin.take();
        let (told, is_over) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            // It goes on where it is told to stop, too.
            let _ = is_over.recv_timeout(patience);
            drop(stdin);
        });
        let found = self.end();
        drop(told);
        waits.join().expect("it waits");
        found
    }

    fn end(mut self) -> Value {
        let found = self.said();
        assert!(self.child.wait().expect("it is waited for").success(), "an end has failed: {found}");
        found
    }
}

/// Plays an end, if this process is to be one.
pub(crate) fn is_end() -> bool {
    let words: Vec<String> = std::env::args().collect();
    let Some(place) = words.iter().position(|word| word == "--be") else { return false };
    let options: Value = serde_json::from_str(&words[place + 2]).expect("JSON");
    match &*words[place + 1] {
        "collector" => collect(&options),
        "sender" => send(&options),
        "reader" => read(&options),
        "sink" => sink(),
        other => panic!("{other}"),
    }
    true
}

fn say(what: &Value) {
    println!("{what}");
    std::io::stdout().flush().expect("somebody listens");
}

/// Ends once nobody holds the other end of the standard input.
async fn told_to_stop() {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        // Whatever it says then, it is over.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = tell.send(());
    });
    let _ = told.await;
}

fn number(options: &Value, name: &str) -> u64 {
    options[name].as_u64().unwrap_or_else(|| panic!("{name} in {options}"))
}

fn collect(options: &Value) {
    let messages = u32::try_from(number(options, "messages")).expect("few");
    let longest = 68 << 10;
    let config = CollectorConfig { messages, bytes: u64::from(messages) * u64::from(longest), longest, connections: 1 };
    let times = crate::latency::Times::default();
    runtime().expect("a runtime").block_on(async {
        let local = Local::open(DEVICE, config.capacity()).expect("the device");
        let registry = Registry::new();
        let metrics = CollectorMetrics::new(&registry).expect("metrics");
        let pipe = (options["sink"] == "times").then(|| Box::new(times.clone()) as Box<dyn Write + Send>);
        let outputs = Outputs { pipe, ..Outputs::default() };
        let collector = Collector::new(local, config, outputs, metrics).expect("a collector");
        let acceptor = Acceptor::bind(&format!("{ADDRESS}:0"), settings()).await.expect("it listens");
        say(&json!({ "port": acceptor.port() }));
        collector.run(acceptor, told_to_stop()).await.expect("it goes on");
        say(&json!({ "frames": total(&registry, "sluice_mirror_collect_frames_total", ""), "times": times.found() }));
    });
}

/// The sum of a metric over all that have a label.
fn total(registry: &Registry, name: &str, label: &str) -> u64 {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.map(|line| line.rsplit(' ').next().and_then(|last| last.parse::<u64>().ok()).expect("a number")).sum()
}

fn send(options: &Value) {
    let total_frames = number(options, "total");
    runtime().expect("a runtime").block_on(async {
        let local = Local::open(DEVICE, sender::capacity(GRANTS)).expect("the device");
        let registry = Registry::new();
        let metrics = SenderMetrics::new(&registry).expect("metrics");
        let progress = Arc::new(Progress::default());
        let source: Box<dyn Source> = match options["netdev"].as_str() {
            Some(netdev) => {
                let mut rings = RingSource::new(local.domain(), RING);
                assert!(rings.follow(&plan(netdev, &options["classes"])).expect("rings").is_empty(), "the device is there");
                Box::new(Counted::new(rings, total_frames, &progress))
            }
            None => {
                let [length, a_batch, batches] =
                    ["length", "a_batch", "batches"].map(|name| usize::try_from(number(options, name)).expect("few"));
                Box::new(Frames::new(local.domain(), (length, a_batch as u64, batches), total_frames, &progress))
            }
        };
        let config = SenderConfig {
            name: "bench".into(),
            id: 1,
            back_off: (Duration::from_millis(50), Duration::from_secs(1)),
            heartbeat: Duration::from_millis(500),
        };
        let dialer = Dialer { address: format!("{ADDRESS}:{}", number(options, "port")), settings: settings() };
        let sender = Sender::new(local, config, vec![source], metrics);
        let spent_before = {
            let registry = registry.clone();
            tokio::spawn(async move {
                while total(&registry, "sluice_mirror_send_connected", "") == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                say(&json!("connected"));
                processor_time()
            })
        };
        let stop = async {
            tokio::select! {
                () = progress.done.notified() => {}
                () = told_to_stop() => {}
            }
        };
        sender.run(dialer, stop).await.expect("it goes on");
        let spent_before = spent_before.await.expect("it was connected");
        let spent = processor_time() - spent_before;
        let dropped = |label: &str| total(&registry, "sluice_mirror_send_dropped_frames_total", label);
        let by_class: BTreeMap<_, _> =
            Class::ALL.map(|class| (class.name(), dropped(&format!("class=\"{class}\"")))).into_iter().collect();
        let rounds: Vec<_> = progress.rounds().iter().map(|time| time.as_secs_f64() * 1e6).collect();
        say(&json!({
            "rate": progress.rate(), "frames": progress.frames(), "dropped": dropped(""), "by_class": by_class, "rounds": rounds,
            "cpu": spent.as_secs_f64() * 1e6 / progress.frames() as f64,
        }));
    });
}

/// Frames of one device, of these classes; without any, all.
fn plan(netdev: &str, classes: &Value) -> Plan {
    let named = classes.as_array().into_iter().flatten().map(|name| name.as_str().expect("a name").parse());
    let mut classes: ClassSet = named.collect::<Result<_, _>>().expect("classes");
    if classes == ClassSet::default() {
        classes = [Class::Flow].into_iter().collect();
    }
    let tap = Tap { in_port: Some(1), name: netdev.into(), netdev: Some(netdev.into()), classes };
    Plan { collector: String::new(), classes, taps: vec![tap] }
}

/// Reads a packet ring and throws all of it away.
fn read(options: &Value) {
    let (netdev, expected) = (options["netdev"].as_str().expect("a device"), number(options, "total"));
    runtime().expect("a runtime").block_on(async {
        let local = Local::open(DEVICE, sender::capacity(4)).expect("the device");
        let filter = filter::program_at(Class::Flow, &[ifindex(netdev)]).expect("one device");
        let mut ring = Ring::open(local.domain(), &filter, RING).expect("a ring");
        say(&json!("ready"));
        let spent_before = processor_time();
        let (mut frames, mut begun, mut last) = (0, None, Instant::now());
        let reading = async {
            while frames < expected {
                let block = ring.next().await.expect("a block");
                begun.get_or_insert((Instant::now(), u64::from(block.frames)));
                frames += u64::from(block.frames);
                last = Instant::now();
            }
        };
        tokio::select! {
            () = reading => {}
            () = told_to_stop() => {}
        }
        let spent = processor_time() - spent_before;
        let counts = ring.counts().expect("counts");
        let (begun, first) = begun.expect("frames came");
        say(&json!({
            "rate": (frames - first) as f64 / (last - begun).as_secs_f64(), "frames": frames, "dropped": counts.drops,
            "cpu": spent.as_secs_f64() * 1e6 / frames as f64,
        }));
    });
}

/// Takes what comes by TCP, and throws it away.
fn sink() {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("it listens");
    say(&json!({ "port": listener.local_addr().expect("an address").port() }));
    let (mut stream, _): (TcpStream, _) = listener.accept().expect("a connection");
    let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match stream.read(&mut buffer).expect("bytes") {
            0 => break,
            count => bytes += count,
        }
    }
    say(&json!({ "bytes": bytes }));
}
