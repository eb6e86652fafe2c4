//! `trace`: a packet, or the frames of a capture, walked through the installed flows.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use sluice_capture::{Capture, CaptureError};

use super::replay::{SHORTEST_FRAME, hexadecimal};
use crate::command::{Agent, Outcome, Run};
use crate::error::{CliError, reason};

/// Trace a packet through the installed flows, step by step, without counting it
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// A frame without FCS, in hexadecimal, or a capture, pcap or pcapng
    #[arg(value_name = "PACKET|PCAP")]
    packet: String,
    /// The port at which the packet comes in, by number or name
    #[arg(long, value_name = "PORT")]
    in_port: String,
    /// Trace at most this many frames of a capture
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    count: u16,
}

impl Run for Trace {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let is_packet = self.packet.len().is_multiple_of(2) && is_hexadecimal(&self.packet);
        let (frames, too_short) = if is_packet { (vec![self.packet.clone()], 0) } else { frames(self)? };
        let params: Vec<_> = std::iter::once(&self.in_port).chain(&frames).cloned().collect();
        agent.print("sluice/trace", &params, out)?;
        if too_short > 0 {
            let note = "were left out and are not numbered, being shorter than an Ethernet header";
            writeln!(out, "{too_short} frames {note}").map_err(CliError::Output)?;
        }
        Ok(Outcome::Done)
    }
}

fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The first frames of a capture, and how many between them are too short for an Ethernet header. They are traced in one request, so
/// that a later one sees the connections that an earlier one would have made.
fn frames(command: &Trace) -> Result<(Vec<String>, usize), CliError> {
    let path: &Path = command.packet.as_ref();
    let unfit = |reason: String| CliError::File { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if is_hexadecimal(&command.packet) => {
            unfit("an odd number of hexadecimal digits is no frame, and there is no capture of this name".to_owned())
        }
        io::ErrorKind::NotFound => unfit("neither a frame in hexadecimal nor a capture that is there".to_owned()),
        _ => CliError::file(path, &error),
    })?;
    let wrong = |error: CaptureError| match error {
        CaptureError::Read(error) => unfit(reason(&error)),
        error => unfit(error.to_string()),
    };
    let mut capture = Capture::open(file).map_err(wrong)?;
    let (mut frames, mut too_short) = (Vec::new(), 0);
    while frames.len() < usize::from(command.count)
        && let Some(frame) = capture.next().map_err(wrong)?
    {
        if frame.data.len() < SHORTEST_FRAME {
            too_short += 1;
        } else {
            frames.push(hexadecimal(&frame.data));
        }
    }
    match (frames.is_empty(), too_short) {
        (false, _) => Ok((frames, too_short)),
        (true, 0) => Err(unfit("there is no frame in it".to_owned())),
        (true, _) => Err(unfit("all frames in it are shorter than an Ethernet header".to_owned())),
    }
}
