//! The locks that all agents of a machine share: one device has one agent, and the rules of an owner have one that lives.
//!
//! A lock is on a file that only the agents' user can open, in a folder that only that user can write. It ends with the process
//! that holds it, however that ends.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sluice_flow::backend::Owner;

use crate::own_folder::{FolderError, OwnFolder};

/// The folder of the locks.
#[derive(Debug)]
pub struct Locks(OwnFolder);

/// The right to use a device, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DeviceLock {
    // The file stays when the lock goes: who removes a lock file can remove the lock of the next one.
    file: File,
}

/// Tells others that an agent of this owner lives, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct OwnerLock {
    _file: File,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses it.
    #[error("device {device} is in use by {holder}, which holds {}", path.display())]
    Held {
        /// The device.
        device: String,
        /// Who uses it, as it says itself.
        holder: String,
        /// The lock.
        path: PathBuf,
    },
    /// The folder of the locks, or a file there, is not for the agent alone.
    #[error("lock_dir: {0}")]
    Folder(#[from] FolderError),
    /// The lock cannot be taken.
    #[error("cannot lock {}: {source}", path.display())]
    Failed {
        /// The lock.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Locks {
    /// Opens the folder of the locks, made if need be.
    pub fn open(lock_dir: &Path) -> Result<Self, LockError> {
        Ok(Self(OwnFolder::claim(lock_dir, 0o700)?))
    }

    /// Takes the lock of `device`, and writes down that the agent of `run_dir` has it.
    pub fn device(&self, device: &str, run_dir: &Path) -> Result<DeviceLock, LockError> {
        let name = format!("device-{}.lock", file_name(device));
        let mut file = self.0.lock_file(&name)?;
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(self.failed(&name))? {
            let path = self.0.path().join(name);
            return Err(LockError::Held { device: device.to_owned(), holder: holder(&mut file), path });
        }
        write_holder(&mut file, run_dir).map_err(self.failed(&name))?;
        Ok(DeviceLock { file })
    }

    /// Has [`Locks::is_alive`] say that an agent of `owner` lives.
    pub fn owner(&self, owner: Owner) -> Result<OwnerLock, LockError> {
        /// How long somebody who asks whether the owner lives may hold the lock. It is a matter of microseconds.
        const PATIENCE: Duration = Duration::from_secs(1);
        const LOOK: Duration = Duration::from_millis(10);
        let name = owner_lock(owner);
        let file = self.0.lock_file(&name)?;
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            if try_lock(&file, FlockOperation::NonBlockingLockShared).map_err(self.failed(&name))? {
                return Ok(OwnerLock { _file: file });
            }
            thread::sleep(LOOK);
        }
        Err(self.failed(&name)(io::ErrorKind::TimedOut.into()))
    }

    /// Whether an agent of `owner` lives that uses this folder.
    pub fn is_alive(&self, owner: Owner) -> Result<bool, LockError> {
        let name = owner_lock(owner);
        let file = self.0.lock_file(&name)?;
        // Agents share the lock, so that nobody has it alone while one lives. It goes with the file.
        let is_free = try_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(self.failed(&name))?;
        Ok(!is_free)
    }

    fn failed(&self, name: &str) -> impl FnOnce(io::Error) -> LockError {
        let path = self.0.path().join(name);
        move |source| LockError::Failed { path, source }
    }
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        // Closing the file gives the lock back. Nobody is to be named meanwhile; if that fails, nothing depends on it.
        self.file.set_len(0).unwrap_or_default();
    }
}

/// Locks a file, or gives false if somebody else has it locked.
pub fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn owner_lock(owner: Owner) -> String {
    // Rules in a device say no more of it.
    format!("owner-{:08x}.lock", owner.mark())
}

fn write_holder(file: &mut File, run_dir: &Path) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("pid {} (run dir {})\n", process::id(), run_dir.display()).as_bytes())
}

