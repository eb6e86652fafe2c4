//! `sluice/flush-orphans`: what agents that live no more have left in the device.

use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::AgentView;

/// `sluice/flush-orphans [--yes | --owner=ID...]`. Lists what other owners have in the device; removes what those have left that are
/// named, or with `--yes` all of which no agent is running.
pub(super) fn flush(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let failed = |error| Failure::new(format_args!("orphans: {error}"));
    if arguments.yes || !arguments.owners.is_empty() {
        let removed = agent.remove_orphans(&arguments.owners).map_err(failed)?;
        for (mark, count) in &removed {
            writeln!(out, "owner {mark:08x}: {count} rules and meters removed")?;
        }
        if removed.is_empty() {
            writeln!(out, "there are no orphans")?;
        }
        return Ok(());
    }
    let others = agent.look_for_others().map_err(failed)?;
    others.iter().try_for_each(|found| writeln!(out, "{found}"))?;
    match others.iter().filter(|found| found.is_orphan()).count() {
        0 => writeln!(out, "there are no orphans")?,
        _ => writeln!(
            out,
            "nothing was removed: --owner ID removes what one owner has left, --yes all of which no agent is running"
        )?,
    }
    Ok(())
}
