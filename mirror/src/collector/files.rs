//! Capture files: `NAME_00001.pcapng` and so on. Each start and each rotation begins the next one; no file is ever written
//! over.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::mark::{self, Marks};

/// Where files are, and when the next one is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// `FOLDER/NAME.pcapng`, for `FOLDER/NAME_00001.pcapng` and so on.
    pub path: PathBuf,
    /// The next file is begun once one has so many bytes.
    pub size: Option<u64>,
    /// The next file is begun once one is as old as this.
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
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    /// Bytes of whole blocks.
    length: u64,
    since: Instant,
}

impl Written {
    /// Finds out which files there are, and what the last one says of what was taken over. What a collector had begun to write when it was
    /// killed is cut off.
    pub(super) fn new(files: Files) -> io::Result<(Self, Marks)> {
        let numbers = files.numbers()?;
        // A machine that went down may leave a last file without a mark.
        let mut marks = Marks::new();
        for number in numbers.iter().rev() {
            let path = files.numbered(*number);
            marks = mark::mend(&path).map_err(|error| named(&path, &error))?;
            if !marks.is_empty() {
                break;
            }
        }
        Ok((Self { files, number: numbers.last().copied().unwrap_or_default(), open: None }, marks))
    }

    /// Whether a file is open, to which more can be written.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the next file is due.
    pub(super) fn is_due(&self) -> bool {
        let Some(open) = &self.open else { return false };
        self.files.size.is_some_and(|size| open.length >= size)
            || self.files.age.is_some_and(|age| open.since.elapsed() >= age)
    }

    /// Begins the next file.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.number += 1;
        let path = self.files.numbered(self.number);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| named(&path, &error))?;
        self.open = Some(Open { file, path, length: 0, since: Instant::now() });
        self.delete_old()
    }

    /// Writes whole blocks. If that fails, none of them is in the file, which is closed.
    pub(super) fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        let Err(error) = open.file.write_all(blocks) else {
            open.length += blocks.len() as u64;
            return Ok(());
        };
        let error = match open.file.set_len(open.length) {
            Ok(()) => named(&open.path, &error),
            Err(also) => {
                named(&open.path, &io::Error::other(format!("{error}; and its end cannot be cut off: {also}")))
            }
        };
        self.open = None;
        Err(error)
    }

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    fn delete_old(&self) -> io::Result<()> {
        let Some(keep) = self.files.keep else { return Ok(()) };
        let numbers = self.files.numbers()?;
        for number in &numbers[..numbers.len().saturating_sub(keep.max(1))] {
            let path = self.files.numbered(*number);
            fs::remove_file(&path).map_err(|error| named(&path, &error))?;
        }
        Ok(())
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
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
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
        for name in ["a_00007.pcapng", "a_x.pcapng", "ab_00009.pcapng", "a_00008.pcap"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let files = Files { path: folder.path().join("a.pcapng"), size: Some(10), age: None, keep: Some(2) };
        let (mut written, marks) = Written::new(files).unwrap();
        assert!(marks.is_empty() && !written.is_open());
        for _ in 0..2 {
            written.begin().unwrap();
            written.write(b"123456789").unwrap();
            assert!(!written.is_due());
            written.write(b"0").unwrap();
            assert!(written.is_due());
        }
        assert_eq!(names(), ["a_00008.pcap", "a_00008.pcapng", "a_00009.pcapng", "a_x.pcapng", "ab_00009.pcapng"]);
        assert_eq!(fs::read(folder.path().join("a_00009.pcapng")).unwrap(), b"1234567890");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let files = Files { path: "/nowhere/a.pcapng".into(), size: None, age: None, keep: None };
        assert_eq!(Written::new(files).unwrap_err().to_string(), "/nowhere: No such file or directory (os error 2)");
    }
}
