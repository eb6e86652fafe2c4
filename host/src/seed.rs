//! The seed of UFIDs, kept in the state folder so that a flow has the same UFID after a restart.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::rand::{GetRandomFlags, getrandom};
use sluice_flow::ufid::Seed;

use crate::own_folder::{FolderError, OwnFolder};

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The folder is not for the agent alone, or the system says no.
    #[error("state_dir: {0}")]
    Folder(#[from] FolderError),
    /// The system gives no random bytes.
    #[error("cannot draw random bytes for the seed of UFIDs: {0}")]
    Random(io::Error),
    /// The file is not 32 hexadecimal digits.
    #[error("{} holds no seed; if it is removed, flows get new UFIDs", .0.display())]
    NotASeed(PathBuf),
}

const NAME: &str = "ufid-seed";

/// The seed in a state folder; made at random, with the folder, if there is none.
pub fn load_or_make(state_dir: &Path) -> Result<Seed, SeedError> {
    let folder = OwnFolder::claim(state_dir, 0o755)?;
    match folder.read(NAME) {
        Ok(text) => parse(text.trim()).ok_or_else(|| SeedError::NotASeed(state_dir.join(NAME))),
        Err(FolderError::Failed { source, .. }) if source.kind() == io::ErrorKind::NotFound => make(&folder),
        Err(error) => Err(error.into()),
    }
}

fn make(folder: &OwnFolder) -> Result<Seed, SeedError> {
    let mut seed = [0; 16];
    getrandom(&mut seed, GetRandomFlags::empty()).map_err(|error| SeedError::Random(error.into()))?;
    let digits: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    folder.replace(NAME, format!("{digits}\n").as_bytes(), Mode::RUSR | Mode::WUSR)?;
    Ok(Seed(seed))
}

fn parse(text: &str) -> Option<Seed> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
    Some(Seed(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    #[test]
    fn the_seed_stays_and_a_broken_one_is_not_replaced() {
        let scratch = TempDir::new().unwrap();
        let first = load_or_make(scratch.path()).unwrap();
        assert_eq!(load_or_make(scratch.path()).unwrap().0, first.0);
        fs::write(scratch.path().join(NAME), "not a seed").unwrap();
        assert!(matches!(load_or_make(scratch.path()), Err(SeedError::NotASeed(_))));
    }

    #[test]
    fn a_link_in_the_place_of_the_seed_is_not_followed() {
        let scratch = TempDir::new().unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let link = |name: &str| std::os::unix::fs::symlink(&victim, scratch.path().join(name)).unwrap();
        link("ufid-seed.new");
        load_or_make(scratch.path()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(scratch.path().join(NAME)).unwrap();
        link(NAME);
        assert!(matches!(load_or_make(scratch.path()), Err(SeedError::Folder(_))));
    }
}
