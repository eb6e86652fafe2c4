//! A file of the caller's, read in parts that fit into a request.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use sluice_control::parts::{self, Part, PartsError};

use crate::error::CliError;

/// Reads a file part by part. A part is what the agent has to hold, and how often there is progress to show.
pub(crate) struct Parts {
    parts: parts::Parts,
    path: PathBuf,
    length: Option<u64>,
}

impl Parts {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        if path.as_os_str() == "-" {
            let parts = parts::Parts::over(Box::new(io::stdin().lock()));
            return Ok(Self { parts, path: PathBuf::from("standard input"), length: None });
        }
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| CliError::file(path, &error))?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self { parts: parts::Parts::over(Box::new(BufReader::new(file))), path: path.to_owned(), length })
    }

    /// How many bytes there are in all, if that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next part, none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Part>, CliError> {
        self.parts.next_part().map_err(|error| match error {
            PartsError::Read(error) => CliError::file(&self.path, &error),
            PartsError::Line { .. } => CliError::File { path: self.path.clone(), reason: error.to_string() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Parts::open(Path::new("/nowhere/flows.txt")).err().unwrap().to_string();
        assert_eq!(error, "sluice: /nowhere/flows.txt: No such file or directory");
    }
}
