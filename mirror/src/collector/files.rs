//! Capture files: `NAME_00001.pcapng` and so on. Each start and each rotation begins the next one; no file is ever written
//! over.
//!
//! A file without frames takes the place of no other one: older files are deleted for the first frames of one, not for its beginning. It
//! goes if these cannot be written, and once the next start has begun a file that says the same. Otherwise a collector that starts again and
//! again, or a disk that is full, would leave files that say nothing, and have deleted all others for them.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::warn;

use super::mark::{self, Marks};

/// Where files are, and when the next one is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// `FOLDER/NAME.pcapng`, for `FOLDER/NAME_00001.pcapng` and so on.
    pub path: PathBuf,
    /// The next file is begun once one has so many bytes.
    pub size: Option<u64>,
    /// The next file is begun once the first frames of one have been in it for so long.
    pub age: Option<Duration>,
    /// How many files are kept; older ones of the same name are deleted.
    pub keep: Option<usize>,
}

/// The file that is written now, and which comes next.
#[derive(Debug)]
pub(super) struct Written {
    files: Files,
    number: u64,
    open: Option<Open>,
    /// Last files without frames, which the next one makes needless.
    needless: Vec<PathBuf>,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    /// Bytes of whole blocks.
    length: u64,
    /// When the first frames were written.
    since: Option<Instant>,
}

impl Written {
    /// Finds out which files there are, and what the last one says of what was taken over. What a collector had begun to write when it was
    /// killed is cut off.
    pub(super) fn new(files: Files) -> io::Result<(Self, Marks)> {
        let numbers = files.numbers()?;
        // A machine that went down may leave a last file without a mark.
        let (mut marks, mut needless) = (Marks::new(), Vec::new());
        for number in numbers.iter().rev() {
            let path = files.numbered(*number);
            let mended = mark::mend(&path).map_err(|error| named(&path, &error))?;
            marks = mended.marks;
            if mended.is_without_frames {
                needless.push(path);
            }
            if !marks.is_empty() {
                break;
            }
        }
        Ok((Self { files, number: numbers.last().copied().unwrap_or_default(), open: None, needless }, marks))
    }

    /// Whether a file is open, to which more can be written.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the next file is due. It never is after one without frames: files that say nothing would take the place of those that are
    /// kept.
    pub(super) fn is_due(&self) -> bool {
        let Some((open, since)) = self.open.as_ref().and_then(|open| Some((open, open.since?))) else { return false };
        self.files.size.is_some_and(|size| open.length >= size)
            || self.files.age.is_some_and(|age| since.elapsed() >= age)
    }

    /// Begins the next file, with these blocks, which are not frames. If that fails, no file is left of it.
    pub(super) fn begin(&mut self, blocks: &[u8]) -> io::Result<()> {
        self.number += 1;
        let path = self.files.numbered(self.number);
        match Open::new(&path, blocks) {
            Ok(open) => {
                self.open = Some(open);
                std::mem::take(&mut self.needless).iter().for_each(|path| delete(path, "without frames"));
                Ok(())
            }
            Err(error) => {
                // Unless somebody else has taken it, the number is free again.
                if fs::exists(&path).is_ok_and(|exists| !exists) {
                    self.number -= 1;
                }
                Err(named(&path, &error))
            }
        }
    }

    /// Writes whole blocks of frames. If that fails, none of them is in the file, which is closed, and gone if these were the first.
    pub(super) fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        // As the statistics of a file without frames are.
        if blocks.is_empty() {
            return Ok(());
        }
        let Err(error) = open.file.write_all(blocks) else {
            open.length += blocks.len() as u64;
            if open.since.replace(open.since.unwrap_or_else(Instant::now)).is_none() {
                self.delete_old();
            }
            return Ok(());
        };
        let undone = match open.since {
            Some(_) => open.file.set_len(open.length).map_err(|also| format!("its end cannot be cut off: {also}")),
            None => {
                fs::remove_file(&open.path).map_err(|also| format!("what was begun of it cannot be deleted: {also}"))
            }
        };
        let error = match &undone {
            Ok(()) => named(&open.path, &error),
            Err(also) => named(&open.path, &io::Error::other(format!("{error}; and {also}"))),
        };
        if open.since.is_none() && undone.is_ok() {
            self.number -= 1;
        }
        self.open = None;
        Err(error)
    }

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Frames are written whether that is possible or not.
    fn delete_old(&self) {
        let Some(keep) = self.files.keep else { return };
        let numbers = self.files.numbers().unwrap_or_else(|error| {
            warn!("files that are too old cannot be found: {error}");
            Vec::new()
        });
        for number in &numbers[..numbers.len().saturating_sub(keep.max(1))] {
            delete(&self.files.numbered(*number), "that is too old");
        }
    }
}

fn delete(path: &Path, which: &str) {
    if let Err(error) = fs::remove_file(path) {
        warn!("a file {which} cannot be deleted: {}", named(path, &error));
    }
}

