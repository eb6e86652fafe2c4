//! The run folder: `sluiced.ctl`, the control socket, `mirror.sock`, the mirror socket, `api.sock`, that of the gRPC interface, and
//! `sluiced.pid`.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use sluice_control::mirror::{MIRROR_SOCKET, mirror_socket};
use sluice_control::{API_SOCKET, CONTROL_SOCKET, api_socket, control_socket};
use tracing::warn;

use crate::lock::try_lock;
use crate::own_folder::{FolderError, OwnFolder};

/// The pidfile of the agent with this run folder.
pub fn pidfile(run_dir: &Path) -> PathBuf {
    run_dir.join(PIDFILE)
}

const PIDFILE: &str = "sluiced.pid";
const LOCK: &str = "sluiced.lock";

/// A run folder that is this process's own, until it is dropped. Pidfile and socket go then.
#[derive(Debug)]
pub struct RunDir {
    folder: OwnFolder,
    /// The control socket that this process made, by device and inode: whatever else is in its place is not removed.
    control: Option<(u64, u64)>,
    /// The same of the mirror socket.
    mirror: Option<(u64, u64)>,
    /// The same of the socket of the gRPC interface.
    api: Option<(u64, u64)>,
    // What is found in the folder is stale once this is held. The file stays: who removes it can remove the lock of the next agent.
    _lock: File,
}

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Another agent uses it.
    #[error("another sluiced runs in {}{}", path.display(), pid.map(|pid| format!(", pid {pid}")).unwrap_or_default())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The other's process id, if it says.
        pid: Option<u32>,
    },
    /// The folder, or a file in it, is not for the agent alone.
    #[error("run_dir: {0}")]
    Folder(#[from] FolderError),
    /// Somebody listens on the control socket.
    #[error("another program listens on {}", .0.display())]
    SocketInUse(PathBuf),
    /// Something else is where the control socket belongs.
    #[error("{} is there and is no socket", .0.display())]
    NotASocket(PathBuf),
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

impl RunDir {
    /// Makes the folder if need be, takes it for this process, and writes the pidfile.
    pub fn claim(path: &Path) -> Result<Self, RunDirError> {
        let folder = OwnFolder::claim(path, 0o755)?;
        let lock = folder.lock_file(LOCK)?;
        if !try_lock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(failed("lock", &path.join(LOCK)))? {
            let pid = folder.read(PIDFILE).ok().and_then(|text| text.trim().parse().ok());
            return Err(RunDirError::InUse { path: path.to_owned(), pid });
        }
        let claimed = Self { folder, control: None, mirror: None, api: None, _lock: lock };
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        claimed.folder.replace(PIDFILE, format!("{}\n", process::id()).as_bytes(), mode)?;
        Ok(claimed)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether there is nothing in the way of a control socket that is to be found while it is not made.
    pub fn check(path: &Path) -> Result<(), RunDirError> {
        let path = control_socket(path);
        SocketAddrUnix::new(&path).map_err(|error| failed("make the control socket", &path)(error.into()))?;
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => Err(RunDirError::NotASocket(path)),
            _ => Ok(()),
        }
    }

    /// Makes the control socket, with this mode and, if given, group. One that an agent left behind goes.
    pub fn bind_control(&mut self, mode: u32, group: Option<u32>) -> Result<UnixListener, RunDirError> {
        let path = control_socket(self.path());
        let (listener, found) = bind_stream(&path, "make the control socket", mode, group)?;
        self.control = Some(found);
        Ok(listener)
    }

    /// Makes the socket of the gRPC interface, with this mode and, if given, group. One that an agent left behind goes.
    pub fn bind_api(&mut self, mode: u32, group: Option<u32>) -> Result<UnixListener, RunDirError> {
        let path = api_socket(self.path());
        let (listener, found) = bind_stream(&path, "make the API socket", mode, group)?;
        self.api = Some(found);
        Ok(listener)
    }

    /// Makes the mirror socket (`SOCK_SEQPACKET`), which does not block, with this mode and, if given, group. One that an agent left behind
    /// goes.
    pub fn bind_mirror(&mut self, mode: u32, group: Option<u32>) -> Result<OwnedFd, RunDirError> {
        /// As many clients as wait to be accepted.
        const BACKLOG: i32 = 16;
        let path = mirror_socket(self.path());
        clear_stale(&path, SocketType::SEQPACKET)?;
        let make = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            bind(&socket, &SocketAddrUnix::new(&path)?)?;
            Ok::<_, Errno>(socket)
        };
        let socket = make().map_err(|errno| failed("make the mirror socket", &path)(errno.into()))?;
        self.mirror = Some(found(&path)?);
        admit(&path, mode, group)?;
        listen(&socket, BACKLOG).map_err(|errno| failed("listen on", &path)(errno.into()))?;
        Ok(socket)
    }
}

/// Makes a socket of streams in the place of one that an agent left behind, and says which file it is.
fn bind_stream(
    path: &Path,
    doing: &'static str,
    mode: u32,
    group: Option<u32>,
) -> Result<(UnixListener, (u64, u64)), RunDirError> {
    clear_stale(path, SocketType::STREAM)?;
    let listener = UnixListener::bind(path).map_err(failed(doing, path))?;
    let found = found(path)?;
    admit(path, mode, group)?;
    Ok((listener, found))
}

