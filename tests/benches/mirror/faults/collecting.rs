//! The right machine: `sluice-mirror collect`, which is killed and started again, and what is in its files.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_tests::daemon::binary;

use sluice_tests::lab::run;
use sluice_tests::lab::soft_roce::{DEVICE, at_a_cable};

use crate::machine::{COLLECTOR, note_panics, resident};
use crate::notes::Notes;
use crate::sending::{LENGTH, NUMBER};

const FOLDER: &str = "/tmp/files";

pub(crate) fn be(frames: u64) {
    let notes = Notes::own();
    note_panics();
    run("modprobe tun");
    at_a_cable("52:54:00:00:00:02", 2);
    std::fs::create_dir(FOLDER).unwrap();
    let mut written = Written::new(frames);
    let mut collector = Collector::start();
    notes.note("ready", "");
    while !notes.was_told("end") && !notes.is_over() {
        if notes.was_told("kill") {
            collector.process.kill().unwrap();
            notes.note("killed", "");
            collector.process.wait().unwrap();
            std::thread::sleep(Duration::from_millis(500));
            collector = Collector::start();
        }
        collector.measure();
        // The next collector reads in the last one how far it has come.
        let files = files();
        files[..files.len().saturating_sub(1)].iter().for_each(|file| written.take(file));
        std::thread::sleep(Duration::from_millis(100));
    }
    let growth = collector.growth();
    kill_process(Pid::from_child(&collector.process), Signal::TERM).unwrap();
    assert!(collector.process.wait().unwrap().success());
    files().iter().for_each(|file| written.take(file));
    let found = json!({ "once": written.once, "twice": written.twice, "growth": growth });
    notes.note("found", &found.to_string());
    while !notes.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A collector that runs.
struct Collector {
    process: Child,
    started: Instant,
    after_a_minute: Option<u64>,
}

impl Collector {
    fn start() -> Self {
        let mut command = Command::new(binary("sluice-mirror"));
        command.args(["collect", "--device", DEVICE, "--listen", COLLECTOR, "--rotate-size", "8000000"]);
        command.args(["--write", &format!("{FOLDER}/mirror.pcapng"), "--metrics", "none"]);
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        Self { process, started: Instant::now(), after_a_minute: None }
    }

    fn measure(&mut self) {
        if self.started.elapsed() >= Duration::from_secs(60) {
            self.after_a_minute.get_or_insert_with(|| resident(self.process.id()));
        }
    }

    /// KiB since its first minute; 0 if it is not so old.
    fn growth(&self) -> f64 {
        let now = resident(self.process.id());
        now as f64 - self.after_a_minute.unwrap_or(now) as f64
    }
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Which frames are in files.
struct Written {
    seen: Vec<u64>,
    once: u64,
    twice: u64,
}

impl Written {
    fn new(frames: u64) -> Self {
        Self { seen: vec![0; usize::try_from(frames.div_ceil(64)).unwrap()], once: 0, twice: 0 }
    }

    /// Reads a file that is not written any more, and deletes it.
    fn take(&mut self, file: &PathBuf) {
        /// Type of a block with a frame, and where its length and the frame are.
        const PACKET: (u32, usize, usize) = (6, 20, 28);
        let bytes = std::fs::read(file).unwrap();
        let mut rest = &bytes[..];
        while let Some(&[a, b, c, d, e, f, g, h]) = rest.first_chunk() {
            let (kind, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
            // One that was cut off with its collector.
            let Some(block) = rest.get(..length) else { break };
            if kind == PACKET.0 {
                let length = u32::from_le_bytes(*block[PACKET.1..].first_chunk().unwrap());
                assert_eq!(length as usize, LENGTH);
                self.see(u64::from_be_bytes(*block[PACKET.2 + NUMBER..].first_chunk().unwrap()));
            }
            rest = &rest[length..];
        }
        std::fs::remove_file(file).unwrap();
    }

    fn see(&mut self, number: u64) {
        let word = &mut self.seen[usize::try_from(number / 64).unwrap()];
        let bit = 1 << (number % 64);
        if *word & bit == 0 {
            self.once += 1
        } else {
            self.twice += 1
        }
        *word |= bit;
    }
}
