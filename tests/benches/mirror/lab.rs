//! The device of all parts: Soft-RoCE on one end of a virtual cable.

use std::time::Duration;

use sluice_mirror::cm::Settings;
use sluice_mirror::verbs::Access;
use sluice_mirror::wire;
use sluice_tests::lab::{run, soft_roce};

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
    run("modprobe --all dummy tun pktgen");
    soft_roce::in_one_machine(ADDRESS);
}
