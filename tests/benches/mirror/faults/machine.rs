//! What both machines have.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_mirror::verbs::Context;
use sluice_tests::lab::iproute::batch;

pub(crate) const DEVICE: &str = "rxe0";
/// Where the collector listens.
pub(crate) const COLLECTOR: &str = "10.10.0.2:4790";

/// Gives the device with this address that name and the address 10.10.0.NUMBER, and Soft-RoCE.
pub(crate) fn prepare(address: &str, number: u8) {
    run("modprobe --all virtio_net rdma_rxe rdma_ucm ib_uverbs tun");
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    let is_it = |name: &String| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/address")).is_ok_and(|found| found.trim() == address)
    };
    let mut names =
        std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = names.find(is_it).expect("a network device with that address");
    batch(&[
        format!("link set {name} down"),
        format!("link set {name} name cable mtu 4200"),
        "link set lo up".into(),
        format!("address add 10.10.0.{number}/24 dev cable"),
        "link set cable up".into(),
    ]);
    run(&format!("rdma link add {DEVICE} type rxe netdev cable"));
    eventually("the port of the device is active", || {
        Context::open(DEVICE).is_ok_and(|context| context.port(1).is_ok_and(|port| port.is_active))
    });
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a panic says goes to who waits for notes.
pub(crate) fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}");
        crate::Notes::own().note("panicked", &panic.to_string().replace('\n', " "));
    }));
}

/// Memory of a process that is resident, in KiB.
pub(crate) fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").and_then(|number| number.parse().ok()).unwrap()
}

/// The samples of a metric: labels and value. None while nobody answers.
pub(crate) fn metric(port: u16, name: &str) -> Vec<(String, u64)> {
    let Some(text) = page(port) else { return Vec::new() };
    let samples = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    samples.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
