//! The device of all stories: Soft-RoCE on one end of a virtual cable.

use std::future::Future;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_mirror::cm::Settings;
use sluice_mirror::connection::{Capacity, Local};
use sluice_mirror::terms::Terms;
use sluice_mirror::verbs::{Access, Context};
use sluice_tests::lab::iproute::batch;

pub(crate) const DEVICE: &str = "rxe0";
/// The address of the device.
pub(crate) const ADDRESS: &str = "10.9.0.1";

pub(crate) const TERMS: Terms = Terms { features: 0b11, classes: 9 };
pub(crate) const SETTINGS: Settings = Settings {
    terms: TERMS,
    required: 0,
    access: Access { remote_write: false },
    // 640 us.
    min_rnr_timer: 12,
    // 67 ms, seven times: Soft-RoCE takes 7 retries for as many as it needs.
    timeout: 14,
    retries: 6,
    rnr_retries: 7,
    patience: Duration::from_secs(10),
    // Each of them once.
    again: Duration::from_secs(10),
};

pub(crate) fn prepare() {
    run("modprobe --all rdma_rxe rdma_ucm ib_uverbs veth dummy tun pktgen");
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    batch(&[
        "link set lo up".into(),
        "link add rdma0 mtu 4200 type veth peer name rdma1".into(),
        format!("address add {ADDRESS}/24 dev rdma0"),
        "link set rdma1 mtu 4200 up".into(),
        "link set rdma0 up".into(),
    ]);
    run(&format!("rdma link add {DEVICE} type rxe netdev rdma0"));
    let is_active = || Context::open(DEVICE).is_ok_and(|context| context.port(1).is_ok_and(|port| port.is_active));
    eventually("the port of the device is active", is_active);
}

/// What an end has of the device. Messages have up to so many bytes.
pub(crate) fn local(receives: u32, receive_bytes: usize) -> Local {
    Local::open(DEVICE, Capacity { sends: 64, send_segments: 2, receives, receive_bytes }).unwrap()
}

pub(crate) fn play(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patience = Duration::from_secs(60);
    runtime.block_on(async { tokio::time::timeout(patience, story).await.expect("it ends in time") });
}

pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
