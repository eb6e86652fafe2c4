//! `trace`: a packet, or the frames of a capture, walked through the installed flows.

use std::fs::File;
use std::io::Write;

use super::arguments::Trace;
use super::capture::{Capture, CaptureError};
use super::connection::Connection;
use super::error::{CliError, reason};
use super::replay::hexadecimal;

/// `trace`
pub(super) fn run(
    connect: impl FnOnce() -> Result<Connection, CliError>,
    command: &Trace,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let is_packet = !command.packet.is_empty() && command.packet.bytes().all(|byte| byte.is_ascii_hexdigit());
    let frames = if is_packet { vec![command.packet.clone()] } else { frames(command)? };
    let params: Vec<_> = [command.in_port.as_str()].into_iter().chain(frames.iter().map(String::as_str)).collect();
    connect()?.print("sluice/trace", &params, out)
}

/// The first frames of a capture. They are traced in one request, so that a later one sees the connections that an
/// earlier one would have made.
fn frames(command: &Trace) -> Result<Vec<String>, CliError> {
    let path = command.packet.as_ref();
    let file = File::open(path).map_err(|error| CliError::file(path, &error))?;
    let wrong = |error: CaptureError| CliError::File {
        path: path.to_owned(),
        reason: match error {
            CaptureError::Read(error) => reason(&error),
            error => error.to_string(),
        },
    };
    let mut capture = Capture::open(file).map_err(wrong)?;
    let mut frames = Vec::new();
    while frames.len() < usize::from(command.count)
        && let Some(frame) = capture.next().map_err(wrong)?
    {
        frames.push(hexadecimal(&frame.data));
    }
    Ok(frames)
}
