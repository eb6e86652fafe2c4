//! What showing all flows costs, beside ovs-vswitchd with the same flows in its dummy datapath.
//!
//! Both daemons are asked in turns for the same text, by the stock `ovs-appctl` and, ours, by `sluice`, too. Counted are the time
//! until the client has all of it and the CPU time that the daemon takes meanwhile, and then the memory that each takes more
//! while it dumps. Writes `target/bench/dump.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
#![allow(clippy::cast_precision_loss, reason = "measurements for people to read")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_flow::text::{LineWriter, Style};
use sluice_tests::bench::{self, median, timed};
use sluice_tests::daemon::{Daemon, binary, new_folder};
use sluice_tests::vswitchd::Vswitchd;
use sluice_tests::world::{SEED, eventually};

const ROUNDS: usize = 5;
/// OVS does not have to do more than this: a flow costs it what it costs.
const PEER_FLOWS: usize = 100_000;

const CONFIG: &str = r#"
idle_timeout = "none"
flow_limit = 4000000
dirty_limit = 4000000
persist = false
[[port]]
number = 1
name = "p1"
[[port]]
number = 2
name = "p2"
[[port]]
number = 3
name = "p3"
[[port]]
number = 4
name = "p4"
[[port]]
number = 5
name = "p5"
"#;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let sizes = match std::env::var("FLOWS") {
        Ok(text) => vec![text.parse().expect("a number of flows")],
        Err(_) => vec![10_000, PEER_FLOWS, 1_000_000],
    };
    let (mut rows, mut growth, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for flows in sizes {
        let daemon = Daemon::start(CONFIG);
        let file = Lines::of(flows);
        let ours = Side { socket: daemon.socket().display().to_string(), pid: daemon.pid(), flows };
        ours.load(&file);
        eventually("all flows are in the device", || daemon.metric("sluice_flows_unsettled") == Some(0.0));
        let vswitchd = (flows <= PEER_FLOWS).then(Vswitchd::start);
        let theirs = vswitchd.as_ref().map(|vswitchd| {
            let side = Side { socket: vswitchd.path("vswitchd.ctl"), pid: vswitchd.pid(), flows };
            side.load(&file);
            side
        });
        println!("\n{flows} flows, a flow:{:>32} {:>20}", "ours", "ovs-vswitchd");
        for (name, options) in
            [("dump-flows", &["dpctl/dump-flows"][..]), ("dump-flows -m", &["dpctl/dump-flows", "-m"])]
        {
            let mut samples = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                samples[0].push(ours.dump(&mut ours.appctl(options)));
                samples[1].extend(theirs.as_ref().map(|theirs| theirs.dump(&mut theirs.appctl(options))));
            }
            for (what, of) in [("wall", Sample::wall as fn(&Sample) -> f64), ("CPU of the daemon", Sample::cpu)] {
                let name = format!("{name}, by ovs-appctl, {what}");
                rows.extend(row(&name, flows, &samples.each_ref().map(|side| side.iter().map(of).collect())));
                growth.push(
                    json!({ "name": name, "flows": flows, "value": median_of(&samples[0], of), "unit": "ns a flow" }),
                );
            }
        }
        for options in [&["dump-flows"][..], &["dump-flows", "-m"], &["dump-flows", "--json"]] {
            let samples: Vec<_> = (0..ROUNDS).map(|_| ours.dump(&mut sluice(&daemon, options))).collect();
            for (what, of) in [("wall", Sample::wall as fn(&Sample) -> f64), ("CPU of the daemon", Sample::cpu)] {
                let name = format!("sluice {}, {what}", options.join(" "));
                println!("{name:<52} {:>8.0} ns", median_of(&samples, of));
                growth.push(
                    json!({ "name": name, "flows": flows, "value": median_of(&samples, of), "unit": "ns a flow" }),
                );
            }
        }
        memory.push(json!({
            "flows": flows,
            "unit": "bytes",
            "ours": ours.grows_by(),
            "peer": theirs.as_ref().map(Side::grows_by),
        }));
        println!("memory while dumping: {}", memory[memory.len() - 1]);
    }
    bench::write("dump", &json!({ "rows": rows, "growth": growth, "memory": memory }));
}

