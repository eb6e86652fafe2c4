//! The cable between the two machines of `tests/lab/pair`: a test can cut it, and have it lose, double or delay frames.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// More than any frame.
const LONGEST: usize = 1 << 16;

/// A cable, which is there until it is dropped.
pub struct Cable {
    shared: Arc<Shared>,
    directions: Vec<JoinHandle<()>>,
}

/// What a cable does to frames, each by its own draw. Out of a thousand frames:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// As many are lost.
    pub lost: u64,
    /// As many come twice.
    pub doubled: u64,
    /// As many come later than those behind them.
    pub delayed: u64,
    /// By so much.
    pub delay: Duration,
}

/// What became of the frames of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// They came out at the other end; one that was doubled counts once.
    pub passed: u64,
    /// They were lost by a fault, or because the cable was cut.
    pub lost: u64,
    /// They came out twice.
    pub doubled: u64,
    /// They came out later.
    pub delayed: u64,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    is_over: AtomicBool,
    faults: Mutex<Faults>,
    passed: AtomicU64,
    lost: AtomicU64,
    doubled: AtomicU64,
    delayed: AtomicU64,
}

impl Cable {
    /// Joins the machines that are started with this folder. The same seed draws the same numbers for the frames of a direction.
    ///
    /// # Panics
    /// Panics if the sockets cannot be made.
    #[must_use]
    pub fn new(folder: &Path, seed: u64) -> Self {
        let shared = Arc::<Shared>::default();
        let ends = [("left", "right"), ("right", "left")].map(|(from, to)| {
            let socket = UnixDatagram::bind(folder.join(format!("{from}.cable"))).expect("a socket");
            socket.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            (socket, folder.join(to))
        });
        let directions = ends.into_iter().zip([seed, !seed]).map(|((socket, to), draws)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || Direction { socket, to, draws, later: VecDeque::new() }.carry(&shared))
        });
        let directions = directions.collect();
        Self { shared, directions }
    }

    /// Cuts the cable: no frame comes out any more. Neither end is told, as where a switch is in between.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::Relaxed);
    }

    /// Puts it together again.
    pub fn mend(&self) {
        self.shared.is_cut.store(false, Ordering::Relaxed);
    }

    /// Does this to frames from now on.
    ///
    /// # Panics
    /// Panics if a thread of the cable has.
    pub fn disturb(&self, faults: Faults) {
        *self.shared.faults.lock().expect("no panic") = faults;
    }

    /// Returns what became of frames so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { passed, lost, doubled, delayed, .. } = &*self.shared;
        Carried { passed: count(passed), lost: count(lost), doubled: count(doubled), delayed: count(delayed) }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            // One that has panicked has said so.
            let _ = direction.join();
        }
    }
}

/// One direction of a cable.
struct Direction {
    socket: UnixDatagram,
    to: PathBuf,
    draws: u64,
    /// Frames that are delayed, and until when; all by as much, so that they are in order.
    later: VecDeque<(Instant, Vec<u8>)>,
}

impl Direction {
    fn carry(mut self, shared: &Shared) {
        /// How often it is looked whether the cable is still wanted.
        const PAUSE: Duration = Duration::from_millis(100);
        let mut buffer = vec![0; LONGEST];
        while !shared.is_over.load(Ordering::Relaxed) {
            while self.later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                self.later.pop_front().into_iter().for_each(|(_, frame)| self.pass(&frame));
            }
            let due = self.later.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
            let pause = due.unwrap_or(PAUSE).clamp(Duration::from_micros(100), PAUSE);
            self.socket.set_read_timeout(Some(pause)).expect("a timeout");
            match self.socket.recv(&mut buffer) {
                Ok(length) => self.decide(&buffer[..length], shared),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("the cable: {error}"),
            }
        }
    }

    fn decide(&mut self, frame: &[u8], shared: &Shared) {
        let faults = *shared.faults.lock().expect("no panic");
        // All are drawn for each frame, so that a frame's fate does not depend on what happened to those before it.
        let [is_lost, is_doubled, is_delayed] =
            [faults.lost, faults.doubled, faults.delayed].map(|of_thousand| self.draw() % 1000 < of_thousand);
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if is_lost || shared.is_cut.load(Ordering::Relaxed) {
            count(&shared.lost);
            return;
        }
        count(&shared.passed);
        if is_doubled {
            count(&shared.doubled);
            self.pass(frame);
        }
        if is_delayed {
            count(&shared.delayed);
            self.later.push_back((Instant::now() + faults.delay, frame.to_vec()));
        } else {
            self.pass(frame);
        }
    }

    /// A machine that does not run yet, or not any more, receives nothing.
    fn pass(&self, frame: &[u8]) {
        let _ = self.socket.send_to(frame, &self.to);
    }

    /// The next number (splitmix64).
    fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.draws;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out on the right of so many numbered frames from the left.
    fn carried(seed: u64, faults: Faults) -> (Vec<u32>, Carried) {
        let folder = tempfile::tempdir().unwrap();
        let [left, right] = ["left", "right"].map(|end| UnixDatagram::bind(folder.path().join(end)).unwrap());
        right.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let cable = Cable::new(folder.path(), seed);
        cable.disturb(faults);
        let receiver = std::thread::spawn(move || {
            let mut came = vec![];
            let mut frame = [0; 4];
            while right.recv(&mut frame).is_ok() {
                came.push(u32::from_be_bytes(frame));
            }
            came
        });
        for number in 0..2000_u32 {
            left.send_to(&number.to_be_bytes(), folder.path().join("left.cable")).unwrap();
        }
        (receiver.join().unwrap(), cable.carried())
    }

    #[test]
    fn a_cable_loses_doubles_and_delays_what_its_seed_says_and_counts_it() {
        let faults = Faults { lost: 100, doubled: 50, delayed: 0, delay: Duration::ZERO };
        let (came, counts) = carried(7, faults);
        assert_eq!(counts.passed + counts.lost, 2000);
        assert_eq!(came.len() as u64, counts.passed + counts.doubled);
        assert!((100..300).contains(&counts.lost) && (50..200).contains(&counts.doubled), "{counts:?}");
        assert_eq!(carried(7, faults), (came.clone(), counts));
        assert_ne!(carried(8, faults).0, came);
        let delayed = Faults { lost: 0, doubled: 0, delayed: 100, delay: Duration::from_millis(20) };
        let (came, counts) = carried(7, delayed);
        assert!(counts.delayed > 100 && !came.is_sorted(), "{counts:?}");
        assert_eq!(came.len(), 2000);
    }

    #[test]
    fn a_cable_that_is_cut_passes_nothing_until_it_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let [left, right] = ["left", "right"].map(|end| UnixDatagram::bind(folder.path().join(end)).unwrap());
        right.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let cable = Cable::new(folder.path(), 1);
        let mut frame = [0; 4];
        for (is_cut, expected) in [(false, true), (true, false), (false, true)] {
            if is_cut {
                cable.cut()
            } else {
                cable.mend()
            }
            left.send_to(b"frame", folder.path().join("left.cable")).unwrap();
            assert_eq!(right.recv(&mut frame).is_ok(), expected);
        }
    }
}
