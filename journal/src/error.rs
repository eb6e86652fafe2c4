//! Why there is no log.

use std::io;
use std::path::{Path, PathBuf};

use sluice_host::own_folder::FolderError;

use super::record::RecordError;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder is not for the agent alone.
    #[error("state_dir: {0}")]
    Folder(#[from] FolderError),
    /// Another agent writes it.
    #[error("another sluiced keeps its flows in {}", .0.display())]
    InUse(PathBuf),
    /// The system says no.
    #[error("cannot {doing} {}: {source}", path.display())]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Somebody has taken the file away that is written.
    #[error("{} is not there any more: somebody has moved or removed it", .0.display())]
    Gone(PathBuf),
    /// The name of a file leaves no number for the next one.
    #[error("{}: no file can follow one with this number; move it away if it is no part of the log", .0.display())]
    NoNumber(PathBuf),
    /// The disk is too full for the log to be written anew.
    #[error("it is written anew by itself once {} has room for {need} bytes, what the log takes there now included: it has {room}", folder.display())]
    NoRoom {
        /// The folder of the log.
        folder: PathBuf,
        /// What is needed, in bytes.
        need: u64,
        /// What there is.
        room: u64,
    },
    /// A file holds something that this agent cannot read. It is left as it is.
    #[error("{}, at byte {at}: {reason}; nothing is changed, and `persist = false` starts without it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
        /// What is wrong.
        reason: RecordError,
    },
}

/// An error of the system, told with the file.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Failed { doing, path, source }
}
