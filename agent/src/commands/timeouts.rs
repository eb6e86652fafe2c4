//! Timeout policies of connections at run time.

use super::arguments::Arguments;
use super::failure::Failure;
use super::ports;
use crate::objects::{ObjectId, words};
use crate::service::{AgentView, Receipt, Service};
use sluice_unixctl::Output;

/// `sluice/add-ct-timeout`: `NAME KEY=SECONDS...`
pub(super) fn add(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    ports::put(service, words::timeout_policy(&arguments.rest))
}

/// `sluice/del-ct-timeout`
pub(super) fn delete(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    ports::remove(service, ObjectId::TimeoutPolicy(arguments.rest.first().map_or("", String::as_str).into()))
}

/// `sluice/show-ct-timeouts`
pub(super) fn show(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    for policy in agent.objects().timeout_policies() {
        write!(out, "name:{}", policy.name)?;
        for (key, seconds) in policy.timeouts() {
            write!(out, ", {}={seconds}", key.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
