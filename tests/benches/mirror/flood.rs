//! BFD and LACP while ARP floods their port.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_tests::bench::{median, quantile};
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::batch;

use crate::ends::End;
use crate::rows::{Goal, Rows};

const NETDEV: &str = "flood0";
/// For how long frames come in each half of a round.
const SPAN: Duration = Duration::from_secs(6);
/// Between two frames of BFD, and two of LACP.
const PAUSE: Duration = Duration::from_millis(10);
/// Of ARP, so many are sent before the time is looked at.
const BURST: u64 = 16;

/// Frames of each class that came in.
#[derive(Debug, Default)]
struct Sent {
    bfd: u64,
    lacp: u64,
    arp: u64,
}

pub(crate) fn flood(rounds: usize, rows: &mut Rows) {
    let wire = Wire::new(NETDEV);
    batch(&[format!("link set {NETDEV} arp off up")]);
    let pairs: Vec<_> = (0..rounds).map(|_| [true, false].map(|floods| p99_of_bfd(&wire, floods))).collect();
    rows.add("p99 of BFD under a flood of ARP against an idle port", "us", &pairs, Goal::Most(2.0));
}

/// From the capture of a frame of BFD until it is written; none of BFD and LACP is lost.
fn p99_of_bfd(wire: &Wire, floods: bool) -> f64 {
    let (collector, port) = End::collector(8, "times");
    let mut sender = End::start(
        "sender",
        &json!({ "port": port, "netdev": NETDEV, "classes": ["arp", "bfd", "lacp"], "total": u64::MAX }),
    );
    sender.said();
    std::thread::sleep(Duration::from_millis(500));
    let sent = send(wire, floods);
    // Until the last of them are written.
    std::thread::sleep(Duration::from_secs(2));
    let dropped = sender.stop()["by_class"].clone();
    let times = collector.stop()["times"].clone();
    let of = |class: &str| {
        let times = times[class].as_array().cloned().unwrap_or_default();
        let times: Vec<_> = times.iter().map(|time| time.as_f64().expect("a time")).collect();
        (times, dropped[class].as_u64().expect("a count"))
    };
    let ((bfd, bfd_dropped), (lacp, lacp_dropped), (arp, arp_dropped)) = (of("bfd"), of("lacp"), of("arp"));
    println!(
        "  {}: {sent:?} in {SPAN:?}; {arp_dropped} of ARP dropped; BFD typical {:.0} us, p99 {:.0} us",
        if floods { "flood" } else { "idle" },
        median(&bfd),
        quantile(&bfd, 0.99)
    );
    assert_eq!((bfd.len() as u64, bfd_dropped), (sent.bfd, 0), "no frame of BFD is lost");
    assert_eq!((lacp.len() as u64, lacp_dropped), (sent.lacp, 0), "no frame of LACP is lost");
    assert_eq!(arp.len() as u64 + arp_dropped, sent.arp, "each of ARP is written or counted as dropped");
    quantile(&bfd, 0.99)
}

fn send(wire: &Wire, floods: bool) -> Sent {
    let [bfd, lacp, arp] = [bfd(), frame([0x88, 0x09], &[1, 1, 1, 20]), frame([0x08, 0x06], &[0, 1, 8, 0, 6, 4, 0, 1])];
    let (began, mut sent) = (Instant::now(), Sent::default());
    let mut due = began;
    while began.elapsed() < SPAN {
        if floods {
            (0..BURST).for_each(|_| wire.send(&arp));
            sent.arp += BURST;
        } else {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        if Instant::now() >= due {
            wire.send(&bfd);
            wire.send(&lacp);
            (sent.bfd, sent.lacp) = (sent.bfd + 1, sent.lacp + 1);
            due += PAUSE;
        }
    }
    sent
}

/// Of Ethernet, 64 bytes.
pub(crate) fn frame(ethernet_type: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[0x01, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ethernet_type[..], payload].concat();
    frame.resize(64, 0);
    frame
}

/// IPv4 and UDP to the port of BFD.
fn bfd() -> Vec<u8> {
    let ip = [0x45, 0, 0, 52, 0, 1, 0, 0, 255, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let udp = [0xc0, 0, 0x0e, 0xc8, 0, 32, 0, 0];
    frame([0x08, 0x00], &[&ip[..], &udp].concat())
}

/// The class of a frame of these, or of any other part.
pub(crate) fn class_of(frame: &[u8]) -> &'static str {
    match frame.get(12..14) {
        Some([0x08, 0x06]) => "arp",
        Some([0x88, 0x09]) => "lacp",
        Some([0x08, 0x00]) => "bfd",
        _ => "flow",
    }
}
