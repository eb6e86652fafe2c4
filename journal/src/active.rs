//! The file that is written.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::{JournalError, failed};
use super::folder::Folder;
use super::frame::{Contents, Header};
use super::record::{Encoder, OpenIndex};

/// The file that is written.
pub(super) struct Active {
    pub(super) number: u64,
    /// `None` after an error: nothing is ever written behind a record that may be half there.
    pub(super) file: Option<LogFile>,
    /// Without a file: the number of the next record, and what no index covers of those before.
    pub(super) rest: (u64, OpenIndex),
}

pub(super) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) header: Header,
    pub(super) encoder: Encoder,
    pub(super) records: u64,
}

impl Active {
    /// Nothing more is written to the file.
    pub(super) fn close(&mut self) {
        self.rest = self.rest();
        self.file = None;
    }

    /// So many changes are not written, for there is no file: a reader finds that their numbers are missing.
    pub(super) fn leave_out(&mut self, records: u64) {
        let next = self.rest.0 + records;
        self.rest = (next, OpenIndex::from(next));
    }

    /// The number of the next record, and what no index covers of those before.
    pub(super) fn rest(&self) -> (u64, OpenIndex) {
        self.file.as_ref().map_or_else(|| self.rest.clone(), |file| file.encoder.rest())
    }

    /// Has changes go to another file from now on; gives the one before, and the number of the first record of the new one. If that
    /// fails nothing is changed.
    pub(super) fn go_on_in(&mut self, made: MadeFile) -> Result<(Option<LogFile>, u64), JournalError> {
        let next = LogFile::begin(made, self.rest())?;
        let Header { number, first, .. } = next.header;
        self.number = number;
        Ok((self.file.replace(next), first))
    }
}

/// A file that is empty yet.
pub(super) struct MadeFile {
    number: u64,
    path: PathBuf,
    file: File,
}

impl LogFile {
    pub(super) fn make(folder: &Folder, number: u64) -> Result<MadeFile, JournalError> {
        Ok(MadeFile { number, path: folder.file(number), file: folder.begin(number)? })
    }

    /// Begins a file of changes whose first record follows what `rest` says.
    pub(super) fn begin(made: MadeFile, (first, tail): (u64, OpenIndex)) -> Result<Self, JournalError> {
        let MadeFile { number, path, mut file } = made;
        let header = Header { contents: Contents::Changes, number, first };
        if let Err(error) = file.write_all(&header.to_bytes()) {
            std::fs::remove_file(&path).unwrap_or_default();
            return Err(failed("write", &path)(error));
        }
        Ok(Self { path, file: Arc::new(file), header, encoder: Encoder::of(header, Some(tail)), records: 0 })
    }
}
