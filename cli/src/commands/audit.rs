//! `audit`: the flow table compared with the device.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::command::{Agent, Outcome, Run, given};
use crate::error::CliError;

const METHOD: &str = "sluice/audit";

/// Compare the flow table with what is in the device
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Install missing rules, restore changed ones, remove those that no flow wants, and compare again; rules of others
    /// are listed and never touched
    #[arg(long)]
    fix: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Run for Audit {
    /// What is not as wanted is a failure. An object says by itself whether it is so.
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let options: Vec<_> = given([(self.fix, "--fix"), (self.json, "--json")]).collect();
        if !self.json {
            agent.print(METHOD, &options, out)?;
            return Ok(Outcome::Done);
        }
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let answer = agent.connect()?.text(METHOD, &options)?;
        out.write_all(answer.as_bytes()).map_err(CliError::Output)?;
        let object: Value = serde_json::from_str(&answer).map_err(|_| CliError::answer(METHOD, &answer))?;
        Ok(if object["clean"] == Value::Bool(true) { Outcome::Done } else { Outcome::Refused })
    }
}
