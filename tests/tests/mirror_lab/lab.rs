//! The device of all stories: Soft-RoCE on one end of a virtual cable.

use std::future::Future;
use std::time::Duration;

use sluice_mirror::cm::Settings;
use sluice_mirror::connection::{Capacity, Local};
use sluice_mirror::terms::Terms;
use sluice_mirror::verbs::Access;
use sluice_tests::lab::run;
use sluice_tests::lab::soft_roce::{self, DEVICE};

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
    run("modprobe --all dummy tun pktgen");
    soft_roce::in_one_machine(ADDRESS);
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
