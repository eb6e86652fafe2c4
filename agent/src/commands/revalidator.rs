//! `upcall/show` and `revalidator/…`.

use sluice_flow::FlowState;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::AgentView;

/// `upcall/show`
pub(super) fn show(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let published = agent.revalidation().published();
    let census = agent.census();
    writeln!(out, "{}:", agent.datapath())?;
    writeln!(
        out,
        "  flows         : (current {}) (avg {:.0}) (max {}) (limit {})",
        census.live(),
        published.flows_average,
        published.flows_max,
        census.flow_limit()
    )?;
    let offloaded = census.in_state(FlowState::Offloaded);
    if offloaded > 0 {
        writeln!(out, "  offloaded flows : {offloaded}")?;
    }
    writeln!(out, "  dump duration : {}ms", published.last.poll.as_millis())?;
    writeln!(out, "  ufid enabled : true")?;
    writeln!(out)?;
    Ok(writeln!(out, "  0: (keys {})", census.live())?)
}

/// `revalidator/wait`
pub(super) fn wait(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let out: &dyn Output = out;
    if agent.revalidation().wait(&|| !out.is_wanted()) {
        Ok(())
    } else {
        Err(Failure::new("the revalidator has stopped"))
    }
}

/// `revalidator/pause`
pub(super) fn pause(agent: &AgentView, _: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    agent.revalidation().pause();
    Ok(())
}

/// `revalidator/resume`
pub(super) fn resume(agent: &AgentView, _: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    agent.revalidation().resume();
    Ok(())
}
