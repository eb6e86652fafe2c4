//! What is typed: options of all commands, and which command.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use sluice_control::duration::parse_duration;

use crate::commands::Command;

const DEFAULT_RUN_DIR: &str = "/run/sluice";
const RUN_DIR_VARIABLE: &str = "SLUICE_RUN_DIR";

/// Show and change the flows that a running sluiced keeps in the NIC
#[derive(Debug, Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Where the control socket is [default: $SLUICE_RUN_DIR, or /run/sluice]
    #[arg(long, global = true, value_name = "DIR", display_order = 900)]
    run_dir: Option<PathBuf>,
    /// Give up after this time without a sign of life from the agent, or never with "none"; a command that the agent works
    /// on may take longer
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", display_order = 901)]
    pub(crate) timeout: Patience,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    pub(crate) fn run_dir(&self) -> PathBuf {
        let from_environment = || env::var_os(RUN_DIR_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.run_dir.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT_RUN_DIR.into())
    }
}

/// How long to wait for an agent; `None` is for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(pub(crate) Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { parse_duration(text).map(|limit| Self(Some(limit))) }
    }
}
