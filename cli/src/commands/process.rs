//! Commands about the agent itself.

use clap::Args;

use crate::command::Request;

/// Apply the changed configuration file without losing a flow
#[derive(Debug, Args)]
pub(crate) struct Reload {}

impl Request for Reload {
    const METHOD: &str = "sluice/reload";
}
