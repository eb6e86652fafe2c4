//! One frame at a time.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::bench::{median, quantile};

use crate::ends::End;
use crate::flood::class_of;
use crate::peers;
use crate::rows::{Goal, Rows};
use crate::sources::now;

/// A frame of 256 bytes that goes alone. As perftest does, half of the time is taken from its capture to the answer, which here is that the
/// collector has taken it over.
pub(crate) fn latency(rounds: usize, rows: &mut Rows) {
    const FRAMES: u64 = 2000;
    let rounds: Vec<_> = (0..rounds)
        .map(|_| {
            let (collector, port) = End::collector(8, "times");
            let mut sender = End::start(
                "sender",
                &json!({ "port": port, "length": 256, "a_batch": 1, "batches": 1, "total": FRAMES }),
            );
            sender.said();
            let sent = sender.end_within(Duration::from_secs(120));
            let one_way = numbers(&collector.stop()["times"]["flow"]);
            assert_eq!(one_way.len() as u64, FRAMES, "each frame was written");
            let halves: Vec<_> = numbers(&sent["rounds"]).iter().map(|time| time / 2.0).collect();
            let peer = peers::latencies(256, FRAMES);
            let ours = [median(&halves), quantile(&halves, 0.99)];
            let way = [median(&one_way), quantile(&one_way, 0.99)];
            println!("  a frame of 256 B: {ours:.1?} us, to the pipe {way:.1?}, perftest {peer:.1?}");
            (ours, peer)
        })
        .collect();
    for (place, name, most) in [(0, "typical", 1.25), (1, "p99", 1.5)] {
        let pairs: Vec<_> = rounds.iter().map(|(ours, peer)| [ours[place], peer[place]]).collect();
        rows.add(&format!("a frame of 256 B alone against ib_send_lat -e, {name}"), "us", &pairs, Goal::Most(most));
    }
}

fn numbers(of: &Value) -> Vec<f64> {
    of.as_array().expect("numbers").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// A pipe that takes the time of each frame from its capture until it is written, in us, by class.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Arc<Mutex<BTreeMap<&'static str, Vec<f64>>>>);

impl Times {
    pub(crate) fn found(&self) -> Value {
        json!(*self.0.lock().expect("no panic"))
    }
}

impl io::Write for Times {
    /// Each call brings whole blocks of pcapng.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        /// Type of a block with a frame, and where the frame is in it.
        const PACKET: (u32, usize) = (6, 28);
        let word = |at: usize| Some(u32::from_le_bytes(*blocks.get(at..)?.first_chunk()?));
        let (mut at, written) = (0, now());
        let mut times = self.0.lock().expect("no panic");
        while let (Some(kind), Some(length)) = (word(at), word(at + 4)) {
            if let (true, Some(high), Some(low)) = (kind == PACKET.0, word(at + 12), word(at + 16)) {
                let captured = u64::from(high) << 32 | u64::from(low);
                let class = class_of(&blocks[at + PACKET.1..]);
                times.entry(class).or_default().push(written.saturating_sub(captured) as f64 / 1e3);
            }
            at += length as usize;
        }
        Ok(blocks.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
