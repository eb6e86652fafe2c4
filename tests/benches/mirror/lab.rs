//! The device of all parts: Soft-RoCE on one end of a virtual cable.

use std::process::Command;
use std::time::{Duration, Instant};

use sluice_mirror::cm::Settings;
use sluice_mirror::verbs::{Access, Context};
use sluice_mirror::wire;
use sluice_tests::lab::iproute::batch;

pub(crate) const DEVICE: &str = "rxe0";
/// The address of the device.
pub(crate) const ADDRESS: &str = "10.9.0.1";

/// As those of the program.
pub(crate) fn settings() -> Settings {
    Settings {
        terms: wire::terms(),
        required: wire::FRAMES | wire::RING,
        access: Access { remote_write: false },
        min_rnr_timer: 12,
        timeout: 14,
        retries: 6,
        rnr_retries: 0,
        patience: Duration::from_secs(10),
        again: Duration::from_secs(10),
    }
}

pub(crate) fn prepare() {
    run("modprobe --all rdma_rxe rdma_ucm ib_uverbs veth dummy tun pktgen");
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a setting");
    batch(&[
        "link set lo up".into(),
        // Frames of 4200 bytes give Soft-RoCE packets of 4096.
        "link add rdma0 mtu 4200 type veth peer name rdma1".into(),
        format!("address add {ADDRESS}/24 dev rdma0"),
        "link set rdma1 mtu 4200 up".into(),
        "link set rdma0 up".into(),
    ]);
    run(&format!("rdma link add {DEVICE} type rxe netdev rdma0"));
    let is_active = || Context::open(DEVICE).is_ok_and(|context| context.port(1).is_ok_and(|port| port.is_active));
    eventually("the port of the device is active", is_active);
}

pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("a program of the system");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
