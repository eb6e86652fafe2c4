//! `preflight`: what the machine lacks, found by the very program that would start, without one that runs.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::Args;

use crate::command::{Agent, Outcome, Run};
use crate::error::CliError;

/// The configuration of the unit, if it is there.
const CONFIG: &str = "/etc/sluice/sluiced.toml";

/// Look whether this machine has what sluiced needs, and what to do if not
///
/// Prints a line for each prerequisite, with its cure. Needs no running agent; if one runs, its limits and capabilities count. Exits 2 if
/// something refuses the start. Run it as the agent would run: as root, or in its namespace.
#[derive(Debug, Args)]
pub(crate) struct Preflight {
    #[command(flatten)]
    of: Of,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Which agent the machine is to be right for.
#[derive(Debug, Args)]
pub(crate) struct Of {
    /// The configuration of the agent [default: /etc/sluice/sluiced.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kind of device; wins over the file
    #[arg(long, value_name = "KIND")]
    backend: Option<String>,
}

impl Run for Preflight {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let (text, outcome) = self.of.look(agent, self.json)?;
        out.write_all(text.as_bytes()).map_err(CliError::Output)?;
        Ok(outcome)
    }
}

impl Of {
    /// Has the daemon look, and returns what it prints.
    pub(crate) fn look(&self, agent: &Agent, json: bool) -> Result<(String, Outcome), CliError> {
        let program = daemon();
        let mut command = Command::new(&program);
        command.arg("--preflight").arg("--run-dir").arg(&agent.run_dir);
        let usual = || Some(PathBuf::from(CONFIG)).filter(|path| path.exists());
        if let Some(config) = self.config.clone().or_else(usual) {
            command.arg("--config").arg(config);
        }
        if let Some(backend) = &self.backend {
            command.args(["--backend", backend]);
        }
        if json {
            command.arg("--json");
        }
        let ran = command.stdin(Stdio::null()).output();
        let Output { status, stdout, stderr } = ran.map_err(|error| CliError::file(&program, &error))?;
        let text = String::from_utf8_lossy(&stdout).into_owned();
        match status.code() {
            Some(0) => Ok((text, Outcome::Done)),
            Some(2) if !text.is_empty() => Ok((text, Outcome::Refused)),
            // The configuration is wrong: its words say where.
            Some(2) => Err(CliError::Refused(String::from_utf8_lossy(&stderr).trim_end().to_owned())),
            _ => {
                let reason = format!("it ended with {status}: {}", String::from_utf8_lossy(&stderr).trim_end());
                Err(CliError::File { path: program, reason })
            }
        }
    }
}

/// The daemon: beside this program, on the path, or where the package puts it.
fn daemon() -> PathBuf {
    const NAME: &str = "sluiced";
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    let on_path = env::var_os("PATH").map(|path| env::split_paths(&path).map(|folder| folder.join(NAME)).collect());
    let on_path: Vec<PathBuf> = on_path.unwrap_or_default();
    let all = beside.into_iter().chain(on_path).chain([Path::new("/usr/sbin").join(NAME)]);
    let is_there = |path: &PathBuf| path.is_file();
    all.into_iter().find(is_there).unwrap_or_else(|| PathBuf::from(OsStr::new(NAME)))
}
