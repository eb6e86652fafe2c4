//! Names, and one time, that both ends must agree on.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the control socket in the run folder.
pub const CONTROL_SOCKET: &str = "sluiced.ctl";

/// The name of the socket of the gRPC interface in the run folder.
pub const API_SOCKET: &str = "api.sock";

/// How long the agent lets a client of the control socket do nothing between two requests, or before its first one.
pub const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// The command that says whether flows are accepted and revalidated, as `/readyz` does: [`READY`], or why not.
pub const READY_COMMAND: &str = "sluice/ready";

/// The answer to [`READY_COMMAND`] of an agent that is ready.
pub const READY: &str = "ready";

/// The first argument with which `sluice ovs observe` starts `sluiced`, which then reads and judges the flows of an Open vSwitch, and is
/// no daemon: it has the backends.
pub const OBSERVE_OVS: &str = "observe-ovs";

/// Returns the path of the control socket of the agent with this run folder.
pub fn control_socket(run_dir: &Path) -> PathBuf {
    run_dir.join(CONTROL_SOCKET)
}

/// Returns the path of the socket of the gRPC interface of the agent with this run folder.
pub fn api_socket(run_dir: &Path) -> PathBuf {
    run_dir.join(API_SOCKET)
}