fn row(name: &str, flows: usize, samples: &[Vec<f64>; 2]) -> Option<Value> {
    let [ours, theirs] = samples;
    let value = median(ours);
    if theirs.is_empty() {
        println!("{name:<52} {value:>8.0} ns");
        return None;
    }
    let (peer, to_reach) = (median(theirs), 5.0);
    let ratio = peer / value;
    println!("{name:<52} {value:>8.0} ns {peer:>8.0} ns {ratio:>6.1} times faster");
    Some(json!({
        "name": name,
        "flows": flows,
        "unit": "ns a flow",
        "ours": value,
        "peer": peer,
        "ratio": ratio,
        "to_reach": to_reach,
        "reached": ratio >= to_reach,
    }))
}

/// A daemon that can be asked.
struct Side {
    socket: String,
    pid: u32,
    flows: usize,
}

/// What a dump took, a flow, in nanoseconds.
struct Sample {
    wall: f64,
    cpu: f64,
}

impl Sample {
    fn wall(&self) -> f64 {
        self.wall
    }

    fn cpu(&self) -> f64 {
        self.cpu
    }
}

fn median_of(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    median(&samples.iter().map(of).collect::<Vec<_>>())
}

impl Side {
    fn appctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ovs-appctl");
        command.arg("-t").arg(&self.socket).args(arguments);
        command
    }

    /// Has it take all flows in, and counts them.
    fn load(&self, file: &Lines) {
        let ran = self.appctl(&["dpctl/add-flows", &file.path]).output().expect("ovs-appctl runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let mut dump =
            self.appctl(&["dpctl/dump-flows", "-m"]).stdout(Stdio::piped()).spawn().expect("ovs-appctl runs");
        let lines = BufReader::new(dump.stdout.take().expect("its output")).lines();
        let ours = lines.map_while(Result::ok).filter(|line| line.starts_with("ufid:") && line.contains("actions:"));
        assert_eq!(ours.count(), self.flows, "lines of {}", self.socket);
        assert!(dump.wait().expect("it ends").success());
    }

    fn dump(&self, command: &mut Command) -> Sample {
        command.stdout(Stdio::null());
        let before = cpu_time(self.pid);
        let (wall, status) = timed(|| command.status().expect("it runs"));
        assert!(status.success());
        let cpu = cpu_time(self.pid).saturating_sub(before);
        let a_flow = |span: Duration| span.as_secs_f64() * 1e9 / self.flows as f64;
        Sample { wall: a_flow(wall), cpu: a_flow(cpu) }
    }

    /// How much more memory than before it holds at most during a dump.
    fn grows_by(&self) -> u64 {
        // Forgets what the most was up to now (proc_pid_clear_refs(5)).
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").expect("own processes can be told so");
        let before = status(self.pid, "VmRSS:");
        self.dump(&mut self.appctl(&["dpctl/dump-flows", "-m"]));
        status(self.pid, "VmHWM:").saturating_sub(before)
    }
}

fn sluice(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("sluice"));
    command.arg("--run-dir").arg(daemon.run_dir()).args(arguments);
    command
}

/// CPU time of all threads of a process, from the scheduler, which counts nanoseconds.
fn cpu_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process");
    let spent = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(Result::ok).filter_map(spent).sum())
}

/// A size from the status of a process, in bytes.
fn status(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// A file of flows, gone with this.
struct Lines {
    path: String,
}

impl Lines {
    fn of(flows: usize) -> Self {
        let path = new_folder().with_extension("flows").display().to_string();
        let mut file = BufWriter::new(File::create(&path).expect("a file"));
        let style = Style::default();
        let mut writer = LineWriter::new(&style);
        let mut line = Vec::new();
        for flow in bench::five_tuples(flows, &SEED) {
            line.clear();
            writer.push_key(&mut line, &flow.matching());
            // The only form that OVS reads from a file: key, blank, actions.
            line.push(b' ');
            writer.push_actions(&mut line, &flow.actions);
            line.push(b'\n');
            file.write_all(&line).expect("the file is written");
        }
        file.flush().expect("the file is written");
        Self { path }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
