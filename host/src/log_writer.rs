//! The way of a log line to standard error or to the journal: through a buffer of bounded size and a thread of its own, so that who logs,
//! perhaps with a flow locked, never waits for who reads. What does not fit, or is not taken, such as by a disk that is full, is dropped and
//! counted, and the log says so itself.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait to be written, at most.
const WAITING: usize = 1 << 20;
/// How long the last lines may take when the agent ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines go in the end. It may keep its caller waiting.
pub(crate) trait LogSink {
    /// Writes lines, given where each ends. Returns how many were not taken.
    fn write_lines(&mut self, lines: &[u8], ends: &[usize]) -> u64;

    /// Says that lines are missing here. False if that was not taken, either.
    fn tell_missing(&mut self, lines: u64) -> bool;
}

impl<W: Write> LogSink for W {
    fn write_lines(&mut self, lines: &[u8], ends: &[usize]) -> u64 {
        let mut written = 0;
        while written < lines.len() {
            match self.write(&lines[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        ends.iter().map(|end| u64::from(*end > written)).sum()
    }

    fn tell_missing(&mut self, lines: u64) -> bool {
        writeln!(self, "{lines} log lines are missing here: standard error did not take them").is_ok()
    }
}

/// Takes lines on. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct LogWriter(Arc<Shared>);

/// Waits a little for the last lines when it is dropped.
#[must_use = "the last lines are lost without it"]
pub struct LastLines(LogWriter);

#[derive(Default)]
struct Shared {
    lines: Mutex<Lines>,
    come: Condvar,
    gone: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Lines {
    waiting: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// Dropped since the log last said so.
    dropped: u64,
    is_writing: bool,
}

impl LogWriter {
    /// Writes to `sink` on a thread of its own.
    pub(crate) fn start(sink: impl LogSink + Send + 'static) -> io::Result<(Self, LastLines)> {
        let writer = Self::default();
        let own = writer.clone();
        thread::Builder::new().name("log".into()).spawn(move || own.run(sink))?;
        Ok((writer.clone(), LastLines(writer)))
    }

    /// Lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    fn run(&self, mut sink: impl LogSink) {
        let (mut taken, mut ends, mut untold) = (Vec::new(), Vec::new(), 0);
        loop {
            let dropped = {
                let mut lines = self.0.lines.lock();
                lines.is_writing = false;
                self.0.gone.notify_all();
                self.0.come.wait_while(&mut lines, |lines| lines.waiting.is_empty() && lines.dropped == 0);
                lines.is_writing = true;
                std::mem::swap(&mut taken, &mut lines.waiting);
                std::mem::swap(&mut ends, &mut lines.ends);
                std::mem::take(&mut lines.dropped)
            };
            tell(&mut sink, &mut untold);
            let refused = sink.write_lines(&taken, &ends);
            self.0.dropped.fetch_add(refused, Ordering::Relaxed);
            untold += dropped + refused;
            tell(&mut sink, &mut untold);
            taken.clear();
            ends.clear();
        }
    }
}

/// Says how many lines are missing, if any are. What is not taken is said another time.
fn tell(sink: &mut impl LogSink, untold: &mut u64) {
    if *untold > 0 && sink.tell_missing(*untold) {
        *untold = 0;
    }
}

impl Write for LogWriter {
    /// Takes whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lines.lock();
        // Once some are missing, the rest waits until the log has said so.
        if lines.dropped > 0 || lines.waiting.len() + line.len() > WAITING {
            lines.dropped += 1;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            lines.waiting.extend_from_slice(line);
            let end = lines.waiting.len();
            lines.ends.push(end);
        }
        drop(lines);
        self.0.come.notify_one();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl LastLines {
    /// Waits until everything is written; false if that takes too long.
    fn wait(&self) -> bool {
        let Self(LogWriter(shared)) = self;
        let mut lines = shared.lines.lock();
        let is_left = |lines: &mut Lines| lines.is_writing || !lines.waiting.is_empty() || lines.dropped > 0;
        !shared.gone.wait_while_for(&mut lines, is_left, LAST_LINES).timed_out()
    }
}

impl Drop for LastLines {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn who_logs_does_not_wait_for_who_reads_and_what_is_dropped_is_told() {
        const LINES: u64 = 40_000;
        let (read, write) = io::pipe().unwrap();
        let (mut writer, last) = LogWriter::start(write).unwrap();
        // More than a pipe and the buffer take.
        for number in 0..LINES {
            writeln!(Whole(&mut writer), "line {number} {}", "x".repeat(80)).unwrap();
        }
        let dropped = writer.dropped();
        assert!(dropped > LINES / 4, "{dropped} lines are dropped");
        let reading = thread::spawn(move || {
            let (mut there, mut missing) = (0, 0);
            for line in BufReader::new(read).lines().map(Result::unwrap) {
                match line.split_once(" log lines are missing") {
                    Some((number, _)) => missing += number.parse::<u64>().unwrap(),
                    None if line == "the end" => break,
                    None => there += 1,
                }
            }
            (there, missing)
        });
        while !last.wait() {}
        writeln!(Whole(&mut writer), "the end").unwrap();
        assert_eq!(reading.join().unwrap(), (LINES - dropped, dropped));
        assert_eq!(writer.dropped(), dropped);
    }

    /// A file on a disk with room for so many bytes.
    #[derive(Clone, Default)]
    struct OnDisk {
        room: Arc<Mutex<usize>>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for OnDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock();
            if *room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = bytes.len().min(*room);
            *room -= count;
            self.text.lock().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_told_once_there_is_room() {
        let disk = OnDisk::default();
        let (mut writer, last) = LogWriter::start(disk.clone()).unwrap();
        let mut write = |line: &str| {
            writer.write_all(line.as_bytes()).unwrap();
            while !last.wait() {}
            writer.dropped()
        };
        *disk.room.lock() = 6;
        assert_eq!([write("one\n"), write("two\n"), write("three\n")], [0, 1, 2]);
        *disk.room.lock() = 1_000;
        assert_eq!(write("four\n"), 2);
        let told = "2 log lines are missing here: standard error did not take them\n";
        assert_eq!(String::from_utf8_lossy(&disk.text.lock()), format!("one\ntw{told}four\n"));
    }

    /// Writes what is formatted in one piece, as the layer of tracing-subscriber does.
    struct Whole<'a>(&'a mut LogWriter);

    impl Write for Whole<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn write_fmt(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
            self.0.write_all(text.to_string().as_bytes())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
