//! A text of lines, read in parts of whole lines, so that no more than a part of it is held at a time.

use std::io::{self, BufRead, Read};

use memchr::memchr;

/// How long a part becomes before it is handed out.
const PART: usize = 1 << 20;

/// The longest line. A flow is far below it; a file that is no text shall not fill the memory.
const LINE: usize = 1 << 20;

/// Whole lines of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The lines.
    pub text: String,
    /// How many lines are before them.
    pub lines_before: usize,
}

/// Reads a text part by part.
pub struct Parts {
    reader: Box<dyn BufRead>,
    lines: usize,
}

/// Why there is no further part.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// The system says no.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line cannot be one of a text.
    #[error("line {line} {fault}; lines from {first} on are not taken")]
    Line {
        /// Which.
        line: usize,
        /// What is wrong with it.
        fault: String,
        /// The first line of the part, none of which is handed out.
        first: usize,
    },
}

impl Parts {
    /// Reads what `reader` gives.
    pub fn over(reader: Box<dyn BufRead>) -> Self {
        Self { reader, lines: 0 }
    }

    /// The next part, none at the end.
    pub fn next_part(&mut self) -> Result<Option<Part>, PartsError> {
        let lines_before = self.lines;
        let mut bytes = Vec::with_capacity(PART + PART / 16);
        self.reader.by_ref().take(PART as u64).read_to_end(&mut bytes)?;
        if bytes.len() == PART && !bytes.ends_with(b"\n") {
            // To the end of the line, or far enough to see that it is too long.
            self.reader.by_ref().take(LINE as u64 + 1).read_until(b'\n', &mut bytes)?;
        }
        let mut longest = 0;
        for line in lines(&bytes) {
            self.lines += 1;
            longest = longest.max(line.len());
        }
        match String::from_utf8(bytes) {
            Ok(text) if longest <= LINE => Ok((!text.is_empty()).then_some(Part { text, lines_before })),
            Ok(text) => Err(unfit(text.as_bytes(), lines_before)),
            Err(error) => Err(unfit(error.as_bytes(), lines_before)),
        }
    }
}

/// What is wrong with the first line that cannot be handed out.
fn unfit(bytes: &[u8], lines_before: usize) -> PartsError {
    let fault = |line: &[u8]| match str::from_utf8(line) {
        _ if line.len() > LINE => Some(format!("is longer than {LINE} bytes")),
        Ok(_) => None,
        Err(error) => Some(format!("is no UTF-8 text (byte {} of it)", error.valid_up_to())),
    };
    let first = lines_before + 1;
    let wrong = lines(bytes).zip(first..).find_map(|(line, number)| Some((number, fault(line)?)));
    let (line, fault) = wrong.unwrap_or((first, "cannot be read".to_owned()));
    PartsError::Line { line, fault, first }
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
        Parts::over(Box::new(io::Cursor::new(bytes.to_vec())))
    }

    #[test]
    fn parts_are_whole_lines_and_know_where_they_are() {
        let text = "some flow of forty or so characters, x\n".repeat(60_000) + "the last one";
        let mut parts = parts(text.as_bytes());
        let (mut joined, mut count) = (String::new(), 0);
        while let Some(part) = parts.next_part().unwrap() {
            assert_eq!(part.lines_before, joined.lines().count());
            assert!(part.text.len() < PART + 100);
            joined.push_str(&part.text);
            count += 1;
        }
        assert_eq!((joined == text, count), (true, 3));
        assert_eq!(parts.next_part().unwrap(), None);
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        let error = parts(b"a\nb\xff\n").next_part().unwrap_err().to_string();
        assert_eq!(error, "line 2 is no UTF-8 text (byte 1 of it); lines from 1 on are not taken");
        let error = parts(&vec![b'x'; LINE + 5]).next_part().unwrap_err().to_string();
        assert_eq!(error, "line 1 is longer than 1048576 bytes; lines from 1 on are not taken");
    }
}
