//! The folder of the log: numbered files, of which the one with the highest number is written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, statvfs};
use sluice_host::lock::try_lock;
use sluice_host::own_folder::OwnFolder;

use super::error::{JournalError, failed};

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

    /// The numbers of the files that are there, in order. What a compaction has left unfinished is removed, if the disk is not read-only by
    /// now: nobody reads it, and the next compaction writes over it.
    pub(super) fn files(&self) -> Result<Vec<u64>, JournalError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let path = entry.map_err(failed("list", &self.path))?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                fs::remove_file(&path).unwrap_or_default();
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

    /// Makes a file of changes, which is empty yet.
    pub(super) fn begin(&self, number: u64) -> Result<File, JournalError> {
        let path = self.file(number);
        let file = create(&path).map_err(failed("write", &path))?;
        if let Err(error) = self.sync() {
            fs::remove_file(&path).unwrap_or_default();
            return Err(error);
        }
        Ok(file)
    }

    /// How much its files would have room for if they were written anew, in bytes.
    pub(super) fn room(&self) -> Result<u64, JournalError> {
        let disk = statvfs(&self.path).map_err(|error| failed("look at", &self.path)(error.into()))?;
        let mut room = disk.f_bavail * disk.f_frsize;
        for number in self.files()? {
            let path = self.file(number);
            room += fs::metadata(&path).map_err(failed("look at", &path))?.len();
        }
        Ok(room)
    }

    /// The path of a file that is to take the place of a finished one.
    pub(super) fn replacement(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.{UNFINISHED}"))
    }

    /// Gives a damaged file one more name, under which it stays when the log is compacted. Gives that name.
    pub(super) fn keep_aside(&self, path: &Path) -> Result<PathBuf, JournalError> {
        let own = fs::metadata(path).map_err(failed("read", path))?.ino();
        for count in 1_u64.. {
            let count = if count == 1 { String::new() } else { format!(".{count}") };
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{DAMAGED}{count}"));
            let aside = PathBuf::from(name);
            match fs::metadata(&aside) {
                Ok(found) if found.ino() == own => return Ok(aside),
                Ok(_) => continue,
                Err(_) => {}
            }
            // Not every file system has second names.
            fs::hard_link(path, &aside)
                .or_else(|_| fs::copy(path, &aside).map(drop))
                .map_err(failed("write", &aside))?;
            self.sync()?;
            return Ok(aside);
        }
        Ok(path.to_owned())
    }

    /// The reports of damage that are there.
    pub(super) fn reports(&self) -> Result<Vec<PathBuf>, JournalError> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let path = entry.map_err(failed("list", &self.path))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(REPORT) && name.ends_with(REPORT_END) {
                reports.push(path);
            }
        }
        reports.sort();
        Ok(reports)
    }

    /// The path of the report of the damage that was found when a file was begun.
    pub(super) fn report(&self, number: u64) -> PathBuf {
        self.path.join(format!("{REPORT}{number}{REPORT_END}"))
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
const DAMAGED: &str = "damaged";
const REPORT: &str = "damage-";
const REPORT_END: &str = ".txt";

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Opens a file to write over what is in it.
pub(super) fn overwrite(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}
