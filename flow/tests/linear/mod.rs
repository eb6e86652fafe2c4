//! Whether reading a text takes time in proportion to its length, whatever else the machine is doing.

use std::time::{Duration, Instant};

/// Long enough that memory for it comes from the system, as it does for the longer one.
const SHORT: usize = 256 << 10;
const TIMES: usize = 8;
/// As much as would be 1 in proportion, and is [`TIMES`] where the time goes with the square of the length.
const LIMIT: u32 = 3;
/// A disturbance of the machine passes; work in proportion to the square does not.
const TRIES: usize = 10;

/// Reads a long text of the unit once, and a short one so often that it is as much, and fails if the long one takes out of proportion. Both
/// take about as long, so that whoever else wants the processor holds both up.
pub(crate) fn assert_linear(start: &str, unit: &str, read: &dyn Fn(&str)) {
    let time = |length: usize, times: usize| {
        let text = format!("{start}{}", unit.repeat((length - start.len()) / unit.len()));
        let began = Instant::now();
        (0..times).for_each(|_| read(&text));
        began.elapsed()
    };
    let mut measured = Vec::new();
    let is_linear = (0..TRIES).any(|_| {
        let (short, long): (Duration, Duration) = (time(SHORT, TIMES), time(SHORT * TIMES, 1));
        measured.push((short, long));
        long <= short * LIMIT
    });
    assert!(is_linear, "{start}{unit}...: {measured:?} for {TIMES} texts and for one that is as long as all of them");
}
