//! `ovs`: what is about an Open vSwitch and not about the agent.

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use sluice_control::OBSERVE_OVS;

use crate::command::{Agent, Outcome, Run};
use crate::error::CliError;

const PROGRAM: &str = "sluiced";

/// Look at an Open vSwitch: "sluice ovs observe" says which of its flows would be offloaded
#[derive(Debug, Args)]
pub(crate) struct Ovs {
    #[command(subcommand)]
    command: About,
}

#[derive(Debug, Subcommand)]
enum About {
    /// Report which flows of an Open vSwitch would be offloaded, and why the rest would stay; needs no running sluiced
    #[command(disable_help_flag = true)]
    Observe {
        /// See "sluice ovs observe --help"
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl Run for Ovs {
    /// Becomes `sluiced`, which has the backends.
    fn run(&self, _: &Agent, _: &mut dyn Write) -> Result<Outcome, CliError> {
        let About::Observe { arguments } = &self.command;
        let program = env::current_exe().map_or_else(|_| PathBuf::from(PROGRAM), |own| installed_with(&own));
        let error = Command::new(&program).arg(OBSERVE_OVS).args(arguments).exec();
        Err(CliError::file(&program, &error))
    }
}

/// Returns the `sluiced` that was installed with the program at this path: in the same folder as after a build, or in the `sbin` beside its
/// `bin` as from a package, which may not be on the path of an ordinary user. Otherwise the one on the path.
fn installed_with(own: &Path) -> PathBuf {
    let folder = own.parent().unwrap_or(Path::new(""));
    let candidates = [folder.join(PROGRAM), folder.with_file_name("sbin").join(PROGRAM)];
    candidates.into_iter().find(|program| program.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_daemon_is_found_beside_the_command_line_or_in_sbin() {
        let root = env::temp_dir().join(format!("sluice-ovs-{}", std::process::id()));
        let own = root.join("bin/sluice");
        for folder in ["bin", "sbin"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        assert_eq!(installed_with(&own), Path::new(PROGRAM), "there is none");
        for folder in ["sbin", "bin"] {
            let program = root.join(folder).join(PROGRAM);
            fs::write(&program, "").unwrap();
            assert_eq!(installed_with(&own), program);
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
