//! Messages and frames a second, of frames that wait in the sender's memory.

use std::time::Duration;

use serde_json::json;

use crate::ends::End;
use crate::peers::messages_a_second;
use crate::rows::{Goal, Rows};

/// Messages that each side has under way.
const DEPTH: u32 = 16;

/// A run takes some seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Payload by messages of one size, beside those of perftest with as many under way.
pub(crate) fn payload(rounds: usize, rows: &mut Rows) {
    /// Bytes that a frame of 984 takes in a batch.
    const PIECE: u64 = 1024;
    for (name, size, messages) in [("2 KB", 2 << 10, 16_000), ("64 KB", 64 << 10, 1600)] {
        let a_message = size / PIECE;
        let megabytes = |messages_a_second: f64| messages_a_second * size as f64 / 1e6;
        let pairs: Vec<_> = (0..rounds)
            .map(|_| {
                let frames = frames_a_second((984, a_message, 2 * DEPTH), messages * a_message);
                let peer = messages_a_second(&format!("-s {size} -t {DEPTH} -r {DEPTH}"), messages);
                let pair = [frames / a_message as f64, peer].map(megabytes);
                println!("  {name}: {pair:.2?}");
                pair
            })
            .collect();
        rows.add(&format!("{name} of payload against ib_send_bw -R -e"), "MB/s", &pairs, Goal::Least(1.0));
    }
}

/// Frames of 100 bytes in batches, beside messages of 128 bytes.
pub(crate) fn frames(rounds: usize, rows: &mut Rows) {
    /// Bytes that a frame of 100 takes in a batch, so that as many fill one of 64 KiB.
    const ROOM: u64 = 144;
    let rates: Vec<_> = (0..rounds)
        .map(|_| {
            let ours = frames_a_second((100, (64 << 10) / ROOM, 16), 400_000);
            let peers = ["-s 128", "-s 128 -l 16"].map(|options| messages_a_second(options, 16_000));
            println!("  frames of 100 bytes: {ours:.0}, {peers:.0?}");
            (ours, peers)
        })
        .collect();
    for (place, options, least) in [(0, "-s 128 -e", 12.0), (1, "-s 128 -e -l 16", 8.0)] {
        let pairs: Vec<_> = rates.iter().map(|(ours, peers)| [*ours, peers[place]]).collect();
        rows.add(&format!("frames of 100 B in batches against ib_send_bw {options}"), "/s", &pairs, Goal::Least(least));
    }
}

fn frames_a_second((length, a_batch, batches): (u64, u64, u32), total: u64) -> f64 {
    let (collector, port) = End::collector(DEPTH, "nothing");
    let total = total / a_batch * a_batch;
    let mut sender = End::start(
        "sender",
        &json!({ "port": port, "length": length, "a_batch": a_batch, "batches": batches, "total": total }),
    );
    sender.said();
    let sent = sender.end_within(PATIENCE);
    let collected = collector.stop();
    assert_eq!((sent["frames"].as_u64(), sent["dropped"].as_u64()), (Some(total), Some(0)), "all were sent");
    assert_eq!(collected["frames"].as_u64(), Some(total), "and collected");
    sent["rate"].as_f64().expect("a rate")
}
