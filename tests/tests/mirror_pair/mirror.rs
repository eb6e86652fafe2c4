//! `sluice-mirror`: the sender in one machine, the collector in the other.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sluice_control::mirror::Class;
use sluice_tests::lab::run;

use crate::agent::{Agent, Copied};
use crate::captures::frames;
use crate::notes::Notes;
use crate::programs::{Program, until};

const COLLECTOR: &str = "10.10.0.2:4790";
const CLASS: Class = Class::Bfd;

/// Has the sender send a frame every 5 ms, and notes when it loses its connection, and when frames arrive over the next one.
pub(crate) fn send(notes: &Notes) {
    const PAUSE: Duration = Duration::from_millis(5);
    while !notes.was_told("send") {
        if notes.is_over() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    run("ip link set lo up");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mirror.sock");
    let mut agent = Agent::new(&socket);
    let sender =
        Program::send(folder.path(), &["--collector", COLLECTOR, "--agent", socket.to_str().unwrap(), "--no-rings"]);
    agent.greet();
    let acknowledged = || sender.of("send_acknowledged_frames_total", CLASS);
    let (mut number, mut lost, mut connected) = (0, 0, 0);
    let mut waits_for = None;
    while !notes.was_told("last") && !notes.is_over() {
        agent.copy(&frame(number));
        number += 1;
        if sender.said("is lost") > lost {
            lost += 1;
            let log = sender.log();
            notes.note("lost", log.lines().rfind(|line| line.contains("is lost")).unwrap_or_default());
        }
        if sender.said("connected to 10.10.") > connected {
            connected += 1;
            waits_for = Some(acknowledged());
        }
        if waits_for.is_some_and(|before| acknowledged() > before) {
            waits_for = None;
            notes.note("flows", "");
        }
        std::thread::sleep(PAUSE);
    }
    let dropped = || sender.of("send_dropped_frames_total", CLASS);
    until("all has arrived or was dropped", || acknowledged() + dropped() == number);
    notes.note("handed", &format!("{number} {}", dropped()));
    println!("{}", sender.log());
    while !notes.is_over() {
        std::thread::sleep(PAUSE);
    }
}

/// Has the collector collect, stand still, go on and be killed as it is told to, and notes what it has written.
pub(crate) fn collect(notes: &Notes) {
    run("ip link set lo up");
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("control.pcapng");
    let start = || {
        let collector =
            Program::collect(folder.path(), &["--listen", COLLECTOR, "--write", capture.to_str().unwrap()]).ready();
        notes.note("collects", "");
        collector
    };
    let mut collector = start();
    while !notes.is_over() {
        if notes.was_told("stand") {
            collector.signal(Signal::STOP);
            notes.note("stands", "");
        }
        if notes.was_told("go") {
            collector.signal(Signal::CONT);
            notes.note("goes", "");
        }
        if notes.was_told("end-collector") {
            collector.kill();
            notes.note("killed", "");
            std::thread::sleep(Duration::from_millis(500));
            collector = start();
        }
        if notes.was_told("finish") {
            collector.stop();
            notes.note("written", &written(folder.path()).to_string());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many frames are in the files of a folder, in their order, each once.
fn written(folder: &Path) -> u64 {
    let numbers: Vec<_> =
        frames(folder).iter().map(|frame| u64::from_be_bytes(frame.bytes[14..22].try_into().unwrap())).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    numbers.len() as u64
}

fn frame(number: u64) -> Copied {
    let mut bytes = vec![0xff; 12];
    bytes.extend([0x88, 0xb5]);
    bytes.extend(number.to_be_bytes());
    bytes.extend([0; 42]);
    Copied { class: CLASS, in_port: 1, ufid: None, bytes }
}
