//! `sluice-mirror` from outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sluice_tests::daemon::{Ran, binary, run};
use sluice_tests::mlx5::on_device;
use sluice_tests::world::eventually;

use crate::agent::Agent;
use crate::captures::{files, tshark};

fn mirror(args: &[&str]) -> Ran {
    run(Command::new(binary("sluice-mirror")).args(args))
}

#[test]
fn a_mistake_is_told_in_one_line_and_by_the_exit_code() {
    // With a device, so that the absence of all of RDMA is not what is told.
    on_device("bluefield-3", "program::a_mistake_is_told_in_one_line_and_by_the_exit_code", |_| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mirror.toml");
        std::fs::write(&file, "[send]\nbatches = 0\n").unwrap();
        let file = file.to_str().unwrap();
        for (args, words) in [
            (&["send", "--config", file][..], "batches cannot be 0, but 1 to 65536"),
            (&["send", "--config", "/nowhere"], "/nowhere: No such file or directory"),
            (&["collect"], "nothing is to be done with frames: name a file with write, or a tap"),
            (&["collect", "--write", "-", "--keep", "3"], "rotate_size, rotate_age and keep are for files"),
            (&["collect", "--write", "a.pcapng", "--device", "mlx5_77"], "there is no RDMA device mlx5_77"),
            (&["send", "--device", "mlx5_77"], "there is no RDMA device mlx5_77"),
            (
                &["collect", "--connect", "socket", "--write", "/nowhere/a.pcapng", "--listen", "127.0.0.1:0"],
                "/nowhere: No such file or directory",
            ),
            (&["collect", "--connect", "socket", "--write", "a.pcapng", "--listen", "192.0.2.1:1"], "192.0.2.1:1: "),
        ] {
            let ran = mirror(args);
            assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
            let told = ran.err.lines().find(|line| line.starts_with("sluice-mirror: ")).unwrap_or_default();
            assert!(told.contains(words), "{args:?}: {}", ran.err);
        }
        for args in [&["send", "--connect", "by hand"][..], &["collect", "--rotate-age", "soon"], &["listen"], &[]] {
            assert_eq!(mirror(args).code, Some(1), "{args:?}");
        }
        for args in
            [&["send", "--check"][..], &["collect", "--check", "--write", "a.pcapng"], &["--help"], &["send", "--help"]]
        {
            assert_eq!(mirror(args).code, Some(0), "{args:?}");
        }
    });
}

/// A program of the mirror with its log, which is killed with this.
struct Program {
    process: Child,
    log: PathBuf,
}

impl Program {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let log = folder.join("log");
        let file = std::fs::File::create(&log).unwrap();
        let process = Command::new(binary("sluice-mirror"))
            .args(args)
            .args(["--connect", "socket", "--metrics", "127.0.0.1:0"])
            .stderr(file)
            .spawn()
            .unwrap();
        Self { process, log }
    }

    /// Waits until it says this.
    fn says(&mut self, words: &str) {
        eventually(words, || std::fs::read_to_string(&self.log).unwrap().contains(words));
    }

    /// Ends it in order.
    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let mut status = None;
        eventually("it ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0), "{}", std::fs::read_to_string(&self.log).unwrap());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_collector_ends_at_a_signal_while_it_still_reads_its_last_file() {
    on_device("bluefield-3", "program::a_collector_ends_at_a_signal_while_it_still_reads_its_last_file", |_| {
        let folder = tempfile::tempdir().unwrap();
        // A file that nobody writes: it is never read to its end.
        let last = folder.path().join("a_00001.pcapng");
        assert!(Command::new("mkfifo").arg(&last).status().unwrap().success());
        let path = folder.path().join("a.pcapng");
        let args = ["collect", "--listen", "127.0.0.1:0", "--write", path.to_str().unwrap()];
        let mut collector = Program::start(folder.path(), &args);
        collector.says("metrics at http://");
        collector.stop();
    });
}

#[test]
fn a_sender_that_is_to_read_samples_runs_whether_the_kernel_gives_them_or_not() {
    let name = "program::a_sender_that_is_to_read_samples_runs_whether_the_kernel_gives_them_or_not";
    on_device("bluefield-3", name, |_| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mirror.toml");
        let socket = folder.path().join("mirror.sock");
        std::fs::write(&file, "[send]\nsample_groups = [7]\n").unwrap();
        let args = ["send", "--config", file.to_str().unwrap(), "--agent", socket.to_str().unwrap()];
        let mut agent = Agent::new(&socket);
        let mut sender = Program::start(folder.path(), &args);
        agent.greet();
        sender.says("the agent mirrors ");
        sender.stop();
    });
}

#[test]
fn a_collector_runs_shows_metrics_and_ends_at_a_signal_with_a_whole_file() {
    let name = "program::a_collector_runs_shows_metrics_and_ends_at_a_signal_with_a_whole_file";
    on_device("bluefield-3", name, |_| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut process = Command::new(binary("sluice-mirror"))
            .args(["collect", "--connect", "socket", "--listen", "127.0.0.1:0", "--metrics", &metrics, "--write"])
            .arg(&path)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut page = String::new();
        eventually("the metrics are there", || {
            let Ok(mut stream) = TcpStream::connect(&metrics) else { return false };
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            stream.read_to_string(&mut page).is_ok()
        });
        assert!(
            page.contains("sluice_mirror_collect_dropped_frames_total{cause=\"file-failed\",class=\"bgp\"} 0"),
            "{page}"
        );
        eventually("the first file is there", || files(folder.path()).len() == 1);
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(0));
        let mut log = String::new();
        process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains("stopping on SIGTERM"), "{log}");
        assert_eq!(tshark(&files(folder.path())[0], &["frame.number"]), Vec::<String>::new());
    });
}
