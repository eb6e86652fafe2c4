//! The kernel's generator of frames, on one end of a virtual cable.

use std::time::Duration;

use sluice_tests::bench::timed;
use sluice_tests::lab::iproute::batch;

/// Where it sends, and where its frames come out.
pub(crate) const ENDS: [&str; 2] = ["g0", "g1"];

/// Bytes of a frame, without its check sequence.
pub(crate) const LENGTH: u64 = 100;

pub(crate) fn prepare() {
    let [from, to] = ENDS;
    batch(&[
        format!("link add {from} type veth peer name {to}"),
        format!("link set {from} arp off up"),
        format!("link set {to} arp off up"),
    ]);
}

/// Sends so many frames as fast as it can, and returns how long that took.
pub(crate) fn generate(count: u64) -> Duration {
    let [from, _] = ENDS;
    let tell = |file: &str, words: &str| {
        std::fs::write(format!("/proc/net/pktgen/{file}"), format!("{words}\n")).expect("pktgen takes it");
    };
    tell("kpktgend_0", "rem_device_all");
    tell("kpktgend_0", &format!("add_device {from}"));
    for words in [&format!("count {count}"), &format!("pkt_size {LENGTH}"), "delay 0", "dst_mac 02:00:00:00:00:02"] {
        tell(from, words);
    }
    // It returns when all are sent.
    timed(|| tell("pgctrl", "start")).0
}
