//! Folders in which the agent makes files. Nobody else may write there; files are made through a handle on the folder, and no link
//! in it is followed, so that what is written is where it was meant to be.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, fsync, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

/// A folder that only the agent's user, and root, can write.
#[derive(Debug)]
pub struct OwnFolder {
    path: PathBuf,
    handle: OwnedFd,
}

/// Why a folder, or a file in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another user can change what is in it.
    #[error(
        "{} belongs to uid {owner}; the agent, which runs as uid {agent}, uses only what belongs to root or itself",
        path.display()
    )]
    Owner {
        /// The folder or file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// The agent's user.
        agent: u32,
    },
    /// Others can change what is in it. A sticky bit, as `/tmp` has it, does not keep them from making files and links.
    #[error("other users can write {} (mode {mode:04o}); name a folder that only the agent can write", path.display())]
    Writable {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Others could lock a file that they can open.
    #[error("other users can open {} (mode {mode:04o}); remove it, or make its mode 0600", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
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
}

impl FolderError {
    /// Whether a file is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl OwnFolder {
    /// Opens a folder, made with this mode if need be. It must belong to root or the agent's user. Others must not be able to write
    /// it; a group may if it is the agent's own, as with the umask of a user who has a group of his own.
    pub fn claim(path: &Path, mode: u32) -> Result<Self, FolderError> {
        DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed("make", path))?;
        let handle = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let folder = Self { path: path.to_owned(), handle: handle.map_err(failed_call("open", path))? };
        let status = fstat(&folder.handle).map_err(failed_call("look at", path))?;
        check_owner(path, status.st_uid)?;
        if others_can_write(status.st_mode, status.st_gid == getegid().as_raw()) {
            return Err(FolderError::Writable { path: folder.path, mode: status.st_mode & 0o7777 });
        }
        Ok(folder)
    }

    /// The same for a folder that nobody else may look into, which is taken away from those who may.
    pub fn claim_private(path: &Path) -> Result<Self, FolderError> {
        let folder = Self::claim(path, 0o700)?;
        let status = fstat(&folder.handle).map_err(failed_call("look at", path))?;
        if status.st_mode & 0o077 != 0 {
            fchmod(&folder.handle, Mode::RWXU).map_err(failed_call("set the mode of", path))?;
        }
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file of text, a short one: no more than 4096 bytes are taken.
    pub fn read(&self, name: &str) -> Result<String, FolderError> {
        self.read_bounded(name, 4096)
    }

    /// Reads a file of text, and no more than so many bytes of it.
    pub fn read_bounded(&self, name: &str, most: u64) -> Result<String, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.handle, name, flags, Mode::empty()).map_err(failed_call("read", &path))?;
        let mut text = String::new();
        File::from(file).take(most).read_to_string(&mut text).map_err(failed("read", &path))?;
        Ok(text)
    }

    /// Makes a file, or replaces it: on return it is on the disk. A reader sees the old contents or the new, never a part.
    pub fn replace(&self, name: &str, contents: &[u8], mode: Mode) -> Result<(), FolderError> {
        let new = format!("{name}.new");
        let path = self.path.join(&new);
        // An earlier run may have ended in the middle.
        self.remove(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.handle, &new, flags, mode).map_err(failed_call("write", &path))?);
        // Whatever the umask says.
        fchmod(&file, mode).map_err(failed_call("set the mode of", &path))?;
        file.write_all(contents).and_then(|()| file.sync_all()).map_err(failed("write", &path))?;
        let renamed = renameat(&self.handle, &new, &self.handle, name);
        renamed.and_then(|()| fsync(&self.handle)).map_err(failed_call("write", &self.path.join(name)))
    }

    /// Removes a file or link, if it is there.
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        match unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed_call("remove", &self.path.join(name))(error)),
        }
    }

    /// Opens a file to be locked, made if need be. Nobody but the agent's user can open it, and so lock it.
    pub fn lock_file(&self, name: &str) -> Result<File, FolderError> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let existing = || openat(&self.handle, name, flags, Mode::empty());
        let opened = existing().or_else(|error| match error {
            Errno::NOENT => {
                let made = openat(&self.handle, name, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR);
                // Another agent may have been faster.
                made.or_else(|error| if error == Errno::EXIST { existing() } else { Err(error) })
            }
            error => Err(error),
        });
        let file = opened.map_err(failed_call("open the lock", &path))?;
        let status = fstat(&file).map_err(failed_call("look at", &path))?;
        check_owner(&path, status.st_uid)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(failed("lock", &path)(io::Error::other("it is not a regular file")));
        }
        match status.st_mode & 0o7777 {
            mode if mode & 0o077 != 0 => Err(FolderError::Open { path, mode }),
            _ => Ok(file.into()),
        }
    }

    /// The handle on the folder itself.
    pub fn into_handle(self) -> OwnedFd {
        self.handle
    }
}

fn check_owner(path: &Path, owner: u32) -> Result<(), FolderError> {
    let agent = geteuid().as_raw();
    if owner == 0 || owner == agent { Ok(()) } else { Err(FolderError::Owner { path: path.to_owned(), owner, agent }) }
}

const fn others_can_write(mode: u32, is_own_group: bool) -> bool {
    mode & 0o002 != 0 || mode & 0o020 != 0 && !is_own_group
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Failed { doing, path, source }
}

fn failed_call(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> FolderError {
    let failed = failed(doing, path);
    move |error| failed(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let scratch = TempDir::new().unwrap();
        for mode in [0o777, 0o1777, 0o757] {
            set_mode(scratch.path(), mode);
            let error = OwnFolder::claim(scratch.path(), 0o755).unwrap_err().to_string();
            let path = scratch.path().display();
            assert_eq!(
                error,
                format!("other users can write {path} (mode {mode:04o}); name a folder that only the agent can write")
            );
        }
        set_mode(scratch.path(), 0o775);
        OwnFolder::claim(scratch.path(), 0o755).expect("the group is the agent's own");
        OwnFolder::claim_private(scratch.path()).unwrap();
        assert_eq!(fs::metadata(scratch.path()).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn what_another_user_or_group_can_write_is_refused() {
        let stranger = geteuid().as_raw() + 1;
        let error = check_owner(Path::new("/x"), stranger).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/x belongs to uid {stranger}; the agent, which runs as uid ")), "{error}");
        check_owner(Path::new("/x"), 0).unwrap();
        assert!(others_can_write(0o775, false) && !others_can_write(0o775, true) && !others_can_write(0o755, false));
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced_and_never_followed() {
        let scratch = TempDir::new().unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let folder = OwnFolder::claim(&scratch.path().join("own"), 0o755).unwrap();
        for name in ["file", "file.new", "lock"] {
            symlink(&victim, folder.path().join(name)).unwrap();
        }
        folder.read("file").unwrap_err();
        folder.lock_file("lock").unwrap_err();
        folder.replace("file", b"new", Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(folder.read("file").unwrap(), "new");
        assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    }

    #[test]
    fn a_lock_that_others_can_open_is_refused() {
        let scratch = TempDir::new().unwrap();
        let folder = OwnFolder::claim(scratch.path(), 0o755).unwrap();
        folder.lock_file("lock").unwrap();
        let path = scratch.path().join("lock");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        set_mode(&path, 0o644);
        let error = folder.lock_file("lock").unwrap_err().to_string();
        assert!(error.ends_with("lock (mode 0644); remove it, or make its mode 0600"), "{error}");
    }
}
