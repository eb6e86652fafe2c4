//! What a machine notes in its folder, and what it is told there.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often files are looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// The folder of a machine, and how far its notes were read.
pub(crate) struct Notes {
    folder: PathBuf,
    read: usize,
}

impl Notes {
    /// Of a machine, seen from outside.
    pub(crate) fn of(folder: &Path, side: &str) -> Self {
        Self { folder: folder.join(format!("{side}-out")), read: 0 }
    }

    /// Of this machine.
    pub(crate) fn own() -> Self {
        Self { folder: std::env::var_os("LAB_OUT").expect("it is a machine of the lab").into(), read: 0 }
    }

    /// Notes something.
    pub(crate) fn note(&self, word: &str, more: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.folder.join("notes")).unwrap();
        file.write_all(format!("{word} {more}\n").as_bytes()).unwrap();
    }

    /// Waits for the next note of that word, and returns what is noted with it. Those before it are passed over.
    pub(crate) fn wait(&mut self, word: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        loop {
            let notes = std::fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
            let whole = notes.rfind('\n').map_or(0, |end| end + 1);
            for line in notes[..whole].lines().skip(self.read) {
                self.read += 1;
                if let Some((_, more)) = line.split_once(' ').filter(|(noted, _)| *noted == word) {
                    return more.to_owned();
                }
                assert!(!line.starts_with("panicked"), "{line}");
            }
            assert!(Instant::now() < deadline, "no {word} in {patience:?} after {notes}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Tells the machine to do something.
    pub(crate) fn tell(&self, word: &str) {
        std::fs::write(self.folder.join(word), "").unwrap();
    }

    /// Tells it to end.
    pub(crate) fn stop(&self) {
        self.tell("stop");
    }

    /// Whether this machine was told to do that, since it was last asked.
    pub(crate) fn was_told(&self, word: &str) -> bool {
        std::fs::remove_file(self.folder.join(word)).is_ok()
    }

    /// Whether this machine is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.folder.join("stop").exists()
    }
}
