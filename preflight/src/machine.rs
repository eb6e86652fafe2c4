//! Where the machine is looked at: files below a root, so that tests have machines of their own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The machine, by its files.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where `/proc`, `/sys`, `/boot` and `/etc` are.
    pub root: PathBuf,
    /// Where Open vSwitch has its database's socket and its pidfile: `$OVS_RUNDIR`, or `/run/openvswitch`.
    pub ovs_run_dir: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        let given = env::var_os("OVS_RUNDIR").filter(|folder| !folder.is_empty());
        Self { root: "/".into(), ovs_run_dir: given.map_or_else(|| "/run/openvswitch".into(), PathBuf::from) }
    }
}

impl Machine {
    /// A path of the machine, given from its root.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, without blanks around it; `None` if there is none that can be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// The last part of what a symbolic link leads to.
    pub(crate) fn target(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}
