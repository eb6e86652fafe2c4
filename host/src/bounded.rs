//! Files that are read whole, if they are small enough.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Returns the text of a regular file of at most `most` bytes. Fails on anything else, so that neither a pipe nor a device without an
/// end holds the reader up.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<String> {
    // Of a pipe, opening it would wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} MiB", most >> 20)));
    }
    Ok(text)
}
