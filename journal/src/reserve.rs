//! Room for one compaction, kept free on the disk.
//!
//! The log cannot be written anew on a disk that it has filled up itself. So the blocks that this takes are allocated beforehand,
//! to a file beside the log that grows with the table, and the log takes nothing more once they cannot be had. A compaction writes
//! over that file: what it has needs no room that others could take meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::error::{JournalError, failed};
use super::folder::overwrite;

/// Bytes of a flow's record, its share of what is written once included, before that is known.
const TYPICAL_FLOW: u64 = 110;
/// Flows from which on it is known.
const LEARNT_FROM: u64 = 1_000;
/// The file.
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    bytes_per_flow: u64,
    is_lent: bool,
    /// The file system allocates nothing beforehand.
    is_impossible: bool,
}

impl Reserve {
    /// Bytes for the begin of another file, and as much as the file system has besides.
    pub(super) const PIECE: u64 = 64 << 10;

    /// That of a folder, as an earlier run has left it.
    pub(super) fn of(folder: &Path) -> Self {
        let path = folder.join("reserve");
        let bytes = fs::metadata(&path).map_or(0, |data| data.len().min(data.blocks() * 512));
        Self { path, bytes, bytes_per_flow: TYPICAL_FLOW, is_lent: false, is_impossible: false }
    }

    /// How much is reserved.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much the log of so many flows takes when it is written anew.
    pub(super) const fn need(&self, flows: usize) -> u64 {
        flows as u64 * self.bytes_per_flow + Self::PIECE
    }

    /// So many bytes were written for so many flows.
    pub(super) fn learn(&mut self, bytes: u64, flows: u64) {
        // Of a few flows the shapes are most of it.
        if flows >= LEARNT_FROM {
            self.bytes_per_flow = bytes / flows + 1;
        }
    }

    /// Reserves what so many flows need, and a little more, so that this is seldom done.
    pub(super) fn ensure(&mut self, flows: usize) -> Result<(), JournalError> {
        let need = self.need(flows) + Self::PIECE;
        if need <= self.bytes || self.is_lent || self.is_impossible {
            return Ok(());
        }
        let file = overwrite(&self.path).map_err(failed("write", &self.path))?;
        let attempts = [need + need / 8, need];
        let reserved = attempts.into_iter().find_map(|bytes| {
            let result = fallocate(&file, FallocateFlags::empty(), 0, bytes);
            match result {
                Err(Errno::NOSPC) if bytes != need => None,
                result => Some(result.map(|()| bytes)),
            }
        });
        match reserved {
            Some(Ok(bytes)) => self.bytes = bytes,
            Some(Err(Errno::OPNOTSUPP | Errno::NOSYS)) => {
                tracing::warn!(
                    "{}: the file system cannot reserve room; on a full disk the log may not be written anew",
                    self.path.display()
                );
                self.is_impossible = true;
            }
            Some(Err(error)) => {
                // What was there before stays; some file systems keep a part of what they could not give.
                let _ = file.set_len(self.bytes);
                return Err(failed("write", &self.path)(error.into()));
            }
            None => {}
        }
        Ok(())
    }

    /// Gives a piece back to the file system, for a file that must be begun.
    pub(super) fn give_way(&mut self) -> bool {
        let Some(left) = self.bytes.checked_sub(Self::PIECE).filter(|_| !self.is_lent) else { return false };
        let shrunk = OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(left));
        if shrunk.is_ok() {
            self.bytes = left;
        }
        shrunk.is_ok()
    }

    /// Makes the file that is to be written, of what is reserved if there is something.
    pub(super) fn lend(&mut self, path: &Path) -> io::Result<File> {
        self.is_lent = true;
        // Without one, a new file.
        let _ = fs::rename(&self.path, path);
        overwrite(path)
    }

    /// The file was not written to its end: what it takes is reserved again.
    pub(super) fn take_back(&mut self, path: &Path) {
        self.is_lent = false;
        let kept = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(self.bytes));
        if self.bytes == 0 || kept.and_then(|()| fs::rename(path, &self.path)).is_err() {
            self.bytes = 0;
            // It takes room that may be what is missing. If it stays, the next start removes it.
            let _ = fs::remove_file(path);
        }
    }

    /// The file was written, and is what is reserved no more.
    pub(super) fn spend(&mut self) {
        self.is_lent = false;
        self.bytes = 0;
    }
}
