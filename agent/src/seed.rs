//! The seed of UFIDs, kept in the state folder so that a flow has the same UFID after a restart.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use sluice_flow::ufid::Seed;

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
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
    /// The file is not 32 hexadecimal digits.
    #[error("{} holds no seed; if it is removed, flows get new UFIDs", .0.display())]
    NotASeed(PathBuf),
}

/// The seed in a state folder; made at random, with the folder, if there is none.
pub fn load_or_make(state_dir: &Path) -> Result<Seed, SeedError> {
    let path = state_dir.join("ufid-seed");
    match fs::read_to_string(&path) {
        Ok(text) => parse(text.trim()).ok_or(SeedError::NotASeed(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(state_dir, &path),
        Err(source) => Err(SeedError::Failed { doing: "read", path, source }),
    }
}

fn make(state_dir: &Path, path: &Path) -> Result<Seed, SeedError> {
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| SeedError::Failed { doing, path, source }
    };
    let mut seed = [0; 16];
    getrandom(&mut seed, GetRandomFlags::empty())
        .map_err(|error| failed("draw random bytes for", path)(error.into()))?;
    fs::create_dir_all(state_dir).map_err(failed("make", state_dir))?;
    // A reader sees the whole file or none.
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed("write", &new))?;
    let digits: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{digits}").and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
    fs::rename(&new, path).map_err(failed("write", path))?;
    Ok(Seed(seed))
}

fn parse(text: &str) -> Option<Seed> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
    Some(Seed(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_stays_and_a_broken_one_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("sluice-seed-{}", std::process::id()));
        let first = load_or_make(&folder).unwrap();
        assert_eq!(load_or_make(&folder).unwrap().0, first.0);
        fs::write(folder.join("ufid-seed"), "not a seed").unwrap();
        assert!(matches!(load_or_make(&folder), Err(SeedError::NotASeed(_))));
        fs::remove_dir_all(folder).unwrap();
    }
}
