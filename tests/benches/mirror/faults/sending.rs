//! The left machine: frames come in at a TAP, and `sluice-mirror send` reads them from its packet ring.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send, socket_with,
};
use serde_json::json;
use sluice_control::mirror::{Class, Plan, Tap};
use sluice_tests::daemon::binary;
use sluice_tests::http::samples;
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::batch;
use sluice_tests::lab::run;
use sluice_tests::lab::soft_roce::{DEVICE, at_a_cable};
use sluice_tests::world::eventually;

use crate::machine::{COLLECTOR, note_panics, resident};
use crate::notes::Notes;

const NETDEV: &str = "source0";
const AGENT: &str = "/tmp/mirror.sock";
const METRICS: &str = "127.0.0.1:9320";

/// Bytes of a frame, and where its number is in it.
pub(crate) const LENGTH: usize = 64;
pub(crate) const NUMBER: usize = 14;

pub(crate) fn be(frames: u64) {
    let notes = Notes::own();
    note_panics();
    run("modprobe tun");
    at_a_cable("52:54:00:00:00:01", 1);
    let wire = Wire::new(NETDEV);
    batch(&[format!("link set {NETDEV} arp off up")]);
    serve_plan();
    let mut sender = sender();
    eventually("it is connected", || samples(METRICS, "sluice_mirror_send_connected").iter().any(|(_, on)| *on == 1));
    notes.note("ready", "");
    let after_a_minute = generate(&wire, frames, &notes, || resident(sender.id()));
    std::fs::write(format!("{}/generated", std::env::var("LAB_OUT").unwrap()), "").unwrap();
    // All that the collector will ever have.
    let sum = |name: &str| samples(METRICS, name).iter().map(|(_, count)| count).sum::<u64>();
    let is_over = || {
        let (acknowledged, dropped) =
            (sum("sluice_mirror_send_acknowledged_frames_total"), sum("sluice_mirror_send_dropped_frames_total"));
        acknowledged + dropped == frames
    };
    eventually("all are acknowledged or dropped", is_over);
    let growth = resident(sender.id()) as f64 - after_a_minute as f64;
    let causes: Vec<_> = samples(METRICS, "sluice_mirror_send_dropped_frames_total")
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    let found = json!({
        "growth": growth, "resident": resident(sender.id()), "causes": causes,
        "dropped": sum("sluice_mirror_send_dropped_frames_total"),
        "connections": sum("sluice_mirror_send_connections_total"),
    });
    notes.note("found", &found.to_string());
    while !notes.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Lets all frames in, as fast as the kernel takes them, and returns what was measured a minute after the first.
fn generate(wire: &Wire, frames: u64, notes: &Notes, measure: impl Fn() -> u64) -> u64 {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut frame = [&[0x02; 12][..], &[0x88, 0xb5]].concat();
    frame.resize(LENGTH, 0x5a);
    let (began, mut measured) = (Instant::now(), None);
    for number in 0..frames {
        frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
        wire.send(&frame);
        if number.is_multiple_of(1024) && measured.is_none() && began.elapsed() >= MINUTE {
            measured = Some(measure());
            notes.note("minute", &format!("{number} frames"));
        }
    }
    let took = began.elapsed();
    println!("{frames} frames in {took:.1?}");
    if measured.is_none() {
        notes.note("minute", "is not over");
    }
    measured.unwrap_or_else(measure)
}

fn sender() -> Child {
    let mut command = Command::new(binary("sluice-mirror"));
    command.args(["send", "--device", DEVICE, "--agent", AGENT, "--collector", COLLECTOR]);
    command.args(["--metrics", METRICS]).stdin(Stdio::null()).spawn().unwrap()
}

/// Tells a sender to read one device, as the agent would.
fn serve_plan() {
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(Path::new(AGENT)).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    std::thread::spawn(move || {
        let classes = [Class::Flow].into_iter().collect();
        let tap = Tap { in_port: Some(1), name: NETDEV.into(), netdev: Some(NETDEV.into()), classes };
        let plan = Plan { collector: String::new(), classes, taps: vec![tap] };
        let client = accept_with(&listener, flags).unwrap();
        send(&client, &plan.message(), SendFlags::NOSIGNAL).unwrap();
        // It stays connected for as long as this process lives.
        std::mem::forget(client);
    });
}
