//! `replay`: the frames of a capture, let into a port of the software NIC at the capture's own pace or another.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_capture::{Capture, CaptureError, Frame};

use super::speed::Speed;
use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::{CliError, reason};
use crate::terminal;

const METHOD: &str = "sluice/inject";

/// Frames of one request.
const BATCH_FRAMES: usize = 256;
/// Bytes of one request, as the hexadecimal digits that they are sent as.
const BATCH_BYTES: usize = 256 << 10;

/// An Ethernet header. What is shorter is no frame, and the agent would refuse the whole request.
pub(crate) const SHORTEST_FRAME: usize = 14;

/// Replay a capture into a port of the NIC in software
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A capture, pcap or pcapng
    #[arg(value_name = "PCAP")]
    file: PathBuf,
    /// The port at which the frames come in, by number or name
    #[arg(long, value_name = "PORT")]
    in_port: String,
    /// "own" is the pace of the capture, "flat" is as fast as possible, "10x" is ten times the pace of the capture
    #[arg(long, value_name = "SPEED", default_value = "own")]
    speed: Speed,
}

impl Run for Replay {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let file = File::open(&self.file).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = file.map_err(|error| CliError::file(&self.file, &error))?;
        let wrong = |error: CaptureError| CliError::File {
            path: self.file.clone(),
            reason: match error {
                CaptureError::Read(error) => reason(&error),
                error => error.to_string(),
            },
        };
        let mut capture = Capture::open(file).map_err(wrong)?;
        let mut replayer = Replayer::new(agent.connect()?, &self.in_port, self.speed);
        let progress = terminal::progress(metadata.is_file().then_some(metadata.len()));
        let result = (|| {
            while let Some(frame) = capture.next().map_err(wrong)? {
                replayer.play(frame)?;
                progress.set_position(capture.position());
            }
            Ok(())
        })();
        // What was read before the place that is wrong is replayed, too.
        let result = match result {
            Err(CliError::File { .. }) | Ok(()) => replayer.send().and(result),
            error => error,
        };
        progress.finish_and_clear();
        if result.is_ok() || replayer.frames > 0 {
            replayer.summary(out).map_err(CliError::Output)?;
        }
        result.map(|()| Outcome::Done)
    }
}

struct Replayer<'a> {
    connection: Connection,
    port: &'a str,
    pace: Pace,
    began: Instant,
    batch: Vec<String>,
    batch_bytes: usize,
    frames: u64,
    hit: u64,
    missed: u64,
    missed_later: u64,
    sent: u64,
    cut: u64,
    too_short: u64,
}

impl<'a> Replayer<'a> {
    fn new(connection: Connection, port: &'a str, speed: Speed) -> Self {
        let began = Instant::now();
        Self {
            connection,
            port,
            pace: Pace { speed, began, first: None },
            began,
            batch: Vec::new(),
            batch_bytes: 0,
            frames: 0,
            hit: 0,
            missed: 0,
            missed_later: 0,
            sent: 0,
            cut: 0,
            too_short: 0,
        }
    }

    /// Sends a frame when it is its time, together with those before it that are still here.
    fn play(&mut self, frame: Frame) -> Result<(), CliError> {
        if frame.data.len() < SHORTEST_FRAME {
            self.too_short += 1;
            return Ok(());
        }
        if let Some(due) = self.pace.due(frame.time)
            && due > Instant::now()
        {
            self.send()?;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let digits = hexadecimal(&frame.data);
        if self.batch.len() == BATCH_FRAMES || self.batch_bytes + digits.len() > BATCH_BYTES {
            self.send()?;
        }
        self.cut += u64::from(frame.is_cut);
        self.batch_bytes += digits.len();
        self.batch.push(digits);
        Ok(())
    }

    /// Sends what is here.
    fn send(&mut self) -> Result<(), CliError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let params: Vec<_> = [self.port].into_iter().chain(self.batch.iter().map(String::as_str)).collect();
        let answer = self.connection.text(METHOD, &params).map_err(|error| match error {
            // The agent counts within the request.
            CliError::Refused(text) if text.contains("frame ") => {
                let (first, last) = (self.frames, self.frames + self.batch.len() as u64 - 1);
                let place = format!("sluice: the frames of this request are frames {first} to {last} of the replay");
                CliError::Refused(format!("{text}\n{place}"))
            }
            error => error,
        })?;
        let counts = counts(&answer).ok_or_else(|| CliError::answer(METHOD, answer.trim_end()))?;
        let [frames, hit, missed, missed_later, sent] = counts;
        self.frames += frames;
        self.hit += hit;
        self.missed += missed;
        self.missed_later += missed_later;
        self.sent += sent;
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    fn summary(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
        let rate = if seconds > 0.0 { self.frames as f64 / seconds } else { 0.0 };
        let Self { frames, hit, missed, missed_later, sent, .. } = self;
        writeln!(
            out,
            "frames:{frames} hit:{hit} missed:{missed} missed_later:{missed_later} sent:{sent} packets/s:{rate:.0}"
        )?;
        if self.cut > 0 {
            writeln!(out, "{} frames are without their ends in the capture, and were replayed so", self.cut)?;
        }
        if self.too_short > 0 {
            let count = self.too_short;
            writeln!(out, "{count} frames were left out, being shorter than an Ethernet header")?;
        }
        Ok(())
    }
}

/// When which frame is due.
struct Pace {
    speed: Speed,
    began: Instant,
    /// The time of the first frame that has one.
    first: Option<Duration>,
}

impl Pace {
    /// The moment for a frame of this time; none is now. A time before the first frame's is now, too.
    fn due(&mut self, time: Option<Duration>) -> Option<Instant> {
        let Speed::Times(times) = self.speed else { return None };
        let time = time?;
        let after = time.saturating_sub(*self.first.get_or_insert(time)).as_secs_f64() / times;
        // What does not fit is centuries away; a year of waiting is as good.
        let after = Duration::try_from_secs_f64(after).unwrap_or(YEAR).min(YEAR);
        self.began.checked_add(after)
    }
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The digits of some bytes.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The numbers of `frames:F hit:H missed:M missed_later:L sent:S`: of the frames that came in, those that a flow of chain 0 took, those that
/// none took, of the former those that no flow took in a later chain, and the frames that went out.
fn counts(answer: &str) -> Option<[u64; 5]> {
    let mut words = answer.split_whitespace();
    let mut counts = [0; 5];
    for (count, name) in counts.iter_mut().zip(["frames:", "hit:", "missed:", "missed_later:", "sent:"]) {
        *count = words.next()?.strip_prefix(name)?.parse().ok()?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_as_far_apart_as_they_were_captured() {
        let began = Instant::now();
        let mut pace = Pace { speed: Speed::Times(2.0), began, first: None };
        let mut due = |seconds| pace.due(Some(Duration::from_secs(seconds))).map(|due| due - began);
        assert_eq!(due(1_000), Some(Duration::ZERO));
        assert_eq!(due(1_003), Some(Duration::from_millis(1_500)));
        assert_eq!(due(900), Some(Duration::ZERO));
        assert_eq!(due(u64::MAX), Some(YEAR));
        assert_eq!(pace.due(None), None);
        assert_eq!(Pace { speed: Speed::Flat, began, first: None }.due(Some(Duration::MAX)), None);
    }
}
