//! What ovs-vswitchd tells over its control socket: flows that it has put into tc, and the datapaths of its own.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_control::{Client, ClientError};

/// Where the packages of OVS put its sockets.
const RUN_DIR: &str = "/var/run/openvswitch";
const PIDFILE: &str = "ovs-vswitchd.pid";
/// How long it may be silent. A dump waits for the datapath, and its revalidators go on meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest line of a dump.
const LINE: usize = 1 << 20;

/// Why ovs-vswitchd could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum VswitchdError {
    /// None runs, as far as its run folder tells.
    #[error("no ovs-vswitchd: {} ({})", path.display(), words(reason))]
    NotRunning {
        /// Its pidfile or socket.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// Its control socket is for root, and for the group that OVS runs as.
    #[error("no access to ovs-vswitchd: {} ({})", path.display(), words(reason))]
    NoAccess {
        /// The socket or the folder.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// It refused the command, or the connection broke.
    #[error("ovs-vswitchd: {0}")]
    Failed(#[from] ClientError),
}

/// A connection to the control socket of an ovs-vswitchd.
pub struct Vswitchd {
    client: Client,
}

impl Vswitchd {
    /// Connects to a socket; without one, to that of the daemon whose pidfile is in `OVS_RUNDIR` or in the folder of the packages.
    pub fn connect(socket: Option<&Path>) -> Result<Self, VswitchdError> {
        let socket = socket.map_or_else(found_socket, |socket| Ok(socket.to_owned()))?;
        let client = Client::connect(&socket).map_err(|reason| failed(&socket, reason))?;
        client.set_timeout(Some(PATIENCE)).map_err(|reason| failed(&socket, reason))?;
        Ok(Self { client })
    }

    /// Returns the names of its datapaths, such as `system@ovs-system` or `netdev@ovs-netdev`.
    pub fn datapaths(&mut self) -> Result<Vec<String>, VswitchdError> {
        let text = self.client.call_text("dpctl/dump-dps", &[])?;
        Ok(text.lines().map(|line| line.trim().to_owned()).filter(|name| !name.is_empty()).collect())
    }

    /// Passes on the lines in which it shows a datapath with its ports.
    pub fn show(&mut self, datapath: &str, see: &mut dyn FnMut(&str)) -> Result<(), VswitchdError> {
        self.lines("dpctl/show", &[datapath], see)
    }

    /// Passes on the lines of its dump of a datapath's flows, as they come: of all, or of those that are in tc.
    pub fn flows(&mut self, datapath: &str, which: Flows, see: &mut dyn FnMut(&str)) -> Result<(), VswitchdError> {
        let arguments = ["-m", datapath, "type=tc"];
        let arguments = match which {
            Flows::All => &arguments[..2],
            Flows::InTc => &arguments[..],
        };
        self.lines("dpctl/dump-flows", arguments, see)
    }

    fn lines(&mut self, method: &str, arguments: &[&str], see: &mut dyn FnMut(&str)) -> Result<(), VswitchdError> {
        let mut begun = String::new();
        self.client.call(method, arguments, &mut |mut text| {
            while let Some((line, rest)) = text.split_once('\n') {
                text = rest;
                if begun.is_empty() {
                    see(line);
                } else {
                    begun.push_str(line);
                    see(&begun);
                    begun.clear();
                }
            }
            // What is longer than any line is shown cut off, and not understood.
            let room = LINE.saturating_sub(begun.len());
            begun.push_str(&text[..text.floor_char_boundary(room)]);
        })?;
        if !begun.is_empty() {
            see(&begun);
        }
        Ok(())
    }
}

/// Which flows of a datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// All of them.
    All,
    /// Those that are in tc, and therefore not in the kernel's datapath.
    InTc,
}

fn found_socket() -> Result<PathBuf, VswitchdError> {
    let folder = std::env::var_os("OVS_RUNDIR").filter(|folder| !folder.is_empty());
    let folder = PathBuf::from(folder.as_deref().unwrap_or_else(|| OsStr::new(RUN_DIR)));
    let pidfile = folder.join(PIDFILE);
    let process = fs::read_to_string(&pidfile).map_err(|reason| failed(&pidfile, reason))?;
    Ok(folder.join(format!("ovs-vswitchd.{}.ctl", process.trim())))
}

fn failed(path: &Path, reason: io::Error) -> VswitchdError {
    let path = path.to_owned();
    match reason.kind() {
        io::ErrorKind::PermissionDenied => VswitchdError::NoAccess { path, reason },
        _ => VswitchdError::NotRunning { path, reason },
    }
}

/// What the system says, without the number that Rust puts behind it.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" (os error ").map_or(text.clone(), |(words, _)| words.to_owned())
}
