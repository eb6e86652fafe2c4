//! Whether the agent is ready: `/readyz`, `sluice wait` and the metric `sluice_ready` say the same.

use std::time::Duration;

use crate::agent::Agent;

/// A revalidator that has not finished a round for so long is not ready.
const STALE_ROUND: Duration = Duration::from_secs(60);

/// Whether flows are taken and revalidated, or why not.
pub(crate) fn readiness(agent: &Agent) -> Result<(), String> {
    let published = agent.revalidation.published();
    let since = agent.clock.now().since(published.last.began);
    if published.paused {
        return Err("the revalidator is paused".into());
    }
    if published.rounds == 0 {
        return Err("the revalidator has not finished its first round".into());
    }
    if since > STALE_ROUND.max(published.last.period * 4) {
        return Err(format!("the last revalidation began {} s ago", since.as_secs()));
    }
    if let Some(report) = agent.journal.as_ref().map(|journal| journal.report()) {
        if let Some(failure) = report.failure {
            return Err(format!("flows are taken on, but do not survive a restart: {failure}"));
        }
        if let Some(damage) = report.damage {
            return Err(damage.to_string());
        }
    }
    let objects = &agent.object_store;
    objects.failure().or_else(|| objects.damage()).map_or(Ok(()), Err)
}
