//! How values are written in the file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use sluice_control::duration::{from_seconds, parse_duration, parse_seconds};
use sluice_feed_conntrack::Mark;

use crate::backends::Configured;

/// Reads the address of the metrics, or `none`.
pub fn parse_metrics(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == NONE {
        return Ok(None);
    }
    let wrong = |_| format!("expected an address and port such as \"[::1]:9319\", or \"none\", not \"{text}\"");
    text.parse().map(Some).map_err(wrong)
}

/// Writes the address of the metrics as [`parse_metrics`] reads it.
pub fn format_metrics(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| NONE.to_owned(), |address| address.to_string())
}

const NONE: &str = "none";

/// Text or a number, which a time may be.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time such as \"500ms\", \"10s\" or \"5m\", or a number of seconds")]
enum TextOrNumber {
    Text(String),
    Number(f64),
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) => parse_duration(&text),
        TextOrNumber::Number(seconds) => from_seconds(seconds),
    }
    .map_err(Error::custom)
}

pub(super) fn duration_or_zero<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = zero_or_more(TextOrNumber::deserialize(from)?);
    time.map_err(|message| Error::custom(format!("{message} (0 means every batch)")))
}

pub(super) fn up_to_a_minute<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = zero_or_more(TextOrNumber::deserialize(from)?).map_err(Error::custom)?;
    if time <= Duration::from_secs(60) { Ok(time) } else { Err(Error::custom("expected a time from 0 to 60 s")) }
}

fn zero_or_more(time: TextOrNumber) -> Result<Duration, String> {
    match time {
        TextOrNumber::Number(0.0) => Ok(Duration::ZERO),
        TextOrNumber::Text(text) if text == "0" => Ok(Duration::ZERO),
        TextOrNumber::Text(text) => {
            let seconds = parse_seconds(&text)?;
            if seconds == 0.0 { Ok(Duration::ZERO) } else { from_seconds(seconds) }
        }
        TextOrNumber::Number(seconds) => from_seconds(seconds),
    }
}

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) if text == NONE => return Ok(None),
        TextOrNumber::Text(text) => parse_duration(&text),
        TextOrNumber::Number(seconds) => from_seconds(seconds),
    }
    .map(Some)
    .map_err(|message| Error::custom(format!("{message} (\"none\" means never)")))
}

pub(super) fn metrics<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    parse_metrics(&String::deserialize(from)?).map_err(Error::custom)
}

/// The backend, without its table.
pub(super) fn backend<'de, D: Deserializer<'de>>(from: D) -> Result<Configured, D::Error> {
    Configured::named(&String::deserialize(from)?).map_err(Error::custom)
}

pub(super) fn absolute_path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(from)?;
    // A daemon's working directory is nobody's guess.
    if Path::new(&text).is_absolute() {
        Ok(PathBuf::from(text))
    } else {
        Err(Error::custom(format!("expected a path that begins with \"/\", not \"{text}\"")))
    }
}

pub(super) fn some_absolute_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    absolute_path(from).map(Some)
}

pub(super) fn mark<'de, D: Deserializer<'de>>(from: D) -> Result<Mark, D::Error> {
    String::deserialize(from)?.parse().map_err(Error::custom)
}

pub(super) fn group<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

pub(super) fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let text = String::deserialize(from)?;
    match u32::from_str_radix(&text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(Error::custom(format!("expected a file mode in octal such as \"0660\", not \"{text}\""))),
    }
}

pub(super) fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    between(from, 1, 64)
}

pub(super) fn chain_depth<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    between(from, 1, 256)
}

pub(super) fn queue_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    between(from, 64 << 10, 1 << 30)
}

pub(super) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    // As many as a flow id can tell apart.
    between(from, 1, 1 << 31)
}

fn between<'de, D: Deserializer<'de>>(from: D, least: usize, most: usize) -> Result<usize, D::Error> {
    let number = i64::deserialize(from)?;
    match usize::try_from(number) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(Error::custom(format!("expected a number from {least} to {most}, not {number}"))),
    }
}