fn holder(file: &mut File) -> String {
    let mut text = Vec::new();
    // Who has just taken the lock may not have written yet.
    let read = file.take(4096).read_to_end(&mut text);
    match printable(String::from_utf8_lossy(&text).trim()) {
        text if read.is_ok() && !text.is_empty() => text,
        _ => "another process".to_owned(),
    }
}

/// A text from a file, in characters that do nothing to a terminal.
fn printable(text: &str) -> String {
    text.chars().fold(String::new(), |mut printable, character| {
        match character {
            ' '..='~' => printable.push(character),
            _ => printable.extend(character.escape_default()),
        }
        printable
    })
}

/// A device's name as part of a file name, a different one for each device.
fn file_name(device: &str) -> String {
    device.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte) {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02x}").unwrap_or_default();
        }
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    #[test]
    fn the_second_owner_hears_of_the_first() {
        let scratch = TempDir::new().unwrap();
        let locks = Locks::open(scratch.path()).unwrap();
        let lock = locks.device("0000:03:00.0", Path::new("/run/first")).unwrap();
        let error = locks.device("0000:03:00.0", Path::new("/run/second")).unwrap_err();
        let path = scratch.path().join("device-0000:03:00.0.lock");
        assert_eq!(
            error.to_string(),
            format!(
                "device 0000:03:00.0 is in use by pid {} (run dir /run/first), which holds {}",
                process::id(),
                path.display()
            )
        );
        drop(lock);
        locks.device("0000:03:00.0", Path::new("/run/second")).unwrap();
    }

    #[test]
    fn devices_do_not_share_a_lock_whatever_their_names() {
        let scratch = TempDir::new().unwrap();
        let locks = Locks::open(scratch.path()).unwrap();
        let names = ["a", "a/b", "a%2fb", "a b", ".."];
        let held: Vec<_> = names.iter().map(|name| locks.device(name, Path::new("/r")).unwrap()).collect();
        assert_eq!(held.len(), fs::read_dir(scratch.path()).unwrap().count());
    }

    #[test]
    fn what_a_holder_says_does_nothing_to_a_terminal() {
        let scratch = TempDir::new().unwrap();
        let locks = Locks::open(scratch.path()).unwrap();
        let _held = locks.device("d", Path::new("/r")).unwrap();
        fs::write(scratch.path().join("device-d.lock"), "\u{1b}[2Jpid\r\n 1\u{202e}").unwrap();
        let error = locks.device("d", Path::new("/r")).unwrap_err().to_string();
        assert!(error.contains(r"in use by \u{1b}[2Jpid\r\n 1\u{202e}, which"), "{error}");
    }

    #[test]
    fn nobody_else_can_hold_a_lock() {
        let scratch = TempDir::new().unwrap();
        let lock_dir = scratch.path().join("locks");
        Locks::open(&lock_dir).unwrap().device("d", Path::new("/r")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&lock_dir), mode(&lock_dir.join("device-d.lock"))), (0o700, 0o600));
        // As /run/lock is, where anybody can make the file before the agent does.
        fs::set_permissions(&lock_dir, Permissions::from_mode(0o1777)).unwrap();
        let error = Locks::open(&lock_dir).unwrap_err().to_string();
        assert!(error.starts_with("lock_dir: other users can write "), "{error}");
    }

    #[test]
    fn an_owner_lives_as_long_as_one_of_its_agents() {
        let scratch = TempDir::new().unwrap();
        let locks = Locks::open(scratch.path()).unwrap();
        let owner = Owner(0x1234);
        assert!(!locks.is_alive(owner).unwrap());
        let (first, second) = (locks.owner(owner).unwrap(), locks.owner(owner).unwrap());
        assert!(locks.is_alive(owner).unwrap() && !locks.is_alive(Owner(1)).unwrap());
        drop(first);
        assert!(locks.is_alive(owner).unwrap());
        drop(second);
        assert!(!locks.is_alive(owner).unwrap());
        locks.owner(owner).expect("asking has left no lock behind");
    }
}
