//! One device, one owner: a lock that outlives no process and names its holder.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The right to use a device, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct DeviceLock {
    // The file stays when the lock goes: who removes a lock file can remove the lock of the next one.
    file: File,
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
    /// The lock cannot be taken.
    #[error("cannot lock device {device} by {}: {source}", path.display())]
    Failed {
        /// The device.
        device: String,
        /// The lock.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl DeviceLock {
    /// Takes the lock of `device`, and writes down that the agent of `run_dir` has it.
    pub fn acquire(lock_dir: &Path, device: &str, run_dir: &Path) -> Result<Self, LockError> {
        let path = lock_dir.join(format!("sluice-{}.lock", file_name(device)));
        let failed = |source| LockError::Failed { device: device.to_owned(), path: path.clone(), source };
        fs::create_dir_all(lock_dir).map_err(failed)?;
        let mut file = open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held { device: device.to_owned(), holder: holder(&mut file), path });
            }
            Err(error) => return Err(failed(error.into())),
        }
        write_holder(&mut file, run_dir).map_err(failed)?;
        Ok(Self { file })
    }
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        // Closing the file gives the lock back. Nobody is to be named meanwhile; if that fails, nothing depends on it.
        self.file.set_len(0).unwrap_or_default();
    }
}

/// Opens the lock file, made if need be.
///
/// The folder may be writable for everybody, as /run/lock is. Links are not followed there, and an existing file is opened without
/// the wish to make it, which the kernel refuses for a file of somebody else (fs.protected_regular).
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o644).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        result => result,
    }
}

fn write_holder(file: &mut File, run_dir: &Path) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("pid {} (run dir {})\n", process::id(), run_dir.display()).as_bytes())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // Who has just taken the lock may not have written yet.
    match file.take(4096).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "another process".to_owned(),
    }
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
    use crate::scratch::Scratch;

    #[test]
    fn the_second_owner_hears_of_the_first() {
        let scratch = Scratch::new();
        let run_dir = Path::new("/run/first");
        let lock = DeviceLock::acquire(scratch.path(), "0000:03:00.0", run_dir).unwrap();
        let error = DeviceLock::acquire(scratch.path(), "0000:03:00.0", Path::new("/run/second")).unwrap_err();
        let path = scratch.path().join("sluice-0000:03:00.0.lock");
        assert_eq!(
            error.to_string(),
            format!(
                "device 0000:03:00.0 is in use by pid {} (run dir /run/first), which holds {}",
                process::id(),
                path.display()
            )
        );
        drop(lock);
        DeviceLock::acquire(scratch.path(), "0000:03:00.0", Path::new("/run/second")).unwrap();
    }

    #[test]
    fn devices_do_not_share_a_lock_whatever_their_names() {
        let scratch = Scratch::new();
        let names = ["a", "a/b", "a%2fb", "a b", ".."];
        let locks: Vec<_> =
            names.iter().map(|name| DeviceLock::acquire(scratch.path(), name, Path::new("/r")).unwrap()).collect();
        assert_eq!(locks.len(), fs::read_dir(scratch.path()).unwrap().count());
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let scratch = Scratch::new();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, scratch.path().join("sluice-d.lock")).unwrap();
        DeviceLock::acquire(scratch.path(), "d", Path::new("/r")).unwrap_err();
        assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    }
}
