//! The folder of the log: numbered files, of which the one with the highest number is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::JournalError;
use super::record::{Contents, header};
use crate::lock::try_lock;
use crate::own_folder::OwnFolder;

/// The folder, locked against other agents until it is dropped or the process ends, however it ends.
pub(super) struct Folder {
    path: PathBuf,
    /// The folder itself, which carries the lock, and is synced when names in it change.
    handle: File,
}

impl Folder {
    /// Makes the folder if need be, and takes it for this process.
    pub(super) fn claim(path: &Path) -> Result<Self, JournalError> {
        // Nobody else can open it, and so nobody else can lock it.
        let handle = File::from(OwnFolder::claim_private(path)?.into_handle());
        match try_lock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(true) => Ok(Self { path: path.to_owned(), handle }),
            Ok(false) => Err(JournalError::InUse(path.to_owned())),
            Err(error) => Err(failed("lock", path)(error)),
        }
    }

    /// The numbers of the files that are there, in order. What a compaction has left unfinished is removed.
    pub(super) fn files(&self) -> Result<Vec<u64>, JournalError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let path = entry.map_err(failed("list", &self.path))?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                continue;
            }
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            numbers.extend(number.filter(|number| self.file(*number) == path));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The path of a file.
    pub(super) fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.{FINISHED}"))
    }

    /// Begins a file of changes.
    pub(super) fn begin(&self, number: u64) -> Result<File, JournalError> {
        let path = self.file(number);
        let file = create(&path, Contents::Changes).map_err(failed("write", &path))?;
        self.sync()?;
        Ok(file)
    }

    /// Begins a file that is to take the place of a finished one.
    pub(super) fn begin_replacement(&self, number: u64) -> Result<(PathBuf, File), JournalError> {
        let path = self.path.join(format!("{number}.{UNFINISHED}"));
        let file = create(&path, Contents::Everything).map_err(failed("write", &path))?;
        Ok((path, file))
    }

    /// Puts a replacement, which is on the disk, in its place; files before it go then.
    pub(super) fn finish_replacement(&self, replacement: &Path, number: u64) -> Result<(), JournalError> {
        let path = self.file(number);
        fs::rename(replacement, &path).map_err(failed("write", &path))?;
        // The new name is on the disk before the old files go.
        self.sync()?;
        for older in self.files()?.into_iter().filter(|older| *older < number) {
            let path = self.file(older);
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.handle.sync_all().map_err(failed("sync", &self.path))
    }
}

const FINISHED: &str = "log";
const UNFINISHED: &str = "new";

fn create(path: &Path, contents: Contents) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&header(contents))?;
    file.sync_data()?;
    Ok(file)
}

/// An error of the system, told with the file.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Failed { doing, path, source }
}