/// Gives a socket to a group, if there is one, and sets its mode.
fn admit(path: &Path, mode: u32, group: Option<u32>) -> Result<(), RunDirError> {
    if group.is_some() {
        chown(path, None, group).map_err(failed("give to its group", path))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
}

/// The device and inode of a file.
fn found(path: &Path) -> Result<(u64, u64), RunDirError> {
    let found = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    Ok((found.dev(), found.ino()))
}

fn clear_stale(path: &Path, kind: SocketType) -> Result<(), RunDirError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(RunDirError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    if is_live(path, kind).map_err(failed("look at", path))? {
        return Err(RunDirError::SocketInUse(path.to_owned()));
    }
    fs::remove_file(path).map_err(failed("remove the stale", path))
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let is_ours = |path: &Path, made: Option<(u64, u64)>| made.is_some() && found(path).ok() == made;
        let control = is_ours(&control_socket(self.path()), self.control).then_some(CONTROL_SOCKET);
        let mirror = is_ours(&mirror_socket(self.path()), self.mirror).then_some(MIRROR_SOCKET);
        let api = is_ours(&api_socket(self.path()), self.api).then_some(API_SOCKET);
        for name in control.into_iter().chain(mirror).chain(api).chain([PIDFILE]) {
            if let Err(error) = self.folder.remove(name) {
                warn!("{error}");
            }
        }
    }
}

/// Whether anybody listens on a socket. Never waits, even if the listener is stuck.
fn is_live(path: &Path, kind: SocketType) -> io::Result<bool> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(socket.as_fd(), &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunDirError {
    let path = path.to_owned();
    move |source| RunDirError::Failed { doing, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tempfile::TempDir;

    #[test]
    fn pidfile_and_socket_come_and_go_with_the_claim() {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("deep/run");
        let mut run_dir = RunDir::claim(&path).unwrap();
        assert_eq!(fs::read_to_string(pidfile(&path)).unwrap(), format!("{}\n", process::id()));
        let _listener = run_dir.bind_control(0o600, None).unwrap();
        assert_eq!(fs::metadata(control_socket(&path)).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(control_socket(&path)).unwrap();
        drop(run_dir);
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [LOCK], "the lock stays, for another agent may have it by now");
    }

    #[test]
    fn a_second_agent_is_refused_and_told_of_the_first() {
        let scratch = TempDir::new().unwrap();
        let _first = RunDir::claim(scratch.path()).unwrap();
        let error = RunDir::claim(scratch.path()).unwrap_err().to_string();
        assert_eq!(error, format!("another sluiced runs in {}, pid {}", scratch.path().display(), process::id()));
    }

    #[test]
    fn another_user_can_neither_lock_the_folder_nor_write_into_the_error() {
        let scratch = TempDir::new().unwrap();
        fs::write(pidfile(scratch.path()), "\u{1b}[2J4711\n").unwrap();
        // Whoever can read a folder can lock it.
        let folder = File::open(scratch.path()).unwrap();
        assert!(try_lock(&folder, FlockOperation::NonBlockingLockExclusive).unwrap());
        let _first = RunDir::claim(scratch.path()).unwrap();
        assert_eq!(fs::metadata(scratch.path().join(LOCK)).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(pidfile(scratch.path()), "\u{1b}[2J4711\n").unwrap();
        let error = RunDir::claim(scratch.path()).unwrap_err().to_string();
        assert_eq!(error, format!("another sluiced runs in {}", scratch.path().display()));
    }

    #[test]
    fn a_link_in_the_place_of_the_pidfile_is_not_followed() {
        let scratch = TempDir::new().unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, scratch.path().join("sluiced.pid.new")).unwrap();
        let _run_dir = RunDir::claim(scratch.path()).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(pidfile(scratch.path())).unwrap(), format!("{}\n", process::id()));
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let scratch = TempDir::new().unwrap();
        drop(UnixListener::bind(control_socket(scratch.path())).unwrap());
        let mut run_dir = RunDir::claim(scratch.path()).unwrap();
        let _listener = run_dir.bind_control(0o660, None).unwrap();
        UnixStream::connect(control_socket(scratch.path())).unwrap();
    }

    #[test]
    fn a_socket_in_use_and_a_file_in_its_place_are_left_alone() {
        let scratch = TempDir::new().unwrap();
        let mut run_dir = RunDir::claim(scratch.path()).unwrap();
        let path = control_socket(scratch.path());
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(run_dir.bind_control(0o660, None), Err(RunDirError::SocketInUse(_))));
        drop(run_dir);
        UnixStream::connect(&path).expect("a start that is refused leaves the socket of the other one");
        drop(other);
        let mut run_dir = RunDir::claim(scratch.path()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(matches!(run_dir.bind_control(0o660, None), Err(RunDirError::NotASocket(_))));
        assert!(matches!(RunDir::check(scratch.path()), Err(RunDirError::NotASocket(_))));
        drop(run_dir);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_an_error_that_says_so() {
        let scratch = TempDir::new().unwrap();
        let mut run_dir = RunDir::claim(&scratch.path().join("x".repeat(120))).unwrap();
        let error = run_dir.bind_control(0o660, None).unwrap_err().to_string();
        assert!(error.starts_with("cannot make the control socket"), "{error}");
    }
}
