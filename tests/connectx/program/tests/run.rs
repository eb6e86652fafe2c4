//! `connectx run`, with the stock programs of Debian's ibverbs-utils.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_connectx")).arg("run").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn any_program_sees_the_device_without_being_root() {
    let output = run(&["--", "ibv_devices"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("mlx5_0"), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_program_is_told_which_device_it_is() {
    for (profile, part, firmware) in [("connectx-5", "4119", "16.35.1000"), ("bluefield-2", "41686", "24.35.1000")] {
        let output = run(&["--profile", profile, "--", "ibv_devinfo", "-v"]);
        let told = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let words: Vec<&str> = told.split_whitespace().collect();
        for pair in [["fw_ver:", firmware], ["vendor_part_id:", part], ["link_layer:", "Ethernet"]] {
            assert!(words.windows(2).any(|two| two == pair), "{pair:?} in {told}");
        }
        assert_eq!(text(&output.stderr), "", "nothing was refused");
    }
}

#[test]
fn what_is_not_modelled_is_told_and_the_program_fails() {
    // It wants a connection that nobody acknowledges.
    let output = run(&["--", "ibv_uc_pingpong", "-e"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("connectx: QP_CREATE refused with EOPNOTSUPP: QPs of type 3"), "{output:?}");
}

#[test]
fn a_program_that_does_not_exist_is_an_error_and_its_code_is_kept() {
    assert!(text(&run(&["--", "/nonexistent"]).stderr).starts_with("connectx: /nonexistent: "));
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_vport_that_the_device_has_not_is_an_error_and_leaves_no_files() {
    let scratch = std::env::temp_dir().join(format!("connectx-run-test-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let arguments = ["run", "--netdev", "lo", "--representor", "99=lo", "--", "true"];
    let output = Command::new(env!("CARGO_BIN_EXE_connectx")).args(arguments).env("TMPDIR", &scratch).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("there is no vport 99"), "{output:?}");
    std::fs::remove_dir(&scratch).expect("nothing is left in it");
}

/// `ibv_asyncwatch` on a device that can be told what is to go wrong, and the way to tell it.
struct Watched {
    watch: Child,
    lines: Lines<BufReader<ChildStdout>>,
    control: BufReader<UnixStream>,
}

impl Watched {
    fn start(folder: &Path) -> Self {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).unwrap();
        let socket = folder.join("control");
        let mut command = Command::new(env!("CARGO_BIN_EXE_connectx"));
        command.arg("run").arg("--control").arg(&socket).args(["--", "setpriv", "--pdeathsig", "KILL"]);
        let mut watch =
            command.args(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "mlx5_0"]).stdout(Stdio::piped()).spawn().unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        let control = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < limit, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut watched = Self { watch, lines, control: BufReader::new(control) };
        // From then on it hears of events.
        watched.line_with("async event FD");
        watched
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.control.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        self.control.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    /// The program's next line with these words.
    fn line_with(&mut self, words: &str) -> String {
        self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(words)).unwrap()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

#[test]
fn a_device_that_dies_or_goes_tells_the_program_as_the_kernel_would() {
    let folder = std::env::temp_dir().join(format!("connectx-control-{}", std::process::id()));
    for calamity in ["fatal", "vanish"] {
        let mut watched = Watched::start(&folder);
        let answer = watched.ask(calamity);
        // It is given by the program's own process, which ends when its device is gone.
        assert!(answer == "ok" || calamity == "vanish" && answer.is_empty(), "{calamity}: {answer}");
        assert!(watched.line_with("event_type").contains("IBV_EVENT_DEVICE_FATAL (8)"), "{calamity}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_no_command_is_answered_by_the_reason_and_changes_nothing() {
    let folder = std::env::temp_dir().join(format!("connectx-commands-{}", std::process::id()));
    let mut watched = Watched::start(&folder);
    for (line, answer) in [
        ("", "error: no command"),
        ("explode", "error: there is no command explode of 0 words"),
        ("stall now", "error: there is no command stall of 1 words"),
        ("refuse ALLOC 0 1 8 0", "error: ALLOC is no opcode"),
        ("refuse 0x939 0 -1 8 0", "error: -1 is no number of times"),
        ("refuse 0x939 0 1 0x100 0", "error: 0x100 is no status"),
        ("delay 0x10000 1 5", "error: 0x10000 is no opcode"),
        ("fail-write x", "error: x is no number of a write"),
        ("counters", "ok"),
    ] {
        assert_eq!(watched.ask(line), answer);
    }
    // The driver's own, and none of them again.
    assert!(watched.ask("commands").contains(" 0x102=1 "), "INIT_HCA");
    assert_eq!(watched.ask("left"), watched.ask("left"));
    std::fs::remove_dir_all(folder).unwrap();
}
