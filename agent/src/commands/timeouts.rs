//! Timeout policies of connections at run time.

use sluice_flow::timeout::TimeoutPolicy;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::ports;
use crate::service::{AgentView, Receipt, Service};

/// `sluice/add-ct-timeout`: `NAME KEY=SECONDS...`
pub(super) fn add(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    ports::put::<TimeoutPolicy>(service, arguments)
}

/// `sluice/del-ct-timeout`
pub(super) fn delete(service: &Service, arguments: &Arguments, _: &mut dyn Output) -> Result<Receipt, Failure> {
    let name = arguments.rest.first().map_or("", String::as_str);
    ports::remove::<TimeoutPolicy>(service, &name.into())
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
