//! `sluice-mirror send` and `sluice-mirror collect` as processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_control::mirror::Class;
use sluice_tests::daemon::binary;
use sluice_tests::http::page;

/// A process, which is killed with this.
pub(crate) struct Program {
    process: Child,
    metrics: &'static str,
    log: PathBuf,
}

impl Program {
    pub(crate) fn collect(folder: &Path, args: &[&str]) -> Self {
        Self::collect_at(folder, "127.0.0.1:9321", args)
    }

    /// One whose metrics are at that address.
    pub(crate) fn collect_at(folder: &Path, metrics: &'static str, args: &[&str]) -> Self {
        Self::start(folder, "collect", metrics, args, Stdio::null())
    }

    /// One whose standard output is read.
    pub(crate) fn collect_to_pipe(folder: &Path, args: &[&str]) -> (Self, ChildStdout) {
        let mut this = Self::start(folder, "collect", "127.0.0.1:9321", args, Stdio::piped());
        let pipe = this.process.stdout.take().unwrap();
        (this, pipe)
    }

    pub(crate) fn send(folder: &Path, args: &[&str]) -> Self {
        Self::start(folder, "send", "127.0.0.1:9320", args, Stdio::null())
    }

    fn start(folder: &Path, command: &str, metrics: &'static str, args: &[&str], stdout: Stdio) -> Self {
        let log = folder.join(format!("{command}.log"));
        // What an earlier one has said stays in front.
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let process = Command::new(binary("sluice-mirror"))
            .args([command, "--metrics", metrics])
            .args(args)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(file)
            .spawn()
            .unwrap();
        Self { process, metrics, log }
    }

    /// Waits until it serves, which it does once it listens.
    pub(crate) fn ready(self) -> Self {
        until("the program serves", || page(self.metrics, "/healthz").is_some());
        self
    }

    /// A metric, the sum over all its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        series(self.metrics, name, "")
    }

    /// A metric of a class, the sum over all causes.
    pub(crate) fn of(&self, name: &str, class: Class) -> u64 {
        of_class(self.metrics, name, class)
    }

    /// How many lines of its log have these words.
    pub(crate) fn said(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Kills it, and returns when that was.
    pub(crate) fn kill(mut self) -> Instant {
        let killed = Instant::now();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        killed
    }

    /// Waits until it ends by itself, and returns its exit code and its log.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut status = None;
        until("the program ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        (status.and_then(|status| status.code()), self.log())
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The metric of a class, of the program that has its metrics there: the sum over all causes.
pub(crate) fn of_class(metrics: &str, name: &str, class: Class) -> u64 {
    series(metrics, name, &format!("class=\"{}\"", class.name()))
}

/// The sum of all series of a metric that have this label.
pub(crate) fn series(metrics: &str, name: &str, label: &str) -> u64 {
    let Some(page) = page(metrics, "/metrics") else { return 0 };
    let lines = page.lines().filter(|line| line.contains(label));
    let values = lines.filter_map(|line| {
        let rest = line.strip_prefix("sluice_mirror_")?.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| line.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    values.sum()
}

/// Waits until something is so, however slow the machine is.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