impl Open {
    fn new(path: &Path, blocks: &[u8]) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        if let Err(error) = file.write_all(blocks) {
            // A file without frames would count among those that are kept.
            return Err(match fs::remove_file(path) {
                Ok(()) => error,
                Err(also) => io::Error::other(format!("{error}; and what was begun of it cannot be deleted: {also}")),
            });
        }
        Ok(Self { file, path: path.to_owned(), length: blocks.len() as u64, since: None })
    }
}

impl Files {
    fn numbered(&self, number: u64) -> PathBuf {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("_{number:05}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// Numbers of the files that there are, in their order.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| named(folder, &error))? {
            numbers.extend(self.number(&entry?.file_name()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn number(&self, name: &OsStr) -> Option<u64> {
        let stem = self.path.file_stem()?.to_str()?;
        let rest = name.to_str()?.strip_prefix(stem)?.strip_prefix('_')?;
        let digits = match self.path.extension() {
            Some(extension) => rest.strip_suffix(extension.to_str()?)?.strip_suffix('.')?,
            None => rest,
        };
        let number = digits.parse().ok()?;
        // Somebody else's file may have a number that is written in another way.
        (self.numbered(number).file_name() == Some(name)).then_some(number)
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    #[test]
    fn files_are_numbered_on_rotated_by_size_and_deleted_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for name in ["a_00007.pcapng", "a_9.pcapng", "a_x.pcapng", "ab_00009.pcapng", "a_00008.pcap"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let files = Files { path: folder.path().join("a.pcapng"), size: Some(10), age: None, keep: Some(2) };
        let (mut written, marks) = Written::new(files).unwrap();
        assert!(marks.is_empty() && !written.is_open());
        for _ in 0..2 {
            let before = names();
            written.begin(b"1234").unwrap();
            assert_eq!(names().len(), before.len() + 1, "none is deleted for a file without frames");
            written.write(b"").unwrap();
            assert_eq!(names().len(), before.len() + 1);
            written.write(b"56789").unwrap();
            assert!(!written.is_due());
            written.write(b"0").unwrap();
            assert!(written.is_due());
        }
        let left = ["a_00008.pcap", "a_00008.pcapng", "a_00009.pcapng", "a_9.pcapng", "a_x.pcapng", "ab_00009.pcapng"];
        assert_eq!(names(), left);
        assert_eq!(fs::read(folder.path().join("a_00009.pcapng")).unwrap(), b"1234567890");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind_and_no_other_one_is_deleted_for_it() {
        const LIMITED: &str = "SLUICE_TEST_FILES_ARE_LIMITED";
        let name = "collector::files::tests::a_file_that_cannot_be_written_leaves_nothing_behind_and_no_other_one_is_deleted_for_it";
        if env::var_os(LIMITED).is_none() {
            // Again in a process of its own, which can make files but not fill them, as on a disk without room.
            let mut command = Command::new("env");
            command.args(["--ignore-signal=XFSZ", "prlimit", "--fsize=20"]).arg(env::current_exe().unwrap());
            let output = command.args(["--exact", name]).env(LIMITED, "").output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let captures = ["a_00001.pcapng", "a_00002.pcapng"];
        captures.iter().for_each(|name| fs::write(folder.path().join(name), b"frames").unwrap());
        let files = Files { path: folder.path().join("a.pcapng"), size: None, age: None, keep: Some(2) };
        let (mut written, _) = Written::new(files).unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for _ in 0..3 {
            let error = written.begin(&[0; 100]).unwrap_err();
            assert!(error.to_string().ends_with("a_00003.pcapng: File too large (os error 27)"), "{error}");
            assert!(!written.is_open());
            assert_eq!(names(), captures);
            // With room for what a file begins with, but not for its first frames.
            written.begin(b"marks").unwrap();
            let error = written.write(&[0; 100]).unwrap_err();
            assert!(error.to_string().ends_with("a_00003.pcapng: File too large (os error 27)"), "{error}");
            assert!(!written.is_open());
            assert_eq!(names(), captures);
        }
        written.begin(b"marks").unwrap();
        written.write(b"frames").unwrap();
        assert_eq!(names(), ["a_00002.pcapng", "a_00003.pcapng"]);
    }

    #[test]
    fn no_file_follows_one_without_frames() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        for (size, age) in [(Some(3), None), (None, Some(Duration::ZERO))] {
            let (mut written, _) = Written::new(Files { path: path.clone(), size, age, keep: None }).unwrap();
            written.begin(b"marks").unwrap();
            assert!(!written.is_due());
            written.write(b"frames").unwrap();
            assert!(written.is_due());
        }
    }

    #[test]
    fn a_number_that_somebody_else_has_taken_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files { path: folder.path().join("a.pcapng"), size: None, age: None, keep: None };
        let (mut written, _) = Written::new(files).unwrap();
        fs::write(folder.path().join("a_00001.pcapng"), b"").unwrap();
        assert_eq!(written.begin(b"").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        written.begin(b"").unwrap();
        assert!(folder.path().join("a_00002.pcapng").exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let files = Files { path: "/nowhere/a.pcapng".into(), size: None, age: None, keep: None };
        assert_eq!(Written::new(files).unwrap_err().to_string(), "/nowhere: No such file or directory (os error 2)");
    }
}
