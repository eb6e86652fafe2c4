//! An emulated mlx5 device, for a test that plays in a process of its own, which `connectx run` has given it.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::daemon::binary;
use crate::world::eventually;

/// Set by `connectx run` for the program that it starts.
const RUNNING: &str = "CONNECTX_PROFILE";
/// The folder of the device's ports.
const PORTS: &str = "SLUICE_TEST_PORTS";
/// The socket in it by which the device of [`on_device`] is told what is to go wrong.
const CONTROL: &str = "control";
/// What libmlx5 asks only to find out whether it is there.
const PROBES: [&str; 2] = ["only an embedded CPU has host functions", "QUERY_ESW_FUNCTIONS had status"];

/// Plays the rest of the test called `name` on an emulated device. Fails if the device was left with an object, or refused anything.
pub fn on_device(profile: &str, name: &str, play: impl FnOnce(&Ports)) {
    with_options(profile, &[], &[], name, play);
}

/// The same, in a network namespace of its own.
pub fn in_network_namespace(profile: &str, name: &str, play: impl FnOnce(&Ports)) {
    run(profile, &[], &["unshare", "--map-root-user", "--net"], &[], name, play);
}

/// The same, with more options for `connectx run`, and with refusals of the device that the test is about.
pub fn with_options(profile: &str, options: &[&str], refusals: &[&str], name: &str, play: impl FnOnce(&Ports)) {
    run(profile, options, &[], refusals, name, play);
}

fn run(profile: &str, options: &[&str], before: &[&str], refusals: &[&str], name: &str, play: impl FnOnce(&Ports)) {
    if let Some(running) = env::var_os(RUNNING) {
        // Of a test that has several devices, each has a process.
        if running == profile {
            play(&Ports(env::var_os(PORTS).expect("the test has set it").into()));
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(binary("connectx"));
    command.args(["run", "--profile", profile, "--ports"]).arg(folder.path());
    command.arg("--control").arg(folder.path().join(CONTROL)).args(options).arg("--");
    command
        .args(before)
        .arg(env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(PORTS, folder.path());
    let Output { status, stdout, stderr } = command.output().expect("connectx runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("1 passed"), "{profile}: {stdout}\n{stderr}");
    print!("{stdout}");
    let unexpected: Vec<_> =
        complaints(&stderr).filter(|line| !refusals.iter().any(|words| line.contains(words))).collect();
    assert_eq!(unexpected, Vec::<&str>::new(), "{profile}");
}

/// What the device tells at its end of what it refused and what was left in it, besides answers to mere questions.
pub fn complaints(log: &str) -> impl Iterator<Item = &str> {
    let is_probe = |line: &str| PROBES.iter().any(|words| line.contains(words));
    log.lines().filter(move |line| line.starts_with("connectx: ") && !is_probe(line))
}

/// The words before those of a program that make it run with an emulated device, whose ports are in `folder`. The program ends when
/// `connectx` does.
pub fn runner(profile: &str, folder: &Path) -> Vec<String> {
    runner_with(profile, &[], folder)
}

/// The same, with more options for `connectx run`.
pub fn runner_with(profile: &str, options: &[&str], folder: &Path) -> Vec<String> {
    let (program, folder) = (binary("connectx").display().to_string(), folder.display().to_string());
    let words = [program.as_str(), "run", "--profile", profile, "--ports", &folder];
    let with_it = ["--", "setpriv", "--pdeathsig", "KILL"];
    [&words[..], options, &with_it].concat().into_iter().map(str::to_owned).collect()
}

/// Returns the name of the profile of the device that this process has.
pub fn profile() -> Option<String> {
    env::var(RUNNING).ok()
}

/// Both ends of every packet.
pub struct Ports(PathBuf);

/// Where frames come out.
pub struct Out(UnixDatagram);

impl Ports {
    /// Those of a device that was given this folder.
    pub fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The way to say what is to go wrong with the device of [`on_device`]. It is there once the device was opened.
    pub fn control(&self) -> Control {
        Control::of(&self.0.join(CONTROL))
    }

    /// Opens the far end of a port, `wire` or `vport-N`.
    pub fn out(&self, port: &str) -> Out {
        let path = self.0.join(format!("{port}.out"));
        remove(&path);
        Out(UnixDatagram::bind(path).expect("a socket"))
    }

    /// Sends a frame into a port.
    pub fn send(&self, port: &str, frame: &[u8]) {
        UnixDatagram::unbound().expect("a socket").send_to(frame, self.0.join(port)).expect("the device has the port");
    }

    /// Returns what sends many frames into a port.
    pub fn sender(&self, port: &str) -> impl FnMut(&[u8]) + Send + use<> {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(self.0.join(port)).expect("the device has the port");
        move |frame| {
            socket.send(frame).expect("the device takes it");
        }
    }
}

impl Out {
    /// Returns the next frame, if it is there.
    pub fn at_once(&self) -> Option<Vec<u8>> {
        self.0.set_nonblocking(true).expect("a socket");
        let mut frame = vec![0; 1 << 16];
        let length = self.0.recv(&mut frame).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}

/// The way to say what is to go wrong with a device, and to see what is in it (`connectx run --control`).
pub struct Control(BufReader<UnixStream>);

impl Control {
    /// That of a device that was given this socket.
    pub fn of(socket: &Path) -> Self {
        let mut stream = None;
        eventually("the device has its control socket", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        Self(BufReader::new(stream.expect("it is connected")))
    }

    /// Gives a command, and returns what was asked for. Fails if the device does not take it.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.0.get_mut(), "{command}").expect("the device reads");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("the device answers");
        let text = answer.strip_prefix("ok").unwrap_or_else(|| panic!("{command}: {answer}"));
        text.trim().to_owned()
    }

    /// How often each command has come, by its opcode.
    pub fn commands(&mut self) -> BTreeMap<u16, u64> {
        let opcode = |word: &str| u16::from_str_radix(word.trim_start_matches("0x"), 16).expect("an opcode");
        self.counts("commands").into_iter().map(|(word, times)| (opcode(&word), times as u64)).collect()
    }

    /// How many objects there are, by kind.
    pub fn left(&mut self) -> BTreeMap<String, usize> {
        self.counts("left")
    }

    fn counts(&mut self, command: &str) -> BTreeMap<String, usize> {
        let answer = self.ask(command);
        let pair = |word: &str| {
            let (name, count) = word.split_once('=')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        answer.split_whitespace().map(|word| pair(word).expect("NAME=COUNT")).collect()
    }
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap_or_default();
}
