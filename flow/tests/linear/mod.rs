//! Whether reading a text takes time in proportion to its length, whatever else the machine is doing.

use std::time::{Duration, Instant};

const SHORT: usize = 128 << 10;
const TIMES: usize = 8;
/// As much as would be 8 in proportion, and is 64 where the time goes with the square of the length.
const LIMIT: u32 = 24;
/// A disturbance of the machine passes; work in proportion to the square does not.
const TRIES: usize = 10;

/// Reads two texts of the unit, one of them longer, and fails if the longer takes out of proportion to the other.
pub(crate) fn assert_linear(start: &str, unit: &str, read: &dyn Fn(&str)) {
    let time = |length: usize| {
        let text = format!("{start}{}", unit.repeat((length - start.len()) / unit.len()));
        let began = Instant::now();
        read(&text);
        began.elapsed()
    };
    let mut measured = Vec::new();
    let is_linear = (0..TRIES).any(|_| {
        let (short, long): (Duration, Duration) = (time(SHORT), time(SHORT * TIMES));
        measured.push((short, long));
        long <= short * LIMIT
    });
    assert!(is_linear, "{start}{unit}...: {measured:?} for one text and one {TIMES} times as long");
}
