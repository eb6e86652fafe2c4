//! A file of lines, read in parts that fit into a request.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::error::CliError;

/// How long a part becomes before it is handed out: what the agent has to hold, and how often there is progress to show.
const PART: usize = 1 << 20;

/// The longest line. A flow is far below it; a file that is none of text shall not fill the memory.
const LINE: usize = 1 << 20;

/// Whole lines of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    /// How many lines are before it.
    pub(super) lines_before: usize,
}

/// Reads a file part by part.
pub(super) struct Parts {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    length: Option<u64>,
    lines: usize,
}

impl Parts {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        if path.as_os_str() == "-" {
            return Ok(Self::over(Box::new(io::stdin().lock()), Path::new("standard input"), None));
        }
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| CliError::file(path, &error))?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self::over(Box::new(BufReader::new(file)), path, length))
    }

    fn over(reader: Box<dyn BufRead>, path: &Path, length: Option<u64>) -> Self {
        Self { reader, path: path.to_owned(), length, lines: 0 }
    }

    /// How many bytes there are in all, if that is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next part, none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Part>, CliError> {
        let lines_before = self.lines;
        let mut bytes = Vec::with_capacity(PART + PART / 16);
        let part = self.reader.by_ref().take(PART as u64).read_to_end(&mut bytes).and_then(|_| {
            // To the end of the line, or far enough to see that it is too long.
            let is_whole = bytes.len() < PART || bytes.ends_with(b"\n");
            let more = if is_whole { 0 } else { LINE as u64 + 1 };
            self.reader.by_ref().take(more).read_until(b'\n', &mut bytes)
        });
        part.map_err(|error| CliError::file(&self.path, &error))?;
        let mut longest = 0;
        for line in lines(&bytes) {
            self.lines += 1;
            longest = longest.max(line.len());
        }
        match String::from_utf8(bytes) {
            Ok(text) if longest <= LINE => Ok((!text.is_empty()).then_some(Part { text, lines_before })),
            Ok(text) => Err(self.unfit(text.as_bytes(), lines_before)),
            Err(error) => Err(self.unfit(error.as_bytes(), lines_before)),
        }
    }

    /// What is wrong with the first line that cannot be sent.
    fn unfit(&self, bytes: &[u8], lines_before: usize) -> CliError {
        let fault = |line: &[u8]| match str::from_utf8(line) {
            _ if line.len() > LINE => Some(format!("is longer than {LINE} bytes")),
            Ok(_) => None,
            Err(error) => Some(format!("is no UTF-8 text (byte {} of it)", error.valid_up_to())),
        };
        let first = lines(bytes).zip(lines_before + 1..).find_map(|(line, number)| Some((number, fault(line)?)));
        let (number, fault) = first.unwrap_or((lines_before + 1, "cannot be sent".to_owned()));
        let reason = format!("line {number} {fault}; nothing was sent from line {} on", lines_before + 1);
        CliError::File { path: self.path.clone(), reason }
    }
}

/// Lines with their ends.
fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let (line, rest) = bytes.split_at(end);
        bytes = rest;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(bytes: &[u8]) -> Parts {
        Parts::over(Box::new(io::Cursor::new(bytes.to_vec())), Path::new("flows.txt"), None)
    }

    #[test]
    fn parts_are_whole_lines_and_know_where_they_are() {
        let text = "some flow of forty or so characters, x\n".repeat(60_000) + "the last one";
        let mut parts = parts(text.as_bytes());
        let (mut joined, mut count) = (String::new(), 0);
        while let Some(part) = parts.next().unwrap() {
            assert_eq!(part.lines_before, joined.lines().count());
            assert!(part.text.len() < PART + 100);
            joined.push_str(&part.text);
            count += 1;
        }
        assert_eq!((joined == text, count), (true, 3));
        assert_eq!(parts.next().unwrap(), None);
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        let error = parts(b"a\nb\xff\n").next().unwrap_err().to_string();
        assert_eq!(error, "sluice: flows.txt: line 2 is no UTF-8 text (byte 1 of it); nothing was sent from line 1 on");
        let error = parts(&vec![b'x'; LINE + 5]).next().unwrap_err().to_string();
        assert_eq!(error, "sluice: flows.txt: line 1 is longer than 1048576 bytes; nothing was sent from line 1 on");
        let error = Parts::open(Path::new("/nowhere/flows.txt")).err().unwrap().to_string();
        assert_eq!(error, "sluice: /nowhere/flows.txt: No such file or directory");
    }
}
