//! `watch`: what happens to flows, as it happens.

use std::io::Write;

use clap::Args;

use crate::command::{Agent, Outcome, Run, given};
use crate::error::CliError;

/// Print what happens to flows as it happens, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
}

impl Run for Watch {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let options: Vec<_> = given([(self.json, "--json")]).collect();
        let params: Vec<_> = options.iter().map(String::as_str).collect();
        // Each event is printed at once.
        agent.connect()?.stream("sluice/watch", &params, &mut |text| {
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
        })?;
        Ok(Outcome::Done)
    }
}
