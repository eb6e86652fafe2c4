//! The run folder: `sluiced.ctl`, the control socket, and `sluiced.pid`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tracing::warn;

/// The control socket of the agent with this run folder.
pub fn control_socket(run_dir: &Path) -> PathBuf {
    run_dir.join("sluiced.ctl")
}

/// The pidfile of the agent with this run folder.
pub fn pidfile(run_dir: &Path) -> PathBuf {
    run_dir.join("sluiced.pid")
}

/// A run folder that is this process's own, until it is dropped. Pidfile and socket go then.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    // A lock on the folder itself: it needs no file, and what is found inside is stale once it is held.
    _lock: File,
}

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Another agent uses it.
    #[error("another sluiced runs in {}{}", path.display(), pid.as_ref().map(|pid| format!(", pid {pid}")).unwrap_or_default())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The other's process id, if it says.
        pid: Option<String>,
    },
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
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755).create(path).map_err(failed("make the run folder", path))?;
        let lock = File::open(path).map_err(failed("open the run folder", path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = fs::read_to_string(pidfile(path)).ok().map(|text| text.trim().to_owned());
                return Err(RunDirError::InUse { path: path.to_owned(), pid: pid.filter(|pid| !pid.is_empty()) });
            }
            Err(error) => return Err(failed("lock the run folder", path)(error.into())),
        }
        let claimed = Self { path: path.to_owned(), _lock: lock };
        let pidfile = pidfile(path);
        let new = pidfile.with_extension("pid.new");
        // Readers see the old file or the new one, never half of it.
        fs::write(&new, format!("{}\n", process::id())).map_err(failed("write", &new))?;
        fs::rename(&new, &pidfile).map_err(failed("write", &pidfile))?;
        Ok(claimed)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the control socket, with this mode and, if given, group. One that an agent left behind goes.
    pub fn bind_control(&self, mode: u32, group: Option<u32>) -> Result<UnixListener, RunDirError> {
        let path = control_socket(&self.path);
        self.clear_stale(&path)?;
        let listener = UnixListener::bind(&path).map_err(failed("make the control socket", &path))?;
        if group.is_some() {
            chown(&path, None, group).map_err(failed("give to its group", &path))?;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed("set the mode of", &path))?;
        Ok(listener)
    }

    fn clear_stale(&self, path: &Path) -> Result<(), RunDirError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed("look at", path)(error)),
            Ok(found) if !found.file_type().is_socket() => return Err(RunDirError::NotASocket(path.to_owned())),
            Ok(_) => {}
        }
        if is_live(path).map_err(failed("look at", path))? {
            return Err(RunDirError::SocketInUse(path.to_owned()));
        }
        fs::remove_file(path).map_err(failed("remove the stale", path))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        for path in [control_socket(&self.path), pidfile(&self.path)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(%error, "cannot remove {}", path.display());
                }
                _ => {}
            }
        }
    }
}

/// Whether anybody listens on a socket. Never waits, even if the listener is stuck.
fn is_live(path: &Path) -> io::Result<bool> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
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
    use crate::scratch::Scratch;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pidfile_and_socket_come_and_go_with_the_claim() {
        let scratch = Scratch::new();
        let path = scratch.path().join("deep/run");
        let run_dir = RunDir::claim(&path).unwrap();
        assert_eq!(fs::read_to_string(pidfile(&path)).unwrap(), format!("{}\n", process::id()));
        let _listener = run_dir.bind_control(0o600, None).unwrap();
        assert_eq!(fs::metadata(control_socket(&path)).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(control_socket(&path)).unwrap();
        drop(run_dir);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_second_agent_is_refused_and_told_of_the_first() {
        let scratch = Scratch::new();
        let _first = RunDir::claim(scratch.path()).unwrap();
        let error = RunDir::claim(scratch.path()).unwrap_err().to_string();
        assert_eq!(error, format!("another sluiced runs in {}, pid {}", scratch.path().display(), process::id()));
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let scratch = Scratch::new();
        drop(UnixListener::bind(control_socket(scratch.path())).unwrap());
        let run_dir = RunDir::claim(scratch.path()).unwrap();
        let _listener = run_dir.bind_control(0o660, None).unwrap();
        UnixStream::connect(control_socket(scratch.path())).unwrap();
    }

    #[test]
    fn a_socket_in_use_and_a_file_in_its_place_are_left_alone() {
        let scratch = Scratch::new();
        let run_dir = RunDir::claim(scratch.path()).unwrap();
        let path = control_socket(scratch.path());
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(run_dir.bind_control(0o660, None), Err(RunDirError::SocketInUse(_))));
        drop(other);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(matches!(run_dir.bind_control(0o660, None), Err(RunDirError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_an_error_that_says_so() {
        let scratch = Scratch::new();
        let run_dir = RunDir::claim(&scratch.path().join("x".repeat(120))).unwrap();
        let error = run_dir.bind_control(0o660, None).unwrap_err().to_string();
        assert!(error.starts_with("cannot make the control socket"), "{error}");
    }
}
