//! Files that a client names, opened with the rights of the client and not with those of the agent.
//!
//! The system checks the rights of the process that opens a file, which here is the agent. So the agent walks the path itself, a
//! name at a time, and checks each folder and the file against the credentials of the client. No link is followed, nothing but a
//! regular file is opened, and what was checked is what is read.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, getxattr_query, open as open_path, openat};
use rustix::io::Errno;

use super::peer::Peer;

/// The size of a file at most, in bytes: a few million flows.
pub const SIZE_LIMIT: u64 = 1 << 30;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path is relative.
    #[error("the path must begin with /, for the agent runs in another folder than its client")]
    Relative,
    /// The client may not pass a folder on the way.
    #[error("uid {uid} may not search {}", folder.display())]
    FolderDenied {
        /// The client.
        uid: u32,
        /// The folder.
        folder: PathBuf,
    },
    /// The client may not read the file.
    #[error("uid {0} may not read it")]
    Denied(u32),
    /// A name of the path is a symbolic link.
    #[error("{} is a symbolic link, which is not followed", .0.display())]
    Link(PathBuf),
    /// It is a folder, a device, a pipe or a socket.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is larger than [`SIZE_LIMIT`].
    #[error("it has {0} bytes, of which at most {SIZE_LIMIT} are read")]
    TooLarge(u64),
    /// The system says no.
    #[error("{}", .0.kind())]
    System(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// Opens a regular file that `peer` may read.
pub fn open(path: &Path, peer: Peer) -> Result<File, FileError> {
    if !path.is_absolute() {
        return Err(FileError::Relative);
    }
    let client = Client { uid: peer.uid, groups: peer.groups() };
    // A place is looked at without being opened: to open a device or a FIFO has effects, or waits.
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut place = open_path("/", look, Mode::empty())?;
    let mut walked = PathBuf::from("/");
    for name in path.components().filter(|name| *name != Component::RootDir) {
        if !client.may(&place, SEARCH)? {
            return Err(FileError::FolderDenied { uid: client.uid, folder: walked });
        }
        place = openat(&place, name.as_os_str(), look, Mode::empty())?;
        walked.push(name);
        if kind(&place)? == FileType::Symlink {
            return Err(FileError::Link(walked));
        }
    }
    if kind(&place)? != FileType::RegularFile {
        return Err(FileError::NotAFile);
    }
    if !client.may(&place, READ)? {
        return Err(FileError::Denied(client.uid));
    }
    let file =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(proc_path(&place))?;
    match file.metadata()?.len() {
        size if size > SIZE_LIMIT => Err(FileError::TooLarge(size)),
        _ => Ok(file),
    }
}

const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;

/// Whose rights count.
struct Client {
    uid: u32,
    groups: Vec<u32>,
}

impl Client {
    /// Whether the mode of a place grants a right, as path_resolution(7) has it: the owner's bits count for the owner, the group's
    /// for its members, the others' for nobody but the others.
    fn may(&self, place: &OwnedFd, right: u32) -> Result<bool, FileError> {
        let status = fstat(place)?;
        let granted = match status.st_uid {
            _ if self.uid == 0 => return Ok(true),
            owner if owner == self.uid => status.st_mode >> 6,
            // With an access list the bits say no more than what it grants at most.
            _ if has_access_list(place)? => 0,
            _ if self.groups.contains(&status.st_gid) => status.st_mode >> 3,
            _ => status.st_mode,
        };
        Ok(granted & right != 0)
    }
}

fn has_access_list(place: &OwnedFd) -> Result<bool, FileError> {
    match getxattr_query(proc_path(place), "system.posix_acl_access") {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn kind(place: &OwnedFd) -> Result<FileType, FileError> {
    Ok(FileType::from_raw_mode(fstat(place)?.st_mode))
}

/// The place itself, whatever its path leads to by now.
fn proc_path(place: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", place.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    /// A client that is neither root nor the owner of what this test makes, nor in its groups.
    fn stranger() -> Client {
        let taken = |id: &u32| [Peer::own().uid, Peer::own().gid].contains(id);
        Client { uid: (40_000..).find(|id| !taken(id)).unwrap(), groups: Vec::new() }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn place(path: &Path) -> OwnedFd {
        open_path(path, OFlags::PATH, Mode::empty()).unwrap()
    }

    #[test]
    fn what_its_client_may_read_is_read() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().canonicalize().unwrap().join("flows");
        fs::write(&path, "in_port(1) 2\n").unwrap();
        let mut text = String::new();
        open(&path, Peer::own()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "in_port(1) 2\n");
    }

    #[test]
    fn what_is_no_regular_file_is_never_opened() {
        let scratch = TempDir::new().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let fifo = folder.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let link = folder.join("link");
        fs::write(folder.join("flows"), "").unwrap();
        symlink(folder.join("flows"), &link).unwrap();
        symlink(&folder, folder.join("up")).unwrap();
        let refusal = |path: &Path| open(path, Peer::own()).unwrap_err().to_string();
        for path in [Path::new("/dev/zero"), &fifo, &folder] {
            assert_eq!(refusal(path), "it is not a regular file", "{}", path.display());
        }
        assert_eq!(refusal(&link), format!("{} is a symbolic link, which is not followed", link.display()));
        assert!(refusal(&folder.join("up/flows")).ends_with("up is a symbolic link, which is not followed"));
        assert!(refusal(Path::new("flows")).starts_with("the path must begin with /"));
    }

    #[test]
    fn a_sparse_file_beyond_the_limit_is_refused() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().canonicalize().unwrap().join("sparse");
        File::create(&path).unwrap().set_len(SIZE_LIMIT + 1).unwrap();
        let refusal = open(&path, Peer::own()).unwrap_err().to_string();
        assert_eq!(refusal, "it has 1073741825 bytes, of which at most 1073741824 are read");
    }

    #[test]
    fn each_class_has_its_own_bits() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("flows");
        fs::write(&path, "").unwrap();
        let (file, stranger) = (place(&path), stranger());
        let owner = fstat(&file).unwrap();
        let member = Client { groups: vec![7, owner.st_gid], ..stranger };
        for (mode, of_member, of_stranger) in
            [(0o600, false, false), (0o640, true, false), (0o604, false, true), (0o044, true, true)]
        {
            set_mode(&path, mode);
            let rights = (member.may(&file, READ).unwrap(), stranger.may(&file, READ).unwrap());
            assert_eq!(rights, (of_member, of_stranger), "{mode:o}");
        }
        assert!(Client { uid: 0, groups: Vec::new() }.may(&file, READ).unwrap());
    }
}
