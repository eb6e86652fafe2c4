//! Timeout policies of connections at run time.

use super::Failure;
use super::arguments::Arguments;
use crate::agent::Agent;
use crate::objects::words;
use sluice_unixctl::Output;

/// `sluice/add-ct-timeout`: `NAME KEY=SECONDS...`
pub(super) fn add(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    Ok(agent.set_timeout_policy(words::timeout_policy(&arguments.rest).map_err(Failure::new)?)?)
}

/// `sluice/del-ct-timeout`
pub(super) fn delete(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    Ok(agent.remove_timeout_policy(arguments.rest.first().map_or("", String::as_str))?)
}

/// `sluice/show-ct-timeouts`
pub(super) fn show(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    for policy in agent.objects().timeout_policies() {
        write!(out, "name:{}", policy.name)?;
        for (key, seconds) in policy.timeouts() {
            write!(out, ", {}={seconds}", key.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
