//! Timeout policies of connections at run time.

use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};

use super::Failure;
use super::arguments::Arguments;
use crate::agent::Agent;
use crate::unixctl::Output;

/// `sluice/add-ct-timeout`: `NAME KEY=SECONDS...`
pub(super) fn add(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let [name, timeouts @ ..] = arguments.rest.as_slice() else {
        return Err(Failure::new("a name is needed"));
    };
    let mut policy = TimeoutPolicy::new(name.as_str());
    for text in timeouts {
        let (key, seconds) = text.split_once('=').unwrap_or((text, ""));
        let Some(key) = TimeoutKey::named(key) else {
            let known: Vec<_> = TimeoutKey::ALL.iter().map(|key| key.name()).collect();
            return Err(Failure::new(format_args!("{key}: not a timeout, expected one of {}", known.join(", "))));
        };
        let Ok(seconds) = seconds.parse() else {
            return Err(Failure::new(format_args!("{text}: {} needs a number of seconds", key.name())));
        };
        policy.set(key, seconds);
    }
    Ok(agent.set_timeout_policy(policy)?)
}

/// `sluice/del-ct-timeout`
pub(super) fn delete(agent: &Agent, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    Ok(agent.remove_timeout_policy(arguments.rest.first().map_or("", String::as_str))?)
}

/// `sluice/show-ct-timeouts`
pub(super) fn show(agent: &Agent, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    for policy in agent.timeout_policies() {
        write!(out, "name:{}", policy.name)?;
        for (key, seconds) in policy.timeouts() {
            write!(out, ", {}={seconds}", key.name())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
